"""History: the learning curves of a run."""

from __future__ import annotations

import csv
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fourward._files import replacing
from fourward.errors import DataError


@dataclass
class History:
    """Learning curves, a value for each epoch; those of validation samples are empty if there are none."""

    train_loss: list[float] = field(default_factory=list)  #: mean over the epoch's steps, while the weights change
    val_loss: list[float] = field(default_factory=list)
    val_score: list[float] = field(default_factory=list)  #: higher is better
    learning_rate: list[float] = field(default_factory=list)  #: at the end of the epoch
    seconds: list[float] = field(default_factory=list)  #: seconds that the epoch took
    score: str = "accuracy"  #: name of the score: accuracy, or r2 in regression

    @classmethod
    def from_json(cls, values: dict[str, Any], *, validation: bool) -> History:
        """Check and convert what `to_json` returned; `validation`: whether there are validation samples."""
        scores = [math.nan if value is None else value for value in values["val_score"]]
        history = cls(**values | {"val_score": scores})
        for name, curve in asdict(history).items():
            if name == "score":
                continue
            length = len(history.train_loss) if validation or not name.startswith("val_") else 0
            if len(curve) != length or any(type(value) not in (int, float) for value in curve):
                raise DataError(f"expected {length:,} numbers as the curve {name}.")
        return history

    def to_json(self) -> dict[str, Any]:
        """All fields; NaN, the r2 of a constant target, becomes None, since JSON has no NaN."""
        scores = [value if math.isfinite(value) else None for value in self.val_score]
        return asdict(self) | {"val_score": scores}

    @property
    def best_epoch(self) -> int:
        """Index of the epoch with the lowest validation loss; of the last one without validation samples."""
        return int(np.argmin(self.val_loss)) if self.val_loss else len(self.train_loss) - 1

    @property
    def epochs_since_best(self) -> int:
        """Number of epochs after the best one."""
        return len(self.train_loss) - 1 - self.best_epoch

    def rows(self) -> list[dict[str, float]]:
        """One row per epoch, counted from 1: the columns of history.csv."""
        curves = {name.replace("score", self.score): curve for name, curve in asdict(self).items() if name != "score"}
        return [
            {"epoch": k + 1} | {name: curve[k] for name, curve in curves.items() if curve}
            for k in range(len(self.train_loss))
        ]

    def to_csv(self, path: Path) -> None:
        """Write the rows as CSV, atomically."""
        rows = self.rows()
        with replacing(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0] if rows else ["epoch"])
            writer.writeheader()
            writer.writerows(rows)

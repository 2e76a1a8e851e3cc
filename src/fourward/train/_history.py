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
    replaced: list[float] = field(default_factory=list)  #: edges removed in the epoch; empty if the wiring stays
    pruned: int = 0  #: epochs in which edges are pruned: none but the last of them can be the best
    score: str = "accuracy"  #: name of the score: accuracy, or r2 in regression

    @classmethod
    def from_json(cls, values: dict[str, Any], *, validation: bool) -> History:
        """Check and convert what `to_json` returned; `validation`: whether there are validation samples."""
        scores = [math.nan if value is None else value for value in values["val_score"]]
        history = cls(**values | {"val_score": scores})
        if type(history.pruned) is not int or history.pruned < 0:
            raise DataError(f"expected a number of epochs, got {history.pruned!r}.")
        for name, curve in history._curves().items():
            optional = (name.startswith("val_") and not validation) or (name == "replaced" and not curve)
            length = 0 if optional else len(history.train_loss)
            if len(curve) != length or any(type(value) not in (int, float) for value in curve):
                raise DataError(f"expected {length:,} numbers as the curve {name}.")
        return history

    def to_json(self) -> dict[str, Any]:
        """All fields; NaN, the r2 of a constant target, becomes None, since JSON has no NaN."""
        scores = [value if math.isfinite(value) else None for value in self.val_score]
        return asdict(self) | {"val_score": scores}

    @property
    def best_epoch(self) -> int:
        """Index of the epoch with the lowest validation loss; of the last one without validation samples.

        Until all edges are pruned that are to go, it is the last.
        """
        if not self.val_loss:
            return len(self.train_loss) - 1
        first = min(max(self.pruned - 1, 0), len(self.val_loss) - 1)
        return first + int(np.argmin(self.val_loss[first:]))

    @property
    def epochs_since_best(self) -> int:
        """Number of epochs after the best one."""
        return len(self.train_loss) - 1 - self.best_epoch

    def _curves(self) -> dict[str, list[float]]:
        return {name: values for name, values in asdict(self).items() if isinstance(values, list)}

    def rows(self) -> list[dict[str, float]]:
        """One row per epoch, counted from 1: the columns of history.csv."""
        curves = {name.replace("score", self.score): curve for name, curve in self._curves().items()}
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

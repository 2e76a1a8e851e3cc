"""The learning curves of a run."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fourward.errors import DataError


@dataclass
class History:
    """Curves with a value for each epoch; those of held-out samples are empty if there were none."""

    train_loss: list[float] = field(default_factory=list)  #: mean over the epoch, while the weights still moved
    held_loss: list[float] = field(default_factory=list)
    held_score: list[float] = field(default_factory=list)  #: the higher the better
    learning_rate: list[float] = field(default_factory=list)  #: at the end of the epoch
    seconds: list[float] = field(default_factory=list)  #: of the epoch
    score: str = "accuracy"  #: what the score is: accuracy, or r2 in regression

    @classmethod
    def from_json(cls, said: dict[str, Any], *, held: bool) -> History:
        """What `to_json` made of one, checked; `held`: whether there were held-out samples."""
        scores = [math.nan if value is None else value for value in said["held_score"]]
        history = cls(**said | {"held_score": scores})
        for name, curve in asdict(history).items():
            if name == "score":
                continue
            wanted = len(history.train_loss) if held or not name.startswith("held") else 0
            if len(curve) != wanted or any(type(value) not in (int, float) for value in curve):
                raise DataError(f"the curve {name} isn't made of {wanted:,} numbers.")
        return history

    def to_json(self) -> dict[str, Any]:
        """All of it; a score of targets that are all alike is no number, and JSON has none such."""
        scores = [value if math.isfinite(value) else None for value in self.held_score]
        return asdict(self) | {"held_score": scores}

    @property
    def best_epoch(self) -> int:
        """The epoch, from 0, of the lowest held-out loss, or without held-out samples the last."""
        return int(np.argmin(self.held_loss)) if self.held_loss else len(self.train_loss) - 1

    @property
    def waited(self) -> int:
        """Epochs since the best."""
        return len(self.train_loss) - 1 - self.best_epoch

    def rows(self) -> list[dict[str, float]]:
        """A row for each epoch, counted from 1, as a table would have it."""
        curves = {name.replace("score", self.score): curve for name, curve in asdict(self).items() if name != "score"}
        return [
            {"epoch": k + 1} | {name: curve[k] for name, curve in curves.items() if curve}
            for k in range(len(self.train_loss))
        ]

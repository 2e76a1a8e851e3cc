"""TrainConfig and RunConfig: hyperparameters and data of a run, stored in every checkpoint."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fourward.errors import DataError, OptionError, Repair
from fourward.graph._convert import is_integer
from fourward.train._data import BUNDLED, Task

Schedule = Literal["constant", "cosine", "one-cycle"]
Precision = Literal["32", "bf16"]
Rewire = Literal["set", "rigl", "prune"]
RewireRule = Literal["levels", "layered"]


@dataclass(frozen=True)
class TrainConfig:
    """Hyperparameters of training."""

    epochs: int = 100
    batch_size: int = 64  #: samples per step, over all devices
    learning_rate: float = 1e-2  #: maximum of the schedule
    weight_decay: float = 1e-2
    schedule: Schedule = "one-cycle"
    label_smoothing: float = 0.0  #: label smoothing, in classification
    patience: int | None = None  #: epochs without a lower validation loss after which to stop
    seed: int = 0  #: seed of the order of the samples, and of edges that grow
    rewire: Rewire | None = None  #: how the wiring changes: by fourward.sparse.SET, RigL or Prune; None: it stays
    #: Fraction of the edges that each change replaces (default: 0.3), or that are gone in the end (0.9, with "prune").
    rewire_fraction: float | None = None
    rewire_every: int | None = None  #: steps between two changes; None: an epoch
    rewire_rule: RewireRule = "levels"  #: which edges may grow, as in fourward.sparse.SET

    def __post_init__(self) -> None:
        integers = (("epochs", 1), ("batch_size", 1), ("patience", 1), ("rewire_every", 1), ("seed", 0))
        for name, least in integers:
            value = getattr(self, name)
            if value is None and name in ("patience", "rewire_every"):
                continue
            if not is_integer(value) or value < least:
                kind = "a positive int" if least else "a non-negative int"
                raise OptionError(f"{name} must be {kind}, got {value!r}.")
            object.__setattr__(self, name, int(value))
        if not 0 < self.learning_rate < math.inf:
            raise OptionError(f"learning_rate must be positive and finite, got {self.learning_rate!r}.")
        if not 0 <= self.weight_decay < math.inf:
            raise OptionError(f"weight_decay must be non-negative and finite, got {self.weight_decay!r}.")
        if not 0 <= self.label_smoothing < 1:
            raise OptionError(f"label_smoothing must be in [0, 1), got {self.label_smoothing!r}.")
        _check_choice("schedule", self.schedule, get_args(Schedule))
        _check_choice("rewire", self.rewire, (*get_args(Rewire), None))
        _check_choice("rewire_rule", self.rewire_rule, get_args(RewireRule))
        fraction = self.rewire_fraction
        if fraction is not None and (not isinstance(fraction, int | float) or not 0 < fraction <= 1):
            raise OptionError(f"rewire_fraction must be a number above 0 and at most 1, got {fraction!r}.")
        for name in ("rewire_fraction", "rewire_every"):
            if self.rewire is None and getattr(self, name) is not None:
                raise OptionError(
                    f"{name} has no effect where the wiring stays.", Repair("rewire", "set", "change the wiring")
                )


@dataclass(frozen=True)
class RunConfig:
    """Data and hyperparameters of a run."""

    data: str  #: as in `read_data`
    target: str | None = None
    task: Task | None = None
    drop: tuple[str, ...] = ()
    validation: float = 0.15  #: fraction of the rows for early stopping and the choice of the best model
    test: float = 0.15  #: fraction of the rows for the final metrics
    precision: Precision = "32"  #: "bf16": activations in bfloat16, weights in float32
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self) -> None:
        _check_choice("precision", self.precision, get_args(Precision))
        _check_choice("task", self.task, (*get_args(Task), None))
        for name in ("validation", "test"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
                raise OptionError(f"{name} must be a fraction in [0, 1), got {value!r}.")
        for name, text in (("target", self.target or ""), *(("drop", column) for column in self.drop)):
            if not isinstance(text, str):
                raise OptionError(f"{name} must name columns, got {text!r}.")

    def find_data(self) -> str:
        """Return `data` after a check that it still exists."""
        if self.data not in BUNDLED and not Path(self.data).is_file():
            raise DataError(
                f"{self.data}, the data of this run, does not exist.", Repair("data", ..., "say where it has moved")
            )
        return self.data

    def to_json(self) -> dict[str, Any]:
        """All fields, with an absolute path to the data."""
        return asdict(self) | {"data": self.data if self.data in BUNDLED else os.path.abspath(self.data)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunConfig:
        """Convert what `to_json` returned."""
        train = TrainConfig(**values["train"])
        return cls(**values | {"data": str(values["data"]), "train": train, "drop": tuple(values["drop"])})


def _check_choice(name: str, value: object, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}.")

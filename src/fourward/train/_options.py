"""How to learn, and what; kept in every checkpoint."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from fourward.errors import DataError, OptionError
from fourward.graph._convert import is_integer
from fourward.train._data import BUNDLED, Task

Schedule = Literal["constant", "cosine", "one-cycle"]
#: What Lightning calls them; in bf16 the weights stay in 32 bits.
PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed"}


@dataclass(frozen=True)
class Options:
    """How to learn."""

    epochs: int = 100
    batch_size: int = 64  #: over all devices
    learning_rate: float = 1e-2  #: the highest that the schedule reaches
    weight_decay: float = 1e-2
    schedule: Schedule = "one-cycle"
    smoothing: float = 0.0  #: of the labels, in classification
    patience: int | None = None  #: epochs without a lower held-out loss after which to stop
    seed: int = 0  #: of the order of the samples

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("patience", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is None and name == "patience":
                continue
            if not is_integer(value) or value < least:
                raise OptionError(f"{name}={value!r} came, but it must be a whole number of at least {least}.")
            object.__setattr__(self, name, int(value))
        if not 0 < self.learning_rate < math.inf:
            raise OptionError(f"learning_rate={self.learning_rate!r} came, but it must be above 0.")
        if not 0 <= self.weight_decay < math.inf:
            raise OptionError(f"weight_decay={self.weight_decay!r} came, but it must be at least 0.")
        if not 0 <= self.smoothing < 1:
            raise OptionError(f"smoothing={self.smoothing!r} came, but it must be at least 0 and under 1.")
        if self.schedule not in ("constant", "cosine", "one-cycle"):
            raise OptionError(f"schedule={self.schedule!r} came. Known are constant, cosine and one-cycle.")


@dataclass(frozen=True)
class Setup:
    """How a run is started; its checkpoints remember."""

    data: str  #: as in `fourward.train._data.read`
    target: str | None = None
    task: Task | None = None
    drop: tuple[str, ...] = ()
    held: float = 0.15  #: share of the rows that early stopping and the choice of the best model look at
    test: float = 0.15  #: share of the rows that the result is measured on
    precision: str = "32"  #: or "bf16"
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise OptionError(f"precision={self.precision!r} came. Known are {', '.join(PRECISIONS)}.")

    def place(self) -> str:
        """The data, if it is still where it was."""
        if self.data not in BUNDLED and not Path(self.data).is_file():
            raise DataError(f"there is no file {self.data}, which was learned from. Say where it is now: --data FILE.")
        return self.data

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint, which may be opened from another folder."""
        return asdict(self) | {"data": self.data if self.data in BUNDLED else os.path.abspath(self.data)}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Setup:
        """What `to_json` made of one."""
        options = Options(**said["options"])
        return cls(**said | {"data": str(said["data"]), "options": options, "drop": tuple(said["drop"])})

"""What an experiment hands to the runner: pieces of work that each make some rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fourward.study._protocol import Key
from fourward.study._store import DONE


@dataclass(frozen=True)
class Outcome:
    """A run that has ended: what `Store.add` writes down."""

    key: Key
    values: dict[str, Any] = field(default_factory=dict)
    status: str = DONE
    note: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Task:
    """Runs that belong together, since they share a graph and take turns."""

    keys: Sequence[Key]  #: of all its runs
    run: Callable[[Sequence[Key]], Iterator[Outcome]]  #: yields each of the runs that it is given as it ends

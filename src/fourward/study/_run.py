"""The runner: goes through an experiment's tasks, skips what the results file has, writes down the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fourward.study import _reassignment
from fourward.study._limits import frozen_heap
from fourward.study._protocol import Key, Protocol, cell_of, check_range
from fourward.study._store import Scalar, Store
from fourward.study._task import Outcome, Task

Cell = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Progress:
    """How far an experiment is."""

    experiment: str
    ended: int  #: runs that are in the file, with those of earlier calls
    total: int
    key: Key | None  #: of the run that ended last
    left: float  #: seconds that the runs to come will take, by the runs of the same cells so far
    unknown: int  #: cells of which no run has ended yet, which `left` leaves out


@dataclass
class Summary:
    """What a call of `run` did."""

    ended: Counter[str] = field(default_factory=Counter)  #: runs by status: "done", "cut off", "failed"
    skipped: int = 0  #: runs that the file had
    left: int = 0  #: runs that the time didn't suffice for
    seconds: float = 0.0


def run(
    store: Store,
    protocols: Mapping[str, Protocol],
    *,
    seconds: float | None = None,
    retry: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Run experiments, one after another, alone in this process; what the store has isn't run again.

    Args:
        store: Where each run is written as it ends.
        protocols: What to measure, by the experiment's name.
        seconds: After which no new graph is begun.
        retry: Also run again what was cut off.
        on_progress: Called at the start and after each run.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
    ...     small = Protocol(sizes=(8,), densities=(0.5,), seeds=2)
    ...     run(store, {"attributes": small}).ended, run(store, {"attributes": small}).skipped
    (Counter({'done': 2}), 2)
    """
    if seconds is not None:
        check_range("seconds", seconds, float, 0, 1e9)
    summary, begun = Summary(), time.perf_counter()
    for experiment, protocol in protocols.items():
        work = _Work(experiment, list(tasks_of(experiment, protocol)), store, retry, on_progress)
        store.set_protocol(experiment, protocol.as_dict())
        summary.skipped += work.ended
        with frozen_heap():
            for outcome in work.outcomes(lambda: seconds is not None and time.perf_counter() - begun >= seconds):
                summary.ended[outcome.status] += 1
        summary.left += sum(work.remaining.values())
    summary.seconds = time.perf_counter() - begun
    return summary


def tasks_of(experiment: str, protocol: Protocol) -> Iterator[Task]:
    """The tasks of an experiment, in an order that covers all its cells evenly."""
    from fourward.study import _grid  # inside: status needs no torch

    makers = {"times": _grid.times, "training": _grid.training, "attributes": _grid.attributes}
    return {**makers, "reassignment": _reassignment.tasks}[experiment](protocol)


class _Work:
    """The tasks of one experiment, and how long they take."""

    def __init__(
        self,
        experiment: str,
        tasks: list[Task],
        store: Store,
        retry: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.experiment, self.store, self.on_progress = experiment, store, on_progress
        self.total = sum(len(task.keys) for task in tasks)
        wanted = [[key for key in task.keys if not store.has(experiment, key, cut_off=not retry)] for task in tasks]
        self.tasks = [(task, keys) for task, keys in zip(tasks, wanted, strict=True) if keys]
        self.remaining = Counter(cell_of(key) for keys in wanted for key in keys)
        self.ended = self.total - sum(self.remaining.values())
        self.known: dict[Cell, list[float]] = {}  # seconds of the runs of a cell
        for row in store.rows(experiment):
            self.known.setdefault(cell_of(row.key), []).append(row.seconds)
        self.own = 0.0  # seconds of the runs of this call

    def outcomes(self, over: Callable[[], bool]) -> Iterator[Outcome]:
        """Run what is wanted; each outcome is in the store when it comes out."""
        begun = time.perf_counter()
        self._tell(None, 1.0)
        for task, keys in self.tasks:
            if over():
                return
            for outcome in task.run(keys):
                self.store.add(
                    self.experiment,
                    outcome.key,
                    outcome.values,
                    status=outcome.status,
                    note=outcome.note,
                    seconds=outcome.seconds,
                )
                self._learn(outcome)
                yield outcome
                self._tell(outcome.key, (time.perf_counter() - begun) / max(self.own, 1e-9))

    def _learn(self, outcome: Outcome) -> None:
        cell = cell_of(outcome.key)
        self.remaining[cell] -= 1
        self.known.setdefault(cell, []).append(outcome.seconds)
        self.own += outcome.seconds
        self.ended += 1

    def _tell(self, key: Key | None, overhead: float) -> None:
        if self.on_progress is None:
            return
        open_cells = {cell: count for cell, count in self.remaining.items() if count}
        known = {cell: self.known[cell] for cell in open_cells if cell in self.known}
        left = sum(open_cells[cell] * sum(seconds) / len(seconds) for cell, seconds in known.items())
        unknown = len(open_cells) - len(known)
        self.on_progress(Progress(self.experiment, self.ended, self.total, key, left * max(overhead, 1.0), unknown))

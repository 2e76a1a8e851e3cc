"""The runner: goes through an experiment's tasks, skips what the results file has, and stores the rest."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from fourward.errors import pluralize
from fourward.study import _reassignment
from fourward.study._limits import frozen_heap
from fourward.study._protocol import Key, Outcome, Protocol, Task, cell_key, check_range
from fourward.study._store import Scalar, Store

Cell = tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True)
class Progress:
    """How far an experiment is.

    >>> print(Progress("times", 3, 10, None, 75.0, 0))
    times: 3 of 10 runs, about 1 min 15 s left
    """

    experiment: str
    ended: int  #: runs in the file, with those of earlier calls
    total: int
    key: Key | None  #: key of the run that ended last
    left: float  #: seconds that the remaining runs will take, by the runs of the same cells so far
    unknown: int  #: cells of which no run has ended yet, which `left` doesn't include

    def __str__(self) -> str:
        return f"{self.experiment}: {self.ended:,} of {self.total:,} runs, {self.time_left}"

    @property
    def time_left(self) -> str:
        """The remaining time as text, as far as it is known."""
        if self.ended == self.total:
            return "done"
        if not self.unknown:
            return f"about {format_duration(self.left)} left"
        least = f"at least {format_duration(self.left)} left, " if self.left else ""
        return f"{least}{pluralize(self.unknown, 'cell')} not measured yet"


@dataclass
class Summary:
    """What a call of `run` did."""

    ended: Counter[str] = field(default_factory=Counter)  #: runs by status: "done", "cut off", "failed"
    skipped: int = 0  #: runs that were in the file already
    left: int = 0  #: runs that there was no time for
    seconds: float = 0.0


def run(
    store: Store,
    protocols: Mapping[str, Protocol],
    *,
    seconds: float | None = None,
    retry: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Run experiments, one after another, in this process; runs that the store has are skipped.

    Args:
        store: Where each run is stored as it ends.
        protocols: What to measure, by the experiment's name: "attributes", "times", "reassignment" or "training".
        seconds: Time budget, after which no new graph is started.
        retry: Also repeat runs that were cut off.
        on_progress: Called at the start and after each run; `print` is one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
    ...     small = Protocol(sizes=(8,), densities=(0.5,), seeds=2)
    ...     run(store, {"attributes": small}).ended, run(store, {"attributes": small}).skipped
    (Counter({'done': 2}), 2)
    """
    if seconds is not None:
        check_range("seconds", seconds, float, 0, 1e9)
    summary, start = Summary(), time.perf_counter()
    for experiment, protocol in protocols.items():
        work = _Work(experiment, list(make_tasks(experiment, protocol)), store, retry, on_progress)
        store.set_protocol(experiment, protocol.as_dict())
        summary.skipped += work.ended
        with frozen_heap():
            for outcome in work.outcomes(lambda: seconds is not None and time.perf_counter() - start >= seconds):
                summary.ended[outcome.status] += 1
        summary.left += sum(work.remaining.values())
    summary.seconds = time.perf_counter() - start
    return summary


def make_tasks(experiment: str, protocol: Protocol) -> Iterator[Task]:
    """The tasks of an experiment, in an order that covers all its cells evenly."""
    from fourward.study import _grid  # imported here: status needs no torch

    makers = {
        "times": _grid.times_tasks,
        "training": _grid.training_tasks,
        "attributes": _grid.attributes_tasks,
        "reassignment": _reassignment.reassignment_tasks,
    }
    return makers[experiment](protocol)


def format_duration(seconds: float) -> str:
    """Seconds in readable units.

    >>> format_duration(0.4), format_duration(75), format_duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


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
        missing = [[key for key in task.keys if not store.has(experiment, key, cut_off=not retry)] for task in tasks]
        self.tasks = [(task, keys) for task, keys in zip(tasks, missing, strict=True) if keys]
        self.remaining = Counter(cell_key(key) for keys in missing for key in keys)
        self.ended = self.total - sum(self.remaining.values())
        self.cell_seconds: dict[Cell, list[float]] = {}  # seconds of the runs of a cell
        for row in store.rows(experiment):
            self.cell_seconds.setdefault(cell_key(row.key), []).append(row.seconds)
        self.run_seconds = 0.0  # seconds of the runs of this call

    def outcomes(self, time_is_up: Callable[[], bool]) -> Iterator[Outcome]:
        """Run what is missing; each outcome is in the store when it is yielded."""
        start = time.perf_counter()
        self._report(None, 1.0)
        for task, keys in self.tasks:
            if time_is_up():
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
                self._record(outcome)
                yield outcome
                self._report(outcome.key, (time.perf_counter() - start) / max(self.run_seconds, 1e-9))

    def _record(self, outcome: Outcome) -> None:
        cell = cell_key(outcome.key)
        self.remaining[cell] -= 1
        self.cell_seconds.setdefault(cell, []).append(outcome.seconds)
        self.run_seconds += outcome.seconds
        self.ended += 1

    def _report(self, key: Key | None, overhead: float) -> None:
        if self.on_progress is None:
            return
        open_cells = {cell: count for cell, count in self.remaining.items() if count}
        known = {cell: self.cell_seconds[cell] for cell in open_cells if cell in self.cell_seconds}
        left = sum(open_cells[cell] * sum(seconds) / len(seconds) for cell, seconds in known.items())
        unknown = len(open_cells) - len(known)
        self.on_progress(Progress(self.experiment, self.ended, self.total, key, left * max(overhead, 1.0), unknown))

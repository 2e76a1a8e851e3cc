"""Runs that don't disturb one another, on a Dask cluster: one process of this machine a core, or one that is there.

A worker has one thread: Dask's nannies set OMP_NUM_THREADS to 1, which torch follows, here and on other clusters. The
results file has one writer, the process that asks; workers only compute. A worker that dies costs the run it was
at, which another takes up; a run on which `ALLOWED_DEATHS` more workers die is recorded as failed, as is one that
raises, and one whose worker has other versions or sources than the process that asks.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fourward.errors import OptionError, StudyError, require
from fourward.study._environment import code
from fourward.study._limits import one_line
from fourward.study._protocol import Key
from fourward.study._run import Progress, Summary
from fourward.study._store import FAILED, Store
from fourward.study._task import Outcome

Run = Callable[[Key], Mapping[str, Any]]
ALLOWED_DEATHS = 3
#: Seconds in which a scheduler must answer, and in which workers may end by themselves.
PATIENCE = 10


def run_all(
    store: Store,
    experiment: str,
    keys: Iterable[Key],
    run: Run,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Run what the store doesn't have, and write each run down as it ends.

    A script that calls this needs `if __name__ == "__main__":` round its work, because workers import it again.

    Args:
        store: Where results go.
        experiment: Under this name.
        keys: The parameters of each run.
        run: From parameters to what was found; a function of a module that workers can import.
        workers: Processes on this machine; default: one a core.
        scheduler: Address of a cluster to use instead, such as "tcp://10.0.0.1:8786".
        on_progress: Called at the start and after each run.
    """
    if workers is not None and workers < 1:
        raise OptionError(f"workers={workers!r} came, but it must be at least 1; leave it away for one a core.")
    wanted = list(keys)
    missing = [key for key in wanted if not store.has(experiment, key)]
    summary, begun = Summary(skipped=len(wanted) - len(missing)), time.perf_counter()
    on_progress(Progress(experiment, summary.skipped, len(wanted), None, 0.0, len(missing)))
    if not missing:
        return summary
    ends: list[float] = []
    with _client(min(workers or os.cpu_count() or 1, len(missing)), scheduler) as client:
        for outcome in _outcomes(client, run, missing):
            store.add(experiment, **vars(outcome))
            summary.ended[outcome.status] += 1
            ends.append(time.perf_counter())
            summary.seconds, remaining = ends[-1] - begun, len(missing) - len(ends)
            left, unknown = _time_left(ends, remaining)
            on_progress(Progress(experiment, len(wanted) - remaining, len(wanted), outcome.key, left, unknown))
    return summary


def _time_left(ends: list[float], remaining: int) -> tuple[float, int]:
    """Seconds by the pace of late, and how many runs to come can't be judged, for want of runs that ended."""
    late = ends[-50:]
    if len(late) < 5:  # the first ones wait for workers to start
        return 0.0, remaining
    return (late[-1] - late[0]) / (len(late) - 1) * remaining, 0


def _outcomes(client: Any, run: Run, keys: list[Key]) -> Iterator[Outcome]:
    """In the order in which runs end."""
    distributed = require("distributed", "study")
    futures = {client.submit(attempt, run, key, code(), pure=False): key for key in keys}
    for future in distributed.as_completed(futures):
        if future.status == "cancelled":
            raise _gone()
        if future.status == "error":
            yield Outcome(futures[future], status=FAILED, note=_reason(future.exception()))
        else:
            yield future.result()
        future.release()


def _gone() -> StudyError:
    error = StudyError(
        "the cluster went away. Every run that ended is in the results file: start a cluster, and give the same "
        "command again."
    )
    error.exit_code = 1
    return error


def attempt(run: Run, key: Key, asked: Mapping[str, str] | None = None) -> Outcome:
    """What a worker does: one run, whose error is an outcome too.

    Args:
        run: From parameters to what was found.
        key: The parameters.
        asked: The code of the process that asks (`facts.code`), which its rows name; with other code nothing is run.
    """
    start = time.perf_counter()
    try:
        if asked is not None:
            _check_code(asked, code())
        outcome = Outcome(key, dict(run(key)))
    except Exception as error:  # whatever it is, it is this run's outcome and not the others'
        outcome = Outcome(key, status=FAILED, note=_reason(error))
    return replace(outcome, seconds=time.perf_counter() - start)


def _check_code(asked: Mapping[str, str], here: Mapping[str, str]) -> None:
    names = [name for name in {**asked, **here} if asked.get(name) != here.get(name)]
    if names:
        other = ", ".join(f"{name} {here.get(name)} instead of {asked.get(name)}" for name in names)
        raise StudyError(f"the worker has other code than the process that asks: {other}")


def dask_setup(worker: Any) -> None:
    """Called by Dask in each of our own workers: Ctrl-C, which reaches them too, is for the process that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _reason(error: BaseException) -> str:
    if isinstance(error, require("distributed", "study").KilledWorker):
        return "its worker died each time that it was tried"
    return one_line(error)


@contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[Any]:
    """A client of the cluster at the address, or of one of our own that ends with it."""
    distributed, dask = require("distributed", "study"), require("dask", "study")
    if scheduler is not None:
        with _quiet(), _reached(distributed, scheduler) as client:
            yield client
        return
    settings = {
        "distributed.scheduler.allowed-failures": ALLOWED_DEATHS,
        "distributed.worker.multiprocessing-method": "spawn",  # threads don't survive a fork
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
            preload=[__name__],
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """What Dask's client says when a scheduler goes away, we say in a sentence."""
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _reached(distributed: Any, scheduler: str) -> Any:
    try:
        return distributed.Client(scheduler, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"no Dask scheduler answers at {scheduler!r} ({_reason(error)}). `dask scheduler` starts one, and shows "
            "its address; leave the address away to run on this machine."
        ) from error

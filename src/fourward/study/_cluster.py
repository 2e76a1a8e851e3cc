"""Independent runs on a Dask cluster: a local one with a process per core, or an existing one.

A worker has one thread: Dask's nannies set OMP_NUM_THREADS to 1, which torch follows, here and on other clusters. The
results file has one writer, the submitting process; workers only compute. When a worker dies, another one repeats its
run; a run on which `ALLOWED_FAILURES` more workers die is recorded as failed, as is one that raises, and one whose
worker has other versions or sources than the submitting process.
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
from fourward.study._environment import code_fingerprint
from fourward.study._limits import one_line
from fourward.study._protocol import Key, Outcome
from fourward.study._run import Progress, Summary
from fourward.study._store import FAILED, Store

Run = Callable[[Key], Mapping[str, Any]]
ALLOWED_FAILURES = 3
#: Seconds within which a scheduler must answer.
CONNECT_TIMEOUT = 10


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
    """Run what the store doesn't have, and store each run as it ends.

    A script that calls this needs `if __name__ == "__main__":` around its work, because workers import it, too.

    Args:
        store: Where results go.
        experiment: Name under which runs are stored.
        keys: The parameters of each run.
        run: Function from parameters to results, in a module that workers can import.
        workers: Processes on this machine; default: one per core.
        scheduler: Address of a cluster to use instead, such as "tcp://10.0.0.1:8786".
        on_progress: Called at the start and after each run.
    """
    if workers is not None and workers < 1:
        raise OptionError(f"workers must be at least 1, or None for one per core, got {workers!r}.")
    keys = list(keys)
    missing = [key for key in keys if not store.has(experiment, key)]
    summary, start = Summary(skipped=len(keys) - len(missing)), time.perf_counter()
    on_progress(Progress(experiment, summary.skipped, len(keys), None, 0.0, len(missing)))
    if not missing:
        return summary
    ends: list[float] = []
    with _client(min(workers or os.cpu_count() or 1, len(missing)), scheduler) as client:
        for outcome in _outcomes(client, run, missing):
            store.add(experiment, **vars(outcome))
            summary.ended[outcome.status] += 1
            ends.append(time.perf_counter())
            summary.seconds, remaining = ends[-1] - start, len(missing) - len(ends)
            left, unknown = _time_left(ends, remaining)
            on_progress(Progress(experiment, len(keys) - remaining, len(keys), outcome.key, left, unknown))
    return summary


def _time_left(ends: list[float], remaining: int) -> tuple[float, int]:
    """Seconds by the recent pace, and how many runs can't be estimated because too few have ended."""
    recent = ends[-50:]
    if len(recent) < 5:  # the first ones wait for workers to start
        return 0.0, remaining
    return (recent[-1] - recent[0]) / (len(recent) - 1) * remaining, 0


def _outcomes(client: Any, run: Run, keys: list[Key]) -> Iterator[Outcome]:
    """Yield the outcomes in the order in which runs end."""
    distributed = require("distributed", "study")
    futures = {client.submit(attempt, run, key, code_fingerprint(), pure=False): key for key in keys}
    for future in distributed.as_completed(futures):
        if future.status == "cancelled":
            raise _cluster_lost()
        if future.status == "error":
            yield Outcome(futures[future], status=FAILED, note=_reason(future.exception()))
        else:
            yield future.result()
        future.release()


def _cluster_lost() -> StudyError:
    error = StudyError(
        "the connection to the cluster was lost. Every run that ended is in the results file: start a cluster, and "
        "start the same study again."
    )
    error.exit_code = 1
    return error


def attempt(run: Run, key: Key, code: Mapping[str, str] | None = None) -> Outcome:
    """One run on a worker; an error is an outcome, too.

    Args:
        run: Function from parameters to results.
        key: The parameters.
        code: Versions and sources of the submitting process, which its rows name; with other code nothing is run.
    """
    start = time.perf_counter()
    try:
        if code is not None:
            _check_code(code, code_fingerprint())
        outcome = Outcome(key, dict(run(key)))
    except Exception as error:  # any error is the outcome of this run, and doesn't affect others
        outcome = Outcome(key, status=FAILED, note=_reason(error))
    return replace(outcome, seconds=time.perf_counter() - start)


def _check_code(expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
    names = [name for name in {**expected, **actual} if expected.get(name) != actual.get(name)]
    if names:
        versions = ", ".join(f"expected {name} {expected.get(name)}, got {actual.get(name)}" for name in names)
        raise StudyError(f"the worker's code differs from the submitting process's: {versions}")


def dask_setup(worker: Any) -> None:
    """Called by Dask in each local worker: Ctrl-C, which reaches them too, is for the submitting process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _reason(error: BaseException) -> str:
    if isinstance(error, require("distributed", "study").KilledWorker):
        return "its worker died at every attempt"
    return one_line(error)


@contextmanager
def _client(workers: int, scheduler: str | None) -> Iterator[Any]:
    """A client of the cluster at the address, or of a local one that ends with it."""
    distributed, dask = require("distributed", "study"), require("dask", "study")
    if scheduler is not None:
        with _quiet(), _connect(distributed, scheduler) as client:
            yield client
        return
    settings = {
        "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
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
    """Silence Dask's client, which logs pages when a scheduler disappears: we raise one sentence."""
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _connect(distributed: Any, scheduler: str) -> Any:
    try:
        return distributed.Client(scheduler, timeout=CONNECT_TIMEOUT)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"no Dask scheduler answers at {scheduler!r} ({_reason(error)}). `dask scheduler` starts one and prints "
            "its address; without an address the study runs on this machine."
        ) from error

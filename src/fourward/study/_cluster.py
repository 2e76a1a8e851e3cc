"""Independent runs on a Dask cluster: a local one with a process per core, or an existing one.

A worker has one thread: Dask's nannies set OMP_NUM_THREADS to 1, which torch follows, here and on other clusters. The
results file has one writer, the submitting process; workers only compute. Runs may form groups that are computed
together, as the members of a population. When a worker dies, another one repeats its group; runs on which
`ALLOWED_FAILURES` more workers die are recorded as failed, as is one that raises, and one whose worker has other
versions or sources than the submitting process.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fourward.errors import OptionError, StudyError, require
from fourward.study._environment import code_fingerprint
from fourward.study._limits import one_line
from fourward.study._protocol import Key, Outcome
from fourward.study._run import Progress, Summary
from fourward.study._store import FAILED, Store

Run = Callable[[Key], Mapping[str, Any]]
#: From the parameters of several runs to the results of each, or the error.
GroupRun = Callable[[Sequence[Key]], Sequence[Mapping[str, Any] | Exception]]
ALLOWED_FAILURES = 3
#: Seconds within which a scheduler must answer.
CONNECT_TIMEOUT = 10


def run_all(
    store: Store,
    experiment: str,
    keys: Iterable[Key],
    run: Run | GroupRun,
    *,
    group: Callable[[Key], Hashable] | None = None,
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
        run: Function from parameters to results, in a module that workers can import. With `group`, from the
            parameters of several runs to a list of results and errors.
        group: Runs for which it returns the same are computed together, if there is enough for every worker.
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
    workers = min(workers or os.cpu_count() or 1, len(missing))
    groups = [[key] for key in missing] if group is None else _make_groups(missing, group, -(-len(missing) // workers))
    ends, remaining = [], len(missing)
    with _client(min(workers, len(groups)), scheduler) as client:
        for outcomes in _outcomes(client, _OneByOne(run) if group is None else run, groups):
            ends.append(time.perf_counter())
            for outcome in outcomes:
                store.add(experiment, **vars(outcome))
                summary.ended[outcome.status] += 1
                summary.seconds, remaining = ends[-1] - start, remaining - 1
                left = _time_left(ends, len(groups) - len(ends))
                unknown = 0 if left is not None else remaining
                on_progress(Progress(experiment, len(keys) - remaining, len(keys), outcome.key, left or 0.0, unknown))
    return summary


def _make_groups(keys: Sequence[Key], group: Callable[[Key], Hashable], most: int) -> list[list[Key]]:
    """Keys that belong together, at most so many in a group."""
    groups: dict[Hashable, list[Key]] = {}
    for key in keys:
        groups.setdefault(group(key), []).append(key)
    return [listed[k : k + most] for listed in groups.values() for k in range(0, len(listed), most)]


class _OneByOne:
    """A function of one run as a function of several."""

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, keys: Sequence[Key]) -> list[Mapping[str, Any]]:
        return [self.run(key) for key in keys]


def _time_left(ends: list[float], remaining: int) -> float | None:
    """Seconds for the remaining groups, by the recent pace; None while too few have ended."""
    recent = ends[-50:]
    if remaining and len(recent) < 5:  # the first ones wait for workers to start
        return None
    return (recent[-1] - recent[0]) / max(len(recent) - 1, 1) * remaining


def _outcomes(client: Any, run: Any, groups: Sequence[list[Key]]) -> Iterator[list[Outcome]]:
    """Yield the outcomes of each group, in the order in which groups end."""
    distributed = require("distributed", "study")
    futures = {client.submit(attempt, run, keys, code_fingerprint(), pure=False): keys for keys in groups}
    for future in distributed.as_completed(futures):
        if future.status == "cancelled":
            raise _cluster_lost()
        if future.status == "error":
            note = _reason(future.exception())
            yield [Outcome(key, status=FAILED, note=note) for key in futures[future]]
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


def attempt(run: GroupRun, keys: Sequence[Key], code: Mapping[str, str] | None = None) -> list[Outcome]:
    """A group of runs on a worker; an error is an outcome, too. Each is recorded with an equal share of the time.

    Args:
        run: Function from the parameters of several runs to the results of each, or the error.
        keys: The parameters.
        code: Versions and sources of the submitting process, which its rows name; with other code nothing is run.
    """
    start, results = time.perf_counter(), []
    try:
        if code is not None:
            _check_code(code, code_fingerprint())
        results = list(run(keys))
    except Exception as error:  # any error is the outcome of these runs, and doesn't affect others
        results = [error] * len(keys)
    seconds = (time.perf_counter() - start) / len(keys)
    return [_make_outcome(key, result, seconds) for key, result in zip(keys, results, strict=True)]


def _make_outcome(key: Key, result: Mapping[str, Any] | Exception, seconds: float) -> Outcome:
    if isinstance(result, Exception):
        return Outcome(key, status=FAILED, note=_reason(result), seconds=seconds)
    return Outcome(key, dict(result), seconds=seconds)


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

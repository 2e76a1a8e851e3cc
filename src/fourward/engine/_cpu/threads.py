"""Teams of threads that run one compiled entry together.

Where torch runs on GNU OpenMP, as its Linux packages do, its thread team is used: handing over work takes 3
microseconds instead of 70, and torch's idle threads, which spin for a while after each operation, don't compete with
ours for a core (that halved our speed). Elsewhere, and in a forked child, where OpenMP's threads are gone, a
ThreadPoolExecutor does the work. Rejected: Numba's threading layers, of which one aborts when two Python threads call
it, and the other kills forked workers.

OpenMP's team waits for all of its threads, also for one that the system hasn't given a core yet. On a busy machine that
takes milliseconds, again and again; on a quiet one it happens, too, when threads wake that have slept. So the time that
teams waste is measured. Beyond CREDIT, work runs on the calling thread alone until the time wasted is a tenth of all
time: threads cost a busy machine no more than that. Results don't depend on it, since jobs stay as they are.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from fourward.engine._cpu.arguments import CLOCK, ENDED, FIRST_END, NEXT_JOB, NEXT_THREAD

_forked = False
_pool: ThreadPoolExecutor | None = None


HANDOVER = 30e-6  #: seconds that handing work over may waste on a quiet machine, too
MOST_WASTED = 0.5  #: seconds; a process that was stopped for longer has no busier machine
CREDIT = 0.02  #: seconds that teams may waste before the calling thread works alone
REST = 10  #: seconds that pay for a wasted one
_debt, _debt_at = 0.0, 0.0  #: seconds that were wasted and aren't paid for, at this time of time.perf_counter
_alone_until = 0.0  #: in seconds of time.perf_counter


def run(entry: int, buffer: array[int], jobs: int, num_threads: int) -> None:
    """Call an entry with a buffer of arguments in up to `num_threads` threads, and wait for them."""
    address = buffer.buffer_info()[0]
    buffer[NEXT_JOB] = buffer[NEXT_THREAD] = buffer[ENDED] = 0
    num_threads = min(num_threads, jobs)
    if num_threads <= 1 or perf_counter() < _alone_until:
        _callable(entry)(address)
        return
    gomp = None if _forked else _gomp()
    if gomp is not None:
        _run_team(gomp, entry, buffer, address, num_threads)
        return
    call = _callable(entry)
    futures = [_executor().submit(call, address) for _ in range(num_threads - 1)]
    try:
        call(address)
    finally:  # also after an error: no thread may still write when the caller frees the memory
        wait([future for future in futures if not future.cancel()])  # one that hasn't started finds no job


def _run_team(gomp: Gomp, entry: int, buffer: array[int], address: int, num_threads: int) -> None:
    """Run OpenMP's team, and rest if teams took too much longer than the caller alone would have."""
    global _debt, _debt_at, _alone_until
    buffer[CLOCK] = gomp.clock
    start = perf_counter()
    gomp.parallel(entry, address, num_threads, 0)
    end = perf_counter()
    first = ctypes.c_double.from_address(address + 8 * FIRST_END).value  # when the first thread found no job
    wasted = (end - first) - (first - start)
    if wasted > HANDOVER:
        _debt = max(_debt - (end - _debt_at) / REST, 0.0) + min(wasted, MOST_WASTED)
        _debt_at, _alone_until = end, end + REST * max(_debt - CREDIT, 0.0)


class Gomp(NamedTuple):
    """Functions of GNU OpenMP."""

    parallel: Callable[..., None]
    clock: int  #: the address of omp_get_wtime, which counts as time.perf_counter does


@cache
def _callable(entry: int) -> Callable[[Any], None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)  # releases the GIL while it runs


@cache
def _gomp() -> Gomp | None:
    """The OpenMP library that torch has loaded; None if that isn't GNU's."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        loaded = {line.split(maxsplit=5)[5] for line in lines if "/torch/lib/libgomp" in line}
        library = ctypes.CDLL(loaded.pop())
        parallel, clock = library.GOMP_parallel, library.omp_get_wtime
    except (OSError, KeyError, AttributeError):
        return None
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None
    return Gomp(parallel, ctypes.cast(clock, ctypes.c_void_p).value or 0)


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1), thread_name_prefix="fourward")
    return _pool


def _after_fork() -> None:
    global _forked, _pool
    _forked, _pool = True, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

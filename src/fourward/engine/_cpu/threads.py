"""Teams of threads that run one compiled entry together.

Where torch runs on GNU OpenMP, as its Linux packages do, its thread team is used: handing over work takes 3
microseconds instead of 70, and torch's idle threads, which spin for a while after each operation, don't compete with
ours for a core (that halved our speed). Elsewhere, and in a forked child, where OpenMP's threads are gone, a
ThreadPoolExecutor does the work. Rejected: Numba's threading layers, of which one aborts when two Python threads call
it, and the other kills forked workers.
"""

from __future__ import annotations

import ctypes
import os
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from typing import Any

_forked = False
_pool: ThreadPoolExecutor | None = None


def run(entry: int, buffer: array[int], jobs: int, num_threads: int) -> None:
    """Call an entry with a buffer of arguments in up to `num_threads` threads, and wait for them."""
    buffer[0] = 0  # the next job
    address = buffer.buffer_info()[0]
    num_threads = min(num_threads, jobs)
    if num_threads <= 1:
        _callable(entry)(address)
        return
    gomp_parallel = None if _forked else _gomp_parallel()
    if gomp_parallel is not None:
        gomp_parallel(entry, address, num_threads, 0)
        return
    call = _callable(entry)
    futures = [_executor().submit(call, address) for _ in range(num_threads - 1)]
    try:
        call(address)
    finally:
        wait(futures)  # also after an error: no thread may still write when the caller frees the memory


@cache
def _callable(entry: int) -> Callable[[Any], None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)  # releases the GIL while it runs


@cache
def _gomp_parallel() -> Callable[..., None] | None:
    """GOMP_parallel of the OpenMP library that torch has loaded; None if that isn't GNU's."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        loaded = {line.split(maxsplit=5)[5] for line in lines if "/torch/lib/libgomp" in line}
        function = ctypes.CDLL(loaded.pop()).GOMP_parallel
    except (OSError, KeyError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return function


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

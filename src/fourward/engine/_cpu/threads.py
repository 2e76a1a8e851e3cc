"""Teams of threads that run one compiled entry together.

Where torch runs on GNU OpenMP, as its Linux packages do, its own team is borrowed: handing work over takes 3
microseconds instead of 70, and torch's idle threads, which wait busily for a while after each operation, don't fight
ours for a core (that halved our speed). Elsewhere, and in a forked child, where OpenMP's threads are gone, threads of
our own do the work. Numba's layers were no choice: one aborts when two Python threads call it, the other kills forked
workers.
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


def run(entry: int, arguments: tuple[int, ...], jobs: int, workers: int) -> None:
    """Call the entry with a block (next job, jobs, *arguments) in up to `workers` threads, and wait for them."""
    held = array("q", (0, jobs, *arguments))
    block = held.buffer_info()[0]
    workers = min(workers, jobs)
    if workers <= 1:
        _callable(entry)(block)
        return
    borrowed = None if _forked else _openmp()
    if borrowed is not None:
        borrowed(entry, block, workers, 0)
        return
    call = _callable(entry)
    waiting = [_workers().submit(call, block) for _ in range(workers - 1)]
    try:
        call(block)
    finally:
        wait(waiting)  # whatever happens here, nobody may still be writing when the caller frees the memory


@cache
def _callable(entry: int) -> Callable[[Any], None]:
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry)  # lets go of the interpreter lock while it runs


@cache
def _openmp() -> Callable[..., None] | None:
    """GOMP_parallel of the OpenMP library that torch has loaded, if it is such a one."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        loaded = {line.split(maxsplit=5)[5] for line in lines if "/torch/lib/libgomp" in line}
        function = ctypes.CDLL(loaded.pop()).GOMP_parallel
    except (OSError, KeyError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    function.restype = None
    return function


def _workers() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) - 1), thread_name_prefix="fourward")
    return _pool


def _forget() -> None:
    global _forked, _pool
    _forked, _pool = True, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

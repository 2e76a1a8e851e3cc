"""Compilation with Numba, cached on disk if the cache folder is writable."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import cfunc, njit

F = TypeVar("F", bound=Callable[..., object])


def cached_njit(function: F) -> F:
    """Compile a kernel on arrays; it releases the interpreter lock."""
    return cast(F, _cached(lambda cache: njit(cache=cache, nogil=True)(function)))


def cached_cfunc(function: Callable[..., object], signature: Any) -> int:
    """Compile a function that C code can call, and return its address."""
    compiled = _cached(lambda cache: cfunc(signature, cache=cache)(function))
    _COMPILED.append(compiled)
    return int(compiled.address)


_COMPILED: list[Any] = []  # keeps the machine code behind the addresses alive


def _cached(compile_: Callable[[bool], Any]) -> Any:
    try:
        return compile_(True)
    except (RuntimeError, OSError) as error:  # no cache folder, or a read-only one
        logging.getLogger("fourward").info("kernels are recompiled in each process: %s", error)
        return compile_(False)

"""Compilation with Numba, cached on disk where a cache can be written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import cfunc, njit

F = TypeVar("F", bound=Callable[..., object])


def cached_njit(function: F) -> F:
    """A kernel that walks arrays, without the interpreter lock."""
    return cast(F, _cached(lambda cache: njit(cache=cache, nogil=True)(function)))


def cached_cfunc(function: Callable[..., object], signature: Any) -> int:
    """The address of a function that C code can call."""
    pointer = _cached(lambda cache: cfunc(signature, cache=cache)(function))
    _ENTRIES.append(pointer)
    return int(pointer.address)


_ENTRIES: list[Any] = []  # compiled code lives as long as what holds it


def _cached(compile_: Callable[[bool], Any]) -> Any:
    try:
        return compile_(True)
    except (RuntimeError, OSError) as error:  # no folder for a cache, or one that can't be written
        logging.getLogger("fourward").info("kernels are compiled anew in each process: %s", error)
        return compile_(False)

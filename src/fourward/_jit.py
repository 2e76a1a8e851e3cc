"""Compilation of the integer kernels that walk graphs and plans."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile with Numba, without the interpreter lock, cached on disk where a cache can be written."""
    try:
        return cast(F, njit(cache=True, nogil=True)(function))
    except RuntimeError as error:  # Numba found no folder for its cache
        logging.getLogger("fourward").info("kernels are compiled anew in each process: %s", error)
        return cast(F, njit(nogil=True)(function))

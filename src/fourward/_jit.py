"""Compilation with Numba, cached on disk if the cache folder is writable; a damaged cache is rebuilt."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import cfunc, njit
from numba.core.caching import FunctionCache

_LOGGER = logging.getLogger("fourward")
F = TypeVar("F", bound=Callable[..., object])


def cached_njit(function: F) -> F:
    """Compile a kernel on arrays; it releases the interpreter lock."""
    compiled = _cached(lambda cache: njit(cache=cache, nogil=True)(function), function)
    _guard_cache(compiled._cache)
    return cast(F, compiled)


def cached_cfunc(function: Callable[..., object], signature: Any) -> int:
    """Compile a function that C code can call, and return its address."""
    compiled = _cached(lambda cache: cfunc(signature, cache=cache)(function), function)
    _COMPILED.append(compiled)
    return int(compiled.address)


_COMPILED: list[Any] = []  # keeps the machine code behind the addresses alive


def _guard_cache(cache: Any) -> None:
    """Let the cache of a dispatcher, which reads it at the first call, compile again what it can't read."""
    load = cache.load_overload

    def load_or_rebuild(*key: Any) -> Any:
        try:
            return load(*key)
        except Exception as error:  # whatever a pickle of other bytes raises
            _LOGGER.warning("a damaged kernel in Numba's cache is rebuilt: %s", error)
            try:
                cache.flush()
            except OSError:
                cache.disable()
            return None

    cache.load_overload = load_or_rebuild


def _cached(compile_: Callable[[bool], Any], function: Callable[..., object]) -> Any:
    try:
        return compile_(True)
    except (RuntimeError, OSError) as error:  # no cache folder, or a read-only one
        _LOGGER.info("kernels are recompiled in each process: %s", error)
        return compile_(False)
    except Exception as error:  # as above: cfunc reads the cache at once
        _LOGGER.warning("a damaged kernel in Numba's cache is rebuilt: %s", error)
        FunctionCache(function).flush()
        return compile_(True)

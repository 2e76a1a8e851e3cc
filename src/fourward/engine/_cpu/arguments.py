"""Arguments of compiled entries, by name.

An entry takes the address of a buffer of int64: a header that its threads share, then its arguments. The signature of a
function says which these are. The function that packs them and the one by which a kernel reads them are both generated
from it, so that no position is written by hand.
"""

from __future__ import annotations

import inspect
from array import array
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ParamSpec

from numba import njit

P = ParamSpec("P")

#: The header: the next job, the next thread, the address of a clock or 0, the number of threads that found no job, and
#: the time when the first of them did, a float64.
NEXT_JOB, NEXT_THREAD, CLOCK, ENDED, FIRST_END, HEADER = range(6)


def argument_buffer(signature: Callable[P, array[int]]) -> Callable[P, array[int]]:
    """Turn a function with keyword-only parameters and no body into one that packs them into a buffer.

    The generated function takes no longer than a tuple by position. A named tuple, created by keywords, takes twice as
    long, which a small network would notice.
    """
    names = ", ".join(inspect.signature(signature).parameters)
    pack: Callable[P, array[int]] = _define(
        f"def _(*, {names}): return array('q', ({'0, ' * HEADER}{names}))", {"array": array}
    )
    return pack


def buffer_reader(packer: Callable[..., array[int]]) -> Any:
    """A Numba function that returns the arguments of a buffer as a named tuple."""
    arguments: Any = namedtuple("Arguments", list(inspect.signature(packer).parameters))  # type: ignore[misc]
    return tuple_reader(arguments, njit(nogil=True)(lambda buffer, i: buffer[i + HEADER]))


def tuple_reader(fields: Any, item: Any) -> Any:
    """A Numba function of `base` that returns the named tuple Fields(item(base, 0), item(base, 1), ...)."""
    items = ", ".join(f"item(base, {i})" for i in range(len(fields._fields)))
    return njit(nogil=True)(_define(f"def _(base): return Fields({items})", {"Fields": fields, "item": item}))


def _define(source: str, names: dict[str, Any]) -> Any:
    exec(source, names)
    return names["_"]

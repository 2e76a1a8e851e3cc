"""NumPy arrays of indices: their type, and arrays that can't be written to."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

IntArray = np.ndarray[Any, np.dtype[np.integer[Any]]]
BoolArray = np.ndarray[Any, np.dtype[np.bool_]]
Array = TypeVar("Array", bound=np.ndarray[Any, Any])


def readonly(array: Array) -> Array:
    """Make an array read-only, and return it."""
    array.setflags(write=False)
    return array


def distinct(keys: IntArray) -> IntArray:
    """Distinct keys, ascending. np.unique puts keys into a hash table, which takes ten times as long for 10^6 keys."""
    ascending = np.sort(keys)
    result: IntArray = ascending[np.diff(ascending, prepend=ascending[:1] - 1) != 0]
    return result

"""NumPy arrays of indices: their type, and arrays that can't be written to."""

from __future__ import annotations

from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[np.integer[Any]]]


def readonly(array: IntArray) -> IntArray:
    """Make an array read-only, and return it."""
    array.setflags(write=False)
    return array

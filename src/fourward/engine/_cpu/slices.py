"""A batch as slices, which are computed one after another, or by several threads."""

from __future__ import annotations

from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numba import njit

from fourward._arrays import IntArray
from fourward.engine._cpu import simd
from fourward.engine._cpu.arguments import tuple_reader

#: Lane groups that a slice may have at most, and that it may have however many rows are alive. Milliseconds of a
#: forward pass and of one with its backward pass, one core with an L3 cache of 32 MiB, float32, B=256, for 1, 2, 4 and
#: 8 groups:
#:
#:     log2, 1,219 of 46,778 rows alive       5.2 14.8    2.9  9.5    1.7  7.7    1.2  7.0
#:     memctrl, 1,543 of 82,381               9.8 27.2    5.5 17.6    3.2 13.3    2.1 13.1
#:     Erdos-Renyi, 20,000 rows, degree 50   10.5 32.0    8.6 26.1    9.1 25.8   11.3 32.4
#:     Erdos-Renyi, 100,000 rows, degree 5   25.2 75.3   17.3 60.5   18.0 57.6   22.8 67.0
MOST_GROUPS, LEAST_GROUPS = 8, 2


class Slice(NamedTuple):
    """Samples that are computed together: a row of the table that `slices` makes."""

    first: int  #: index of its first sample in the batch
    size: int  #: number of its samples
    width: int  #: numbers in a row: its samples, and padding
    begin: int  #: the widths of the slices before it, so that its activations start at N * begin


#: A row of the table, for kernels.
read_slice = tuple_reader(Slice, njit(nogil=True)(lambda row, i: row[i]))


class Slices(NamedTuple):
    """A batch as slices. A share is what one thread takes of a backward pass: consecutive slices."""

    table: IntArray  #: (n, 4) int64, rows of Slice
    address: int  #: the address of the table
    jobs: int  #: n
    share_start: IntArray  #: (shares + 1,) int64, the first slice of each share
    share_address: int  #: the address of share_start
    shares: int
    padded: int  #: the widths of all slices
    width: int  #: the largest width


@lru_cache(maxsize=256)
def slices(batch: int, lanes: int, num_threads: int, most_groups: int = MOST_GROUPS, narrow: bool = True) -> Slices:
    """Split the batch into slices of at most so many lane groups, evenly over the threads.

    Only the last slice is padded, to a whole lane group; if `narrow`, a batch of less than one is to a power of 2.
    """
    if batch < lanes and (narrow or batch == 0):
        rows = [Slice(first=0, size=batch, width=pad_batch(batch, lanes), begin=0)] if batch else []
        starts = [0, len(rows)]
    else:
        rows, starts, total, done = [], [0], -(-batch // lanes), 0  # lane groups
        for thread in range(num_threads):
            end = total * (thread + 1) // num_threads
            while done < end:
                groups = min(most_groups, 1 << (end - done).bit_length() - 1)
                begin = done * lanes
                size = min(batch - begin, groups * lanes)
                rows.append(Slice(first=begin, size=size, width=groups * lanes, begin=begin))
                done += groups
            if len(rows) > starts[-1]:
                starts.append(len(rows))
    table = np.array(rows, np.int64).reshape(-1, len(Slice._fields))
    widths, shares = table[:, 2], np.array(starts, np.int64)
    return Slices(
        table, table.ctypes.data, len(table), shares, shares.ctypes.data, len(starts) - 1, int(widths.sum()),
        int(widths.max(initial=0)),
    )  # fmt: skip


def pad_batch(batch: int, lanes: int) -> int:
    """The batch size rounded up to whole lane groups, or if it is less than one, to a power of 2."""
    if batch < lanes:
        return 1 << (batch - 1).bit_length() if batch else 0
    return (batch + lanes - 1) // lanes * lanes


def lanes_per_group(dtype: torch.dtype) -> int:
    """How many numbers a lane group holds."""
    return simd.LANE_GROUP_BYTES // dtype.itemsize


@cache
def last_cache_bytes() -> int:
    """The size of the last cache, or a usual one where the system doesn't say."""
    return max(_cache_sizes().values(), default=8 * 2**20)


@cache
def own_cache_bytes() -> int:
    """The size of the second cache, a core's own, or a usual one where the system doesn't say."""
    return _cache_sizes().get(2, 2**20)


def _cache_sizes() -> dict[int, int]:
    """The bytes of a core's caches, by level."""
    sizes = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        with suppress(OSError, ValueError):
            sizes[int((folder / "level").read_text())] = (
                int((folder / "size").read_text().strip().removesuffix("K")) * 1024
            )
    return sizes


@lru_cache(maxsize=1024)
def most_groups(rows: int) -> int:
    """How many lane groups a slice may have, so that the rows alive fill at most a quarter of the last cache.

    Wider slices read indices and weights less often, which is why two are the least.
    """
    groups = max(LEAST_GROUPS, last_cache_bytes() // 4 // (rows * simd.LANE_GROUP_BYTES))
    return min(MOST_GROUPS, 1 << groups.bit_length() - 1)

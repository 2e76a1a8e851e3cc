"""Memory that is kept between passes.

Above 32 MiB, the system's allocator maps each block anew and unmaps it when it is freed, so that every pass would wait
for its pages: on a circuit of 124,000 nodes and 256 samples that was two thirds of a forward pass. Blocks are NumPy
arrays, which ask the system for huge pages where there are any. A block is in use by one pass, or one tensor, at a
time; when that goes, the block is kept for the next one of its size, until the network that used it last goes, too.
"""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray

#: Tensors of fewer bytes are torch's: the system's allocator keeps their pages.
SMALL = 2**20
#: Bytes of unused blocks that are kept at most: a quarter of the machine's memory.
LIMIT = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 if hasattr(os, "sysconf") else 2**31
_PAGE = 4096


@dataclass(eq=False, slots=True)
class Block:
    """A piece of memory, at the start of a page."""

    array: IntArray  #: uint8
    address: int
    size: int  #: its bytes
    owner: int = 0  #: the address of the packed plan that used it last


class Buffers:
    """Blocks by size. The oldest unused ones go where more than a limit would be kept."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.unused_bytes = 0  #: bytes that are kept for later passes
        self._lock = threading.RLock()  # reentrant: a tensor may go while this thread holds it
        self._unused: dict[int, list[Block]] = {}  # by size, which is in the order in which they were given back last
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._owners: set[int] = set()

    def take(self, size: int) -> Block:
        """A block of at least so many bytes, whose contents are arbitrary."""
        size = _round_up(size)
        with self._lock:
            blocks = self._unused.get(size)
            if blocks:
                self.unused_bytes -= size
                return blocks.pop()  # the latest: it may be in the cache
        memory = np.empty(size + _PAGE, np.uint8)
        start = -memory.ctypes.data % _PAGE
        return Block(memory[start : start + size], memory.ctypes.data + start, size)

    def give_back(self, block: Block) -> None:
        """Keep a block for the next pass."""
        with self._lock:
            self._unused.setdefault(block.size, []).append(block)
            self.unused_bytes += block.size
            if self.unused_bytes > self.limit:
                self._shrink(block.size)

    def _shrink(self, latest: int) -> None:
        """Free blocks until the limit holds, those of the latest size last."""
        for size in sorted(self._unused, key=latest.__eq__):
            while self._unused[size] and self.unused_bytes > self.limit:
                self._unused[size].pop(0)
                self.unused_bytes -= size

    def empty(self, numbers: int, like: Tensor, packed_plan: Tensor) -> Tensor:
        """An uninitialised tensor (numbers,) with the dtype of `like`, whose memory comes back when it goes."""
        if numbers * like.itemsize < SMALL:
            return like.new_empty(numbers)
        block = self.take(numbers * like.itemsize)
        block.owner = packed_plan.data_ptr()
        self._follow(packed_plan)
        view = block.array[: numbers * like.itemsize].view(_NUMPY[like.dtype])
        key = id(view)

        def come_back(_: object) -> None:
            self._lent.pop(key, None)
            self.give_back(block)

        self._lent[key] = weakref.ref(view, come_back)
        return torch.from_numpy(view)

    def release(self, owner: int | None = None) -> None:
        """Free the unused blocks that a packed plan used last, or all unused blocks."""
        with self._lock:
            for size, blocks in self._unused.items():
                remaining = [block for block in blocks if owner is not None and block.owner != owner]
                self.unused_bytes -= size * (len(blocks) - len(remaining))
                self._unused[size] = remaining
            self._owners.discard(owner or 0)

    def _follow(self, packed_plan: Tensor) -> None:
        """Release the blocks of this plan when it goes."""
        owner = packed_plan.data_ptr()
        with self._lock:
            if owner not in self._owners:
                self._owners.add(owner)
                weakref.finalize(packed_plan, self.release, owner).atexit = False


def _round_up(size: int) -> int:
    """The next of eight sizes between a power of 2 and the next one, so that similar batches share blocks."""
    step = max(_PAGE, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}

#: The blocks of this process.
BUFFERS = Buffers()


def empty_cache() -> None:
    """Free the memory that the cpu engine keeps for later passes; what is in use stays."""
    BUFFERS.release()

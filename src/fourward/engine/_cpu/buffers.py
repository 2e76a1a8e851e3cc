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
from functools import lru_cache
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
    """Blocks by size. Unused ones go where more than a limit would be kept, those of other sizes first.

    Blocks of fewer bytes than SMALL are neither counted nor guarded by a lock: taking one is part of every short pass.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.unused_bytes = 0  #: bytes of blocks of at least SMALL that are kept for later passes
        self._lock = threading.RLock()  # reentrant: a tensor may go while this thread holds it
        self._unused: dict[int, list[Block]] = {}  # by size
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._owners: set[int] = set()

    def take(self, size: int, packed_plan: Tensor) -> Block:
        """A block of at least so many bytes, whose contents are arbitrary."""
        size = _round_up(size)
        blocks = self._unused.get(size)
        if size < SMALL:
            try:
                if blocks:
                    return blocks.pop()  # the latest: it may be in the cache
            except IndexError:  # another thread was faster
                pass
            return _allocate(size)
        owner = packed_plan.data_ptr()
        with self._lock:
            if owner not in self._owners:  # release its blocks when it goes
                self._owners.add(owner)
                weakref.finalize(packed_plan, self.release, owner).atexit = False
            try:
                block = self._unused[size].pop()
                self.unused_bytes -= size
            except (KeyError, IndexError):
                block = _allocate(size)
        block.owner = owner
        return block

    def give_back(self, block: Block) -> None:
        """Keep a block for the next pass."""
        if block.size < SMALL:
            self._unused.setdefault(block.size, []).append(block)
            return
        with self._lock:
            if block.owner not in self._owners:
                return  # its network is gone
            self._unused.setdefault(block.size, []).append(block)
            self.unused_bytes += block.size
            for size in sorted(self._unused, key=block.size.__eq__):  # those of its own size last
                while self.unused_bytes > self.limit and size >= SMALL and self._unused[size]:
                    self._unused[size].pop(0)
                    self.unused_bytes -= size

    def empty(self, numbers: int, like: Tensor, packed_plan: Tensor) -> Tensor:
        """An uninitialised tensor (numbers,) with the dtype of `like`, whose memory comes back when it goes."""
        if numbers * like.itemsize < SMALL:
            return like.new_empty(numbers)
        block = self.take(numbers * like.itemsize, packed_plan)
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
            for size, blocks in list(self._unused.items()):
                if owner is None or size >= SMALL:
                    remaining = [block for block in blocks if owner is not None and block.owner != owner]
                    self.unused_bytes -= size * (len(blocks) - len(remaining)) if size >= SMALL else 0
                    blocks[:] = remaining  # in place: the collector may call this between two lines of `take`
            self._owners.discard(owner or 0)


def _allocate(size: int) -> Block:
    memory = np.empty(size + _PAGE, np.uint8)
    start = -memory.ctypes.data % _PAGE
    return Block(memory[start : start + size], memory.ctypes.data + start, size)


@lru_cache(maxsize=1024)
def _round_up(size: int) -> int:
    """The next of 32 sizes between a power of 2 and the next one, so that similar batches share blocks."""
    step = max(_PAGE, 1 << max(0, size.bit_length() - 6))
    return -(-size // step) * step


_NUMPY = {torch.float32: np.float32, torch.float64: np.float64}

#: The blocks of this process.
BUFFERS = Buffers()


def _after_fork() -> None:
    BUFFERS._lock = threading.RLock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def empty_cache() -> None:
    """Free the memory that the cpu engine keeps for later passes; what is in use stays."""
    BUFFERS.release()

"""Calling a Triton kernel with little delay, and what launches share."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor


def interpreting() -> bool:
    """Whether Triton's interpreter stands in for a card, as tests ask for with TRITON_INTERPRET=1."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


_Wanted = dict[tuple[Any, ...], Callable[[], None]]
_wanted: ContextVar[_Wanted | None] = ContextVar("wanted", default=None)  # in a rehearsal, what is to be compiled
_compiled: set[tuple[Any, ...]] = set()


class Launch:
    """A Triton kernel with its grid and all that it is given, but for the tensors, which come first.

    What Triton compiled is kept, so a second call doesn't study its arguments anew. So each one is for tensors of the
    same types, and those that may be unaligned stand among the first four.
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], numbers: tuple[int, ...], fixed: tuple[Any, ...], warps: int
    ) -> None:
        self.kernel, self.grid, self.numbers, self.fixed, self.warps = kernel, grid, numbers, fixed, warps
        self.rest = *numbers, *fixed
        self.compiled: Any = None

    def __call__(self, *tensors: Tensor) -> None:
        """Launch it on the device of the first tensor."""
        address = [tensor.data_ptr() for tensor in tensors]
        odd = 0
        for place in address[:4]:
            odd |= place
        if self.compiled is None or odd % 16:
            self._study(tensors, odd % 16 == 0)
        elif tensors[0].get_device() == torch._C._cuda_getDevice():
            self.compiled(*address, *self.rest)  # numbers spare Triton a question to the driver for each tensor
        else:
            with torch.cuda.device(tensors[0].device):
                self.compiled(*address, *self.rest)

    def _study(self, tensors: tuple[Tensor, ...], aligned: bool) -> None:
        wanted = _wanted.get()
        if wanted is not None:
            kinds = tensors[0].get_device(), aligned, *(tensor.dtype for tensor in tensors)
            wanted[self.kernel, self.fixed, self.warps, kinds] = partial(self._compile, tensors)
            return
        with torch.cuda.device(tensors[0].get_device()):
            found = self.kernel[self.grid](*tensors, *self.rest, num_warps=self.warps, num_stages=1)
        if found is not None and aligned:  # the interpreter compiles nothing
            self.compiled = found[(*self.grid, 1, 1)[:3]]

    def _compile(self, tensors: tuple[Tensor, ...]) -> None:
        with torch.cuda.device(tensors[0].get_device()), suppress(Exception):  # told where it is launched
            self.kernel.warmup(*tensors, *self.rest, grid=self.grid, num_warps=self.warps, num_stages=1)


def rehearsing() -> bool:
    """Whether launches are noted to be compiled, and not run."""
    return _wanted.get() is not None


def rehearse(*passes: Callable[[], None]) -> None:
    """Compile all that passes launch, side by side, since one kernel takes the compiler seconds; run nothing."""
    wanted: _Wanted = {}
    token = _wanted.set(wanted)
    try:
        for each in passes:
            each()
    finally:
        _wanted.reset(token)
    new = [compile_ for key, compile_ in wanted.items() if key not in _compiled]
    if len(new) > 1:
        with warnings.catch_warnings():  # Triton 3.6 sets filters while it compiles, and threads would leave them so
            threads = [threading.Thread(target=each) for each in new]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    _compiled.update(wanted)


def blanks(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Stand-ins of the same types for launches that look up in a table where tensors are.

    What is compiled depends on how tensors are aligned, and nothing can be compiled while a graph is captured. So what
    is captured is given nothing that may be aligned in another way than at the first call.
    """
    return [tensor.new_empty(0) for tensor in tensors]


@cache
def holds(device: torch.device, warps: int) -> int:
    """Programs of so many warps that a card surely holds at once.

    It holds 8 warps a multiprocessor, whatever their registers, if it has the 18 KiB of shared memory that a walk may
    take for each; else one program.
    """
    if device.type != "cuda":
        return 4 * 8 // warps
    card = torch.cuda.get_device_properties(device)
    return card.multi_processor_count * (8 // warps if card.shared_memory_per_multiprocessor >= 160 << 10 else 1)


_blocks: list[Tensor] = []  # all there ever were: a captured graph may use a row for ever
_rows: dict[int, list[Tensor]] = {}  # rows of 16 int64 zeros that nobody has yet, by card
_counters: dict[tuple[int, int], Tensor] = {}


def reserve(device: torch.device) -> None:
    """Lay in rows of zeros on a card, before anyone captures a graph there."""
    index = torch.cuda.current_device() if device.index is None else device.index
    if not _rows.get(index):
        _blocks.append(torch.zeros(4096, 16, dtype=torch.int64, device=torch.device("cuda", index)))
        _rows[index] = list(_blocks[-1].unbind())
        torch.cuda.synchronize(index)


def zeros_row(device: torch.device) -> Tensor:
    """16 int64 zeros, whose memory is never anything else."""
    if device.type == "cuda":
        if not torch.cuda.is_current_stream_capturing():
            reserve(device)
        if _rows.get(device.index):
            return _rows[device.index].pop()
    return torch.zeros(16, dtype=torch.int64, device=device)


def counters(device: torch.device) -> Tensor:
    """Zeros that the kernels of one stream, or of one captured graph, count with and leave as zeros."""
    if device.type != "cuda" or torch.cuda.is_current_stream_capturing():  # a graph may be replayed on any stream
        return zeros_row(device)
    key = device.index, torch._C._cuda_getCurrentRawStream(device.index)
    found = _counters.get(key)
    if found is None:
        found = _counters[key] = zeros_row(device)
    return found

"""Calling a Triton kernel with little delay, and what launches share."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor


class Kernel:
    """A Triton kernel. What was compiled is kept by its constants, so a call doesn't study its arguments anew."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.compiled: dict[tuple[Any, ...], Any] = {}

    def __call__(
        self, grid: tuple[int, ...], tensors: tuple[Tensor, ...], numbers: tuple[int, ...], fixed: tuple[Any, ...],
        warps: int,
    ) -> None:  # fmt: skip
        """Launch it: tensors come first among its parameters, then numbers, then `fixed`, its tl.constexpr ones.

        What may be unaligned, and what decides over the types of all others, stands among the first four tensors.
        """
        device, address = tensors[0].get_device(), [tensor.data_ptr() for tensor in tensors]
        odd = 0
        for place in address[:4]:
            odd |= place
        odd %= 16
        key = device, odd, warps, grid, fixed, *[tensor.dtype for tensor in tensors[:3]]
        found = self.compiled.get(key)
        if found is None:
            with torch.cuda.device(device):
                found = self.function[grid](*tensors, *numbers, *fixed, num_warps=warps, num_stages=1)
            if found is not None and odd == 0:  # the interpreter compiles nothing
                self.compiled[key] = found[(*grid, 1, 1)[:3]]
        elif device == torch._C._cuda_getDevice():
            found(*address, *numbers, *fixed)  # numbers spare Triton a question to the driver for each tensor
        else:
            with torch.cuda.device(device):
                found(*address, *numbers, *fixed)


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a card."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


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
        return zeros_row(device).view(torch.int32)
    key = device.index, torch._C._cuda_getCurrentRawStream(device.index)
    found = _counters.get(key)
    if found is None:
        found = _counters[key] = zeros_row(device).view(torch.int32)
    return found


def plain(tensor: Tensor) -> Tensor:
    """Numbers as they lie in memory: contiguous, and negated where torch has only noted that."""
    return tensor.resolve_neg().contiguous() if tensor.is_neg() or not tensor.is_contiguous() else tensor

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


_counters: dict[tuple[int, int], Tensor] = {}
_spare: dict[int, list[Tensor]] = {}


def counters(device: torch.device) -> Tensor:
    """Four zeros that the kernels of one stream, or of one captured graph, count with and leave as zeros."""
    if device.type != "cuda":
        return torch.zeros(4, dtype=torch.int32, device=device)
    if torch.cuda.is_current_stream_capturing():  # the graph may be replayed on any stream, so they are its own
        spare = _spare.get(device.index)
        return spare.pop() if spare else torch.zeros(4, dtype=torch.int32, device=device)
    key = device.index, torch._C._cuda_getCurrentRawStream(device.index)
    found = _counters.get(key)
    if found is None:
        found = _counters[key] = torch.zeros(4, dtype=torch.int32, device=device)
        if device.index not in _spare:
            _spare[device.index] = list(torch.zeros(1024, 4, dtype=torch.int32, device=device).unbind())
            torch.cuda.synchronize(device)
    return found


def plain(tensor: Tensor) -> Tensor:
    """Numbers as they lie in memory: contiguous, and negated where torch has only noted that."""
    return tensor.resolve_neg().contiguous() if tensor.is_neg() or not tensor.is_contiguous() else tensor

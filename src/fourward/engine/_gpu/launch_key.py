"""What the launches of a pass depend on, tensors apart."""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton.language as tl

from fourward.engine._dropout import float64_bits, threshold
from fourward.engine._gpu import heuristics
from fourward.engine._gpu.packing import Shape

TYPES = {torch.float32: tl.float32, torch.float64: tl.float64, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}


def wide_of(dtype: torch.dtype) -> torch.dtype:
    """What sums are kept in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Case(NamedTuple):
    """A network, a batch, and what is asked for."""

    shape: Shape
    batch: int
    dtype: torch.dtype  #: of the activations
    weight: torch.dtype  #: of the weights and biases
    device: torch.device
    biased: bool
    p: float | None  #: of dropout
    everything: bool
    more: bool  #: forward: a backward pass will come; backward: the gradient of x is wanted

    @property
    def how(self) -> heuristics.Way:
        """The way it is walked."""
        return heuristics.way_of(self.shape, self.batch)

    @property
    def slices(self) -> int:
        """Of the batch."""
        return -(-self.batch // self.how.width)

    @property
    def columns(self) -> int:
        """Of the result."""
        return self.shape.nodes if self.everything else self.shape.outputs

    @property
    def wide(self) -> torch.dtype:
        """What sums are kept in."""
        return wide_of(self.dtype)

    @property
    def draw(self) -> tuple[int, int]:
        """The threshold of draws, and the bits of p."""
        return (0, 0) if self.p is None else (threshold(self.p), float64_bits(self.p))

"""What the launches of a pass depend on, apart from tensors; and the tensors that passes are called with."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton.language as tl

from fourward.engine._dropout import float64_bits, threshold
from fourward.engine._gpu import heuristics
from fourward.engine._gpu.packing import Shape

#: The tensors of a pass, in the order in which it is called with them. Without biases (dropout), another tensor of
#: that dtype (of integers) takes the place of bias (key), and its values aren't used.
FORWARD_TENSORS = ("x", "weight", "bias", "key", "out", "saved", "packed_plan")
BACKWARD_TENSORS = ("out_grad", "key", "x_grad", "saved", "weight_grad", "bias_grad", "packed_plan", "weight")

TRITON_DTYPES = {
    torch.float32: tl.float32,
    torch.float64: tl.float64,
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
}


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of sums over activations of this dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class LaunchKey(NamedTuple):
    """A network, a batch, and what is computed of it."""

    shape: Shape
    batch: int
    dtype: torch.dtype  #: dtype of the activations
    weight_dtype: torch.dtype  #: dtype of the weights and biases
    device: torch.device
    has_bias: bool
    dropout_p: float | None
    all_nodes: bool  #: the result is the activations of all nodes, not of the outputs
    needs_backward: bool  #: a backward pass follows, or this is it
    needs_x_grad: bool  #: in a backward pass: the gradient of x is needed

    @property
    def config(self) -> heuristics.LaunchConfig:
        """Its launch configuration."""
        return heuristics.choose_config(self.shape, self.batch)

    @property
    def slices(self) -> int:
        """Slices of the batch."""
        return -(-self.batch // self.config.block_b)

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.shape.nodes if self.all_nodes else self.shape.outputs

    @property
    def acc_dtype(self) -> torch.dtype:
        """The dtype of sums."""
        return accumulation_dtype(self.dtype)

    @property
    def save_z(self) -> bool:
        """Whether z is saved for the backward pass."""
        return bool(self.shape.needs_z) and self.needs_backward

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments that kernels share, by the names of their parameters; a kernel takes those that it has."""
        shape, config, p = self.shape, self.config, self.dropout_p
        sizes = ("rows", "nodes", "inputs", "edges", "input_blocks", "tiles", "panels", "forward_slots")
        return dict(
            **{name: getattr(shape, name) for name in sizes},
            **shape.offsets,
            B=self.batch,
            I=shape.inputs,
            columns=self.columns,
            slices=self.slices,
            threshold=0 if p is None else threshold(p),
            p_bits=0 if p is None else float64_bits(p),
            BLOCK_B=config.block_b,
            SEGMENT=shape.segment,
            QUADS=config.quads,
            DIRECT_INPUTS=shape.direct_inputs,
            CODES=shape.codes,
            HAS_BIAS=self.has_bias,
            HAS_DROPOUT=p is not None,
            SAVE_Z=self.save_z,
            NEEDS_X_GRAD=self.needs_x_grad,
            X_DTYPE=TRITON_DTYPES[self.dtype],
            WEIGHT_DTYPE=TRITON_DTYPES[self.weight_dtype],
            ACC_DTYPE=TRITON_DTYPES[self.acc_dtype],
        )

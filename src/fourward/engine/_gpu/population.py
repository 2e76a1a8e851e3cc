"""Populations on a GPU: the packed plan and the launches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward.engine._gpu.kernel_launch import Launch
from fourward.engine._gpu.packing import join_fields
from fourward.engine._interface import plain
from fourward.engine._kernel_population import Gradients, KernelPopulationRunner
from fourward.plan._population_plan import PopulationPlan

MAX_BLOCK_B = 128  #: samples of a program
PROGRAMS = 4224  #: programs that saturate a GPU: 32 for each multiprocessor of an H200
_FORWARD = "x", "weight", "bias", "out", "saved", "packed_plan"
_BACKWARD = "out_grad", "weight", "saved", "deltas", "weight_sums", "bias_sums", "x_grad", "packed_plan"
MAX_SHARES = 16  #: shares of a batch, each of which has sums of gradients of its own


class PopulationShape(NamedTuple):
    """Sizes of a packed plan, then the offset of each of its fields."""

    members: int
    neurons: int
    edges: int
    inputs: int
    outputs: int
    codes: int  #: bit c is set if some neuron's activation is c
    needs_z: int  #: 1 if some derivative needs z
    neuron_start: int  #: the first neuron of each member
    # One element for each neuron of all members:
    edge_start: int  #: its first edge
    neuron: int  #: the index of its bias within its member
    code: int
    needed: int  #: 1 if it reaches an output
    source: int  #: the row of its member where each edge starts
    output_rows: int  #: the row of each output of each member

    def __hash__(self) -> int:
        """Hash a few fields only, since every call of a population looks up its launches by its shape."""
        return hash((self.members, self.neurons, self.edges, self.codes))

    @property
    def rows(self) -> int:
        """Rows of all members, those of their inputs included."""
        return self.members * self.inputs + self.neurons

    @property
    def arguments(self) -> dict[str, int]:
        """Sizes and offsets by the names that kernels give them."""
        names = ("neuron_start", "edge_start", "neuron", "code", "needed", "source")
        sizes = {"rows": self.rows, "edges": self.edges, "neurons": self.neurons, "I": self.inputs, "O": self.outputs}
        return sizes | {name.upper(): getattr(self, name) for name in names} | {"OUTPUTS": self.output_rows}


def pack_population(plan: PopulationPlan) -> tuple[Tensor, PopulationShape]:
    """A population as one int32 tensor, and its shape."""
    fields = {
        "neuron_start": plan.neuron_start, "edge_start": np.concatenate(([0], np.cumsum(plan.in_degree))),
        "neuron": plan.neuron, "code": plan.code, "needed": plan.needed.astype(np.int32), "source": plan.source,
        "output_rows": plan.outputs.reshape(-1),
    }  # fmt: skip
    packed, offsets = join_fields(fields)
    codes = int(np.bitwise_or.reduce(1 << plan.code.astype(np.int64), initial=0)) or 1
    sizes = (plan.num_members, plan.num_neurons, plan.num_edges, plan.num_inputs, plan.num_outputs)
    return torch.from_numpy(packed), PopulationShape(*sizes, codes, int(plan.needs_z.any()), **offsets)


class PopulationKey(NamedTuple):
    """A population, a batch, and what is computed of it."""

    shape: PopulationShape
    batch: int
    dtype: torch.dtype
    separate: bool  #: each member has features of its own
    has_bias: bool
    needs_backward: bool  #: a backward pass follows, or this is it
    needs_x_grad: bool = False

    @property
    def block_b(self) -> int:
        """Samples of a program: a power of two, at least a warp's."""
        return max(32, min(1 << (self.batch - 1).bit_length(), MAX_BLOCK_B))

    @property
    def slices(self) -> int:
        """Slices of the batch."""
        return -(-self.batch // self.block_b)

    @property
    def slices_per_share(self) -> int:
        """Slices that one program of a backward pass computes: as few as saturate a GPU."""
        shares = max(1, min(self.slices, MAX_SHARES, -(-PROGRAMS // self.shape.members)))
        return -(-self.slices // shares)

    @property
    def shares(self) -> int:
        """Shares of the slices."""
        return -(-self.slices // self.slices_per_share)

    @property
    def save_z(self) -> bool:
        """Whether sums are saved for the backward pass."""
        return self.needs_backward and bool(self.shape.needs_z)

    @property
    def saved_size(self) -> int:
        """Elements of all rows."""
        return self.slices * self.block_b * self.shape.rows * (1 + self.save_z)


@lru_cache(maxsize=256)
def _build_launch(key: PopulationKey, backward: bool) -> Launch:
    """The launch of a pass."""
    from fourward.engine._gpu import population_kernels as kernels  # it imports triton
    from fourward.engine._gpu.launch_key import TRITON_DTYPES, accumulation_dtype

    shared = key.shape.arguments | {
        "B": key.batch, "slices": key.slices, "slices_per_share": key.slices_per_share, "SEPARATE": int(key.separate),
        "BLOCK_B": key.block_b, "CODES": key.shape.codes, "HAS_BIAS": key.has_bias, "SAVE_Z": key.save_z,
        "NEEDS_X_GRAD": key.needs_x_grad, "ACC_DTYPE": TRITON_DTYPES[accumulation_dtype(key.dtype)],
    }  # fmt: skip
    if backward:
        grid = (key.shape.members * key.shares,)
        return Launch(kernels.population_backward_kernel, grid, _BACKWARD, shared, num_warps=1)
    grid = (key.shape.members * key.slices,)
    return Launch(kernels.population_forward_kernel, grid, _FORWARD, shared, num_warps=1)


class GpuPopulationRunner(KernelPopulationRunner):
    """A population packed for the GPU's kernels."""

    def __init__(self, plan: PopulationPlan) -> None:
        packed_plan, self.shape = pack_population(plan)
        super().__init__(plan, packed_plan)

    def describe(self) -> str:
        """The strategy."""
        return f"a program for each of {self.plan.num_members:,} members and each {MAX_BLOCK_B} samples, in one launch"

    def compute(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, needs_backward: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Rows of all members are saved, then sums where the backward pass needs them."""
        x, weight, bias = plain(x), plain(weight), None if bias is None else plain(bias)
        separate, batch = x.dim() == 3, x.shape[-2]
        key = PopulationKey(self.shape, batch, x.dtype, separate, bias is not None, needs_backward)
        out = x.new_empty(self.shape.members, batch, self.shape.outputs)
        saved = x.new_empty(key.saved_size)
        if batch:
            tensors = (x, weight, weight if bias is None else bias, out, saved, self.packed_plan)
            _build_launch(key, backward=False)(tensors)
        return out, (saved,)

    def compute_gradients(self, ctx: Any, out_grad: Tensor) -> Gradients:
        """Sums of each share, then over shares; and over members where these share x."""
        from fourward.engine._gpu.launch_key import accumulation_dtype

        x, weight, bias, saved = ctx.saved_tensors
        shape, separate, needs_x_grad = self.shape, x.dim() == 3, ctx.needs_input_grad[0]
        batch = x.shape[-2]
        key = PopulationKey(shape, batch, saved.dtype, separate, bias is not None, True, needs_x_grad)
        sum_dtype = accumulation_dtype(saved.dtype)
        weight_sums = weight.new_zeros(max(key.shares, 1), shape.edges, dtype=sum_dtype)
        bias_sums = weight.new_zeros(max(key.shares, 1), shape.neurons if key.has_bias else 0, dtype=sum_dtype)
        x_grad = x.new_empty(shape.members if needs_x_grad else 0, batch, shape.inputs, dtype=sum_dtype)
        if batch:
            deltas = weight.new_empty(key.shares * shape.rows * key.block_b, dtype=sum_dtype)
            tensors = (
                plain(out_grad), plain(weight), saved, deltas, weight_sums, bias_sums, x_grad, self.packed_plan,
            )  # fmt: skip
            _build_launch(key, backward=True)(tensors)
        if needs_x_grad:
            x_grad = (x_grad if separate else x_grad.sum(0)).to(x.dtype)
        bias_grad = None if bias is None else bias_sums.sum(0).to(bias.dtype)
        return x_grad if needs_x_grad else None, weight_sums.sum(0).to(weight.dtype), bias_grad

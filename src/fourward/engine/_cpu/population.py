"""Populations on the CPU: chunks of members and shares of the batch, memory, addresses; autograd."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.engine._cpu import entries, threads
from fourward.engine._cpu.buffers import BUFFERS
from fourward.engine._cpu.packed_plan import pack_fields
from fourward.engine._cpu.population_entries import (
    NEEDED,
    NEEDS_Z,
    PackedPopulation,
    population_backward_arguments,
    population_forward_arguments,
)
from fourward.engine._cpu.slices import Slices, lanes_per_group, most_groups, slices
from fourward.engine._interface import plain
from fourward.engine._kernel_population import Gradients, KernelPopulationRunner
from fourward.plan._population_plan import PopulationPlan

#: Chunks of members are at most so many, and a population of fewer members is cut along the batch, too.
MOST_CHUNKS, FEW_CHUNKS = 64, 8
#: Multiplications of a chunk, at least; fewer aren't worth a second thread.
CHUNK_WORK = 100_000
#: What a neuron costs besides its edges, and an input, in edges.
NEURON_WORK, INPUT_WORK = 4, 2
PARTS = 8  #: jobs that add up gradients


class Layout(NamedTuple):
    """How a batch of a size is computed; results depend on nothing else."""

    cut: Slices  #: the batch as slices, consecutive ones for each share
    chunk_start: IntArray  #: (C+1,) int64, the members of chunk c are chunk_start[c]:chunk_start[c+1]
    jobs: int
    scratch: int  #: numbers in the rows of a member, for the widest slice
    parallel: bool  #: whether there is enough work for threads


class CpuPopulationRunner(KernelPopulationRunner):
    """A population packed for the CPU's kernels, which save nothing for the backward pass."""

    def __init__(self, plan: PopulationPlan) -> None:
        super().__init__(plan, pack_population(plan))
        self.work = _cumulative_work(plan)
        self.layouts: dict[tuple[int, torch.dtype], Layout] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "layouts": {}}  # which contain addresses

    def describe(self) -> str:
        """The order of the members."""
        return f"one member after another is computed in {self.plan.num_inputs + self.plan.most_neurons:,} rows at most"

    def compute(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, needs_backward: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All chunks of members and shares of the batch."""
        return _forward(x, weight, bias, self), ()

    def compute_gradients(self, ctx: Any, out_grad: Tensor) -> Gradients:
        """Activations are computed again, member by member."""
        return _backward(ctx, out_grad, self)

    def layout(self, batch: int, dtype: torch.dtype) -> Layout:
        """The layout of batches of this size."""
        key = batch, dtype
        if key not in self.layouts:
            if len(self.layouts) >= 64:
                self.layouts.clear()
            self.layouts[key] = self._make_layout(batch, dtype)
        return self.layouts[key]

    def _make_layout(self, batch: int, dtype: torch.dtype) -> Layout:
        lanes, work = lanes_per_group(dtype), int(self.work[-1]) * batch
        rows = self.plan.num_inputs + self.plan.most_neurons
        chunks = max(1, min(MOST_CHUNKS, self.plan.num_members, work // CHUNK_WORK))
        shares = max(1, min(FEW_CHUNKS // chunks, work // CHUNK_WORK))
        cut = slices(batch, lanes, shares, most_groups(rows), narrow=False)
        bounds = np.linspace(0, self.work[-1], chunks + 1)
        chunk_start = np.unique(np.searchsorted(self.work, bounds)).astype(np.int64)
        jobs = (len(chunk_start) - 1) * cut.shares
        return Layout(cut, chunk_start, jobs, rows * cut.width, work > CHUNK_WORK)


def pack_population(plan: PopulationPlan) -> Tensor:
    """The plan as one tensor of int32."""
    flag = NEEDED * plan.needed.astype(np.int32) + NEEDS_Z * plan.needs_z
    fields = PackedPopulation(
        plan.neuron_start, plan.edge_start, plan.in_degree, plan.neuron, plan.code, flag, plan.source,
        plan.outputs.reshape(-1),
    )  # fmt: skip
    return pack_fields(fields)


def _cumulative_work(plan: PopulationPlan) -> IntArray:
    """(P+1,) the work of all members before each."""
    return plan.edge_start + NEURON_WORK * plan.neuron_start + INPUT_WORK * np.arange(plan.num_members + 1)


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None, runner: CpuPopulationRunner) -> Tensor:
    x, weight, bias = plain(x), plain(weight), None if bias is None else plain(bias)
    plan, packed_plan, batch = runner.plan, runner.packed_plan, x.shape[-2]
    out = x.new_empty(plan.num_members, batch, plan.num_outputs)
    layout = runner.layout(batch, x.dtype)
    num_threads = min(torch.get_num_threads() if layout.parallel else 1, layout.jobs)
    block = BUFFERS.take(layout.scratch * max(num_threads, 1) * x.itemsize, packed_plan)
    buffer = population_forward_arguments(
        chunks=len(layout.chunk_start) - 1,
        chunk_start=layout.chunk_start.ctypes.data,
        shares=layout.cut.shares,
        share_start=layout.cut.share_address,
        slices=layout.cut.address,
        packed_plan=packed_plan.data_ptr(),
        inputs=plan.num_inputs,
        outputs=plan.num_outputs,
        batch=batch,
        separate=int(x.dim() == 3),
        x=x.data_ptr(),
        out=out.data_ptr(),
        rows=block.address,
        scratch=layout.scratch,
        weight=weight.data_ptr(),
        bias=0 if bias is None else bias.data_ptr(),
    )
    threads.run(entries.entry("population_forward", _NAMES[x.dtype]), buffer, layout.jobs, num_threads)
    BUFFERS.give_back(block)
    return out


def _backward(ctx: Any, out_grad: Tensor, runner: CpuPopulationRunner) -> Gradients:
    x, weight, bias = ctx.saved_tensors
    x, weight, bias, out_grad = plain(x), plain(weight), None if bias is None else plain(bias), plain(out_grad)
    plan, packed_plan, batch, separate = runner.plan, runner.packed_plan, x.shape[-2], x.dim() == 3
    edges, biases = len(weight), 0 if bias is None else len(bias)
    layout, needs_x = runner.layout(batch, x.dtype), ctx.needs_input_grad[0]
    chunks, shares = len(layout.chunk_start) - 1, max(layout.cut.shares, 1)
    num_threads = min(torch.get_num_threads() if layout.parallel else 1, layout.jobs)
    weight_grad, bias_grad = weight.new_empty(edges), None if bias is None else bias.new_empty(biases)
    x_grad = torch.empty_like(x) if needs_x else None
    scratch, sums = 3 * layout.scratch * max(num_threads, 1), (shares - 1) * (edges + biases)
    x_sums = chunks * batch * plan.num_inputs if needs_x and not separate else 0
    block = BUFFERS.take((scratch + sums + x_sums) * x.itemsize, packed_plan)
    buffer = population_backward_arguments(
        chunks=chunks,
        chunk_start=layout.chunk_start.ctypes.data,
        shares=shares,
        share_start=layout.cut.share_address,
        slices=layout.cut.address,
        packed_plan=packed_plan.data_ptr(),
        inputs=plan.num_inputs,
        outputs=plan.num_outputs,
        batch=batch,
        separate=int(separate),
        x=x.data_ptr(),
        out_grad=out_grad.data_ptr(),
        rows=block.address,
        scratch=layout.scratch,
        weight=weight.data_ptr(),
        bias=0 if bias is None else bias.data_ptr(),
        edges=edges,
        biases=biases,
        sums=block.address + scratch * x.itemsize,
        weight_grad=weight_grad.data_ptr(),
        bias_grad=0 if bias_grad is None else bias_grad.data_ptr(),
        x_sums=block.address + (scratch + sums) * x.itemsize if x_sums else 0,
        x_grad=0 if x_grad is None else x_grad.data_ptr(),
        parts=PARTS,
    )
    dtype = _NAMES[x.dtype]
    threads.run(entries.entry("population_backward", dtype), buffer, layout.jobs, num_threads)
    if sums or x_sums:
        threads.run(entries.entry("population_merge", dtype), buffer, PARTS, num_threads)
    BUFFERS.give_back(block)
    return x_grad, weight_grad, bias_grad


_NAMES = {torch.float32: "float32", torch.float64: "float64"}

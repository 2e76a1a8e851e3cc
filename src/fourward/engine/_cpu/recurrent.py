"""Networks with feedback on the CPU: a runner that calls the recurrent entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward.engine._cpu import entries, threads
from fourward.engine._cpu.buffers import BUFFERS
from fourward.engine._cpu.launch import THREAD_WORK, count_parts, saved_threads
from fourward.engine._cpu.packed_plan import Shape, pack_recurrent
from fourward.engine._cpu.pass_arguments import backward_arguments
from fourward.engine._cpu.recurrent_entries import recurrent_backward_arguments, recurrent_forward_arguments
from fourward.engine._cpu.slices import Slices, lanes_per_group, most_groups, pad_batch, slices
from fourward.engine._dropout import Dropout, float64_bits, threshold
from fourward.engine._interface import index_tensor, plain
from fourward.engine._kernel_recurrent import Gradients, KernelRecurrentRunner
from fourward.plan._recurrent_plan import RecurrentPlan


class CpuRecurrentRunner(KernelRecurrentRunner):
    """A recurrent plan packed for the CPU's kernels."""

    pruned_plan: Tensor | None  #: None if all nodes reach an output, so that it would be the packed plan
    edge: Tensor
    rank: Tensor
    dead_nodes: Tensor
    dead_neurons: Tensor

    def __init__(self, plan: RecurrentPlan) -> None:
        packed_plan, pruned_plan, shape, edge = pack_recurrent(plan)
        super().__init__(plan, packed_plan)
        pruned = None if pruned_plan is packed_plan else pruned_plan
        self.register_buffer("pruned_plan", pruned, persistent=False)
        dead = plan.step.dag.num_inputs + np.flatnonzero(~plan.reaches_output[plan.step.dag.num_inputs :])
        self.register_buffer("dead_nodes", index_tensor(plan.step.order[dead]), persistent=False)
        dead_neurons = plan.step.neuron[dead - plan.step.dag.num_inputs]
        self.register_buffer("dead_neurons", index_tensor(dead_neurons), persistent=False)
        self.shape = shape
        self.has_voltage = plan.leaky and plan.dynamics == "voltage"
        self.register_buffer("edge", index_tensor(edge), persistent=False)
        self.register_buffer("rank", index_tensor(np.argsort(edge)), persistent=False)

    def describe(self) -> str:
        """The order of the neurons, and what is computed at once."""
        edges = f"{self.plan.num_feedback:,} of {self.shape.edges:,} edges carry the value of the step before"
        return f"all steps of a slice of the batch in one call, a neuron at a time; {edges}"

    def compute(
        self, x: Tensor, h0: Tensor | None, weight: Tensor, bias: Tensor | None, rate: Tensor | None,
        dropout: Dropout | None, all_nodes: bool, needs_backward: bool,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:  # fmt: skip
        """Activations of all steps are saved, then sums, then voltages."""
        if rate is not None and h0 is None:
            h0 = x.new_zeros(x.shape[1], self.shape.nodes)
        by_target = weight.index_select(0, self.edge)
        out, h, saved = _forward(x, h0, by_target, bias, rate, dropout, all_nodes, self, needs_backward)
        return out, h, (saved,)

    def compute_gradients(self, ctx: Any, out_grad: Tensor | None, h_grad: Tensor | None) -> Gradients:
        """Call the kernels."""
        x, h0, weight, bias, rate, saved = ctx.saved_tensors
        if out_grad is None:
            out_grad = x.new_zeros(*x.shape[:2], self.shape.nodes if ctx.all_nodes else self.shape.outputs)
        is_pruned = h_grad is None and not ctx.all_nodes
        if h_grad is None:
            h_grad = x.new_zeros(x.shape[1], self.shape.nodes)
        by_target = weight.index_select(0, self.edge)
        x_grad, h0_grad, weight_grad, bias_grad, rate_grad = _backward(
            ctx, x, h0, by_target, bias, rate, saved, out_grad, h_grad, self.pruned_plan if is_pruned else None
        )
        if is_pruned:
            for grad, dead in (
                (bias_grad, self.dead_neurons),
                (rate_grad, self.dead_neurons),
                (h0_grad, self.dead_nodes),
            ):
                if grad is not None and len(dead):
                    grad.index_fill_(-1, dead, 0)
        return x_grad, h0_grad, weight_grad.index_select(0, self.rank), bias_grad, rate_grad


def _cut(shape: Shape, steps: int, batch: int, dtype: torch.dtype, max_threads: int) -> tuple[Slices, int]:
    """The slices of a batch, and how many threads share them."""
    num_threads = max_threads if shape.edges * batch * steps > THREAD_WORK else 1
    return slices(batch, lanes_per_group(dtype), num_threads, most_groups(shape.slots)), num_threads


def _entry(name: str, dtype: torch.dtype, cut: Slices, is_leaky: bool) -> int:
    prefix = "" if cut.width >= lanes_per_group(dtype) else "narrow_"
    kind = "leaky" if is_leaky else "recurrent"
    return entries.entry(f"{prefix}{kind}_{name}", str(dtype).removeprefix("torch."))


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _z_rows(shape: Shape, steps: int, is_leaky: bool) -> int:
    """Rows of sums that the backward pass needs."""
    return steps * (shape.nodes if is_leaky else shape.z_rows)


def _forward(
    x: Tensor, h0: Tensor | None, weight: Tensor, bias: Tensor | None, rate: Tensor | None, dropout: Dropout | None,
    all_nodes: bool, runner: CpuRecurrentRunner, needs_backward: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Results of all steps, the last state, and what the backward pass needs: a, then z, slice after slice."""
    shape, packed_plan = runner.shape, runner.packed_plan
    x, weight = plain(x), plain(weight)
    h0, bias, rate = (None if t is None else plain(t) for t in (h0, bias, rate))
    steps, batch, _ = x.shape
    cut, num_threads = _cut(shape, steps, batch, x.dtype, torch.get_num_threads())
    columns = shape.nodes if all_nodes else shape.outputs
    out, h = x.new_empty(steps, batch, columns), x.new_empty(batch, shape.nodes)
    rows, z_rows, block = shape.nodes * (steps + 1), _z_rows(shape, steps, rate is not None), None
    if needs_backward:
        saved = BUFFERS.empty((rows * (1 + runner.has_voltage) + z_rows) * cut.padded + 1, x, packed_plan)
        saved_threads(saved).value = torch.get_num_threads()
        a, scratch = saved.data_ptr(), 0
        u = a + (rows + z_rows) * cut.padded * x.itemsize
    else:
        scratch, num_scratches = shape.slots * cut.width, min(num_threads, cut.jobs)
        block = BUFFERS.take(scratch * x.itemsize * num_scratches * (1 + runner.has_voltage), packed_plan)
        a, saved = block.address, out
        u = a + scratch * x.itemsize * num_scratches
    buffer = recurrent_forward_arguments(
        jobs=cut.jobs,
        slices=cut.address,
        packed_plan=packed_plan.data_ptr(),
        all_nodes=all_nodes,
        inputs=shape.inputs,
        outputs=columns,
        steps=steps,
        batch=batch,
        x=x.data_ptr(),
        out=out.data_ptr(),
        h0=_address(h0),
        h=h.data_ptr(),
        a=a,
        z=a + rows * cut.padded * x.itemsize if needs_backward else 0,
        scratch=scratch,
        weight=weight.data_ptr(),
        bias=_address(bias),
        rate=_address(rate),
        u=u if runner.has_voltage else 0,
        key=0 if dropout is None else int(dropout.key),
        threshold=0 if dropout is None else threshold(dropout.p),
        p_bits=0 if dropout is None else float64_bits(dropout.p),
    )
    threads.run(_entry("forward", x.dtype, cut, rate is not None), buffer, cut.jobs, num_threads)
    if block is not None:
        BUFFERS.give_back(block)
    return out, h, saved


def _backward(
    ctx: Any, x: Tensor, h0: Tensor | None, weight: Tensor, bias: Tensor | None, rate: Tensor | None, saved: Tensor,
    out_grad: Tensor, h_grad: Tensor, pruned_plan: Tensor | None,
) -> tuple[Tensor | None, Tensor | None, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of x, h0, the sorted weights, the biases and the rates; None where none is needed."""
    shape, packed_plan, dropout = ctx.runner.shape, ctx.runner.packed_plan, ctx.dropout
    out_grad, h_grad, weight = plain(out_grad), plain(h_grad), plain(weight)
    (steps, batch, columns), dtype, itemsize = out_grad.shape, out_grad.dtype, out_grad.itemsize
    cut, num_threads = _cut(shape, steps, batch, dtype, int(saved_threads(saved).value))
    neurons = shape.nodes - shape.inputs
    biases, rates = (0 if tensor is None else neurons for tensor in (bias, rate))
    x_grad = torch.zeros_like(x, memory_format=torch.contiguous_format) if ctx.needs_input_grad[0] else None
    h0_grad = x.new_empty(batch, shape.nodes) if h0 is not None or rate is not None else None
    weight_grad = BUFFERS.empty(shape.edges, weight, packed_plan)
    neuron_grad = out_grad.new_empty(biases + rates)  # gradients of biases, then of rates
    scratch = (shape.back_slots if rate is None else 3 * shape.nodes + 1) * cut.width
    edges = pad_batch(shape.edges, lanes_per_group(dtype))
    block = BUFFERS.take(
        (scratch * cut.shares + edges + (shape.edges + biases + rates) * cut.shares) * itemsize, packed_plan
    )
    by_source = block.address + scratch * cut.shares * itemsize
    sums = by_source + edges * itemsize
    parts = count_parts(shape.edges, num_threads)
    nothing = dict.fromkeys(("share_start", "distance", "slices", "x_grad", "out_grad", "a", "z", "d", "scratch"), 0)
    outer = backward_arguments(
        stage=0,
        **nothing,
        shares=cut.shares,
        parts=parts,
        packed_plan=packed_plan.data_ptr(),
        all_nodes=ctx.all_nodes,
        inputs=shape.inputs,
        outputs=columns,
        weight=weight.data_ptr(),
        by_source=by_source,
        sums=sums,
        biases=biases + rates,
        weight_grad=weight_grad.data_ptr(),
        bias_grad=neuron_grad.data_ptr(),
        key=0,
        threshold=0,
        p_bits=0,
    )
    a, rows = saved.data_ptr(), shape.nodes * (steps + 1)
    inner = recurrent_backward_arguments(
        shares=cut.shares,
        share_start=cut.share_address,
        slices=cut.address,
        packed_plan=(packed_plan if pruned_plan is None else pruned_plan).data_ptr(),
        all_nodes=ctx.all_nodes,
        inputs=shape.inputs,
        outputs=columns,
        steps=steps,
        batch=batch,
        x_grad=_address(x_grad),
        out_grad=out_grad.data_ptr(),
        h0_grad=_address(h0_grad),
        h_grad=h_grad.data_ptr(),
        a=a,
        z=a + rows * cut.padded * itemsize,
        rate=_address(None if rate is None else plain(rate)),
        u=a + (rows + _z_rows(shape, steps, rate is not None)) * cut.padded * itemsize if ctx.runner.has_voltage else 0,
        d=block.address,
        scratch=scratch,
        by_source=by_source,
        sums=sums,
        biases=biases,
        key=0 if dropout is None else int(dropout.key),
        threshold=0 if dropout is None else threshold(dropout.p),
        p_bits=0 if dropout is None else float64_bits(dropout.p),
    )
    name = str(dtype).removeprefix("torch.")
    threads.run(entries.entry("sort", name), outer, parts, num_threads)
    threads.run(_entry("backward", dtype, cut, rate is not None), inner, cut.shares, num_threads)
    threads.run(entries.entry("finish", name), outer, parts, num_threads)
    BUFFERS.give_back(block)
    bias_grad, rate_grad = neuron_grad[:biases], neuron_grad[biases:]
    h0_grad = None if h0 is None else h0_grad
    return x_grad, h0_grad, weight_grad, None if bias is None else bias_grad, None if rate is None else rate_grad

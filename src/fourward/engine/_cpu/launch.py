"""From tensors to kernels: slices of the batch, threads, addresses."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.engine._cpu import kernels, simd, threads
from fourward.engine._cpu.edge_runs import backward_runs, forward_runs
from fourward.engine._dropout import float64_bits, threshold
from fourward.engine._interface import plain
from fourward.errors import EngineError
from fourward.plan._plan import Plan

GROUPS = (8, 4, 2, 1)  #: numbers of lane groups that a slice may have
#: Multiplications below which a second thread costs more than it saves.
THREAD_WORK = 100_000
#: The version of packed plans: changes whenever kernels.PackedPlan does. An exported network may meet newer kernels.
LAYOUT = 1
PARTS = 4  #: parts of the weight gradients for each thread, so that none waits long for another


class Shape(NamedTuple):
    """The sizes of a packed plan that a launch needs to know without reading it."""

    nodes: int
    inputs: int
    outputs: int
    edges: int
    z_rows: int  #: nodes whose z the backward pass needs


def pack(plan: Plan) -> tuple[Tensor, Shape]:
    """Pack a plan into the tensor that kernels.PackedPlan describes."""
    dag = plan.dag
    runs, (back, back_start, edge) = forward_runs(plan), backward_runs(plan)
    bias_index = np.full(dag.num_nodes, -1)
    bias_index[dag.num_inputs :] = plan.neuron
    packed_plan = kernels.PackedPlan(
        node=runs.node,
        first=runs.first,
        last=runs.last,
        flag=runs.flag,
        back_node=back.node,
        back_first=back.first,
        back_last=back.last,
        back_flag=back.flag,
        start=plan.edge_start,
        back_start=back_start,
        source=plan.source,
        back_target=plan.target[edge],
        back_edge=edge,
        code=plan.code,
        bias_index=bias_index,
        z_row=np.where(plan.needs_z, np.cumsum(plan.needs_z) - 1, -1),
        order=plan.order,
        hidden=plan.hidden,
        outputs=plan.outputs,
        position=plan.position,
    )
    shape = Shape(
        nodes=dag.num_nodes,
        inputs=dag.num_inputs,
        outputs=dag.num_outputs,
        edges=dag.num_edges,
        z_rows=int(plan.needs_z.sum()),
    )
    return torch.from_numpy(_pack(packed_plan)), shape


def _pack(fields: tuple[IntArray, ...]) -> IntArray:
    """Pairs (start / ALIGN, length) of the fields, then the fields, then LAYOUT."""
    unit = kernels.ALIGN
    starts = np.cumsum([-(-2 * len(fields) // unit), *(-(-len(field) // unit) for field in fields)])
    packed = np.zeros(int(starts[-1]) * unit + 1, np.int32)
    packed[-1] = LAYOUT
    for i, (start, field) in enumerate(zip(starts.tolist(), fields, strict=False)):
        packed[2 * i : 2 * i + 2] = start, len(field)
        packed[start * unit : start * unit + len(field)] = field
    return packed


def check_layout(packed_plan: Tensor, shape: list[int]) -> None:
    """Raise an EngineError if another version of fourward packed the plan."""
    if int(packed_plan[-1]) != LAYOUT:
        raise EngineError(
            f"this network was exported by another version of fourward (expected layout {LAYOUT}, got "
            f"{int(packed_plan[-1])}). Export it again with this version."
        )


@lru_cache(maxsize=256)
def slices(batch: int, lanes: int, num_threads: int) -> tuple[IntArray, int, int]:
    """Split the batch into slices, evenly over the threads: a table of kernels.Slice, (n, 4) int64.

    Only the last slice is padded, so that all of them together hold the batch rounded up to whole lane groups. Returns
    the table, its address and its length.
    """
    total, done = -(-batch // lanes), 0  # lane groups
    rows = []
    for thread in range(num_threads):
        end = total * (thread + 1) // num_threads
        while done < end:
            groups = next(size for size in GROUPS if size <= end - done)
            begin = done * lanes
            size = min(batch - begin, groups * lanes)
            rows.append(kernels.Slice(first=begin, size=size, groups=groups, begin=begin))
            done += groups
    table = np.array(rows, np.int64).reshape(-1, len(kernels.Slice._fields))
    return table, table.ctypes.data, len(table)


def pad_batch(batch: int, lanes: int) -> int:
    """The batch size rounded up to whole lane groups."""
    return (batch + lanes - 1) // lanes * lanes


def lanes_per_group(dtype: torch.dtype) -> int:
    """How many numbers a lane group holds."""
    return simd.LANE_GROUP_BYTES // dtype.itemsize


def _num_threads(shape: Shape, batch: int) -> int:
    return torch.get_num_threads() if shape.edges * batch > THREAD_WORK else 1


def saved_size(shape: Shape, padded: int) -> int:
    """Numbers saved for the backward pass: a, z, and for how many threads the batch was cut."""
    return (shape.nodes + shape.z_rows) * padded + 1


def empty_saved(x: Tensor, shape: Shape) -> Tensor:
    """A tensor of the size of what `forward` saves for x."""
    return x.new_empty(saved_size(shape, pad_batch(x.shape[0], lanes_per_group(x.dtype))))


def _saved_threads(saved: Tensor) -> Any:
    """The last number of what is saved, as a C variable.

    The backward pass needs the slices of the forward pass, and torch's number of threads may have changed by then.
    """
    ctype = ctypes.c_float if saved.dtype == torch.float32 else ctypes.c_double
    return ctype.from_address(saved.data_ptr() + (saved.numel() - 1) * saved.itemsize)


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, packed_plan: Tensor, shape: Shape, key: Tensor | None, p: float,
    all_nodes: bool, needs_backward: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs (B, O) or all activations (B, N), and what the backward pass needs: a, then z, slice after slice."""
    x, weight, bias = plain(x), plain(weight), None if bias is None else plain(bias)
    batch, lanes = x.shape[0], lanes_per_group(x.dtype)
    num_threads, padded = _num_threads(shape, batch), pad_batch(batch, lanes)
    _, table, jobs = slices(batch, lanes, num_threads)
    out = x.new_empty(batch, shape.nodes if all_nodes else shape.outputs)
    saved = x.new_empty(saved_size(shape, padded))
    if needs_backward:
        _saved_threads(saved).value = num_threads
    a = saved.data_ptr()
    buffer = kernels.forward_arguments(
        jobs=jobs,
        slices=table,
        packed_plan=packed_plan.data_ptr(),
        all_nodes=all_nodes,
        inputs=shape.inputs,
        x=x.data_ptr(),
        out=out.data_ptr(),
        a=a,
        z=a + shape.nodes * padded * saved.itemsize,
        weight=weight.data_ptr(),
        bias=0 if bias is None else bias.data_ptr(),
        key=0 if key is None else int(key),
        threshold=0 if key is None else threshold(p),
        p_bits=0 if key is None else float64_bits(p),
    )
    threads.run(kernels.entry("forward", _NAMES[x.dtype]), buffer, jobs, num_threads)
    return out, saved


def backward(
    out_grad: Tensor, weight: Tensor, packed_plan: Tensor, shape: Shape, saved: Tensor, key: Tensor | None, p: float,
    all_nodes: bool, needs_x_grad: bool, has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x (empty unless needed), of the weights, and of the biases (empty if there are none)."""
    out_grad, weight = plain(out_grad), plain(weight)
    batch, dtype, lanes = out_grad.shape[0], _NAMES[out_grad.dtype], lanes_per_group(out_grad.dtype)
    num_threads, padded = _num_threads(shape, batch), pad_batch(batch, lanes)
    _, table, jobs = slices(batch, lanes, int(_saved_threads(saved).value))
    parts = 1 if num_threads == 1 else PARTS * num_threads
    x_grad = out_grad.new_empty(batch if needs_x_grad else 0, shape.inputs)
    weight_grad = torch.empty_like(weight)
    bias_grad = out_grad.new_zeros(shape.nodes - shape.inputs if has_bias else 0)
    d, by_source = out_grad.new_empty(shape.nodes * padded), torch.empty_like(weight)
    plan_address, a = packed_plan.data_ptr(), saved.data_ptr()
    buffer = kernels.sort_arguments(
        jobs=parts, packed_plan=plan_address, weight=weight.data_ptr(), weight_by_source=by_source.data_ptr()
    )
    threads.run(kernels.entry("sort", dtype), buffer, parts, num_threads)
    buffer = kernels.backward_arguments(
        jobs=jobs,
        slices=table,
        packed_plan=plan_address,
        all_nodes=all_nodes,
        inputs=shape.inputs,
        x_grad=x_grad.data_ptr() if needs_x_grad else 0,
        out_grad=out_grad.data_ptr(),
        a=a,
        z=a + shape.nodes * padded * saved.itemsize,
        d=d.data_ptr(),
        weight_by_source=by_source.data_ptr(),
        key=0 if key is None else int(key),
        threshold=0 if key is None else threshold(p),
        p_bits=0 if key is None else float64_bits(p),
    )
    threads.run(kernels.entry("backward", dtype), buffer, jobs, num_threads)
    buffer = kernels.weight_grad_arguments(
        jobs=parts,
        slices=table,
        num_slices=jobs,
        packed_plan=plan_address,
        a=a,
        d=d.data_ptr(),
        weight_grad=weight_grad.data_ptr(),
        bias_grad=bias_grad.data_ptr() if has_bias else 0,
    )
    threads.run(kernels.entry("weight_grad", dtype), buffer, parts, num_threads)
    return x_grad, weight_grad, bias_grad


_NAMES = {torch.float32: "float32", torch.float64: "float64"}

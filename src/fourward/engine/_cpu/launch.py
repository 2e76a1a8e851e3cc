"""From tensors to kernels: slices of the batch, threads, addresses."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.engine._base import plain
from fourward.engine._cpu import kernels, simd, threads
from fourward.engine._cpu.runs import backward_runs, forward_runs
from fourward.engine._dropout import float64_bits, threshold
from fourward.errors import EngineError
from fourward.plan._plan import Plan

GROUPS = (8, 4, 2, 1)  #: how many lane groups a slice may have
#: Multiplications under which a second thread isn't worth its hand-over.
THREAD_WORK = 100_000
#: Of packed programs; another number whenever kernels.Program changes. An exported network may meet newer kernels.
LAYOUT = 1
PARTS = 4  #: of the weight gradients, for each worker, so that none waits long for another


class Shape(NamedTuple):
    """What the launch must know of a program without reading it."""

    nodes: int
    inputs: int
    outputs: int
    edges: int
    rows: int  #: of z that the backward pass needs


def pack(plan: Plan) -> tuple[Tensor, Shape]:
    """A plan as the tensor that kernels.Program describes."""
    dag = plan.dag
    ahead, (back, back_start, edge) = forward_runs(plan), backward_runs(plan)
    bias_at = np.full(dag.num_nodes, -1)
    bias_at[dag.num_inputs :] = plan.neuron
    z_row = np.where(plan.needs_z, np.cumsum(plan.needs_z) - 1, -1)
    fields = kernels.Program(
        *ahead,
        *back,
        plan.edge_start,
        back_start,
        plan.source,
        plan.target[edge],
        edge,
        plan.code,
        bias_at,
        z_row,
        plan.order,
        plan.hidden,
        plan.outputs,
        plan.position,
    )
    shape = Shape(dag.num_nodes, dag.num_inputs, dag.num_outputs, dag.num_edges, int(plan.needs_z.sum()))
    return torch.from_numpy(_pack(fields)), shape


def _pack(fields: tuple[IntArray, ...]) -> IntArray:
    unit = kernels.ALIGN
    starts = np.cumsum([-(-2 * len(fields) // unit), *(-(-len(field) // unit) for field in fields)])
    packed = np.zeros(int(starts[-1]) * unit + 1, np.int32)
    packed[-1] = LAYOUT
    for i, (start, field) in enumerate(zip(starts.tolist(), fields, strict=False)):
        packed[2 * i : 2 * i + 2] = start, len(field)
        packed[start * unit : start * unit + len(field)] = field
    return packed


def check_layout(program: Tensor, shape: list[int]) -> None:
    """Refuse a program that another version of fourward packed."""
    if int(program[-1]) != LAYOUT:
        raise EngineError(
            f"this network was exported by another version of fourward (layout {int(program[-1])}, not {LAYOUT}). "
            "Export it again with this one."
        )


@lru_cache(maxsize=256)
def slices(batch: int, lanes: int, workers: int) -> tuple[IntArray, int, int]:
    """The batch cut into slices (first sample, how many, lane groups, first counting padding), a share for each worker.

    Only the last slice is padded, so that all of them together hold the batch rounded up to whole lane groups. Returns
    the table, its address and its length.
    """
    groups = -(-batch // lanes)
    rows, done = [], 0
    for worker in range(workers):
        share = groups * (worker + 1) // workers - done
        while share > 0:
            width = next(size for size in GROUPS if size <= share)
            rows.append((done * lanes, min(batch - done * lanes, width * lanes), width, done * lanes))
            share, done = share - width, done + width
    table = np.array(rows, np.int64).reshape(-1, 4)
    return table, table.ctypes.data, len(table)


def padded(batch: int, lanes: int) -> int:
    """The batch rounded up to whole lane groups."""
    return (batch + lanes - 1) // lanes * lanes


def lanes_of(dtype: torch.dtype) -> int:
    """Numbers in a lane group."""
    return simd.BYTES // dtype.itemsize


def _workers(shape: Shape, batch: int) -> int:
    return torch.get_num_threads() if shape.edges * batch > THREAD_WORK else 1


def _drawn(key: Tensor | None, p: float) -> tuple[int, int, int]:
    """Key, threshold and the bits of p, for the kernels; a threshold of 0 drops nothing."""
    if key is None:
        return 0, 0, 0
    return int(key), threshold(p), float64_bits(p)


def saved_size(shape: Shape, room: int) -> int:
    """Numbers saved for the backward pass: a, z, and by how many workers' shares the batch was cut."""
    return (shape.nodes + shape.rows) * room + 1


def empty_saved(x: Tensor, shape: Shape) -> Tensor:
    """What a forward pass keeps, as torch sees it while tracing."""
    return x.new_empty(saved_size(shape, padded(x.shape[0], lanes_of(x.dtype))))


def _workers_cell(saved: Tensor) -> Any:
    """The last number of what is saved; torch may have another number of threads by the time of the backward pass."""
    kind = ctypes.c_float if saved.dtype == torch.float32 else ctypes.c_double
    return kind.from_address(saved.data_ptr() + (saved.numel() - 1) * saved.itemsize)


def _a_and_z(saved: Tensor, shape: Shape, room: int) -> tuple[int, int]:
    """The addresses of a and z in what is saved for the backward pass."""
    a = saved.data_ptr()
    return a, a + shape.nodes * room * saved.itemsize


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: Shape, key: Tensor | None, p: float,
    all_nodes: bool, needs_backward: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs (B, O) or all activations (B, N), and what the backward pass needs: a, then z, a slice after another.

    Where no backward pass will come, pass needs_backward=False.
    """
    x, weight, bias = plain(x), plain(weight), None if bias is None else plain(bias)
    batch, lanes, workers = x.shape[0], lanes_of(x.dtype), _workers(shape, x.shape[0])
    (_, table, jobs), room = slices(batch, lanes, workers), padded(batch, lanes)
    out = x.new_empty(batch, shape.nodes if all_nodes else shape.outputs)
    saved = x.new_empty(saved_size(shape, room))
    if needs_backward:
        _workers_cell(saved).value = workers
    arguments = (
        *(table, program.data_ptr(), all_nodes, shape.inputs, x.data_ptr(), out.data_ptr()),
        *(*_a_and_z(saved, shape, room), weight.data_ptr(), 0 if bias is None else bias.data_ptr(), *_drawn(key, p)),
    )
    threads.run(kernels.entry("forward", _NAMES[x.dtype]), arguments, jobs, workers)
    return out, saved


def backward(
    out_grad: Tensor, weight: Tensor, program: Tensor, shape: Shape, saved: Tensor, key: Tensor | None, p: float,
    all_nodes: bool, needs_x_grad: bool, has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x (empty unless wanted), of the weights, and of the biases (empty unless there are any)."""
    out_grad, weight = plain(out_grad), plain(weight)
    batch, dtype, lanes = out_grad.shape[0], _NAMES[out_grad.dtype], lanes_of(out_grad.dtype)
    workers, room = _workers(shape, batch), padded(batch, lanes)
    _, table, jobs = slices(batch, lanes, int(_workers_cell(saved).value))  # as the forward pass cut it
    parts = 1 if workers == 1 else PARTS * workers
    x_grad = out_grad.new_empty(batch if needs_x_grad else 0, shape.inputs)
    weight_grad = torch.empty_like(weight)
    bias_grad = out_grad.new_zeros(shape.nodes - shape.inputs if has_bias else 0)
    d, by_source = out_grad.new_empty(shape.nodes * room), torch.empty_like(weight)
    code, (a, z) = program.data_ptr(), _a_and_z(saved, shape, room)
    threads.run(kernels.entry("sort", dtype), (code, parts, weight.data_ptr(), by_source.data_ptr()), parts, workers)
    arguments = (
        *(table, code, all_nodes, shape.inputs, x_grad.data_ptr() if needs_x_grad else 0, out_grad.data_ptr()),
        *(a, z, d.data_ptr(), by_source.data_ptr(), *_drawn(key, p)),
    )
    threads.run(kernels.entry("backward", dtype), arguments, jobs, workers)
    found = a, d.data_ptr(), weight_grad.data_ptr(), bias_grad.data_ptr() if has_bias else 0
    threads.run(kernels.entry("weights", dtype), (table, code, jobs, parts, *found), parts, workers)
    return x_grad, weight_grad, bias_grad


_NAMES = {torch.float32: "float32", torch.float64: "float64"}

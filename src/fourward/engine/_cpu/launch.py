"""From tensors to kernels: slices of the batch, memory, threads, addresses."""

from __future__ import annotations

import ctypes
from array import array
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fourward.engine._cpu import entries, threads
from fourward.engine._cpu.arguments import HEADER
from fourward.engine._cpu.buffers import BUFFERS, SMALL
from fourward.engine._cpu.packed_plan import Shape, check_layout, pack
from fourward.engine._cpu.pass_arguments import backward_arguments, forward_arguments
from fourward.engine._cpu.slices import (
    Slices,
    lanes_per_group,
    last_cache_bytes,
    most_groups,
    own_cache_bytes,
    pad_batch,
    slices,
)
from fourward.engine._dropout import float64_bits, threshold
from fourward.engine._interface import plain

__all__ = ["Shape", "backward", "check_layout", "empty_saved", "forward", "pack"]

#: Multiplications below which a second thread saves nothing: a forward pass gains 0.92 to 1.07 from it, and with a
#: backward pass 0.94 to 1.05, on two cores (24 networks of 64 to 512 neurons and the worm). At 600,000 it gains 1.1 to
#: 1.2, at 2.5 million 1.4 and 1.3; but nothing at all while a machine's host gives both threads one core.
THREAD_WORK = 300_000
#: Edges below which a second thread doesn't help to sort weights.
THREAD_EDGES = 20_000
#: Multiplications of a level, on average, below which taking it in parts costs more than it saves.
LEVEL_WORK = 100_000
PARTS = 4  #: parts of what has no order, for each thread, so that none waits long for another
#: Nodes between the one whose rows are prefetched and the one that is computed. With 10^6 nodes, 10^7 edges and B=32,
#: on one core, a training step takes 307 ms without, 237 with 2, 232 with 4, and 231 with 8.
PREFETCH_DISTANCE = 4


class Layout(NamedTuple):
    """How a pass over a batch of a size runs, and where its parts lie in memory."""

    cut: Slices
    num_threads: int
    num_jobs: int  #: slices, shares of a backward pass, or parts of a level
    stages: tuple[tuple[int, int], ...]  #: addresses of compiled entries, one after another, and their jobs
    saved: int  #: numbers that a forward pass saves; 0 if no backward pass follows
    unused: int  #: how many of them it doesn't write
    scratch: int  #: numbers in the rows of a thread or a share
    memory: int  #: bytes of scratch memory in all
    parts: int  #: parts of what has no order
    sorted_edges: int  #: room for weights sorted by source
    distance: int  #: nodes between the one whose rows are prefetched and the one that is computed


@lru_cache(maxsize=1024)
def _forward_layout(shape: Shape, batch: int, dtype: torch.dtype, max_threads: int, needs_backward: bool) -> Layout:
    lanes, num_threads = lanes_per_group(dtype), _num_threads(shape, batch, max_threads)
    rows = max(shape.slots, shape.back_slots) if needs_backward else shape.slots
    cut = slices(batch, lanes, num_threads, most_groups(rows))
    stages: tuple[tuple[int, int], ...] = ((_entry("forward", dtype, cut, lanes), cut.jobs),)
    num_jobs = cut.jobs
    if by_level := _goes_by_level(shape, cut, num_threads):
        num_jobs = PARTS * num_threads
        stages = ((entries.entry("level_forward", _NAMES[dtype]), num_jobs),) * shape.levels
    distance = _prefetch_distance(shape.slots, cut, dtype)
    if needs_backward:
        saved = saved_size(shape, batch, lanes)
        unused = saved - 1 - (shape.nodes + shape.z_rows) * cut.padded
        return Layout(cut, num_threads, num_jobs, stages, saved, unused, 0, 0, 0, 0, distance)
    scratch = shape.slots * cut.width
    memory = scratch * dtype.itemsize * (1 if by_level else min(num_threads, cut.jobs))
    return Layout(cut, num_threads, num_jobs, stages, 0, 0, scratch, memory, 0, 0, distance)


@lru_cache(maxsize=1024)
def _backward_layout(
    shape: Shape, batch: int, dtype: torch.dtype, max_threads: int, cut_for: int, biases: int
) -> Layout:
    lanes, num_threads = lanes_per_group(dtype), _num_threads(shape, batch, max_threads)
    cut = slices(batch, lanes, cut_for, most_groups(max(shape.slots, shape.back_slots)))
    parts, sums, name = count_parts(shape.edges, num_threads), shape.edges + biases, _NAMES[dtype]
    if _goes_by_level(shape, cut, num_threads):
        level = entries.entry("level_push", _NAMES[dtype]), num_threads
        addresses = (entries.entry("clear_levels", name), num_threads), *(level,) * shape.levels
        scratch = shape.nodes * cut.width
        memory = scratch * num_threads * dtype.itemsize
        distance = _prefetch_distance(shape.nodes, cut, dtype)
        return Layout(cut, num_threads, num_threads, addresses, 0, 0, scratch, memory, 0, 0, distance)
    if _pushes(shape, cut, dtype):
        rows, sorted_edges, memory = shape.slots, 0, sums * (cut.shares - 1)  # the first share's sums are the result
        stages = (("push", cut.shares), ("merge", parts))[: cut.shares]
        addresses = tuple((entries.entry(stage, name), jobs) for stage, jobs in stages)
    else:
        rows, sorted_edges = shape.back_slots, pad_batch(shape.edges, lanes)
        memory = sorted_edges + sums * cut.shares
        sort, finish = ((entries.entry(stage, name), parts) for stage in ("sort", "finish"))
        addresses = sort, (_entry("backward", dtype, cut, lanes), cut.shares), finish
    scratch, distance = rows * cut.width, _prefetch_distance(rows, cut, dtype)
    memory = (memory + scratch * cut.shares) * dtype.itemsize
    return Layout(cut, num_threads, cut.shares, addresses, 0, 0, scratch, memory, parts, sorted_edges, distance)


def _goes_by_level(shape: Shape, cut: Slices, num_threads: int) -> bool:
    """Whether levels follow each other, each in parts: where there is one slice, and levels are large.

    Processor time in ms of a backward pass on one core of two, over that of one that pulls, or pushes node by node:

        N, edges                    batch 2     4           8           16
        93,317, 3.2 10^6, layered   9.5 (16)    7.9 (17)                18 (22)
        100,000, 2 10^6             8.7 (15)    11.6 (14)   15.9 (15)   23 (20)
        10^6, 10^7                  88 (113)                168 (157)   218 (151)

    Wide rows are therefore taken by level only where several threads share the time.
    """
    large = 0 < shape.levels * LEVEL_WORK < shape.edges * cut.padded
    return cut.jobs == 1 and large and (num_threads > 1 or cut.width <= 4)


def _pushes(shape: Shape, cut: Slices, dtype: torch.dtype) -> bool:
    """Whether the backward pass pushes: where rows of activations and gradients fit a core's own cache.

    Time of a backward pass, over that of one that pulls; Erdos-Renyi graphs, float32, one core with 1 MiB:

        N, mean degree    rows of 1    2       4       8       16
        64, 12            0.96                                 0.96
        1,024, 20         0.91                                 0.97
        1,024, 200        0.65                 0.68            0.86
        1,024, 1,023      0.36                                 0.50
        4,096, 200        0.51                                 0.70
        16,384, 10        0.73         0.72    0.73    0.86    0.97
        16,384, 100       0.74         0.66    0.79    0.96    1.10
        100,000, 20       0.53         0.78    1.13    1.31    1.80
    """
    rows = shape.nodes + shape.slots
    return cut.width <= lanes_per_group(dtype) and rows * cut.width * dtype.itemsize <= own_cache_bytes()


def count_parts(edges: int, num_threads: int) -> int:
    """How many jobs sorting the weights makes, which is over before a second thread starts unless there are many."""
    return PARTS * num_threads if edges > THREAD_EDGES else 1


def _prefetch_distance(rows: int, cut: Slices, dtype: torch.dtype) -> int:
    """Prefetch rows where those of a slice don't fit into the last cache; elsewhere it would take a third longer."""
    return PREFETCH_DISTANCE if rows * cut.width * dtype.itemsize > last_cache_bytes() else 0


def _num_threads(shape: Shape, batch: int, max_threads: int) -> int:
    return max_threads if shape.edges * batch > THREAD_WORK else 1


def _entry(name: str, dtype: torch.dtype, cut: Slices, lanes: int) -> int:
    return entries.entry(name if cut.width >= lanes else f"narrow_{name}", _NAMES[dtype])


def saved_size(shape: Shape, batch: int, lanes: int) -> int:
    """Numbers saved for the backward pass: a, z, and for how many threads the batch was cut.

    For whole lane groups, so that it is a formula for batches of a symbolic size, too; what isn't used takes no memory.
    """
    return (shape.nodes + shape.z_rows) * ((batch + lanes - 1) // lanes * lanes) + 1


def empty_saved(x: Tensor, shape: Shape) -> Tensor:
    """A tensor of the size of what `forward` saves for x."""
    return x.new_empty(saved_size(shape, x.shape[0], lanes_per_group(x.dtype)))


def saved_threads(saved: Tensor) -> Any:
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
    batch, columns = x.shape[0], shape.nodes if all_nodes else shape.outputs
    layout = _forward_layout(shape, batch, x.dtype, torch.get_num_threads(), needs_backward)
    cut = layout.cut
    out = x.new_empty(batch, columns)
    if needs_backward:
        saved, block = BUFFERS.empty(layout.saved, x, packed_plan), None
        saved_threads(saved).value = layout.num_threads
        if layout.unused and layout.saved * x.itemsize < SMALL:
            # torch compares what an operator returns in tests, bit by bit
            ctypes.memset(
                saved.data_ptr() + (layout.saved - 1 - layout.unused) * x.itemsize, 0, layout.unused * x.itemsize
            )
        a = saved.data_ptr()
    else:
        saved, block = out, BUFFERS.take(layout.memory, packed_plan)
        a = block.address
    buffer = forward_arguments(
        stage=0,
        jobs=layout.num_jobs,
        slices=cut.address,
        distance=layout.distance,
        packed_plan=packed_plan.data_ptr(),
        all_nodes=all_nodes,
        inputs=shape.inputs,
        outputs=columns,
        x=x.data_ptr(),
        out=out.data_ptr(),
        a=a,
        z=a + shape.nodes * cut.padded * x.itemsize if needs_backward else 0,
        scratch=layout.scratch,
        weight=weight.data_ptr(),
        bias=0 if bias is None else bias.data_ptr(),
        key=0 if key is None else int(key),
        threshold=0 if key is None else threshold(p),
        p_bits=0 if key is None else float64_bits(p),
    )
    _run(layout, buffer)
    if block is not None:
        BUFFERS.give_back(block)
    return out, saved


def backward(
    out_grad: Tensor, weight: Tensor, packed_plan: Tensor, shape: Shape, saved: Tensor, key: Tensor | None, p: float,
    all_nodes: bool, needs_x_grad: bool, has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x (empty unless needed), of the weights, and of the biases (empty if there are none)."""
    out_grad, weight = plain(out_grad), plain(weight)
    (batch, columns), dtype, biases = out_grad.shape, out_grad.dtype, shape.nodes - shape.inputs if has_bias else 0
    layout = _backward_layout(shape, batch, dtype, torch.get_num_threads(), int(saved_threads(saved).value), biases)
    cut, a, itemsize = layout.cut, saved.data_ptr(), dtype.itemsize
    x_grad = out_grad.new_zeros(batch if needs_x_grad else 0, shape.inputs)
    weight_grad, bias_grad = BUFFERS.empty(shape.edges, weight, packed_plan), out_grad.new_empty(biases)
    block = BUFFERS.take(layout.memory, packed_plan)
    by_source = block.address + layout.scratch * cut.shares * itemsize
    buffer = backward_arguments(
        stage=0,
        shares=layout.num_jobs,
        share_start=cut.share_address,
        slices=cut.address,
        distance=layout.distance,
        parts=layout.parts,
        packed_plan=packed_plan.data_ptr(),
        all_nodes=all_nodes,
        inputs=shape.inputs,
        outputs=columns,
        x_grad=x_grad.data_ptr() if needs_x_grad else 0,
        out_grad=out_grad.data_ptr(),
        a=a,
        z=a + shape.nodes * cut.padded * itemsize,
        d=block.address,
        scratch=layout.scratch,
        weight=weight.data_ptr(),
        by_source=by_source,
        sums=by_source + layout.sorted_edges * itemsize,
        biases=biases,
        weight_grad=weight_grad.data_ptr(),
        bias_grad=bias_grad.data_ptr(),
        key=0 if key is None else int(key),
        threshold=0 if key is None else threshold(p),
        p_bits=0 if key is None else float64_bits(p),
    )
    _run(layout, buffer)
    BUFFERS.give_back(block)
    return x_grad, weight_grad, bias_grad


def _run(layout: Layout, buffer: array[int]) -> None:
    for stage, (entry, jobs) in enumerate(layout.stages):
        buffer[HEADER] = stage  # the first argument
        threads.run(entry, buffer, jobs, layout.num_threads)


_NAMES = {torch.float32: "float32", torch.float64: "float64"}

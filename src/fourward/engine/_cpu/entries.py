"""What compiled code is entered by: the arguments of forward and backward passes, and the loops over their jobs.

All threads of a team call an entry with the same buffer, and take jobs from it until none is left. Arguments are
numbers, or addresses of tensors: 0 where there is none.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from numba import njit
from numba.core import types

from fourward._jit import cached_cfunc
from fourward.engine._cpu.arguments import (
    NEXT_JOB,
    NEXT_THREAD,
)
from fourward.engine._cpu.kernels import Ends, backward_kernels, end, forward_kernels, named, push_kernels, read_drop
from fourward.engine._cpu.leaky_entries import leaky_backward, leaky_forward
from fourward.engine._cpu.level_entries import clear_levels, level_forward, level_push
from fourward.engine._cpu.packed_plan import read_sizes, unpack
from fourward.engine._cpu.pass_arguments import open_backward, read_backward, read_forward
from fourward.engine._cpu.population_entries import population_backward, population_forward, population_merge
from fourward.engine._cpu.recurrent_entries import recurrent_backward, recurrent_forward
from fourward.engine._cpu.simd import (
    offset,
    offset_given,
    pointer,
    take_next,
)
from fourward.engine._cpu.slices import read_slice
from fourward.engine._cpu.vector_math import linked_symbols

_jit = njit(nogil=True, error_model="numpy")


def _forward_entry(widths: tuple[int, ...], lanes: int) -> Any:
    """The forward pass for slices of these widths."""
    forward_slice = forward_kernels(widths)

    @named(f"forward_{widths[0]}_{lanes}")
    def forward(buffer, zero, stamp):
        """A job is a slice: from x to out."""
        args = read_forward(buffer)
        thread = take_next(offset(buffer, NEXT_THREAD))
        p, drop = (
            unpack(pointer(args.packed_plan, types.int32(0))),
            read_drop(args.key, args.threshold, args.p_bits, zero),
        )
        sizes = read_sizes(p.sizes)
        ends = Ends(
            args.all_nodes != 0,
            args.inputs,
            args.outputs,
            pointer(args.x, zero),
            pointer(args.out, zero),
            pointer(0, zero),
        )
        saves = args.scratch == 0
        slots, source = (p.step, p.source) if saves else (p.slot, p.source_slot)
        weight, bias = pointer(args.weight, zero), pointer(args.bias, zero)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.jobs:
            part = read_slice(offset(pointer(args.slices, args.jobs), 4 * job))
            by_run = part.width > 2 * lanes and sizes.runs > 0
            nodes, runs = (sizes.nodes, sizes.runs) if ends.all_nodes else (sizes.needed, sizes.needed_runs)
            count = runs if by_run else nodes
            a = offset(pointer(args.a, zero), part.begin * sizes.nodes if saves else thread * args.scratch)
            z = offset_given(pointer(args.z, zero), part.begin * sizes.z_rows)
            forward_slice(
                p=p, by_run=by_run, begin=0, count=count, slots=slots, source=source, ends=ends, part=part, a=a, z=z,
                weight=weight, bias=bias, drop=drop, distance=args.distance, zero=zero,
            )  # fmt: skip
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return forward


def _backward_entry(widths: tuple[int, ...], lanes: int) -> Any:
    """The backward pass for slices of these widths."""
    backward_slice = backward_kernels(widths)

    @named(f"backward_{widths[0]}_{lanes}")
    def backward(buffer, zero, stamp):
        """A job is a share of the batch: from out_grad to x_grad, if there is one, and to the share's sums."""
        args, p, sizes, ends, drop = open_backward(buffer, zero)
        nodes, last_edge = (sizes.nodes, p.back_last) if args.all_nodes else (sizes.needed, p.back_needed)
        size = sizes.edges + args.biases
        share_start = pointer(args.share_start, args.shares)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.shares:
            sums = offset(pointer(args.sums, zero), job * size)
            for k in range(size):
                sums[k] = zero
            bias_sums = offset(sums, sizes.edges)
            for i in range(share_start[job], share_start[job + 1]):
                part = read_slice(offset(pointer(args.slices, args.shares), 4 * i))
                by_run = part.width > 2 * lanes and sizes.back_runs > 0 and nodes == sizes.needed
                count = sizes.back_runs if by_run else nodes
                backward_slice(
                    p=p, by_run=by_run, count=count, last_edge=last_edge, ends=ends, part=part,
                    d=offset(pointer(args.d, zero), job * args.scratch),
                    a=offset(pointer(args.a, zero), part.begin * sizes.nodes),
                    z=offset(pointer(args.z, zero), part.begin * sizes.z_rows),
                    weight=pointer(args.by_source, zero), dots=sums, bias_sums=bias_sums, has_bias=args.biases > 0,
                    drop=drop, distance=args.distance, zero=zero,
                )  # fmt: skip
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return backward


def _push_entry(widths: tuple[int, ...], lanes: int) -> Any:
    """The backward pass in which nodes add to the gradients of those that they read, for slices of these widths."""
    push_slice = push_kernels(widths)

    @named(f"push_{lanes}")
    def push(buffer, zero, stamp):
        """A job is a share of the batch: from out_grad to x_grad, if there is one, and to the share's sums.

        The sums of the first share are in weight_grad and bias_grad.
        """
        args, p, sizes, ends, drop = open_backward(buffer, zero)
        nodes, size = sizes.nodes if args.all_nodes else sizes.needed, sizes.edges + args.biases
        share_start = pointer(args.share_start, args.shares)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.shares:
            weight_sums = offset(pointer(args.sums, zero), (job - 1) * size)
            bias_sums = offset(weight_sums, sizes.edges)
            if job == 0:
                weight_sums, bias_sums = pointer(args.weight_grad, zero), pointer(args.bias_grad, zero)
            d = offset(pointer(args.d, zero), job * args.scratch)
            for k in range(args.scratch):
                d[k] = zero
            for k in range(args.biases):
                bias_sums[k] = zero
            written = nodes if share_start[job] < share_start[job + 1] else 0
            for s in range(written, sizes.nodes):  # nodes that lead to no output
                for k in range(p.first[s], p.last[s]):
                    weight_sums[k] = zero
            for i in range(share_start[job], share_start[job + 1]):
                part = read_slice(offset(pointer(args.slices, args.shares), 4 * i))
                push_slice(
                    p=p, count=nodes, ends=ends, part=part, d=d,
                    a=offset(pointer(args.a, zero), part.begin * sizes.nodes),
                    z=offset(pointer(args.z, zero), part.begin * sizes.z_rows),
                    weight=pointer(args.weight, zero), dots=weight_sums, add=i > share_start[job],
                    bias_sums=bias_sums, has_bias=args.biases > 0, drop=drop, distance=args.distance, zero=zero,
                )  # fmt: skip
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return push


#: For batches that fill a lane group, of 16 float32 or 8 float64, and for those that don't ("narrow").
_FORWARD_32, _NARROW_FORWARD_32 = _forward_entry((16, 32, 64, 128), 16), _forward_entry((1, 2, 4, 8), 16)
_FORWARD_64, _NARROW_FORWARD_64 = _forward_entry((8, 16, 32, 64), 8), _forward_entry((1, 2, 4), 8)
_BACKWARD_32, _NARROW_BACKWARD_32 = _backward_entry((16, 32, 64, 128), 16), _backward_entry((1, 2, 4, 8), 16)
_BACKWARD_64, _NARROW_BACKWARD_64 = _backward_entry((8, 16, 32, 64), 8), _backward_entry((1, 2, 4), 8)
_PUSH_32, _PUSH_64 = _push_entry((1, 2, 4, 8, 16), 16), _push_entry((1, 2, 4, 8), 8)


_WIDE_32, _NARROW_32, _WIDE_64, _NARROW_64 = (16, 32, 64, 128), (1, 2, 4, 8), (8, 16, 32, 64), (1, 2, 4)
_RECURRENT_FORWARD_32, _NARROW_RECURRENT_FORWARD_32 = recurrent_forward(_WIDE_32), recurrent_forward(_NARROW_32)
_RECURRENT_FORWARD_64, _NARROW_RECURRENT_FORWARD_64 = recurrent_forward(_WIDE_64), recurrent_forward(_NARROW_64)
_RECURRENT_BACKWARD_32, _NARROW_RECURRENT_BACKWARD_32 = recurrent_backward(_WIDE_32), recurrent_backward(_NARROW_32)
_RECURRENT_BACKWARD_64, _NARROW_RECURRENT_BACKWARD_64 = recurrent_backward(_WIDE_64), recurrent_backward(_NARROW_64)
_LEAKY_FORWARD_32, _NARROW_LEAKY_FORWARD_32 = leaky_forward(_WIDE_32), leaky_forward(_NARROW_32)
_LEAKY_FORWARD_64, _NARROW_LEAKY_FORWARD_64 = leaky_forward(_WIDE_64), leaky_forward(_NARROW_64)
_LEAKY_BACKWARD_32, _NARROW_LEAKY_BACKWARD_32 = leaky_backward(_WIDE_32), leaky_backward(_NARROW_32)
_LEAKY_BACKWARD_64, _NARROW_LEAKY_BACKWARD_64 = leaky_backward(_WIDE_64), leaky_backward(_NARROW_64)
_LEVEL_FORWARD_32, _LEVEL_FORWARD_64 = level_forward((*_NARROW_32, 16)), level_forward((*_NARROW_64, 8))
_LEVEL_PUSH_32, _LEVEL_PUSH_64 = level_push((*_NARROW_32, 16)), level_push((*_NARROW_64, 8))
_POPULATION_FORWARD_32, _POPULATION_BACKWARD_32 = population_forward(_WIDE_32), population_backward(_WIDE_32)
_POPULATION_FORWARD_64, _POPULATION_BACKWARD_64 = population_forward(_WIDE_64), population_backward(_WIDE_64)


@_jit
def _finish(buffer, zero, stamp):
    """A job is a part of the gradients of weights and biases: the sums of all shares, in plan order."""
    args = read_backward(buffer)
    p, parts = unpack(pointer(args.packed_plan, types.int32(0))), args.parts
    sums, weight_grad, bias_grad = (
        pointer(args.sums, zero),
        pointer(args.weight_grad, zero),
        pointer(args.bias_grad, zero),
    )
    edges = read_sizes(p.sizes).edges
    size = edges + args.biases
    job = take_next(offset(buffer, NEXT_JOB))
    while job < parts:
        for k in range(edges * job // parts, edges * (job + 1) // parts):
            total = sums[k]
            for share in range(1, args.shares):
                total += sums[share * size + k]
            weight_grad[p.back_edge[k]] = total
        for i in range(args.biases * job // parts, args.biases * (job + 1) // parts):
            total = sums[edges + i]
            for share in range(1, args.shares):
                total += sums[share * size + edges + i]
            bias_grad[i] = total
        job = take_next(offset(buffer, NEXT_JOB))
    end(buffer)


@_jit
def _merge(buffer, zero, stamp):
    """A job is a part of the gradients of weights and biases: the sums of all shares but the first are added."""
    args = read_backward(buffer)
    weight_grad, bias_grad = pointer(args.weight_grad, zero), pointer(args.bias_grad, zero)
    edges, parts = read_sizes(unpack(pointer(args.packed_plan, types.int32(0))).sizes).edges, args.parts
    job = take_next(offset(buffer, NEXT_JOB))
    while job < parts:
        for share in range(args.shares - 1):
            sums = offset(pointer(args.sums, zero), share * (edges + args.biases))
            for k in range(edges * job // parts, edges * (job + 1) // parts):
                weight_grad[k] += sums[k]
            for i in range(args.biases * job // parts, args.biases * (job + 1) // parts):
                bias_grad[i] += sums[edges + i]
        job = take_next(offset(buffer, NEXT_JOB))
    end(buffer)


@_jit
def _sort(buffer, zero, stamp):
    """A job is a part of the weights, put into the order of the backward pass."""
    args = read_backward(buffer)
    weight, by_source = pointer(args.weight, zero), pointer(args.by_source, zero)
    p, parts = unpack(pointer(args.packed_plan, types.int32(0))), args.parts
    edges = read_sizes(p.sizes).edges
    job = take_next(offset(buffer, NEXT_JOB))
    while job < parts:
        for k in range(edges * job // parts, edges * (job + 1) // parts):
            by_source[k] = weight[p.back_edge[k]]
        job = take_next(offset(buffer, NEXT_JOB))
    end(buffer)


def _stamp() -> int:
    """A hash of the code that kernels are compiled from; Numba's cache only looks at the file of an entry."""
    digest = blake2b(linked_symbols().encode(), digest_size=4)
    for package in (__package__, "fourward.engine", "fourward.plan"):
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return int.from_bytes(digest.digest(), "little")


def _entries(stamp: int) -> dict[str, Any]:
    """The entries, each bound to the stamp, which thereby is part of its key in Numba's cache."""

    def forward_float32(buffer):
        _FORWARD_32(buffer, types.float32(0), stamp)

    def forward_float64(buffer):
        _FORWARD_64(buffer, types.float64(0), stamp)

    def narrow_forward_float32(buffer):
        _NARROW_FORWARD_32(buffer, types.float32(0), stamp)

    def narrow_forward_float64(buffer):
        _NARROW_FORWARD_64(buffer, types.float64(0), stamp)

    def backward_float32(buffer):
        _BACKWARD_32(buffer, types.float32(0), stamp)

    def backward_float64(buffer):
        _BACKWARD_64(buffer, types.float64(0), stamp)

    def narrow_backward_float32(buffer):
        _NARROW_BACKWARD_32(buffer, types.float32(0), stamp)

    def narrow_backward_float64(buffer):
        _NARROW_BACKWARD_64(buffer, types.float64(0), stamp)

    def push_float32(buffer):
        _PUSH_32(buffer, types.float32(0), stamp)

    def push_float64(buffer):
        _PUSH_64(buffer, types.float64(0), stamp)

    def level_forward_float32(buffer):
        _LEVEL_FORWARD_32(buffer, types.float32(0), stamp)

    def level_forward_float64(buffer):
        _LEVEL_FORWARD_64(buffer, types.float64(0), stamp)

    def level_push_float32(buffer):
        _LEVEL_PUSH_32(buffer, types.float32(0), stamp)

    def level_push_float64(buffer):
        _LEVEL_PUSH_64(buffer, types.float64(0), stamp)

    def clear_levels_float32(buffer):
        clear_levels(buffer, types.float32(0), stamp)

    def clear_levels_float64(buffer):
        clear_levels(buffer, types.float64(0), stamp)

    def merge_float32(buffer):
        _merge(buffer, types.float32(0), stamp)

    def merge_float64(buffer):
        _merge(buffer, types.float64(0), stamp)

    def finish_float32(buffer):
        _finish(buffer, types.float32(0), stamp)

    def finish_float64(buffer):
        _finish(buffer, types.float64(0), stamp)

    def sort_float32(buffer):
        _sort(buffer, types.float32(0), stamp)

    def sort_float64(buffer):
        _sort(buffer, types.float64(0), stamp)

    def recurrent_forward_float32(buffer):
        _RECURRENT_FORWARD_32(buffer, types.float32(0), stamp)

    def recurrent_forward_float64(buffer):
        _RECURRENT_FORWARD_64(buffer, types.float64(0), stamp)

    def narrow_recurrent_forward_float32(buffer):
        _NARROW_RECURRENT_FORWARD_32(buffer, types.float32(0), stamp)

    def narrow_recurrent_forward_float64(buffer):
        _NARROW_RECURRENT_FORWARD_64(buffer, types.float64(0), stamp)

    def recurrent_backward_float32(buffer):
        _RECURRENT_BACKWARD_32(buffer, types.float32(0), stamp)

    def recurrent_backward_float64(buffer):
        _RECURRENT_BACKWARD_64(buffer, types.float64(0), stamp)

    def narrow_recurrent_backward_float32(buffer):
        _NARROW_RECURRENT_BACKWARD_32(buffer, types.float32(0), stamp)

    def narrow_recurrent_backward_float64(buffer):
        _NARROW_RECURRENT_BACKWARD_64(buffer, types.float64(0), stamp)

    def leaky_forward_float32(buffer):
        _LEAKY_FORWARD_32(buffer, types.float32(0), stamp)

    def leaky_forward_float64(buffer):
        _LEAKY_FORWARD_64(buffer, types.float64(0), stamp)

    def narrow_leaky_forward_float32(buffer):
        _NARROW_LEAKY_FORWARD_32(buffer, types.float32(0), stamp)

    def narrow_leaky_forward_float64(buffer):
        _NARROW_LEAKY_FORWARD_64(buffer, types.float64(0), stamp)

    def leaky_backward_float32(buffer):
        _LEAKY_BACKWARD_32(buffer, types.float32(0), stamp)

    def leaky_backward_float64(buffer):
        _LEAKY_BACKWARD_64(buffer, types.float64(0), stamp)

    def narrow_leaky_backward_float32(buffer):
        _NARROW_LEAKY_BACKWARD_32(buffer, types.float32(0), stamp)

    def narrow_leaky_backward_float64(buffer):
        _NARROW_LEAKY_BACKWARD_64(buffer, types.float64(0), stamp)

    def population_forward_float32(buffer):
        _POPULATION_FORWARD_32(buffer, types.float32(0), stamp)

    def population_forward_float64(buffer):
        _POPULATION_FORWARD_64(buffer, types.float64(0), stamp)

    def population_backward_float32(buffer):
        _POPULATION_BACKWARD_32(buffer, types.float32(0), stamp)

    def population_backward_float64(buffer):
        _POPULATION_BACKWARD_64(buffer, types.float64(0), stamp)

    def population_merge_float32(buffer):
        population_merge(buffer, types.float32(0), stamp)

    def population_merge_float64(buffer):
        population_merge(buffer, types.float64(0), stamp)

    return locals()


_ENTRIES = _entries(_stamp())


@cache
def entry(name: str, dtype: str) -> int:
    """The address of a compiled entry.

    Its name is "sort", "finish", "push", "merge", "level_forward", "level_push", "clear_levels", or "forward" or
    "backward", which "recurrent_" or "leaky_" may precede, and before these "narrow_"; or one of "forward", "backward"
    and "merge" after "population_". Its dtype is "float32" or "float64".
    """
    return cached_cfunc(_ENTRIES[f"{name}_{dtype}"], types.void(types.CPointer(types.int64)))

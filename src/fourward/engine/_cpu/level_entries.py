"""Passes over a batch of one slice by level: threads take parts of one, and levels follow each other.

A level is a stage of its own, so a thread that is late costs the time of one part. What a forward pass computes is what
one thread computes, to the bit. In a backward pass each job adds to gradients of its own, of which there are as many as
threads; gradients of weights need no such copies, since each edge belongs to one job.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core import types

from fourward.engine._cpu.arguments import NEXT_JOB
from fourward.engine._cpu.kernels import Ends, end, forward_kernels, named, push_level_kernels, read_drop
from fourward.engine._cpu.packed_plan import read_sizes, unpack
from fourward.engine._cpu.pass_arguments import open_backward, read_backward, read_forward
from fourward.engine._cpu.simd import offset, pointer, take_next
from fourward.engine._cpu.slices import read_slice

_jit = njit(nogil=True, error_model="numpy")


@_jit
def _part_begin(p, level, nodes, part, parts):
    """The first node of a part of a level, of which each has as many edges; only the first `nodes` nodes count."""
    begin, last = min(p.level_first[level], nodes), min(p.level_first[level + 1], nodes)
    if part >= parts or begin == last:
        return last
    first_edge, edges = p.first[begin], p.last[last - 1] - p.first[begin]
    if edges == 0:  # inputs
        return begin + (last - begin) * part // parts
    wanted = first_edge + edges * part // parts
    while begin < last:  # nodes before `begin` have edges before the wanted one only, or start there
        middle = (begin + last) // 2
        if p.first[middle] < wanted:
            begin = middle + 1
        else:
            last = middle
    return begin


def level_forward(widths: tuple[int, ...]) -> Any:
    """The forward pass of a level, for a slice of one of these widths."""
    forward_slice = forward_kernels(widths)

    @named(f"level_forward_{widths[-1]}")
    def forward(buffer, zero, stamp):
        """A job is a part of the level that `stage` says."""
        args = read_forward(buffer)
        p, drop = (
            unpack(pointer(args.packed_plan, types.int32(0))),
            read_drop(args.key, args.threshold, args.p_bits, zero),
        )
        sizes, part = read_sizes(p.sizes), read_slice(pointer(args.slices, args.jobs))
        x, out = pointer(args.x, zero), pointer(args.out, zero)
        ends = Ends(args.all_nodes != 0, args.inputs, args.outputs, x, out, pointer(0, zero))
        nodes = sizes.nodes if ends.all_nodes else sizes.needed
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.jobs:
            forward_slice(
                p=p, by_run=False, begin=_part_begin(p, args.stage, nodes, job, args.jobs),
                count=_part_begin(p, args.stage, nodes, job + 1, args.jobs), slots=p.step, source=p.source, ends=ends,
                part=part, a=pointer(args.a, zero), z=pointer(args.z, zero), weight=pointer(args.weight, zero),
                bias=pointer(args.bias, zero), drop=drop, distance=args.distance, zero=zero,
            )  # fmt: skip
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return forward


@_jit
def clear_levels(buffer, zero, stamp):
    """The first stage of a backward pass: a job sets gradients of its own to 0, and a part of all gradients' rest."""
    args = read_backward(buffer)
    p = unpack(pointer(args.packed_plan, types.int32(0)))
    sizes = read_sizes(p.sizes)
    nodes = sizes.nodes if args.all_nodes else sizes.needed
    weight_grad, bias_grad = pointer(args.weight_grad, zero), pointer(args.bias_grad, zero)
    job = take_next(offset(buffer, NEXT_JOB))
    while job < args.shares:
        d = offset(pointer(args.d, zero), job * args.scratch)
        for k in range(args.scratch):
            d[k] = zero
        begin = nodes + (sizes.nodes - nodes) * job // args.shares  # nodes that lead to no output
        for s in range(begin, nodes + (sizes.nodes - nodes) * (job + 1) // args.shares):
            for k in range(p.first[s], p.last[s]):
                weight_grad[k] = zero
            if args.biases > 0 and p.bias_index[s] >= 0:
                bias_grad[p.bias_index[s]] = zero
        job = take_next(offset(buffer, NEXT_JOB))
    end(buffer)


def level_push(widths: tuple[int, ...]) -> Any:
    """The backward pass of a level, for a slice of one of these widths."""
    push_level = push_level_kernels(widths)

    @named(f"level_push_{widths[-1]}")
    def push(buffer, zero, stamp):
        """A job is a part of the level that `stage` says: 1 is the last level."""
        args, p, sizes, ends, drop = open_backward(buffer, zero)
        nodes = sizes.nodes if args.all_nodes else sizes.needed
        level, part = sizes.levels - args.stage, read_slice(pointer(args.slices, args.shares))
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.shares:
            push_level(
                p=p, begin=_part_begin(p, level, nodes, job, args.shares),
                count=_part_begin(p, level, nodes, job + 1, args.shares), ends=ends, part=part,
                d=pointer(args.d, zero), job=job, jobs=args.shares, size=args.scratch, a=pointer(args.a, zero),
                z=pointer(args.z, zero), weight=pointer(args.weight, zero), dots=pointer(args.weight_grad, zero),
                bias_sums=pointer(args.bias_grad, zero), has_bias=args.biases > 0, drop=drop,
                distance=args.distance, zero=zero,
            )  # fmt: skip
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return push

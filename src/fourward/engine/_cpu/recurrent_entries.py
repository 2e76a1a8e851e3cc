"""Networks with feedback: the passes of a slice, one step after another, without Python between them.

The rows of the steps stand one after another, N for each. A feedback edge is an edge whose source row stands N rows
before the row of that node in the same step, or, from its source, whose target row stands N rows after it. So a step is
computed by the kernels of networks without feedback, from another base address. The rows before the first step are
those of h0. Where a row is needed for no longer than two steps, it is copied instead of kept.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from array import array
from typing import Any

from numba import njit
from numba.core import types

from fourward.engine._cpu.arguments import NEXT_JOB, NEXT_THREAD, argument_buffer, buffer_reader
from fourward.engine._cpu.kernels import (
    Ends,
    add_feedback_kernels,
    backward_kernels,
    end,
    forward_kernels,
    named,
    read_column,
    read_drop,
    write_column,
)
from fourward.engine._cpu.packed_plan import read_sizes, unpack
from fourward.engine._cpu.simd import is_given, offset, offset_given, pointer, take_next
from fourward.engine._cpu.slices import read_slice

_jit = njit(nogil=True, error_model="numpy")


@argument_buffer
def recurrent_forward_arguments(
    *,
    jobs: int,  # number of slices
    slices: int,  # (jobs, 4) int64, rows of Slice
    packed_plan: int,
    all_nodes: bool,
    inputs: int,  # I
    outputs: int,  # columns of out
    steps: int,  # T
    batch: int,  # B
    x: int,  # (T, B, I)
    out: int,  # (T, B, N) by node index if all_nodes, else (T, B, O)
    h0: int,  # (B, N) by node index, or 0 for zeros
    h: int,  # (B, N) by node index
    a: int,  # saved: ((T+1) N, S) of each slice, one slice after another; else scratch of (2 N, S) for each thread
    z: int,  # (T Z, S) likewise, a row for each node that needs it, with time constants for each; 0 if nothing is saved
    scratch: int,  # numbers in the scratch of a thread; 0 if a is saved
    weight: int,  # (E,) by target
    bias: int,  # (N-I,), or 0
    rate: int,  # (N-I,) 1 / tau, or 0 without time constants
    u: int,  # with voltage dynamics: rows of states, as a; else 0
    key: int,
    threshold: int,
    p_bits: int,
) -> array[int]:
    """The arguments of the forward pass."""


@argument_buffer
def recurrent_backward_arguments(
    *,
    shares: int,  # shares of the batch: the jobs
    share_start: int,  # (shares + 1,) int64, the slices of share i are share_start[i]:share_start[i+1]
    slices: int,
    packed_plan: int,
    all_nodes: bool,
    inputs: int,
    outputs: int,
    steps: int,
    batch: int,
    x_grad: int,  # (T, B, I), or 0
    out_grad: int,  # same shape as out
    h0_grad: int,  # (B, N), or 0 where h0 is
    h_grad: int,  # (B, N), or 0
    a: int,
    z: int,
    rate: int,
    u: int,
    d: int,  # scratch of (2 N, S) for each share: gradients of a step, then of the one after it; (3 N + 1, S) with rate
    scratch: int,  # numbers in the scratch of a share
    by_source: int,  # (E,) weights sorted by source
    sums: int,  # (shares, E + biases + rates) gradients of weights, sorted by source, of biases and of rates
    biases: int,  # N-I, or 0
    key: int,
    threshold: int,
    p_bits: int,
) -> array[int]:
    """The arguments of the backward pass."""


read_forward = buffer_reader(recurrent_forward_arguments)
read_backward = buffer_reader(recurrent_backward_arguments)


@_jit
def _read_state(rows, h0, nodes, p, part, zero):
    """The rows before the first step."""
    for s in range(nodes):
        row = offset(rows, s * part.width)
        if is_given(h0):
            read_column(row, h0, nodes, p.node[s], part, zero)
        else:
            for j in range(part.width):
                row[j] = zero


def recurrent_forward(widths: tuple[int, ...]) -> Any:
    """The forward pass for slices of these widths."""
    forward_slice = forward_kernels(widths)

    @named(f"recurrent_forward_{widths[-1]}")
    def recurrent_forward(buffer, zero, stamp):
        """A job is a slice: from x and h0 to out and h."""
        args = read_forward(buffer)
        thread = take_next(offset(buffer, NEXT_THREAD))
        p, drop = (
            unpack(pointer(args.packed_plan, types.int32(0))),
            read_drop(args.key, args.threshold, args.p_bits, zero),
        )
        sizes = read_sizes(p.sizes)
        nodes, saves = sizes.nodes, args.scratch == 0
        h0, h = pointer(args.h0, zero), pointer(args.h, zero)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.jobs:
            part = read_slice(offset(pointer(args.slices, args.jobs), 4 * job))
            block = nodes * part.width
            before = offset(
                pointer(args.a, zero), part.begin * nodes * (args.steps + 1) if saves else thread * args.scratch
            )
            z = offset_given(pointer(args.z, zero), part.begin * args.steps * sizes.z_rows)
            _read_state(before, h0, nodes, p, part, zero)
            for t in range(args.steps):
                ends = Ends(
                    args.all_nodes != 0, args.inputs, args.outputs,
                    offset(pointer(args.x, zero), t * args.batch * args.inputs),
                    offset(pointer(args.out, zero), t * args.batch * args.outputs), pointer(0, zero),
                )  # fmt: skip
                a = offset(before, block)
                forward_slice(
                    p=p, by_run=False, begin=0, count=nodes, slots=p.step, source=p.source, ends=ends, part=part, a=a,
                    z=z, weight=pointer(args.weight, zero), bias=pointer(args.bias, zero), drop=drop, distance=0,
                    zero=zero,
                )  # fmt: skip
                if saves:
                    before = a
                    z = offset_given(z, sizes.z_rows * part.width)
                else:
                    for k in range(block):
                        before[k] = a[k]
            for s in range(nodes):
                write_column(offset(before, s * part.width), h, nodes, p.node[s], part)
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return recurrent_forward


def recurrent_backward(widths: tuple[int, ...]) -> Any:
    """The backward pass for slices of these widths."""
    backward_slice, add_feedback = backward_kernels(widths), add_feedback_kernels(widths)

    @named(f"recurrent_backward_{widths[-1]}")
    def recurrent_backward(buffer, zero, stamp):
        """A job is a share of the batch: from out_grad and h_grad to x_grad, h0_grad and the share's sums."""
        args = read_backward(buffer)
        p, drop = (
            unpack(pointer(args.packed_plan, types.int32(0))),
            read_drop(args.key, args.threshold, args.p_bits, zero),
        )
        sizes = read_sizes(p.sizes)
        nodes, size = sizes.nodes, sizes.edges + args.biases
        weight, share_start = pointer(args.by_source, zero), pointer(args.share_start, args.shares)
        h0_grad = pointer(args.h0_grad, zero)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.shares:
            sums = offset(pointer(args.sums, zero), job * size)
            for k in range(size):
                sums[k] = zero
            d = offset(pointer(args.d, zero), job * args.scratch)
            for i in range(share_start[job], share_start[job + 1]):
                part = read_slice(offset(pointer(args.slices, args.shares), 4 * i))
                block = nodes * part.width
                first = offset(pointer(args.a, zero), part.begin * nodes * (args.steps + 1))  # the rows of h0
                z = offset(pointer(args.z, zero), part.begin * args.steps * sizes.z_rows)
                for t in range(args.steps - 1, -1, -1):
                    last_edge, h_grad = p.back_last, pointer(0, zero)
                    if t == args.steps - 1:  # its feedback edges lead nowhere
                        last_edge, h_grad = p.back_needed, pointer(args.h_grad, zero)
                    ends = Ends(
                        args.all_nodes != 0, args.inputs, args.outputs,
                        offset_given(pointer(args.x_grad, zero), t * args.batch * args.inputs),
                        offset(pointer(args.out_grad, zero), t * args.batch * args.outputs),
                        h_grad,
                    )  # fmt: skip
                    backward_slice(
                        p=p, by_run=False, count=nodes, last_edge=last_edge, ends=ends,
                        part=part, d=d, a=offset(first, (t + 1) * block), z=offset(z, t * sizes.z_rows * part.width),
                        weight=weight, dots=sums, bias_sums=offset(sums, sizes.edges), has_bias=args.biases > 0,
                        drop=drop, distance=0, zero=zero,
                    )  # fmt: skip
                    for k in range(block):
                        d[block + k] = d[k]
                if is_given(h0_grad):
                    add_feedback(p, nodes, part, d, first, weight, sums, h0_grad, zero)
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return recurrent_backward

"""Networks with feedback whose neurons have time constants: their steps, one after another, for each slice.

As in `recurrent_entries`, the rows of the steps stand one after another, those of h0 before them. With rate = 1 / tau,
s the state of the step before and d the factor of dropout,

    rate dynamics       a = s + (d f(z) - s) rate, the new state
    voltage dynamics    u = s + (z - s) rate, the new state, and a = d f(u)

Sums z are saved for all neurons, and with voltage dynamics the states u. The backward pass hands the gradient of a
state down to the step before it in the rows `carry`, which start as those of h.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core import types

from fourward.engine._cpu.activations import activate, apply_dropout, multiply_by_derivative
from fourward.engine._cpu.arguments import NEXT_JOB, NEXT_THREAD
from fourward.engine._cpu.kernels import Ends, by_width, clear_padding, end, named, read_column, read_drop, write_column
from fourward.engine._cpu.packed_plan import read_sizes, unpack
from fourward.engine._cpu.recurrent_entries import read_backward, read_forward
from fourward.engine._cpu.simd import (
    add_and_dot_run,
    add_lanes,
    add_run,
    cast_like,
    is_given,
    offset,
    offset_given,
    pointer,
    take_next,
)
from fourward.engine._cpu.slices import read_slice

_jit = njit(nogil=True, error_model="numpy")


@_jit
def _drop_row(row, p, s, part, drop, zero):
    if drop.threshold > 0 and p.hidden[s]:
        apply_dropout(row, part.width, p.node[s], part.first, drop.key, drop.threshold, drop.scale, zero)


@_jit
def _move(row, before, target, rate, width):
    """Row = before + (target - before) * rate."""
    for j in range(width):
        row[j] = before[j] + (target[j] - before[j]) * rate


@_jit
def _copy(rows, source, numbers):
    for k in range(numbers):
        rows[k] = source[k]


def _forward_kernel(width):
    """A step of a slice of this width."""

    @named(f"leaky_step_{width}")
    def step(p, nodes, ends, part, a, u, z, weight, bias, rate, drop, zero):
        """From x to out; rows of the step before stand `nodes` rows before a and u. Without u, dynamics are "rate"."""
        for s in range(nodes):
            row = offset(a, s * width)
            if p.feature[s] >= 0:
                read_column(row, ends.x, ends.inputs, p.feature[s], part, zero)
                if is_given(u):
                    _copy(offset(u, s * width), row, width)
            else:
                start = bias[p.bias_index[s]] if is_given(bias) else zero
                add_run(row, True, start, weight, p.source, a, p.first[s], p.last[s], width)
                if is_given(z):
                    _copy(offset(z, s * width), row, width)
                if is_given(u):
                    state = offset(u, s * width)
                    _move(state, offset(u, (s - nodes) * width), row, rate[p.bias_index[s]], width)
                    _copy(row, state, width)
                activate(p.code[s], row, width)
                _drop_row(row, p, s, part, drop, zero)
                if not is_given(u):
                    _move(row, offset(a, (s - nodes) * width), row, rate[p.bias_index[s]], width)
            if is_given(z):
                clear_padding(row, part, zero)  # it adds nothing to gradients
            column = p.node[s] if ends.all_nodes else p.output[s]
            if column >= 0:
                write_column(row, ends.out, ends.outputs, column, part)

    return step


def _backward_kernel(width):
    """The gradients of a step, for a slice of this width."""

    @named(f"leaky_step_backward_{width}")
    def step_backward(p, nodes, last_edge, ends, part, d, carry, f, a, u, z, weight, sums, biases, rate, drop, zero):
        """D becomes the gradients of sums; f is a row of scratch.

        Rows of the gradients of the step after it stand `nodes` rows after d.
        """
        unit, edges = cast_like(zero, 1.0), read_sizes(p.sizes).edges
        for s in range(nodes - 1, -1, -1):
            row, own, passed = offset(d, s * width), offset(a, s * width), offset(carry, s * width)
            column = p.node[s] if ends.all_nodes else p.output[s]
            if column >= 0:
                read_column(row, ends.out, ends.outputs, column, part, zero)
            add_and_dot_run(
                row, column < 0, zero, own, weight, p.back_target_slot, d, sums, p.back_first[s], last_edge[s], width
            )
            if p.feature[s] >= 0:
                for j in range(width):
                    row[j] += passed[j]
                    passed[j] = zero
                if is_given(ends.x):
                    write_column(row, ends.x, ends.inputs, p.feature[s], part)
                continue
            r, total, saved = rate[p.bias_index[s]], zero, offset(z, s * width)
            if is_given(u):
                state, before = offset(u, s * width), offset(u, (s - nodes) * width)
                _copy(f, state, width)
                activate(p.code[s], f, width)
                _drop_row(row, p, s, part, drop, zero)
                multiply_by_derivative(p.code[s], row, f, state, width, unit)
                clear_padding(row, part, zero)
                for j in range(width):
                    row[j] += passed[j]
                    passed[j] = row[j] * (unit - r)
                for j in range(part.size):
                    total += row[j] * (saved[j] - before[j])
                for j in range(width):
                    row[j] *= r
            else:
                before = offset(a, (s - nodes) * width)
                for j in range(width):
                    row[j] += passed[j]
                    passed[j] = row[j] * (unit - r)
                for j in range(part.size):
                    total -= row[j] * before[j]
                _copy(f, saved, width)
                activate(p.code[s], f, width)
                _drop_row(row, p, s, part, drop, zero)
                for j in range(part.size):
                    total += row[j] * f[j]
                for j in range(width):
                    row[j] *= r
                multiply_by_derivative(p.code[s], row, f, saved, width, unit)
                clear_padding(row, part, zero)
            if biases > 0:
                add_lanes(row, offset(sums, edges + p.bias_index[s]), width)
            sums[edges + biases + p.bias_index[s]] += total

    return step_backward


def _start_backward_kernel(width):
    """The gradients of h0, for a slice of this width."""

    @named(f"leaky_start_backward_{width}")
    def start_backward(p, nodes, part, d, carry, f, a, u, weight, sums, h0_grad, drop, zero):
        """From the gradients of the first step, the second half of d, and what they carry; a and u are rows of h0."""
        for s in range(nodes):
            row, passed = offset(d, s * width), offset(carry, s * width)
            first, last = p.back_needed[s], p.back_last[s]
            own = offset(a, s * width)
            add_and_dot_run(row, True, zero, own, weight, p.back_target_slot, d, sums, first, last, width)
            if is_given(u) and p.feature[s] < 0:
                state = offset(u, s * width)
                _copy(f, state, width)
                activate(p.code[s], f, width)
                _drop_row(row, p, s, part, drop, zero)
                multiply_by_derivative(p.code[s], row, f, state, width, cast_like(zero, 1.0))
            for j in range(width):
                row[j] += passed[j]
            write_column(row, h0_grad, nodes, p.node[s], part)

    return start_backward


@_jit
def _read_state(a, u, h0, nodes, p, part, drop, zero):
    """The rows before the first step."""
    for s in range(nodes):
        row = offset(a, s * part.width)
        read_column(row, h0, nodes, p.node[s], part, zero)
        if is_given(u):
            _copy(offset(u, s * part.width), row, part.width)
            if p.feature[s] < 0:
                activate(p.code[s], row, part.width)
                _drop_row(row, p, s, part, drop, zero)
                clear_padding(row, part, zero)


def leaky_forward(widths: tuple[int, ...]) -> Any:
    """The forward pass for slices of these widths."""
    step = by_width(_forward_kernel, widths)

    @named(f"leaky_forward_{widths[-1]}")
    def leaky_forward(buffer, zero, stamp):
        """A job is a slice: from x and h0 to out and h."""
        args = read_forward(buffer)
        thread = take_next(offset(buffer, NEXT_THREAD))
        p = unpack(pointer(args.packed_plan, types.int32(0)))
        drop = read_drop(args.key, args.threshold, args.p_bits, zero)
        nodes, saves = read_sizes(p.sizes).nodes, args.scratch == 0
        weight, bias, rate = pointer(args.weight, zero), pointer(args.bias, zero), pointer(args.rate, zero)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.jobs:
            part = read_slice(offset(pointer(args.slices, args.jobs), 4 * job))
            block = nodes * part.width
            first = part.begin * nodes * (args.steps + 1) if saves else thread * args.scratch
            a_before, u_before = offset(pointer(args.a, zero), first), offset_given(pointer(args.u, zero), first)
            z = offset_given(pointer(args.z, zero), part.begin * args.steps * nodes)
            _read_state(a_before, u_before, pointer(args.h0, zero), nodes, p, part, drop, zero)
            for t in range(args.steps):
                ends = Ends(
                    args.all_nodes != 0, args.inputs, args.outputs,
                    offset(pointer(args.x, zero), t * args.batch * args.inputs),
                    offset(pointer(args.out, zero), t * args.batch * args.outputs), pointer(0, zero),
                )  # fmt: skip
                a, u = offset(a_before, block), offset_given(u_before, block)
                step(p, nodes, ends, part, a, u, z, weight, bias, rate, drop, zero)
                if saves:
                    a_before, u_before, z = a, u, offset(z, block)
                else:
                    _copy(a_before, a, block)
                    if is_given(u):
                        _copy(u_before, u, block)
            state = u_before if is_given(u_before) else a_before
            for s in range(nodes):
                write_column(offset(state, s * part.width), pointer(args.h, zero), nodes, p.node[s], part)
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return leaky_forward


def leaky_backward(widths: tuple[int, ...]) -> Any:
    """The backward pass for slices of these widths."""
    step_backward, start_backward = by_width(_backward_kernel, widths), by_width(_start_backward_kernel, widths)

    @named(f"leaky_backward_{widths[-1]}")
    def leaky_backward(buffer, zero, stamp):
        """A job is a share of the batch: from out_grad and h_grad to x_grad, h0_grad and the share's sums."""
        args = read_backward(buffer)
        p = unpack(pointer(args.packed_plan, types.int32(0)))
        drop = read_drop(args.key, args.threshold, args.p_bits, zero)
        sizes = read_sizes(p.sizes)
        nodes, size = sizes.nodes, sizes.edges + args.biases + sizes.nodes - args.inputs
        weight, rate = pointer(args.by_source, zero), pointer(args.rate, zero)
        share_start = pointer(args.share_start, args.shares)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.shares:
            sums = offset(pointer(args.sums, zero), job * size)
            for k in range(size):
                sums[k] = zero
            d = offset(pointer(args.d, zero), job * args.scratch)
            for i in range(share_start[job], share_start[job + 1]):
                part = read_slice(offset(pointer(args.slices, args.shares), 4 * i))
                block = nodes * part.width
                carry, f = offset(d, 2 * block), offset(d, 3 * block)
                start = part.begin * nodes * (args.steps + 1)
                a, u = offset(pointer(args.a, zero), start), offset_given(pointer(args.u, zero), start)
                z = offset(pointer(args.z, zero), part.begin * args.steps * nodes)
                for s in range(nodes):
                    read_column(offset(carry, s * part.width), pointer(args.h_grad, zero), nodes, p.node[s], part, zero)
                for t in range(args.steps - 1, -1, -1):
                    last_edge = p.back_last
                    if t == args.steps - 1:  # its feedback edges lead nowhere
                        last_edge = p.back_needed
                    ends = Ends(
                        args.all_nodes != 0, args.inputs, args.outputs,
                        offset_given(pointer(args.x_grad, zero), t * args.batch * args.inputs),
                        offset(pointer(args.out_grad, zero), t * args.batch * args.outputs), pointer(0, zero),
                    )  # fmt: skip
                    a_now, u_now = offset(a, (t + 1) * block), offset_given(u, (t + 1) * block)
                    step_backward(
                        p, nodes, last_edge, ends, part, d, carry, f, a_now, u_now, offset(z, t * block), weight, sums,
                        args.biases, rate, drop, zero,
                    )  # fmt: skip
                    _copy(offset(d, block), d, block)
                h0_grad = pointer(args.h0_grad, zero)
                start_backward(p, nodes, part, d, carry, f, a, u, weight, sums, h0_grad, drop, zero)
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return leaky_backward

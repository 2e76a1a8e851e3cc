"""The kernels: forward and backward passes over slices of the batch, in Numba.

A row holds a node's numbers for the samples of a slice, side by side; their number, the width of the slice, is a power
of 2. Slices are independent of each other. Nodes are numbered by the steps of a schedule. A forward pass that no
backward pass follows takes rows of a scratch memory again once their last reader has read them; otherwise each node has
a row of its own, since the backward pass reads activations again. Gradients of sums are in such reused rows, too.

There are two backward passes. One *pulls*: it takes the edges by source and reads each row of gradients once, to add it
to the gradient of the source and for the gradient of the weight. Weights and their gradients are therefore sorted by
source before and after. The other one *pushes*: it takes the edges as the forward pass does, and adds to the rows of
gradients of their sources. Nothing is sorted, but three rows are read and written for each edge. That is faster where
rows are short and stay in the cache; `launch` chooses.

A batch of one slice is computed by several threads level by level, where levels are large: `level_entries`.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

from numba import njit

from fourward.engine._cpu.activations import activate, apply_dropout, multiply_by_derivative
from fourward.engine._cpu.arguments import CLOCK, ENDED, FIRST_END
from fourward.engine._cpu.edge_runs import BEGIN, END
from fourward.engine._cpu.simd import (
    add_and_dot_run,
    add_lanes,
    add_run,
    cast_like,
    float64_from_bits,
    is_given,
    offset,
    prefetch_row,
    push_run,
    take_next,
    write_time,
)

_jit = njit(nogil=True, error_model="numpy")


def named(name: str) -> Any:
    """Compile a function under a name of its own.

    Functions of one name and type would be one symbol, and the first that Numba's cache loads would be called for all.
    """

    def compile_(function):
        function.__name__ = function.__qualname__ = name
        return _jit(function)

    return compile_


class Ends(NamedTuple):
    """What enters and leaves a pass: x and the result, or their gradients."""

    all_nodes: Any  #: the result is (B, N) by node index, not (B, O)
    inputs: Any  #: columns of x
    outputs: Any  #: columns of the result
    x: Any
    out: Any
    state_grad: Any  #: (B, N) gradients of activations, by node index, that are added to those of the result; or null


class Drop(NamedTuple):
    """Dropout, as kernels need it."""

    key: Any
    threshold: Any  #: 0: nothing is dropped
    scale: Any  #: what the activations that stay are multiplied with
    unscale: Any  #: its reciprocal


@_jit
def end(buffer):
    """No job is left: the first thread that notices writes the time."""
    if buffer[CLOCK] != 0 and take_next(offset(buffer, ENDED)) == 0:
        write_time(buffer[CLOCK], offset(buffer, FIRST_END))


@_jit
def read_drop(key, threshold, p_bits, zero):
    """Dropout from the arguments of an entry."""
    keep = 1.0 - float64_from_bits(p_bits)
    return Drop(key, threshold, cast_like(zero, 1.0 / keep), cast_like(zero, keep))


@_jit
def clear_padding(row, part, zero):
    """Set the padding of a row to 0."""
    for j in range(part.size, part.width):
        row[j] = zero


@_jit
def add_row(row, other, width):
    """Add a row to another."""
    for j in range(width):
        row[j] += other[j]


@_jit
def read_column(row, matrix, columns, column, part, zero):
    """Fill a row with the entries of a column that belong to the slice, and padding with zeros."""
    for j in range(part.size):
        row[j] = matrix[(part.first + j) * columns + column]
    clear_padding(row, part, zero)


@_jit
def write_column(row, matrix, columns, column, part):
    """Write a row, without padding, to a column."""
    for j in range(part.size):
        matrix[(part.first + j) * columns + column] = row[j]


def _forward_kernel(width):
    """The forward pass of a slice of this width."""

    @named(f"forward_slice_{width}")
    def forward_slice(p, by_run, begin, count, slots, source, ends, part, a, z, weight, bias, drop, distance, zero):
        """Runs, or else nodes, begin:count: from x to out, and a, and z where there is one.

        Whenever a run is taken, the rows that it reads are finished.
        """
        for r in range(begin, count):
            s, first, last, flag = r, p.first[r], p.last[r], BEGIN | END
            if by_run:
                s, first, last, flag = p.run_step[r], p.run_first[r], p.run_last[r], p.run_flag[r]
            if distance > 0 and not by_run and r + distance < count:
                for k in range(p.first[r + distance], p.last[r + distance]):
                    prefetch_row(offset(a, source[k] * width), width)
            row = offset(a, slots[s] * width)  # the sum so far; from END on, the activation
            if p.feature[s] >= 0:
                read_column(row, ends.x, ends.inputs, p.feature[s], part, zero)
            else:
                start = bias[p.bias_index[s]] if is_given(bias) else zero
                add_run(row, flag & BEGIN != 0, start, weight, source, a, first, last, width)
                if flag & END:
                    if is_given(z) and p.z_row[s] >= 0:
                        saved = offset(z, p.z_row[s] * width)
                        for j in range(width):
                            saved[j] = row[j]
                    activate(p.code[s], row, width)
                    if drop.threshold > 0 and p.hidden[s]:
                        apply_dropout(row, width, p.node[s], part.first, drop.key, drop.threshold, drop.scale, zero)
            if flag & END and is_given(z):
                clear_padding(row, part, zero)  # it adds nothing to gradients
            column = p.node[s] if ends.all_nodes else p.output[s]
            if flag & END and column >= 0:
                write_column(row, ends.out, ends.outputs, column, part)

    return forward_slice


def _backward_kernel(width):
    """The backward pass of a slice of this width."""

    @named(f"backward_slice_{width}")
    def backward_slice(
        p, by_run, count, last_edge, ends, part, d, a, z, weight, dots, bias_sums, has_bias, drop, distance, zero
    ):
        """`count` runs, or else nodes: d becomes the gradients of sums; weight is sorted by source.

        Whenever a run is taken, the rows that it reads are gradients of sums already.
        """
        for r in range(count):
            s = count - 1 - r
            first, last, flag = p.back_first[s], last_edge[s], BEGIN | END
            if by_run:
                s, first, last, flag = p.back_run_step[r], p.back_run_first[r], p.back_run_last[r], p.back_run_flag[r]
            if distance > 0 and not by_run and s >= distance:
                for k in range(p.back_first[s - distance], last_edge[s - distance]):
                    prefetch_row(offset(d, p.back_target_slot[k] * width), width)
            row, own = offset(d, p.back_slot[s] * width), offset(a, s * width)
            column = p.node[s] if ends.all_nodes else p.output[s]
            begin = flag & BEGIN != 0
            if begin and column >= 0:
                read_column(row, ends.out, ends.outputs, column, part, zero)
                begin = False
            if flag & BEGIN and is_given(ends.state_grad):
                if begin:
                    for j in range(width):
                        row[j] = zero
                for j in range(part.size):
                    row[j] += ends.state_grad[(part.first + j) * count + p.node[s]]  # all nodes are counted
                begin = False
            add_and_dot_run(row, begin, zero, own, weight, p.back_target_slot, d, dots, first, last, width)
            if flag & END and p.feature[s] < 0:
                unscale = cast_like(zero, 1.0)
                if drop.threshold > 0 and p.hidden[s]:
                    apply_dropout(row, width, p.node[s], part.first, drop.key, drop.threshold, drop.scale, zero)
                    unscale = drop.unscale
                multiply_by_derivative(p.code[s], row, own, offset(z, max(p.z_row[s], 0) * width), width, unscale)
                clear_padding(row, part, zero)  # 0 times an infinite derivative is NaN
                if has_bias:
                    add_lanes(row, offset(bias_sums, p.bias_index[s]), width)
            elif flag & END and is_given(ends.x):
                write_column(row, ends.x, ends.inputs, p.feature[s], part)

    return backward_slice


def _push_kernel(width):
    """The backward pass of a slice of this width, each node adding to the gradients of those that it reads."""

    @named(f"push_slice_{width}")
    def push_slice(p, count, ends, part, d, a, z, weight, dots, add, bias_sums, has_bias, drop, distance, zero):
        """`count` nodes: d is 0 before and after. Gradients of weights are added to dots if `add`, or else written.

        Whenever a node is taken, all nodes that read it have added to its row. Its row is then free for another: the
        slots of the forward pass serve this one, too.
        """
        for s in range(count - 1, -1, -1):
            first, last = p.first[s], p.last[s]
            if distance > 0 and s >= distance:
                for k in range(p.first[s - distance], p.last[s - distance]):
                    prefetch_row(offset(d, p.source_slot[k] * width), width)
                    prefetch_row(offset(a, p.source[k] * width), width)
            row, own = offset(d, p.slot[s] * width), offset(a, s * width)
            column = p.node[s] if ends.all_nodes else p.output[s]
            if column >= 0:
                for j in range(part.size):
                    row[j] += ends.out[(part.first + j) * ends.outputs + column]
            if p.feature[s] < 0:
                unscale = cast_like(zero, 1.0)
                if drop.threshold > 0 and p.hidden[s]:
                    apply_dropout(row, width, p.node[s], part.first, drop.key, drop.threshold, drop.scale, zero)
                    unscale = drop.unscale
                multiply_by_derivative(p.code[s], row, own, offset(z, max(p.z_row[s], 0) * width), width, unscale)
                clear_padding(row, part, zero)  # 0 times an infinite derivative is NaN
                if has_bias:
                    add_lanes(row, offset(bias_sums, p.bias_index[s]), width)
                push_run(row, weight, p.source, a, p.source_slot, d, dots, add, first, last, width)
            elif is_given(ends.x):
                write_column(row, ends.x, ends.inputs, p.feature[s], part)
            for j in range(width):
                row[j] = zero

    return push_slice


def _push_level_kernel(width):
    """The backward pass of some nodes of a level, for a slice of this width, which is the whole batch."""

    @named(f"push_level_{width}")
    def push_level(
        p, begin, count, ends, part, d, job, jobs, size, a, z, weight, dots, bias_sums, has_bias, drop, distance, zero
    ):
        """Nodes begin:count, as in `push_slice`, while other jobs take others of the same level.

        Each job adds to gradients of its own, `size` numbers, the row of each node by step; what it adds to a node is
        found there by the job that takes this node, once all later levels are done.
        """
        grads = offset(d, job * size)
        for s in range(begin, count):
            first, last = p.first[s], p.last[s]
            if distance > 0 and s + distance < count:
                for k in range(p.first[s + distance], p.last[s + distance]):
                    prefetch_row(offset(grads, p.source[k] * width), width)
                    prefetch_row(offset(a, p.source[k] * width), width)
            row, own = offset(grads, s * width), offset(a, s * width)
            for other in range(jobs):
                if other != job:
                    add_row(row, offset(d, other * size + s * width), width)
            column = p.node[s] if ends.all_nodes else p.output[s]
            if column >= 0:
                for j in range(part.size):
                    row[j] += ends.out[(part.first + j) * ends.outputs + column]
            if p.feature[s] < 0:
                unscale = cast_like(zero, 1.0)
                if drop.threshold > 0 and p.hidden[s]:
                    apply_dropout(row, width, p.node[s], part.first, drop.key, drop.threshold, drop.scale, zero)
                    unscale = drop.unscale
                multiply_by_derivative(p.code[s], row, own, offset(z, max(p.z_row[s], 0) * width), width, unscale)
                clear_padding(row, part, zero)  # 0 times an infinite derivative is NaN
                if has_bias:
                    bias_sums[p.bias_index[s]] = zero
                    add_lanes(row, offset(bias_sums, p.bias_index[s]), width)
                push_run(row, weight, p.source, a, p.source, grads, dots, False, first, last, width)
            elif is_given(ends.x):
                write_column(row, ends.x, ends.inputs, p.feature[s], part)

    return push_level


def _add_feedback_kernel(width):
    """The feedback edges of the first step, for a slice of this width."""

    @named(f"add_feedback_{width}")
    def add_feedback(p, nodes, part, d, a, weight, dots, h0_grad, zero):
        """From the gradients of the first step, the second half of d, to those of h0, whose rows are a."""
        for s in range(nodes):
            row, own = offset(d, s * width), offset(a, s * width)
            first, last = p.back_needed[s], p.back_last[s]
            add_and_dot_run(row, True, zero, own, weight, p.back_target_slot, d, dots, first, last, width)
            write_column(row, h0_grad, nodes, p.node[s], part)

    return add_feedback


def by_width(make, widths: tuple[int, ...]) -> Any:
    """A function that calls the kernel for the width of the slice."""
    kernels = {f"kernel_{width}": make(width) for width in widths}
    arguments = ", ".join(inspect.signature(next(iter(kernels.values())).py_func).parameters)
    lines = [f"    if part.width == {width}:\n        kernel_{width}({arguments})" for width in widths]
    exec("\n".join([f"def call({arguments}):", *lines]), kernels)
    return named(f"{make.__name__}_{'_'.join(map(str, widths))}")(kernels["call"])


def forward_kernels(widths: tuple[int, ...]) -> Any:
    """The forward pass of a slice of one of these widths."""
    return by_width(_forward_kernel, widths)


def backward_kernels(widths: tuple[int, ...]) -> Any:
    """The backward pass of a slice of one of these widths."""
    return by_width(_backward_kernel, widths)


def push_kernels(widths: tuple[int, ...]) -> Any:
    """The backward pass of a slice of one of these widths, each node adding to those that it reads."""
    return by_width(_push_kernel, widths)


def push_level_kernels(widths: tuple[int, ...]) -> Any:
    """The backward pass of some nodes of a level, for a slice of one of these widths."""
    return by_width(_push_level_kernel, widths)


def add_feedback_kernels(widths: tuple[int, ...]) -> Any:
    """The feedback edges of the first step, for a slice of one of these widths."""
    return by_width(_add_feedback_kernel, widths)

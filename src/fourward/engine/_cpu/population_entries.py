"""What compiled code of populations is entered by: passes in which one member after another is computed.

The rows of a member, its inputs' and its neurons', live in a scratch memory that the next member takes again, so that
they stay in the first caches. Nothing is saved for the backward pass: it computes a member's activations again, which
takes less time than writing them to memory and reading them back, and pushes gradients while they are in the cache.

A job is a chunk of members and a share of the batch. Neither depends on the number of threads, nor do results.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from array import array
from functools import cache
from typing import Any, NamedTuple

from numba import njit
from numba.core import types

from fourward.engine._cpu.activations import activate, multiply_by_derivative
from fourward.engine._cpu.arguments import NEXT_JOB, NEXT_THREAD, argument_buffer, buffer_reader, tuple_reader
from fourward.engine._cpu.kernels import by_width, clear_padding, end, named, read_column, write_column
from fourward.engine._cpu.packed_plan import read_field
from fourward.engine._cpu.simd import add_lanes, add_run, cast_like, is_given, offset, pointer, push_run, take_next
from fourward.engine._cpu.slices import read_slice

_jit = njit(nogil=True, error_model="numpy")

NEEDED, NEEDS_Z = 1, 2  #: flags of a neuron: it leads to an output, its activation's derivative needs z


class PackedPopulation(NamedTuple):
    """A PopulationPlan as the kernels read it: int32 arrays, packed into one tensor."""

    neuron_start: Any  #: (P+1,)
    edge_start: Any  #: (P+1,)
    in_degree: Any  #: (M,) from here on in execution order
    neuron: Any  #: (M,) index of the bias among those of the member
    code: Any  #: (M,) activation code
    flag: Any  #: (M,) NEEDED, NEEDS_Z, both or neither
    source: Any  #: (E,) row where each edge starts
    output: Any  #: (P, O) row of each output


_unpack = tuple_reader(PackedPopulation, read_field)


@argument_buffer
def population_forward_arguments(
    *,
    chunks: int,  # C chunks of members
    chunk_start: int,  # (C+1,) int64, the members of chunk c are chunk_start[c]:chunk_start[c+1]
    shares: int,  # shares of the batch; jobs are C * shares
    share_start: int,  # (shares+1,) int64, the slices of share i are share_start[i]:share_start[i+1]
    slices: int,  # int64, rows of Slice
    packed_plan: int,
    inputs: int,  # I
    outputs: int,  # O
    batch: int,  # B
    separate: int,  # 1: x is (P, B, I), 0: it is (B, I)
    x: int,
    out: int,  # (P, B, O)
    rows: int,  # scratch of `scratch` numbers for each thread
    scratch: int,
    weight: int,  # (E,)
    bias: int,  # (M,), or 0
) -> array[int]:
    """The arguments of _forward."""


@argument_buffer
def population_backward_arguments(
    *,
    chunks: int,
    chunk_start: int,
    shares: int,
    share_start: int,
    slices: int,
    packed_plan: int,
    inputs: int,
    outputs: int,
    batch: int,
    separate: int,
    x: int,
    out_grad: int,  # (P, B, O)
    rows: int,  # scratch of 3 * `scratch` numbers for each thread: activations, sums z, gradients
    scratch: int,
    weight: int,
    bias: int,
    edges: int,  # E
    biases: int,  # M, or 0
    sums: int,  # (shares - 1, E + biases) gradients of weights and biases of all shares but the first
    weight_grad: int,  # (E,) those of the first share, and after _merge of all
    bias_grad: int,  # (biases,) likewise
    x_sums: int,  # (C, B, I) gradients of a shared x from each chunk, or 0
    x_grad: int,  # the gradients of x: (P, B, I), or with x_sums (B, I), written by _merge; or 0
    parts: int,  # jobs of _merge
) -> array[int]:
    """The arguments of _backward, then of _merge."""


_read_forward = buffer_reader(population_forward_arguments)
_read_backward = buffer_reader(population_backward_arguments)


@_jit
def _read_inputs(rows, x, args, part, member, zero):
    """Fill the rows of the inputs; member is 0 where x is shared."""
    first = offset(x, member * args.batch * args.inputs)
    for i in range(args.inputs):
        read_column(offset(rows, i * part.width), first, args.inputs, i, part, zero)


def _member_forward_kernel(width):
    """The neurons of a member, for a slice of this width."""

    @named(f"member_forward_{width}")
    def member_forward(p, member, inputs, part, rows, z, weight, bias, zero):
        """From the rows of the inputs to those of all neurons that are needed, and z where that is given."""
        begin, stop, k = p.neuron_start[member], p.neuron_start[member + 1], p.edge_start[member]
        for q in range(begin, stop):
            last = k + p.in_degree[q]
            if p.flag[q] & NEEDED:
                row = offset(rows, (inputs + q - begin) * width)
                start = bias[begin + p.neuron[q]] if is_given(bias) else zero
                add_run(row, True, start, weight, p.source, rows, k, last, width)
                if is_given(z):
                    if p.flag[q] & NEEDS_Z:
                        saved = offset(z, (q - begin) * width)
                        for j in range(width):
                            saved[j] = row[j]
                    activate(p.code[q], row, width)
                    clear_padding(row, part, zero)  # it adds nothing to gradients
                else:
                    activate(p.code[q], row, width)
            k = last

    return member_forward


@cache
def _member_forward(widths: tuple[int, ...]) -> Any:
    return by_width(_member_forward_kernel, widths)


def _member_backward_kernel(width):
    """The gradients of a member, for a slice of this width."""

    @named(f"member_backward_{width}")
    def member_backward(p, member, args, part, rows, z, d, out_grad, weight, weight_grad, bias_grad, zero):
        """From out_grad to those of weights and biases, which are added, and of the inputs, the first rows of d."""
        begin, stop, k = p.neuron_start[member], p.neuron_start[member + 1], p.edge_start[member + 1]
        own = offset(out_grad, member * args.batch * args.outputs)
        for j in range(args.inputs * width, (args.inputs + stop - begin) * width):
            d[j] = zero
        for o in range(args.outputs):
            row = offset(d, p.output[member * args.outputs + o] * width)
            for j in range(part.size):
                row[j] += own[(part.first + j) * args.outputs + o]
        for q in range(stop - 1, begin - 1, -1):
            first, i = k - p.in_degree[q], q - begin
            if p.flag[q] & NEEDED:
                row, a = offset(d, (args.inputs + i) * width), offset(rows, (args.inputs + i) * width)
                unscale = cast_like(zero, 1.0)
                multiply_by_derivative(p.code[q], row, a, offset(z, i * width), width, unscale)
                clear_padding(row, part, zero)  # 0 times an infinite derivative is NaN
                if args.biases > 0:
                    add_lanes(row, offset(bias_grad, begin + p.neuron[q]), width)
                push_run(row, weight, p.source, rows, p.source, d, weight_grad, True, first, k, width)
            k = first

    return member_backward


def population_forward(widths: tuple[int, ...]) -> Any:
    """The forward pass for slices of these widths."""
    member_forward = _member_forward(widths)

    @named(f"population_forward_{'_'.join(map(str, widths))}")
    def forward(buffer, zero, stamp):
        """From x to out."""
        args = _read_forward(buffer)
        thread = take_next(offset(buffer, NEXT_THREAD))
        p = _unpack(pointer(args.packed_plan, types.int32(0)))
        x, out, weight, bias = (
            pointer(args.x, zero),
            pointer(args.out, zero),
            pointer(args.weight, zero),
            pointer(args.bias, zero),
        )
        rows, z = offset(pointer(args.rows, zero), thread * args.scratch), pointer(0, zero)
        chunk_start, share_start = pointer(args.chunk_start, args.chunks), pointer(args.share_start, args.chunks)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.chunks * args.shares:
            chunk, share = job // args.shares, job % args.shares
            for s in range(share_start[share], share_start[share + 1]):
                part = read_slice(offset(pointer(args.slices, args.chunks), 4 * s))
                if args.separate == 0:
                    _read_inputs(rows, x, args, part, 0, zero)
                for member in range(chunk_start[chunk], chunk_start[chunk + 1]):
                    if args.separate != 0:
                        _read_inputs(rows, x, args, part, member, zero)
                    member_forward(
                        p=p, member=member, inputs=args.inputs, part=part, rows=rows, z=z, weight=weight, bias=bias,
                        zero=zero,
                    )  # fmt: skip
                    own = offset(out, member * args.batch * args.outputs)
                    for o in range(args.outputs):
                        row = offset(rows, p.output[member * args.outputs + o] * part.width)
                        write_column(row, own, args.outputs, o, part)
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return forward


@_jit
def _clear(numbers, first, last, zero):
    for k in range(first, last):
        numbers[k] = zero


@_jit
def _write_x_grad(d, x_grad, args, part, index):
    """Write the first rows of d to a matrix (B, I), that of this index."""
    own = offset(x_grad, index * args.batch * args.inputs)
    for i in range(args.inputs):
        write_column(offset(d, i * part.width), own, args.inputs, i, part)


def population_backward(widths: tuple[int, ...]) -> Any:
    """The backward pass for slices of these widths."""
    member_forward, member_backward = _member_forward(widths), by_width(_member_backward_kernel, widths)

    @named(f"population_backward_{'_'.join(map(str, widths))}")
    def backward(buffer, zero, stamp):
        """From x and out_grad to the gradients of weights and biases, and of x unless _merge adds those up."""
        args = _read_backward(buffer)
        thread = take_next(offset(buffer, NEXT_THREAD))
        p = _unpack(pointer(args.packed_plan, types.int32(0)))
        x, out_grad, weight, bias = (
            pointer(args.x, zero),
            pointer(args.out_grad, zero),
            pointer(args.weight, zero),
            pointer(args.bias, zero),
        )
        rows = offset(pointer(args.rows, zero), 3 * thread * args.scratch)
        z, d = offset(rows, args.scratch), offset(rows, 2 * args.scratch)
        x_grad, x_sums = pointer(args.x_grad, zero), pointer(args.x_sums, zero)
        chunk_start, share_start = pointer(args.chunk_start, args.chunks), pointer(args.share_start, args.chunks)
        job = take_next(offset(buffer, NEXT_JOB))
        while job < args.chunks * args.shares:
            chunk, share = job // args.shares, job % args.shares
            weight_grad = offset(pointer(args.sums, zero), (share - 1) * (args.edges + args.biases))
            bias_grad = offset(weight_grad, args.edges)
            if share == 0:
                weight_grad, bias_grad = pointer(args.weight_grad, zero), pointer(args.bias_grad, zero)
            first, last = chunk_start[chunk], chunk_start[chunk + 1]
            _clear(weight_grad, p.edge_start[first], p.edge_start[last], zero)
            if args.biases > 0:
                _clear(bias_grad, p.neuron_start[first], p.neuron_start[last], zero)
            for s in range(share_start[share], share_start[share + 1]):
                part = read_slice(offset(pointer(args.slices, args.chunks), 4 * s))
                if args.separate == 0:
                    _read_inputs(rows, x, args, part, 0, zero)
                    _clear(d, 0, args.inputs * part.width, zero)
                for member in range(first, last):
                    if args.separate != 0:
                        _read_inputs(rows, x, args, part, member, zero)
                        _clear(d, 0, args.inputs * part.width, zero)
                    member_forward(
                        p=p, member=member, inputs=args.inputs, part=part, rows=rows, z=z, weight=weight, bias=bias,
                        zero=zero,
                    )  # fmt: skip
                    member_backward(
                        p=p, member=member, args=args, part=part, rows=rows, z=z, d=d, out_grad=out_grad,
                        weight=weight, weight_grad=weight_grad, bias_grad=bias_grad, zero=zero,
                    )  # fmt: skip
                    if args.separate != 0 and is_given(x_grad):
                        _write_x_grad(d, x_grad, args, part, member)
                if is_given(x_sums):
                    _write_x_grad(d, x_sums, args, part, chunk)
            job = take_next(offset(buffer, NEXT_JOB))
        end(buffer)

    return backward


@_jit
def population_merge(buffer, zero, stamp):
    """A job is a part of the gradients, which are summed over shares; those of a shared x over chunks."""
    args = _read_backward(buffer)
    weight_grad, bias_grad = pointer(args.weight_grad, zero), pointer(args.bias_grad, zero)
    parts, size = args.parts, args.batch * args.inputs
    job = take_next(offset(buffer, NEXT_JOB))
    while job < parts:
        for share in range(args.shares - 1):
            sums = offset(pointer(args.sums, zero), share * (args.edges + args.biases))
            for k in range(args.edges * job // parts, args.edges * (job + 1) // parts):
                weight_grad[k] += sums[k]
            for k in range(args.biases * job // parts, args.biases * (job + 1) // parts):
                bias_grad[k] += sums[args.edges + k]
        if args.x_sums != 0:
            x_grad, x_sums = pointer(args.x_grad, zero), pointer(args.x_sums, zero)
            _clear(x_grad, size * job // parts, size * (job + 1) // parts, zero)
            for chunk in range(args.chunks):
                for k in range(size * job // parts, size * (job + 1) // parts):
                    x_grad[k] += x_sums[chunk * size + k]
        job = take_next(offset(buffer, NEXT_JOB))
    end(buffer)

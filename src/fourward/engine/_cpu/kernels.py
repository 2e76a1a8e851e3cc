"""The kernels: forward, backward and weight gradients over slices of the batch, in Numba.

The activations of a slice are stored as (N, S): one row for each node, by position, with S samples side by side. S is
1, 2, 4 or 8 lane groups of `simd`. Slices are independent of each other.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from array import array
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, NamedTuple

from numba import carray, njit
from numba.core import types

from fourward._jit import cached_cfunc
from fourward.engine._cpu.activations import activate, apply_dropout, multiply_by_derivative
from fourward.engine._cpu.arguments import argument_buffer, buffer_reader, tuple_reader
from fourward.engine._cpu.edge_runs import BEGIN, END
from fourward.engine._cpu.simd import add_run, cast_like, dot_run, float64_from_bits, offset, pointer, take_job

#: Slices of at most so many lane groups take edges by node: their rows fit the cache, and long runs are faster.
BY_NODE = 1
ALIGN = 16  #: the fields of a packed plan start at multiples of so many int32

_jit = njit(nogil=True, error_model="numpy")


class PackedPlan(NamedTuple):
    """A plan as the kernels read it: int32 arrays, packed into one tensor by `launch.pack`.

    Nodes are numbered by position, N of them; E edges. A node's first run starts its sum, its last one finishes it.
    """

    node: Any  #: (R,) position that each run of the forward pass adds to
    first: Any  #: (R,) its first edge
    last: Any  #: (R,) the edge after its last
    flag: Any  #: (R,) BEGIN, END, both or neither
    back_node: Any  #: (R',) the same for the backward pass, over edges sorted by source
    back_first: Any
    back_last: Any
    back_flag: Any
    start: Any  #: (N+1,) the edges into position q are start[q]:start[q+1]
    back_start: Any  #: (N+1,) the same for edges sorted by source, positions counted from the end
    source: Any  #: (E,) position where each edge starts
    back_target: Any  #: (E,) position where each edge ends, edges sorted by source
    back_edge: Any  #: (E,) index among the plan's edges, edges sorted by source
    code: Any  #: (N,) activation code
    bias_index: Any  #: (N,) index of the bias; -1 for inputs
    z_row: Any  #: (N,) row in which z is saved for the backward pass; -1 where a is enough
    order: Any  #: (N,) node index
    hidden: Any  #: (N,) 1 where dropout applies
    outputs: Any  #: (O,) positions of the outputs
    position: Any  #: (N,) position of each node index


@_jit
def _field(packed_plan, i):
    """Field i of a packed plan, which starts with pairs (start / ALIGN, length) of its fields."""
    return carray(offset(packed_plan, ALIGN * packed_plan[2 * i]), packed_plan[2 * i + 1])


_unpack = tuple_reader(PackedPlan, _field)


class Slice(NamedTuple):
    """Samples that are computed together: a row of the table that `launch.slices` makes."""

    first: int  #: index of its first sample in the batch
    size: int  #: number of its samples
    groups: int  #: lane groups that they fill; the rest of the last one is padding
    begin: int  #: samples and padding in the slices before it, so that its activations start at N * begin


_read_slice = tuple_reader(Slice, _jit(lambda row, i: row[i]))


@_jit
def _add(row, weight, index, rows, first, last, groups):
    """`add_run` for any number of lane groups."""
    if groups == 8:
        add_run(row, weight, index, rows, first, last, 8)
    elif groups == 4:
        add_run(row, weight, index, rows, first, last, 4)
    elif groups == 2:
        add_run(row, weight, index, rows, first, last, 2)
    else:
        add_run(row, weight, index, rows, first, last, 1)


@_jit
def _dot(row, rows, index, result, first, last, groups):
    """`dot_run` for any number of lane groups."""
    if groups == 8:
        dot_run(row, rows, index, result, first, last, 8)
    elif groups == 4:
        dot_run(row, rows, index, result, first, last, 4)
    elif groups == 2:
        dot_run(row, rows, index, result, first, last, 2)
    else:
        dot_run(row, rows, index, result, first, last, 1)


@_jit
def _forward_slice(p, inputs, groups, a, z, weight, bias, has_bias, sample, key, threshold, scale, zero, lanes):
    """All neurons of one slice: a and, where the backward pass needs it, z; the rows of inputs are filled already.

    Whenever a run is taken, the rows that it reads are finished.
    """
    width = groups * lanes
    source = pointer(p.source.ctypes.data, types.int32(0))
    for r in range(len(p.node) if groups > BY_NODE else len(p.code) - inputs):
        if groups > BY_NODE:
            q, first, last, flag = p.node[r], p.first[r], p.last[r], p.flag[r]
        else:
            q, first, last, flag = inputs + r, p.start[inputs + r], p.start[inputs + r + 1], BEGIN | END
        row = offset(a, q * width)  # the sum so far; from END on, the activation
        if flag & BEGIN:
            start = bias[p.bias_index[q]] if has_bias else zero
            for j in range(width):
                row[j] = start
        _add(row, weight, source, a, first, last, groups)
        if flag & END:
            if p.z_row[q] >= 0:
                saved = offset(z, p.z_row[q] * width)
                for j in range(width):
                    saved[j] = row[j]
            activate(p.code[q], row, width, zero)
            if threshold > 0 and p.hidden[q]:
                apply_dropout(row, width, p.order[q], sample, key, threshold, scale, zero)


@_jit
def _backward_slice(p, runs, nodes, groups, d, a, z, weight, sample, key, threshold, scale, unscale, zero, lanes):
    """Turn d from gradients of activations into gradients of sums, for one slice; weight is sorted by source.

    Whenever a run is taken, the rows that it reads are gradients of sums already.
    """
    width = groups * lanes
    target = pointer(p.back_target.ctypes.data, types.int32(0))
    for r in range(runs if groups > BY_NODE else nodes):
        if groups > BY_NODE:
            q, first, last, flag = p.back_node[r], p.back_first[r], p.back_last[r], p.back_flag[r]
        else:
            q, first, last, flag = len(p.code) - 1 - r, p.back_start[r], p.back_start[r + 1], END
        row = offset(d, q * width)
        _add(row, weight, target, d, first, last, groups)
        if flag & END and p.bias_index[q] >= 0:
            dropped = threshold > 0 and p.hidden[q]
            if dropped:
                apply_dropout(row, width, p.order[q], sample, key, threshold, scale, zero)
            saved = offset(z, max(p.z_row[q], 0) * width)
            factor = unscale if dropped else cast_like(zero, 1.0)
            multiply_by_derivative(p.code[q], row, offset(a, q * width), saved, width, factor, zero)


# Entries. All threads of a team call an entry with the same buffer, and take jobs from it until none is left. Arguments
# are numbers, or addresses of tensors: 0 where there is none.


@argument_buffer
def forward_arguments(
    *,
    jobs: int,  # number of slices
    slices: int,  # (jobs, 4) int64, rows of Slice
    packed_plan: int,
    all_nodes: bool,
    inputs: int,  # I
    x: int,  # (B, I)
    out: int,  # (B, N) by node index if all_nodes, else (B, O)
    a: int,  # (N, S) of each slice, one slice after another
    z: int,  # (Z, S) likewise, a row for each node that needs it
    weight: int,  # (E,) in plan order
    bias: int,  # (N-I,), or 0
    key: int,  # key of dropout
    threshold: int,  # threshold of dropout; 0: nothing is dropped
    p_bits: int,  # the bits of dropout's p, a float64
) -> array[int]:
    """The arguments of _forward."""


@argument_buffer
def backward_arguments(
    *,
    jobs: int,  # number of slices
    slices: int,
    packed_plan: int,
    all_nodes: bool,
    inputs: int,
    x_grad: int,  # (B, I), or 0
    out_grad: int,  # same shape as out
    a: int,
    z: int,
    d: int,  # same shape as a
    weight_by_source: int,  # (E,)
    key: int,
    threshold: int,
    p_bits: int,
) -> array[int]:
    """The arguments of _backward."""


@argument_buffer
def weight_grad_arguments(
    *,
    jobs: int,  # parts that the gradients are split into
    slices: int,
    num_slices: int,
    packed_plan: int,
    a: int,
    d: int,
    weight_grad: int,  # (E,) in plan order
    bias_grad: int,  # (N-I,) zeros, or 0
) -> array[int]:
    """The arguments of _weight_grad."""


@argument_buffer
def sort_arguments(
    *,
    jobs: int,  # parts that the weights are split into
    packed_plan: int,
    weight: int,  # (E,) in plan order
    weight_by_source: int,  # (E,)
) -> array[int]:
    """The arguments of _sort."""


_read_forward, _read_backward = buffer_reader(forward_arguments), buffer_reader(backward_arguments)
_read_weight_grad, _read_sort = buffer_reader(weight_grad_arguments), buffer_reader(sort_arguments)


@_jit
def _forward(buffer, zero, lanes, stamp):
    """A job is a slice: from x to out."""
    args = _read_forward(buffer)
    slices, x, out = pointer(args.slices, args.jobs), pointer(args.x, zero), pointer(args.out, zero)
    weight, bias, has_bias = pointer(args.weight, zero), pointer(args.bias, zero), args.bias != 0
    scale = cast_like(zero, 1.0 / (1.0 - float64_from_bits(args.p_bits)))
    p, inputs = _unpack(pointer(args.packed_plan, types.int32(0))), args.inputs
    n, z_rows = len(p.code), p.z_row.max() + 1
    columns = p.position if args.all_nodes else p.outputs
    job = take_job(buffer)
    while job < args.jobs:
        first, size, groups, begin = _read_slice(offset(slices, 4 * job))
        width = groups * lanes
        a, z = offset(pointer(args.a, zero), begin * n), offset(pointer(args.z, zero), begin * z_rows)
        for q in range(inputs):
            for j in range(size):
                a[q * width + j] = x[(first + j) * inputs + q]
            for j in range(size, width):  # padding repeats a sample: it overflows only where that one does
                a[q * width + j] = a[q * width + size - 1]
        _forward_slice(
            p=p, inputs=inputs, groups=groups, a=a, z=z, weight=weight, bias=bias, has_bias=has_bias, sample=first,
            key=args.key, threshold=args.threshold, scale=scale, zero=zero, lanes=lanes,
        )  # fmt: skip
        for j in range(size):
            for o in range(len(columns)):
                out[(first + j) * len(columns) + o] = a[columns[o] * width + j]
        job = take_job(buffer)


@_jit
def _backward(buffer, zero, lanes, stamp):
    """A job is a slice: from out_grad to d, the gradients of all sums, and to x_grad if there is one."""
    args = _read_backward(buffer)
    slices, x_grad, out_grad = pointer(args.slices, args.jobs), pointer(args.x_grad, zero), pointer(args.out_grad, zero)
    weight, needs_x_grad = pointer(args.weight_by_source, zero), args.x_grad != 0
    keep = 1.0 - float64_from_bits(args.p_bits)
    scale, unscale = cast_like(zero, 1.0 / keep), cast_like(zero, keep)
    p, inputs = _unpack(pointer(args.packed_plan, types.int32(0))), args.inputs
    n, z_rows = len(p.code), p.z_row.max() + 1
    columns = p.position if args.all_nodes else p.outputs
    runs, nodes = len(p.back_node), n if needs_x_grad else n - inputs
    while not needs_x_grad and runs > 0 and p.bias_index[p.back_node[runs - 1]] < 0:
        runs -= 1  # the inputs come last, and their gradients aren't needed
    job = take_job(buffer)
    while job < args.jobs:
        first, size, groups, begin = _read_slice(offset(slices, 4 * job))
        width = groups * lanes
        a, z = offset(pointer(args.a, zero), begin * n), offset(pointer(args.z, zero), begin * z_rows)
        d = offset(pointer(args.d, zero), begin * n)
        for j in range(n * width):
            d[j] = zero
        for j in range(size):
            for o in range(len(columns)):
                d[columns[o] * width + j] = out_grad[(first + j) * len(columns) + o]
        _backward_slice(
            p=p, runs=runs, nodes=nodes, groups=groups, d=d, a=a, z=z, weight=weight, sample=first, key=args.key,
            threshold=args.threshold, scale=scale, unscale=unscale, zero=zero, lanes=lanes,
        )  # fmt: skip
        if needs_x_grad:
            for j in range(size):
                for q in range(inputs):
                    x_grad[(first + j) * inputs + q] = d[q * width + j]
        job = take_job(buffer)


@_jit
def _weight_grad(buffer, zero, lanes, stamp):
    """A job is a part of the gradients of weights and biases, summed over all slices in their order."""
    args = _read_weight_grad(buffer)
    slices, weight_grad = pointer(args.slices, args.jobs), pointer(args.weight_grad, zero)
    bias_grad, has_bias = pointer(args.bias_grad, zero), args.bias_grad != 0
    p, parts = _unpack(pointer(args.packed_plan, types.int32(0))), args.jobs
    n, runs, source = len(p.code), len(p.node), pointer(p.source.ctypes.data, types.int32(0))
    by_node = True
    for i in range(args.num_slices):
        by_node = by_node and _read_slice(offset(slices, 4 * i)).groups <= BY_NODE
    job = take_job(buffer)
    while job < parts:
        low, high = n * job // parts, n * (job + 1) // parts
        begin_run, end_run = (low, high) if by_node else (runs * job // parts, runs * (job + 1) // parts)
        for r in range(begin_run, end_run):
            first, last = (p.start[r], p.start[r + 1]) if by_node else (p.first[r], p.last[r])
            for k in range(first, last):
                weight_grad[k] = zero
        for i in range(args.num_slices):
            _, _, groups, begin = _read_slice(offset(slices, 4 * i))
            width = groups * lanes
            a, d = offset(pointer(args.a, zero), begin * n), offset(pointer(args.d, zero), begin * n)
            for r in range(begin_run, end_run):
                if by_node:
                    _dot(offset(d, r * width), a, source, weight_grad, p.start[r], p.start[r + 1], groups)
                else:
                    _dot(offset(d, p.node[r] * width), a, source, weight_grad, p.first[r], p.last[r], groups)
            if has_bias:
                for q in range(low, high):
                    if p.bias_index[q] >= 0:
                        total = bias_grad[p.bias_index[q]]
                        for j in range(width):
                            total += d[q * width + j]
                        bias_grad[p.bias_index[q]] = total
        job = take_job(buffer)


@_jit
def _sort(buffer, zero, lanes, stamp):
    """A job is a part of the weights, put into the order of the backward pass."""
    args = _read_sort(buffer)
    weight, weight_by_source = pointer(args.weight, zero), pointer(args.weight_by_source, zero)
    p, parts = _unpack(pointer(args.packed_plan, types.int32(0))), args.jobs
    edges = len(p.back_edge)
    job = take_job(buffer)
    while job < parts:
        for k in range(edges * job // parts, edges * (job + 1) // parts):
            weight_by_source[k] = weight[p.back_edge[k]]
        job = take_job(buffer)


def _stamp() -> int:
    """A hash of the code that kernels are compiled from; Numba's cache only looks at the file of an entry."""
    digest = blake2b(digest_size=4)
    for package in (__package__, "fourward.engine", "fourward.plan"):
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return int.from_bytes(digest.digest(), "little")


def _entries(stamp: int) -> dict[str, Any]:
    """The entries, each bound to the stamp, which thereby is part of its key in Numba's cache."""

    def forward_float32(buffer):
        _forward(buffer, types.float32(0), 16, stamp)

    def forward_float64(buffer):
        _forward(buffer, types.float64(0), 8, stamp)

    def backward_float32(buffer):
        _backward(buffer, types.float32(0), 16, stamp)

    def backward_float64(buffer):
        _backward(buffer, types.float64(0), 8, stamp)

    def weight_grad_float32(buffer):
        _weight_grad(buffer, types.float32(0), 16, stamp)

    def weight_grad_float64(buffer):
        _weight_grad(buffer, types.float64(0), 8, stamp)

    def sort_float32(buffer):
        _sort(buffer, types.float32(0), 16, stamp)

    def sort_float64(buffer):
        _sort(buffer, types.float64(0), 8, stamp)

    return locals()


_ENTRIES = _entries(_stamp())


@cache
def entry(name: str, dtype: str) -> int:
    """The address of a compiled entry: "forward", "backward", "weight_grad" or "sort", in "float32" or "float64"."""
    return cached_cfunc(_ENTRIES[f"{name}_{dtype}"], types.void(types.CPointer(types.int64)))

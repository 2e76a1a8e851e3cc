"""The kernels: forward, backward and weight gradients over slices of the batch, in Numba.

Activations of a slice stand as (N, S): a row a node, by position, S samples side by side. S is 1, 2, 4 or 8 lane groups
of `vector`. Slices need nothing of each other.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, NamedTuple

from numba import carray, njit
from numba.core import types

from fourward._jit import cached_cfunc
from fourward.engine._cpu.activations import activate, apply_dropout, multiply_by_derivative
from fourward.engine._cpu.runs import BEGIN, END
from fourward.engine._cpu.simd import add_run, dot_run, number, pointer, real, shifted, take

BY_NODE = 1  #: rows of so few lane groups go node by node: they fit the cache anyhow, and long runs are quicker
ALIGN = 16  #: fields of a packed program start at multiples of so many int32


class Program(NamedTuple):
    """A plan as the kernels read it: int32 arrays, packed into one tensor by `plan.panels.pack`.

    Positions number the nodes; N of them, E edges. Runs are stretches of the edges of one node: the first of a node's
    runs starts its sum, the last one finishes it. They stand in an order that keeps the rows they read in the cache.
    """

    node: Any  #: (R,) position that each run of the forward walk adds to
    first: Any  #: (R,) its first edge
    last: Any  #: (R,) the edge after its last
    flag: Any  #: (R,) BEGIN, END, both or neither
    back_node: Any  #: (R',) the same for the backward walk, over edges sorted by source
    back_first: Any
    back_last: Any
    back_flag: Any
    start: Any  #: (N+1,) the edges into position q are start[q]:start[q+1]
    back_start: Any  #: (N+1,) the same for edges sorted by source, positions counted from the end
    source: Any  #: (E,) position where each edge starts
    back_target: Any  #: (E,) position where each edge ends, edges sorted by source
    back_edge: Any  #: (E,) which edge each of those is
    code: Any  #: (N,) activation
    bias_at: Any  #: (N,) which bias; -1 for inputs
    z_row: Any  #: (N,) row in which z is kept for the backward pass; -1 where a is enough
    order: Any  #: (N,) node index
    hidden: Any  #: (N,) 1 where dropout applies
    outputs: Any  #: (O,) positions of the outputs
    position: Any  #: (N,) position of each node index


@njit(nogil=True)
def _field(base, i):
    return carray(shifted(base, ALIGN * base[2 * i]), base[2 * i + 1])


@njit(nogil=True)
def _unpack(address):
    base = pointer(address, types.int32(0))
    return Program(
        *(_field(base, 0), _field(base, 1), _field(base, 2), _field(base, 3), _field(base, 4), _field(base, 5)),
        *(_field(base, 6), _field(base, 7), _field(base, 8), _field(base, 9), _field(base, 10), _field(base, 11)),
        *(_field(base, 12), _field(base, 13), _field(base, 14), _field(base, 15), _field(base, 16), _field(base, 17)),
        *(_field(base, 18), _field(base, 19)),
    )


@njit(nogil=True, error_model="numpy")
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


@njit(nogil=True, error_model="numpy")
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


@njit(nogil=True, error_model="numpy")
def _forward_walk(p, inputs, groups, a, z, weight, bias, has_bias, sample, key, threshold, scale, zero, lanes):
    """The whole network for one slice."""
    width = groups * lanes
    source = pointer(p.source.ctypes.data, types.int32(0))
    for r in range(len(p.node) if groups > BY_NODE else len(p.code) - inputs):
        if groups > BY_NODE:
            q, first, last, flag = p.node[r], p.first[r], p.last[r], p.flag[r]
        else:
            q, first, last, flag = inputs + r, p.start[inputs + r], p.start[inputs + r + 1], BEGIN | END
        row = shifted(a, q * width)
        if flag & BEGIN:
            start = bias[p.bias_at[q]] if has_bias else zero
            for j in range(width):
                row[j] = start
        _add(row, weight, source, a, first, last, groups)
        if flag & END:
            if p.z_row[q] >= 0:
                kept = shifted(z, p.z_row[q] * width)
                for j in range(width):
                    kept[j] = row[j]
            activate(p.code[q], row, width, zero)
            if threshold > 0 and p.hidden[q]:
                apply_dropout(row, width, p.order[q], sample, key, threshold, scale, zero)


@njit(nogil=True, error_model="numpy")
def _backward_walk(p, runs, nodes, groups, d, a, z, weight, sample, key, threshold, scale, undo, zero, lanes):
    """Take d from gradients of activations to gradients of sums, for one slice; weight is sorted by source."""
    width = groups * lanes
    target = pointer(p.back_target.ctypes.data, types.int32(0))
    for r in range(runs if groups > BY_NODE else nodes):
        if groups > BY_NODE:
            q, first, last, flag = p.back_node[r], p.back_first[r], p.back_last[r], p.back_flag[r]
        else:
            q, first, last, flag = len(p.code) - 1 - r, p.back_start[r], p.back_start[r + 1], END
        row = shifted(d, q * width)
        _add(row, weight, target, d, first, last, groups)
        if flag & END and p.bias_at[q] >= 0:
            scaled = threshold > 0 and p.hidden[q]
            if scaled:
                apply_dropout(row, width, p.order[q], sample, key, threshold, scale, zero)
            kept = shifted(z, max(p.z_row[q], 0) * width)
            f = undo if scaled else number(zero, 1.0)
            multiply_by_derivative(p.code[q], row, shifted(a, q * width), kept, width, f, zero)


# Entries. Each is called by all threads of a team with one block of int64 arguments, and takes jobs until none is left.
# A block starts with the next job and the number of jobs. Then come, as numbers or addresses:
#   forward   slices, program, all_nodes, inputs, x, out, a, z, weight, bias (or 0), key, threshold, p's bits
#   backward  slices, program, all_nodes, inputs, x_grad (or 0), out_grad, a, z, d, by_source, key, threshold, p's bits
#   weights   slices, program, number of slices, parts, a, d, weight_grad, bias_grad (or 0)
#   sort      program, parts, weight, by_source


@njit(nogil=True, error_model="numpy")
def _forward(block, zero, lanes, stamp):
    """A job is a slice (first sample, how many, lane groups, first sample counting padding), from x (B, I) to out."""
    slices, program, all_nodes, inputs = pointer(block[2], block[0]), block[3], block[4], block[5]
    x, out, a0, z0 = pointer(block[6], zero), pointer(block[7], zero), pointer(block[8], zero), pointer(block[9], zero)
    weight, bias, key, threshold = pointer(block[10], zero), pointer(block[11], zero), block[12], block[13]
    has_bias, scale = block[11] != 0, number(zero, 1.0 / (1.0 - real(block[14])))
    p = _unpack(program)
    n, rows = len(p.code), p.z_row.max() + 1
    wanted = p.position if all_nodes else p.outputs
    job = take(block)
    while job < block[1]:
        sample, count, groups, place = slices[4 * job], slices[4 * job + 1], slices[4 * job + 2], slices[4 * job + 3]
        width = groups * lanes
        a, z = shifted(a0, place * n), shifted(z0, place * rows)
        for q in range(inputs):
            for j in range(count):
                a[q * width + j] = x[(sample + j) * inputs + q]
            for j in range(count, width):  # padding repeats a sample: it overflows only where that one does
                a[q * width + j] = a[q * width + count - 1]
        _forward_walk(p, inputs, groups, a, z, weight, bias, has_bias, sample, key, threshold, scale, zero, lanes)
        for j in range(count):
            for o in range(len(wanted)):
                out[(sample + j) * len(wanted) + o] = a[wanted[o] * width + j]
        job = take(block)


@njit(nogil=True, error_model="numpy")
def _backward(block, zero, lanes, stamp):
    """A job is a slice: from out_grad (B, O) to d, the gradients of all sums, and x_grad (B, I) if asked for."""
    slices, program, all_nodes, inputs = pointer(block[2], block[0]), block[3], block[4], block[5]
    x_grad, out_grad = pointer(block[6], zero), pointer(block[7], zero)
    a0, z0, d0, weight = (
        pointer(block[8], zero),
        pointer(block[9], zero),
        pointer(block[10], zero),
        pointer(block[11], zero),
    )
    key, threshold, keep = block[12], block[13], 1.0 - real(block[14])
    scale, undo = number(zero, 1.0 / keep), number(zero, keep)
    p = _unpack(program)
    n, rows = len(p.code), p.z_row.max() + 1
    wanted = p.position if all_nodes else p.outputs
    runs, nodes = len(p.back_node), n if block[6] != 0 else n - inputs
    while block[6] == 0 and runs > 0 and p.bias_at[p.back_node[runs - 1]] < 0:
        runs -= 1  # the inputs come last, and their gradients aren't wanted
    job = take(block)
    while job < block[1]:
        sample, count, groups, place = slices[4 * job], slices[4 * job + 1], slices[4 * job + 2], slices[4 * job + 3]
        width = groups * lanes
        a, z, d = shifted(a0, place * n), shifted(z0, place * rows), shifted(d0, place * n)
        for j in range(n * width):
            d[j] = zero
        for j in range(count):
            for o in range(len(wanted)):
                d[wanted[o] * width + j] = out_grad[(sample + j) * len(wanted) + o]
        _backward_walk(p, runs, nodes, groups, d, a, z, weight, sample, key, threshold, scale, undo, zero, lanes)
        if block[6] != 0:
            for j in range(count):
                for q in range(inputs):
                    x_grad[(sample + j) * inputs + q] = d[q * width + j]
        job = take(block)


@njit(nogil=True, error_model="numpy")
def _weights(block, zero, lanes, stamp):
    """A job is a part of the gradients of weights and biases, summed over all slices in their order."""
    slices, program, num_slices, parts = pointer(block[2], block[0]), block[3], block[4], block[5]
    a0, d0, gradient, biases = (
        pointer(block[6], zero),
        pointer(block[7], zero),
        pointer(block[8], zero),
        pointer(block[9], zero),
    )
    p = _unpack(program)
    n, runs, source = len(p.code), len(p.node), pointer(p.source.ctypes.data, types.int32(0))
    by_node = True
    for i in range(num_slices):
        by_node = by_node and slices[4 * i + 2] <= BY_NODE
    job = take(block)
    while job < block[1]:
        low, high = n * job // parts, n * (job + 1) // parts
        begin, end = (low, high) if by_node else (runs * job // parts, runs * (job + 1) // parts)
        for r in range(begin, end):
            first, last = (p.start[r], p.start[r + 1]) if by_node else (p.first[r], p.last[r])
            for k in range(first, last):
                gradient[k] = zero
        for i in range(num_slices):
            groups, place = slices[4 * i + 2], slices[4 * i + 3]
            width = groups * lanes
            a, d = shifted(a0, place * n), shifted(d0, place * n)
            for r in range(begin, end):
                if by_node:
                    _dot(shifted(d, r * width), a, source, gradient, p.start[r], p.start[r + 1], groups)
                else:
                    _dot(shifted(d, p.node[r] * width), a, source, gradient, p.first[r], p.last[r], groups)
            if block[9] != 0:
                for q in range(low, high):
                    if p.bias_at[q] >= 0:
                        total = biases[p.bias_at[q]]
                        for j in range(width):
                            total += d[q * width + j]
                        biases[p.bias_at[q]] = total
        job = take(block)


@njit(nogil=True, error_model="numpy")
def _sort(block, zero, lanes, stamp):
    """A job is a part of the weights, put into the order of the backward walk."""
    parts, weight, by_source = block[3], pointer(block[4], zero), pointer(block[5], zero)
    p = _unpack(block[2])
    edges = len(p.back_edge)
    job = take(block)
    while job < block[1]:
        for k in range(edges * job // parts, edges * (job + 1) // parts):
            by_source[k] = weight[p.back_edge[k]]
        job = take(block)


def _stamp() -> int:
    """A number that changes with the code kernels are made of; Numba's cache looks at the file of an entry alone."""
    digest = blake2b(digest_size=4)
    for package in (__package__, "fourward.engine", "fourward.plan"):
        for file in sorted(files(package).iterdir(), key=lambda file: file.name):
            if file.name.endswith(".py"):
                digest.update(file.read_bytes())
    return int.from_bytes(digest.digest(), "little")


def _entries(stamp: int) -> dict[str, Any]:
    """The entries, each bound to the stamp, which thereby is part of its key in the cache."""

    def forward_float32(block):
        _forward(block, types.float32(0), 16, stamp)

    def forward_float64(block):
        _forward(block, types.float64(0), 8, stamp)

    def backward_float32(block):
        _backward(block, types.float32(0), 16, stamp)

    def backward_float64(block):
        _backward(block, types.float64(0), 8, stamp)

    def weights_float32(block):
        _weights(block, types.float32(0), 16, stamp)

    def weights_float64(block):
        _weights(block, types.float64(0), 8, stamp)

    def sort_float32(block):
        _sort(block, types.float32(0), 16, stamp)

    def sort_float64(block):
        _sort(block, types.float64(0), 8, stamp)

    return locals()


_ENTRIES = _entries(_stamp())


@cache
def entry(what: str, dtype: str) -> int:
    """The address of a compiled entry: "forward", "backward", "weights" or "sort", for "float32" or "float64"."""
    return cached_cfunc(_ENTRIES[f"{what}_{dtype}"], types.void(types.CPointer(types.int64)))

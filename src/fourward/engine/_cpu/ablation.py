"""What outputs become when a node's activation, or an edge's weight, is set to a constant, one after another, in Numba.

Setting node v changes its descendants alone, by amounts d that start as value - a_v; a descendant q has the new sum
z_q + the sum of w_uq d_u over its changed predecessors u. So an ablation takes the edges between changed nodes, on
average of a deep network a third of all, and the intact sums and activations are computed once. Setting the weight of
an edge (u, v) starts with d_v = f_v(z_v + (value - w_uv) a_u) - a_v.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit

from fourward.engine._cpu.activations import activate
from fourward.engine._cpu.simd import LANE_GROUP_BYTES, add_run, offset, pointer

#: Lane groups of a slice of samples: with two, the changed rows of 5,000 nodes fit the second-level cache.
_GROUPS = 2

_jit = njit(nogil=True, error_model="numpy")


def slice_width(dtype: Any) -> int:
    """Samples of a slice."""
    return _GROUPS * LANE_GROUP_BYTES // np.dtype(dtype).itemsize


@_jit
def find_relevant(source, start, outputs, num_nodes):
    """(N,) True for the positions from which a path leads to an output, these included."""
    relevant = np.zeros(num_nodes, np.bool_)
    relevant[outputs] = True
    for q in range(num_nodes - 1, -1, -1):
        if relevant[q]:
            for k in range(start[q], start[q + 1]):
                relevant[source[k]] = True
    return relevant


@cache
def compute_sums(width):
    """The kernel of the intact sums for slices of this width."""

    @_jit
    def compute_sums(a, source, start, weight, bias, inputs, z):
        """Fill z, (slices, N, W) by position, from activations a of this shape; bias is (N,) by position."""
        zero, slices, num_nodes = weight.dtype.type(0), len(a), a.shape[1]
        first_weight, first_source = pointer(weight.ctypes.data, zero), pointer(source.ctypes.data, np.int32(0))
        for s in range(slices):
            rows, sums = pointer(a[s].ctypes.data, zero), pointer(z[s].ctypes.data, zero)
            for q in range(inputs, num_nodes):
                row = offset(sums, q * width)
                add_run(row, True, bias[q], first_weight, first_source, rows, start[q], start[q + 1], width)

    return compute_sums


@cache
def ablate(width):
    """The kernel of ablations for slices of this width."""

    @_jit
    def ablate(positions, sources, values, source, start, weight, code, outputs, relevant, a, z, samples, squares, out):
        """Set the node at each of K positions to a value; or where it has a source, add it to that edge's weight.

        Nodes have the source -1. Fills squares, (K,), with the sum over samples and outputs of the squared change of
        the outputs; or, unless it is empty, out, (K, S, O), with the outputs.
        """
        num_nodes, slices = len(code), len(a)
        zero = weight.dtype.type(0)
        changed = np.empty((num_nodes, width), weight.dtype)  # d of each changed node
        row_number, nodes = np.empty(num_nodes, np.int32), np.empty(num_nodes, np.int32)
        first, last = np.empty(num_nodes, np.int64), np.empty(num_nodes, np.int64)
        count, edges = 0, 0
        edge_weight, edge_row = np.empty(len(source), weight.dtype), np.empty(len(source), np.int32)
        rows, weights = pointer(changed.ctypes.data, zero), pointer(edge_weight.ctypes.data, zero)
        index = pointer(edge_row.ctypes.data, np.int32(0))
        for i in range(len(positions)):
            v, u = positions[i], sources[i]
            is_known = i > 0 and positions[i - 1] == v  # another edge into v changes the same nodes
            if not is_known:
                row_number[:] = -1
                row_number[v], nodes[0], count, edges = 0, v, 1, 0
            for q in range(v + 1, num_nodes if relevant[v] and not is_known else 0):
                if not relevant[q]:
                    continue
                begin = edges
                for k in range(start[q], start[q + 1]):
                    if row_number[source[k]] >= 0:
                        edge_weight[edges], edge_row[edges] = weight[k], row_number[source[k]]
                        edges += 1
                if edges > begin:
                    row_number[q], nodes[count], first[count], last[count] = count, q, begin, edges
                    count += 1
            for s in range(slices):
                for j in range(width):
                    changed[0, j] = values[i] if u < 0 else z[s, v, j] + values[i] * a[s, u, j]
                if u >= 0:
                    activate(code[v], rows, width)
                for j in range(width):
                    changed[0, j] -= a[s, v, j]
                for c in range(1, count):
                    q, row = nodes[c], offset(rows, c * width)
                    for j in range(width):
                        row[j] = z[s, q, j]
                    add_run(row, False, zero, weights, index, rows, first[c], last[c], width)
                    activate(code[q], row, width)
                    for j in range(width):
                        row[j] -= a[s, q, j]
                size = min(width, samples - s * width)
                for o in range(len(outputs)):
                    c = row_number[outputs[o]]
                    if len(out):
                        for j in range(size):
                            out[i, s * width + j, o] = a[s, outputs[o], j] + (changed[c, j] if c >= 0 else zero)
                    elif c >= 0:
                        for j in range(size):
                            squares[i] += np.float64(changed[c, j]) ** 2

    return ablate

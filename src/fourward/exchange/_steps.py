"""A network as a few large operations, one step for each level: what the graphs of ONNX and torch.export consist of.

The time of a single sample is that of calling operations, so a step has few of them: a dense matrix product if its
block of weights is well filled, else a gather, a product and a scatter over its edges.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.exchange._equations import plan_parameters
from fourward.graph._annotated import FloatArray
from fourward.nn._fourward import FourWard, without_driven_inputs
from fourward.plan._plan import Plan

_SPARSE_BYTES = 20  # per edge: two indices of 8 bytes, a weight of 4
# A dense block may take twice the bytes of its edges, but not more than this in addition; a tiny one 400 bytes more. In
# onnxruntime, a sample then takes 0.72 of the time at N=1024, p=0.05, and 0.61 on C. elegans.
_MAX_EXTRA_BYTES = 2**16
_TINY_BYTES = 400


class Step(NamedTuple):
    """The neurons of a level, sorted by activation; `rows` number activations in the order of the steps."""

    rows: (
        IntArray | None
    )  #: (S,) the rows that a dense product takes, or (E,) the source of each edge; None: all so far
    block: FloatArray | None  #: (n, S) dense weights; None: the step is sparse
    weight: FloatArray  #: (E,) weight of each edge
    target_index: IntArray  #: (E,) the neuron of the step that each edge enters
    bias: FloatArray  #: (n,) bias of each neuron
    sections: list[tuple[int, int]]  #: activation codes and numbers of neurons


class Steps(NamedTuple):
    """All steps; inputs are the first rows, and each step appends its neurons."""

    steps: list[Step]
    outputs: IntArray  #: (O,) the row of each output


def list_steps(net: FourWard, dtype: Any) -> Steps:
    """The steps of a network, with parameters in a dtype of NumPy."""
    net = without_driven_inputs(net)
    return list_plan_steps(net.plan, *plan_parameters(net, dtype))


def list_plan_steps(plan: Plan, weight: FloatArray, bias: FloatArray) -> Steps:
    """The steps of a plan, with weights (E,) and biases (N-I,) in its order."""
    order, row = order_rows(plan)
    return Steps(list(_steps(plan, weight, bias, order, row)), row[plan.outputs])


def order_rows(plan: Plan) -> tuple[IntArray, IntArray]:
    """(N-I,) the positions of the neurons in the order of rows, and (N,) the row of each position."""
    first = plan.dag.num_inputs
    level = np.repeat(np.arange(plan.num_levels), np.diff(plan.level_start))
    order = first + np.lexsort((plan.code[first:], level))
    row = np.arange(plan.dag.num_nodes)
    row[order] = first + np.arange(len(order))
    return order, row


def _steps(plan: Plan, weight: FloatArray, bias: FloatArray, order: IntArray, row: IntArray) -> Iterator[Step]:
    first = plan.dag.num_inputs
    for start, stop in zip(plan.level_start[:-1].tolist(), plan.level_start[1:].tolist(), strict=True):
        positions = order[start - first : stop - first]
        edges, target_index = _incoming_edges(plan.edge_start, positions)
        rows, block = dense_block(row[plan.source[edges]], target_index, weight[edges], len(positions), start)
        sections = [(code, len(list(group))) for code, group in groupby(plan.code[positions].tolist())]
        yield Step(rows, block, weight[edges], target_index, bias[positions - first], sections)


def _incoming_edges(edge_start: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
    """The plan's edges into these positions, and for each the index of its target among them."""
    count = edge_start[positions + 1] - edge_start[positions]
    target_index = np.repeat(np.arange(len(positions)), count)
    first = np.cumsum(count) - count
    return np.arange(count.sum()) - first[target_index] + edge_start[positions][target_index], target_index


def dense_block(
    source: IntArray, target_index: IntArray, weight: FloatArray, neurons: int, rows_so_far: int
) -> tuple[IntArray | None, FloatArray | None]:
    """`rows` and `block` of a step: over all rows so far, over the sources, or none, the first that is small enough."""
    sparse_bytes = _SPARSE_BYTES * len(source)
    limit = sparse_bytes + min(sparse_bytes, _MAX_EXTRA_BYTES) + _TINY_BYTES
    sources, index = np.unique(source, return_inverse=True)
    rows = None
    if 4 * neurons * rows_so_far <= limit:
        width, column = rows_so_far, source
    elif 4 * neurons * len(sources) <= limit:
        rows, width, column = sources, len(sources), index
    else:
        return source, None
    block = np.zeros((neurons, width), weight.dtype)
    block[target_index, column] = weight
    return rows, block

"""Cutting the order of a plan into panels, and its edges into runs that read what the cache holds.

A run is a stretch of the edges of one node. Where edges are few, a node's edges are one run. Where they are many, the
order is cut into panels of PANEL positions, and a panel takes its edges block by block: all its nodes take what comes
from one earlier panel before any of them goes on to the next, so that the rows of a panel are read from the cache.
Edges from within the panel itself come last, node by node.

The rule, panel by panel: blocks if a node has at least LEAST edges from each earlier panel, on average. Its evidence
(2 cores, AVX-512, float32, GFLOP/s of a forward pass over Erdos-Renyi graphs of 1,024 nodes; a dense product: 199):

    p, B         edges a block   by nodes   panels of 32   of 64   of 128
    0.2, 512     13              98         113            128     127
    0.4, 512     26              105        137            152     126
    1.0, 512     64              109        165            158     105
    0.2, 32      13              76         41             62      64
    1.0, 32      64              91         78             78      101

64 rows of 128 float32 are 32 KiB, the L1 cache. At B=32 a row is one vector, and nodes are quicker than blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.plan._plan import Plan

PANEL = 64  #: positions in a panel
LEAST = 6.0  #: edges that a node of a panel must have from each earlier panel, on average, for blocks to pay
BEGIN, END = 1, 2  #: flags of a run: it starts the sum of its node, it finishes it


class Runs(NamedTuple):
    """The order in which edges are taken, R runs."""

    node: IntArray  #: (R,) the position that a run adds to
    first: IntArray  #: (R,) its first edge
    last: IntArray  #: (R,) the edge after its last
    flag: IntArray  #: (R,) BEGIN, END, both or neither


def forward_runs(plan: Plan) -> Runs:
    """The runs of a forward pass: the neurons in order, each from the edges that lead to it."""
    inputs, nodes = plan.dag.num_inputs, plan.dag.num_nodes
    bounds = np.concatenate((np.arange(0, inputs, PANEL), np.arange(inputs, nodes, PANEL), [nodes]))
    return Runs(*_cut(bounds, int(np.searchsorted(bounds, inputs)), plan.edge_start, plan.source, LEAST))


def backward_runs(plan: Plan) -> tuple[Runs, IntArray, IntArray]:
    """The runs of a backward pass, where each node's edges start, and the plan's edges in the order that these number.

    Edges stand by source, then by target, from the end of the order. Counted from there, the edges out of a node lead
    to nodes before it, just as the edges into it do in a forward pass. Inputs come last.
    """
    inputs, nodes = plan.dag.num_inputs, plan.dag.num_nodes
    neurons = nodes - inputs
    bounds = np.concatenate((np.arange(0, neurons, PANEL), np.arange(neurons, nodes, PANEL), [nodes]))
    edge, start = _transpose(plan.source, nodes)
    runs = Runs(*_cut(bounds, 0, start, nodes - 1 - plan.target[edge], LEAST))
    return runs._replace(node=nodes - 1 - runs.node), start, edge


def edges_by_source(plan: Plan) -> tuple[IntArray, IntArray]:
    """The plan's edges by source, then by target; and where those of each position start."""
    edge, start = _transpose(plan.source, plan.dag.num_nodes)
    return edge[::-1], len(edge) - start[::-1]


@cached_njit
def _transpose(source: IntArray, num_nodes: int) -> tuple[IntArray, IntArray]:
    """The edges by source from the last to the first, within that by target likewise; and where each source starts."""
    start = np.zeros(num_nodes + 1, np.int64)
    for k in range(len(source)):
        start[num_nodes - source[k]] += 1
    for q in range(num_nodes):
        start[q + 1] += start[q]
    free = start[:-1].copy()
    edge = np.empty(len(source), np.int32)
    for k in range(len(source) - 1, -1, -1):
        q = num_nodes - 1 - source[k]
        edge[free[q]] = k
        free[q] += 1
    return edge, start


@cached_njit
def _cut(
    bounds: IntArray, panel: int, start: IntArray, other: IntArray, least: float
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Runs for the panels from `panel` on; the edges of position q are start[q]:start[q+1], from ascending `other`s."""
    room = 0  # no more runs than this
    for i in range(panel, len(bounds) - 1):
        size, edges = bounds[i + 1] - bounds[i], start[bounds[i + 1]] - start[bounds[i]]
        room += size * (i + 1) if edges >= least * size * (i + 1) else size
    node, first, last = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    flag = np.empty(room, np.int32)
    r = 0
    for i in range(panel, len(bounds) - 1):
        low, high = bounds[i], bounds[i + 1]
        blocked = start[high] - start[low] >= least * (high - low) * (i + 1)
        done = start[low:high].copy()  # the edges of each node that are in runs
        for block in range(0 if blocked else i, i + 1):
            for q in range(low, high):
                k = done[q - low]
                while k < start[q + 1] and other[k] < bounds[block + 1]:
                    k += 1
                if k > done[q - low] or block == i:
                    node[r], first[r], last[r] = q, done[q - low], k
                    flag[r] = (BEGIN if done[q - low] == start[q] else 0) | (END if block == i else 0)
                    r += 1
                done[q - low] = k
    return node[:r], first[:r], last[:r], flag[:r]

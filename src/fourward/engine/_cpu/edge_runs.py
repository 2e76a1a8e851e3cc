"""The edges of a plan as runs, in an order that reads activations from the cache.

A run is a range of consecutive edges of one node. Where edges are sparse, all edges of a node are one run. Where they
are dense, positions are grouped into blocks of BLOCK, and the edges into a block are taken source block by source
block: all its nodes add what one earlier block contributes before any of them continues with the next, so that the
rows of that source block are read from the cache. Edges within the block itself come last, node by node.

A block is split like this if its nodes have at least MIN_EDGES edges from each earlier block, on average. Measured on
2 cores with AVX-512 (float32, GFLOP/s of a forward pass over Erdos-Renyi graphs of 1,024 nodes; a dense product: 199):

    p, B         edges a block   by node   blocks of 32   of 64   of 128
    0.2, 512     13              98        113            128     127
    0.4, 512     26              105       137            152     126
    1.0, 512     64              109       165            158     105
    0.2, 32      13              76        41             62      64
    1.0, 32      64              91        78             78      101

64 rows of 128 float32 are 32 KiB, the L1 cache. At B=32 a row is one vector, and going by node is faster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.plan._plan import Plan

BLOCK = 64  #: positions in a block
MIN_EDGES = 6.0  #: edges that a node of a block needs from each earlier block, on average, for splitting to pay
BEGIN, END = 1, 2  #: flags of a run: it starts the sum of its node, it finishes it


class Runs(NamedTuple):
    """R runs, in the order in which they are taken."""

    node: IntArray  #: (R,) the position that a run adds to
    first: IntArray  #: (R,) its first edge
    last: IntArray  #: (R,) the edge after its last
    flag: IntArray  #: (R,) BEGIN, END, both or neither


def forward_runs(plan: Plan) -> Runs:
    """The runs of a forward pass: the neurons in order, each with the edges into it."""
    inputs, nodes = plan.dag.num_inputs, plan.dag.num_nodes
    bounds = np.concatenate((np.arange(0, inputs, BLOCK), np.arange(inputs, nodes, BLOCK), [nodes]))
    return Runs(*_split(bounds, int(np.searchsorted(bounds, inputs)), plan.edge_start, plan.source, MIN_EDGES))


def backward_runs(plan: Plan) -> tuple[Runs, IntArray, IntArray]:
    """The runs of a backward pass, where each node's edges start, and which edge of the plan each of its edges is.

    Positions and edges are counted from the end of the order, edges by source and then by target. Counted like this,
    the edges out of a node lead to nodes before it, just as the edges into it do in a forward pass. Inputs come last.
    """
    inputs, nodes = plan.dag.num_inputs, plan.dag.num_nodes
    neurons = nodes - inputs
    bounds = np.concatenate((np.arange(0, neurons, BLOCK), np.arange(neurons, nodes, BLOCK), [nodes]))
    edge, start = plan.edges_by_source()
    edge, start = edge[::-1], np.ascontiguousarray(len(edge) - start[::-1])
    runs = Runs(*_split(bounds, 0, start, nodes - 1 - plan.target[edge], MIN_EDGES))
    return runs._replace(node=nodes - 1 - runs.node), start, edge


@cached_njit
def _split(
    bounds: IntArray, first_block: int, start: IntArray, other: IntArray, min_edges: float
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Node, first, last and flag of the runs of all blocks from `first_block` on.

    Block i holds the positions bounds[i]:bounds[i+1]. The edges of position q are start[q]:start[q+1], and lead to
    ascending positions `other`, none of them after q's block.
    """
    capacity = 0  # an upper bound on the number of runs
    for i in range(first_block, len(bounds) - 1):
        size, edges = bounds[i + 1] - bounds[i], start[bounds[i + 1]] - start[bounds[i]]
        capacity += size * (i + 1) if edges >= min_edges * size * (i + 1) else size
    node, first, last = np.empty(capacity, np.int32), np.empty(capacity, np.int32), np.empty(capacity, np.int32)
    flag = np.empty(capacity, np.int32)
    r = 0
    for i in range(first_block, len(bounds) - 1):
        low, high = bounds[i], bounds[i + 1]
        dense = start[high] - start[low] >= min_edges * (high - low) * (i + 1)
        done = start[low:high].copy()  # the first edge of each node that is in no run yet
        for source_block in range(0 if dense else i, i + 1):
            for q in range(low, high):
                k = done[q - low]
                while k < start[q + 1] and other[k] < bounds[source_block + 1]:
                    k += 1
                if k > done[q - low] or source_block == i:
                    node[r], first[r], last[r] = q, done[q - low], k
                    flag[r] = (BEGIN if done[q - low] == start[q] else 0) | (END if source_block == i else 0)
                    r += 1
                done[q - low] = k
    return node[:r], first[:r], last[:r], flag[:r]

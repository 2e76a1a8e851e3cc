"""The edges of a schedule as runs, in an order that reads activations from the cache.

A run is a range of consecutive edges of one node. Where edges are sparse, all edges of a node are one run. Where they
are dense, steps are grouped into blocks of BLOCK, and the edges into a block are taken source block by source block:
all its nodes add what one earlier block contributes before any of them continues with the next, so that the rows of
that source block are read from the cache. Edges within the block itself come last, node by node.

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

from fourward._arrays import BoolArray, IntArray
from fourward._jit import cached_njit
from fourward.plan._plan import Plan
from fourward.plan._schedule import Schedule

BLOCK = 64  #: steps in a block
MIN_EDGES = 6.0  #: edges that a node of a block needs from each earlier block, on average, for splitting to pay
BEGIN, END = 1, 2  #: flags of a run: it starts the sum of its node, it finishes it


class Runs(NamedTuple):
    """R runs, in the order in which they are taken: first those of the nodes that lead to an output."""

    step: IntArray  #: (R,) the node that a run adds to
    first: IntArray  #: (R,) its first edge
    last: IntArray  #: (R,) the edge after its last
    flag: IntArray  #: (R,) BEGIN, END, both or neither


class BackwardEdges(NamedTuple):
    """Edges in the order in which a backward pass takes them: by source, the last step first.

    Of a node's edges, those to nodes that lead to an output come first.
    """

    edge: IntArray  #: (E,) the plan's edge
    first: IntArray  #: (N,) by step: the node's first edge
    needed: IntArray  #: (N,) the edge after the last one to a node that leads to an output
    last: IntArray  #: (N,) the edge after its last


def backward_edges(plan: Plan, schedule: Schedule) -> BackwardEdges:
    """The edges sorted by source."""
    target_needed = None if schedule.needed == len(schedule.step) else schedule.step[plan.target] < schedule.needed
    return sort_by_source(schedule.get_steps(plan.source), target_needed, len(schedule.step))


def sort_by_source(step: IntArray, target_needed: BoolArray | None, nodes: int) -> BackwardEdges:
    """Sort the edges that start at these steps, (E,); for each source, those to a target that is needed come first."""
    return BackwardEdges(*_by_source(step, target_needed, nodes))


def forward_runs(plan: Plan, schedule: Schedule) -> Runs | None:
    """The runs of a forward pass, or None if each node's edges are one run, in the order of the schedule."""
    if not _may_split(plan, schedule):
        return None
    first, last = plan.edge_start[schedule.position], plan.edge_start[schedule.position + 1]
    inputs, needed = int(np.count_nonzero(schedule.position[: schedule.needed] < plan.dag.num_inputs)), schedule.needed
    bounds = np.concatenate((np.arange(0, inputs, BLOCK), np.arange(inputs, needed, BLOCK), [needed]))
    return _split_runs(bounds, first, last, schedule.step[plan.source]) if _any_dense(bounds, first, last) else None


def backward_runs(plan: Plan, schedule: Schedule, edges: BackwardEdges) -> Runs | None:
    """The runs of a backward pass from the outputs, or None if each node's edges are one run.

    Counted from the last step that is needed, the edges out of a node lead to nodes before it, just as the edges into
    it do in a forward pass. Inputs come last.
    """
    if not _may_split(plan, schedule):
        return None
    needed = schedule.needed
    inputs = int(np.count_nonzero(schedule.position[:needed] < plan.dag.num_inputs))
    bounds = np.concatenate((np.arange(0, needed - inputs, BLOCK), np.arange(needed - inputs, needed, BLOCK), [needed]))
    first, last = (np.ascontiguousarray(array[:needed][::-1]) for array in (edges.first, edges.needed))
    if not _any_dense(bounds, first, last):
        return None
    runs = _split_runs(bounds, first, last, needed - 1 - schedule.step[plan.target[edges.edge]])
    return runs and runs._replace(step=needed - 1 - runs.step)


def _may_split(plan: Plan, schedule: Schedule) -> bool:
    """Whether steps are levels, and there are as many edges as splitting takes."""
    return not schedule.reuses_rows and plan.dag.num_edges >= MIN_EDGES * BLOCK


def _any_dense(bounds: IntArray, first: IntArray, last: IntArray) -> bool:
    """Whether `_split` splits any block; one with no block before it is a single run for each node in any case."""
    before = np.concatenate(([0], np.cumsum(last - first)))[bounds]
    number = np.arange(1, len(bounds))
    dense = np.diff(before) >= MIN_EDGES * np.diff(bounds) * number
    return bool(dense[1:].any())


def _split_runs(bounds: IntArray, first: IntArray, last: IntArray, other: IntArray) -> Runs | None:
    needed = bounds[-1]
    runs = Runs(*_split(bounds, first, last, other, MIN_EDGES))
    if len(runs.step) == needed:
        return None
    rest = np.arange(needed, len(first), dtype=np.int32)  # nodes that lead to no output
    unneeded = Runs(rest, first[needed:], last[needed:], np.full(len(rest), BEGIN | END, np.int32))
    return Runs(*map(np.concatenate, zip(runs, unneeded, strict=True)))


@cached_njit
def _by_source(
    step: IntArray, target_needed: BoolArray | None, nodes: int
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """A stable counting sort of the edges, taken from the last to the first; what BackwardEdges contains."""
    size, needed = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    for k in range(len(step)):
        size[step[k]] += 1
        if target_needed is None or target_needed[k]:
            needed[step[k]] += 1
    first, total = np.empty(nodes, np.int64), 0
    for s in range(nodes - 1, -1, -1):
        first[s] = total
        total += size[s]
    needed += first
    last = first + size
    edge, free, rest = np.empty(len(step), np.int32), first.copy(), needed.copy()
    for k in range(len(step) - 1, -1, -1):
        s = step[k]
        if target_needed is None or target_needed[k]:
            edge[free[s]] = k
            free[s] += 1
        else:
            edge[rest[s]] = k
            rest[s] += 1
    return edge, first, needed, last


@cached_njit
def _split(
    bounds: IntArray, first: IntArray, last: IntArray, other: IntArray, min_edges: float
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Step, first, last and flag of the runs of all blocks.

    Block i holds the steps bounds[i]:bounds[i+1]. The edges of step s are first[s]:last[s], and lead to ascending steps
    `other`, none of them after the block of s.
    """
    blocks = len(bounds) - 1
    edges = np.zeros(blocks, np.int64)
    capacity = 0  # an upper bound on the number of runs
    for i in range(blocks):
        for s in range(bounds[i], bounds[i + 1]):
            edges[i] += last[s] - first[s]
        size = bounds[i + 1] - bounds[i]
        capacity += size * (i + 1) if edges[i] >= min_edges * size * (i + 1) else size
    step, begin, end = np.empty(capacity, np.int32), np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    flag = np.empty(capacity, np.int32)
    r = 0
    for i in range(blocks):
        low, high = bounds[i], bounds[i + 1]
        dense = edges[i] >= min_edges * (high - low) * (i + 1)
        done = first[low:high].copy()  # the first edge of each node that is in no run yet
        for source_block in range(0 if dense else i, i + 1):
            for s in range(low, high):
                k = done[s - low]
                while k < last[s] and other[k] < bounds[source_block + 1]:
                    k += 1
                if k > done[s - low] or source_block == i:
                    step[r], begin[r], end[r] = s, done[s - low], k
                    flag[r] = (BEGIN if done[s - low] == first[s] else 0) | (END if source_block == i else 0)
                    r += 1
                done[s - low] = k
    return step[:r], begin[:r], end[:r], flag[:r]

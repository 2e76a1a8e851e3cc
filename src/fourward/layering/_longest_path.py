"""The paper's layering: longest path, in linear time, and push_sources."""

from __future__ import annotations

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering, check_same_graph


def longest_path(dag: Dag) -> Layering:
    """Layers of minimum number: all sinks in the last one, every other node as close to them as it can be."""
    distance = _distance_to_sink(dag.order, dag.source, dag.in_start)
    return Layering(dag, distance.max() - distance)


def push_sources(dag: Dag, layering: Layering) -> Layering:
    """Move every source, a node without incoming edges, to layer 0; a node without any edge goes there too."""
    check_same_graph(dag, layering)
    return Layering(dag, np.where(dag.in_degree == 0, 0, layering.level))


@cached_njit
def _distance_to_sink(order: IntArray, source: IntArray, in_start: IntArray) -> IntArray:
    """(N,) the number of edges on the longest path from each node to a sink."""
    distance = np.zeros(len(order), np.int32)
    for q in range(len(order) - 1, -1, -1):
        beyond = distance[order[q]] + 1
        for k in range(in_start[q], in_start[q + 1]):
            if distance[source[k]] < beyond:
                distance[source[k]] = beyond
    return distance

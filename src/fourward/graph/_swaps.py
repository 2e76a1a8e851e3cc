"""Degree-preserving swaps of edges along an order of the nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


@cached_njit
def random_ranks(source: IntArray, target: IntArray, num_nodes: int, draw: FloatArray) -> IntArray:
    """(N,) the rank of each node in a topological order: each time, any of the nodes that are free comes next."""
    start = np.zeros(num_nodes + 1, np.int64)
    in_degree = np.zeros(num_nodes, np.int64)
    for k in range(len(source)):
        start[source[k] + 1] += 1
        in_degree[target[k]] += 1
    start = np.cumsum(start)
    successor = np.empty(len(source), np.int64)
    filled = start[:-1].copy()
    for k in range(len(source)):
        successor[filled[source[k]]] = target[k]
        filled[source[k]] += 1
    free = np.empty(num_nodes, np.int64)
    count = 0
    for v in range(num_nodes):
        if in_degree[v] == 0:
            free[count] = v
            count += 1
    rank = np.empty(num_nodes, np.int64)
    for place in range(num_nodes):
        chosen = int(draw[place] * count)
        v = free[chosen]
        count -= 1
        free[chosen] = free[count]
        rank[v] = place
        for k in range(start[v], start[v + 1]):
            in_degree[successor[k]] -= 1
            if in_degree[successor[k]] == 0:
                free[count] = successor[k]
                count += 1
    return rank


@cached_njit
def swap_targets(source: IntArray, target: IntArray, rank: IntArray, first: IntArray, second: IntArray) -> None:
    """Exchange, in place, the targets of edge first[k] and edge second[k], unless an edge would lead back or double."""
    num_nodes = len(rank)
    present = set()
    for k in range(len(source)):
        present.add(np.int64(source[k]) * num_nodes + target[k])
    for i, j in zip(first, second):  # noqa: B905 - numba knows no strict
        u, v, x, y = np.int64(source[i]), target[i], np.int64(source[j]), target[j]
        if rank[u] >= rank[y] or rank[x] >= rank[v] or u * num_nodes + y in present or x * num_nodes + v in present:
            continue
        present.remove(u * num_nodes + v)
        present.remove(x * num_nodes + y)
        present.add(u * num_nodes + y)
        present.add(x * num_nodes + v)
        target[i], target[j] = y, v

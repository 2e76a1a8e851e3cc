"""Layered graph layout: an order of the nodes in each layer with few crossings, and bends for long edges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.graph._base import BaseGraph
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

SWEEPS = 16
STARTS, SMALL_GRAPH = 8, 600  #: initial orders to try for a graph of at most so many edges; larger ones have one
SAMPLED_EDGES = 1500  #: edges of a larger graph among which crossings are counted
MAX_PAIRS = 1.6e8  #: pairs of edges that swapping neighbours may compare: half a second


class _Adjacency(NamedTuple):
    """A layered graph as the kernels read it."""

    start: IntArray  #: (H+1,) the nodes of layer l are order[start[l]:start[l+1]]
    source: IntArray  #: (E,)
    target: IntArray  #: (E,)
    edge: IntArray  #: (2E,) edges by node: into it and out of it
    edge_start: IntArray  #: (N+1,) the edges of node v are edge[edge_start[v]:edge_start[v+1]]
    level: FloatArray  #: (N,)


def layout_nodes(dag: Dag, layering: Layering) -> FloatArray:
    """(N,) y coordinates between 0 and 1: nodes spread evenly over their layer, in an order with few crossings."""
    return layout(dag.source, dag.target, layering.level)


def layout(source: IntArray, target: IntArray, level: IntArray) -> FloatArray:
    """(N,) y coordinates for edges (E,) between nodes of these levels (N,).

    Sweeps forward and backward order each layer by the mean y of its nodes' neighbours in the layers ordered before
    (the barycentre heuristic), and the sweep with the fewest crossings is kept. Adjacent nodes of a layer are then
    swapped as long as that saves crossings, for at most about a second. Small graphs start from several orders.
    """
    num_edges = len(source)
    graph, sample = _build_adjacency(source, target, level), _sample_edges(num_edges)
    best: FloatArray = np.empty(0)
    fewest = -1
    for seed in range(STARTS if num_edges <= SMALL_GRAPH else 1):
        tie_break = np.random.default_rng(seed).random(len(level)) if seed else np.arange(len(level))
        y = _best_sweep(graph, np.lexsort((tie_break, level)), sample)
        _swap_neighbours(np.lexsort((y, level)), *graph, y, int(min(12, MAX_PAIRS / max(8 * num_edges**2, 1))))
        count = _count_crossings(graph.source[sample], graph.target[sample], graph.level, y)
        if fewest < 0 or count < fewest:
            best, fewest = y, count
    return best


def _best_sweep(graph: _Adjacency, order: IntArray, sample: IntArray) -> FloatArray:
    """(N,) y after the sweep with the fewest crossings among a sample of edges."""
    y = np.empty(len(order))
    _spread_evenly(order, graph.start, y)
    best, fewest = y, -1
    for sweep in range(SWEEPS + 1):
        if sweep:
            _sweep(order, *graph, y, sweep % 2 == 1)
        count = _count_crossings(graph.source[sample], graph.target[sample], graph.level, y)
        if fewest < 0 or count < fewest:
            best, fewest = y.copy(), count
    return best


def count_crossings(dag: Dag, layering: Layering, y: FloatArray) -> int:
    """The number of pairs of edges that cross, drawn as straight lines, in O(E^2)."""
    graph = _build_adjacency(dag.source, dag.target, layering.level)
    return int(_count_crossings(graph.source, graph.target, graph.level, np.asarray(y, np.float64)))


def bend_edges(graph: BaseGraph, layering: Layering, y: FloatArray) -> FloatArray:
    """(E,) how far the middle of each edge is displaced from the straight line, outwards, in units of y.

    An edge to the next layer is straight. Longer ones bend the more, the fewer nodes a layer has: where each layer
    holds one node, straight lines would all overlap. Feedback edges, which lead back, bend more than those forward.
    """
    level = layering.level.astype(np.float64)
    span = level[graph.target] - level[graph.source]
    middle = (y[graph.source] + y[graph.target]) / 2
    even = layering.level[graph.source] % 2 == 0
    outwards = np.where(np.abs(middle - 0.5) > 1e-9, np.sign(middle - 0.5), np.where(even, 1.0, -1.0))
    size = np.where(span > 0, span - 1, 2 - span)
    return np.asarray(outwards * size / (2 * max(layering.height - 1, 1) * layering.attenuation))


def _build_adjacency(source: IntArray, target: IntArray, level: IntArray) -> _Adjacency:
    ends = np.concatenate((target, source))
    edge = np.argsort(ends, kind="stable") % max(len(source), 1)
    edge_start = np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=len(level)))))
    start = np.concatenate(([0], np.cumsum(np.bincount(level))))
    return _Adjacency(start, source.copy(), target.copy(), edge, edge_start, level.astype(np.float64))


def _sample_edges(num_edges: int) -> IntArray:
    count = min(num_edges, SAMPLED_EDGES)
    return np.random.default_rng(0).choice(num_edges, count, replace=False) if count else np.arange(0)


@cached_njit
def _spread_evenly(order: IntArray, start: IntArray, y: FloatArray) -> None:
    for layer in range(len(start) - 1):
        size = start[layer + 1] - start[layer]
        for i in range(size):
            y[order[start[layer] + i]] = _y_in_layer(layer, i, size)


@cached_njit
def _y_in_layer(layer: int, i: int, size: int) -> float:
    """The y of the i-th node of a layer. Layers are shifted, so that long edges don't run through nodes."""
    shift = 0.0 if size == 1 else (layer * 0.618034) % 1 - 0.5
    return (i + 0.5 + 0.6 * shift) / size


@cached_njit
def _sweep(
    order: IntArray,
    start: IntArray,
    source: IntArray,
    target: IntArray,
    edge: IntArray,
    edge_start: IntArray,
    level: FloatArray,
    y: FloatArray,
    forward: bool,
) -> None:
    """Order each layer by the mean y of its nodes' predecessors; backward: of their successors."""
    previous_y = y.copy()
    num_layers = len(start) - 1
    for i in range(num_layers):
        layer = i if forward else num_layers - 1 - i
        nodes = order[start[layer] : start[layer + 1]].copy()
        barycentre = np.empty(len(nodes))
        for j in range(len(nodes)):
            total, count = 0.0, 0
            for k in range(edge_start[nodes[j]], edge_start[nodes[j] + 1]):
                other = source[edge[k]] if forward else target[edge[k]]
                if other != nodes[j]:
                    total += y[other]
                    count += 1
            barycentre[j] = total / count if count else previous_y[nodes[j]]
        ranked = np.argsort(barycentre, kind="mergesort")
        for j in range(len(nodes)):
            order[start[layer] + j] = nodes[ranked[j]]
            y[nodes[ranked[j]]] = _y_in_layer(layer, j, len(nodes))


@cached_njit
def _lines_cross(x0: float, y0: float, x1: float, y1: float, u0: float, v0: float, u1: float, v1: float) -> bool:
    """Whether two lines that lead from left to right cross between their ends."""
    left, right = max(x0, u0), min(x1, u1)
    if left >= right:
        return False
    # Heights above the other line at both ends of the shared part, times both widths: products are quicker than slopes.
    width, other_width = x1 - x0, u1 - u0
    first = ((y0 - v0) * width + (y1 - y0) * (left - x0)) * other_width - (v1 - v0) * (left - u0) * width
    last = ((y0 - v0) * width + (y1 - y0) * (right - x0)) * other_width - (v1 - v0) * (right - u0) * width
    return first * last < -1e-12


@cached_njit
def _count_crossings(source: IntArray, target: IntArray, x: FloatArray, y: FloatArray) -> int:
    count = 0
    for e in range(len(source)):
        u, v = source[e], target[e]
        for f in range(e):
            s, t = source[f], target[f]
            count += _lines_cross(x[u], y[u], x[v], y[v], x[s], y[s], x[t], y[t])
    return count


@cached_njit
def _swap_neighbours(
    order: IntArray,
    start: IntArray,
    source: IntArray,
    target: IntArray,
    edge: IntArray,
    edge_start: IntArray,
    x: FloatArray,
    y: FloatArray,
    passes: int,
) -> None:
    """Swap adjacent nodes of a layer where that saves crossings, until none is saved or all passes are over."""
    for _ in range(passes):
        improved = False
        for layer in range(len(start) - 1):
            for i in range(start[layer], start[layer + 1] - 1):
                pair = (order[i], order[i + 1])
                before = _count_crossings_at(pair, source, target, edge, edge_start, x, y)
                y[pair[0]], y[pair[1]] = y[pair[1]], y[pair[0]]
                if _count_crossings_at(pair, source, target, edge, edge_start, x, y) < before:
                    order[i], order[i + 1] = pair[1], pair[0]
                    improved = True
                else:
                    y[pair[0]], y[pair[1]] = y[pair[1]], y[pair[0]]
        if not improved:
            break


@cached_njit
def _count_crossings_at(
    pair: tuple[int, int],
    source: IntArray,
    target: IntArray,
    edge: IntArray,
    edge_start: IntArray,
    x: FloatArray,
    y: FloatArray,
) -> int:
    """The crossings of all edges at two nodes; those between the two count twice, before a swap and after."""
    count = 0
    for node in pair:
        for k in range(edge_start[node], edge_start[node + 1]):
            u, v = source[edge[k]], target[edge[k]]
            for f in range(len(source)):
                s, t = source[f], target[f]
                count += _lines_cross(x[u], y[u], x[v], y[v], x[s], y[s], x[t], y[t])
    return count

"""Where nodes and edges go in a layered drawing: an order in each layer with few crossings, and bows for long edges."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

SWEEPS = 16
STARTS, SMALL = 8, 600  #: orders to begin with, for a graph of at most so many edges; one for a larger graph
COUNTED = 1500  #: edges of a sample, in which the crossings of a larger graph are counted
PAIRS = 1.6e8  #: pairs of edges that swapping neighbours may look at: half a second


class _Walk(NamedTuple):
    """A layered graph as the kernels read it."""

    start: IntArray  #: (H+1,) the nodes of layer l are order[start[l]:start[l+1]]
    source: IntArray  #: (E,)
    target: IntArray  #: (E,)
    edge: IntArray  #: (2E,) edges by node: into it and out of it
    edge_start: IntArray  #: (N+1,) the edges of node v are edge[edge_start[v]:edge_start[v+1]]
    level: FloatArray  #: (N,)


def place_nodes(dag: Dag, layering: Layering) -> FloatArray:
    """(N,) heights between 0 and 1: nodes spread evenly over their layer, in an order with few crossings."""
    return place(dag.source, dag.target, layering.level)


def place(source: IntArray, target: IntArray, level: IntArray) -> FloatArray:
    """(N,) the same for the edges (E,) between nodes of these levels (N,).

    Sweeps forth and back order each layer by the mean height of its nodes' neighbours in the layers that were
    ordered before, and the best sweep is kept. Neighbours in a layer are then swapped as long as that saves crossings
    and takes less than about a second. Small graphs begin from several orders.
    """
    num_edges = len(source)
    walk, some = _walk(source, target, level), _sample(num_edges)
    best: FloatArray = np.empty(0)
    fewest = -1
    for seed in range(STARTS if num_edges <= SMALL else 1):
        tie = np.random.default_rng(seed).random(len(level)) if seed else np.arange(len(level))
        height = _best_sweep(walk, np.lexsort((tie, level)), some)
        _swap(np.lexsort((height, level)), *walk, height, int(min(12, PAIRS / max(8 * num_edges**2, 1))))
        found = _crossings(walk.source[some], walk.target[some], walk.level, height)
        if fewest < 0 or found < fewest:
            best, fewest = height, found
    return best


def _best_sweep(walk: _Walk, order: IntArray, some: IntArray) -> FloatArray:
    """(N,) the heights after the sweep with the fewest crossings among a sample of edges."""
    height = np.empty(len(order))
    _spread(order, walk.start, height)
    best, fewest = height, -1
    for sweep in range(SWEEPS + 1):
        if sweep:
            _sweep(order, *walk, height, sweep % 2 == 1)
        found = _crossings(walk.source[some], walk.target[some], walk.level, height)
        if fewest < 0 or found < fewest:
            best, fewest = height.copy(), found
    return best


def crossings(dag: Dag, layering: Layering, height: FloatArray) -> int:
    """How many pairs of edges cross, drawn as straight lines; time grows with the square of the edges."""
    walk = _walk(dag.source, dag.target, layering.level)
    return int(_crossings(walk.source, walk.target, walk.level, np.asarray(height, np.float64)))


def bows(dag: Dag, layering: Layering, height: FloatArray) -> FloatArray:
    """(E,) how far the middle of each edge bends away from the straight line, outwards, in units of height.

    An edge to the next layer is straight. A longer one bends the more, the fewer nodes a layer has: where layers
    hold one node each, straight lines would all lie on one another.
    """
    level = layering.level.astype(np.float64)
    span = level[dag.target] - level[dag.source]
    middle = (height[dag.source] + height[dag.target]) / 2
    even = layering.level[dag.source] % 2 == 0
    outwards = np.where(np.abs(middle - 0.5) > 1e-9, np.sign(middle - 0.5), np.where(even, 1.0, -1.0))
    return np.asarray(outwards * (span - 1) / (2 * max(layering.height - 1, 1) * layering.attenuation))


def _walk(source: IntArray, target: IntArray, level: IntArray) -> _Walk:
    ends = np.concatenate((target, source))
    edge = np.argsort(ends, kind="stable") % max(len(source), 1)
    edge_start = np.concatenate(([0], np.cumsum(np.bincount(ends, minlength=len(level)))))
    start = np.concatenate(([0], np.cumsum(np.bincount(level))))
    return _Walk(start, source.copy(), target.copy(), edge, edge_start, level.astype(np.float64))


def _sample(num_edges: int) -> IntArray:
    count = min(num_edges, COUNTED)
    return np.random.default_rng(0).choice(num_edges, count, replace=False) if count else np.arange(0)


@cached_njit
def _spread(order: IntArray, start: IntArray, height: FloatArray) -> None:
    for layer in range(len(start) - 1):
        size = start[layer + 1] - start[layer]
        for i in range(size):
            height[order[start[layer] + i]] = _slot(layer, i, size)


@cached_njit
def _slot(layer: int, i: int, size: int) -> float:
    """The height of the i-th of a layer's nodes; layers are shifted, so that long edges don't run through nodes."""
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
    height: FloatArray,
    forth: bool,
) -> None:
    """Order each layer by the mean height of its nodes' predecessors; back: of their successors."""
    height_of = height.copy()
    num_layers = len(start) - 1
    for i in range(num_layers):
        layer = i if forth else num_layers - 1 - i
        nodes = order[start[layer] : start[layer + 1]].copy()
        wanted = np.empty(len(nodes))
        for j in range(len(nodes)):
            total, count = 0.0, 0
            for k in range(edge_start[nodes[j]], edge_start[nodes[j] + 1]):
                other = source[edge[k]] if forth else target[edge[k]]
                if other != nodes[j]:
                    total += height[other]
                    count += 1
            wanted[j] = total / count if count else height_of[nodes[j]]
        by_wish = np.argsort(wanted, kind="mergesort")
        for j in range(len(nodes)):
            order[start[layer] + j] = nodes[by_wish[j]]
            height[nodes[by_wish[j]]] = _slot(layer, j, len(nodes))


@cached_njit
def _cross(x0: float, y0: float, x1: float, y1: float, u0: float, v0: float, u1: float, v1: float) -> bool:
    """Whether two lines that lead from left to right cross between their ends."""
    left, right = max(x0, u0), min(x1, u1)
    if left >= right:
        return False
    # Heights above the other line at both ends of the shared part, times both widths: products are quicker than slopes.
    wide, other = x1 - x0, u1 - u0
    first = ((y0 - v0) * wide + (y1 - y0) * (left - x0)) * other - (v1 - v0) * (left - u0) * wide
    last = ((y0 - v0) * wide + (y1 - y0) * (right - x0)) * other - (v1 - v0) * (right - u0) * wide
    return first * last < -1e-12


@cached_njit
def _crossings(source: IntArray, target: IntArray, x: FloatArray, y: FloatArray) -> int:
    found = 0
    for e in range(len(source)):
        u, v = source[e], target[e]
        for f in range(e):
            s, t = source[f], target[f]
            found += _cross(x[u], y[u], x[v], y[v], x[s], y[s], x[t], y[t])
    return found


@cached_njit
def _swap(
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
    """Swap neighbours in a layer wherever that saves crossings, until nothing is saved or all passes are over."""
    for _ in range(passes):
        saved = False
        for layer in range(len(start) - 1):
            for i in range(start[layer], start[layer + 1] - 1):
                pair = (order[i], order[i + 1])
                before = _crossings_at(pair, source, target, edge, edge_start, x, y)
                y[pair[0]], y[pair[1]] = y[pair[1]], y[pair[0]]
                if _crossings_at(pair, source, target, edge, edge_start, x, y) < before:
                    order[i], order[i + 1] = pair[1], pair[0]
                    saved = True
                else:
                    y[pair[0]], y[pair[1]] = y[pair[1]], y[pair[0]]
        if not saved:
            break


@cached_njit
def _crossings_at(
    pair: tuple[int, int],
    source: IntArray,
    target: IntArray,
    edge: IntArray,
    edge_start: IntArray,
    x: FloatArray,
    y: FloatArray,
) -> int:
    """The crossings of all edges at two nodes; those between the two count twice, before a swap and after."""
    found = 0
    for node in pair:
        for k in range(edge_start[node], edge_start[node + 1]):
            u, v = source[edge[k]], target[edge[k]]
            for f in range(len(source)):
                s, t = source[f], target[f]
                found += _cross(x[u], y[u], x[v], y[v], x[s], y[s], x[t], y[t])
    return found

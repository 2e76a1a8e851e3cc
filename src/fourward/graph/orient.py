"""Undirected graphs become DAGs along an order of their nodes, cyclic ones by losing feedback edges.

Labels are kept. Existing directions are kept too: an edge that has one is never turned round.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.errors import GraphError, OptionError, summarize
from fourward.graph import _convert
from fourward.graph._components import components
from fourward.graph._convert import EdgeList, Nodes
from fourward.graph._dag import Dag, LabelChoice
from fourward.graph._toposort import BoolArray, sort_edges

Seed = int | np.random.Generator | None


class Acyclic(NamedTuple):
    """What is left of a directed graph without its feedback edges, and what was removed."""

    dag: Dag
    removed: list[tuple[Hashable, Hashable]]  #: pairs of labels; a node's edge to itself is among them


def random_order(
    graph: Any, *, seed: Seed = None, nodes: Nodes = None, inputs: LabelChoice = None, outputs: LabelChoice = None
) -> Dag:
    """Direct an undirected graph along a random order of its nodes, as RandWire and the paper do.

    Args:
        graph: A networkx Graph, a rustworkx PyGraph, a symmetric scipy.sparse matrix, or pairs of labels
            whose direction means nothing.
        seed: Seed or generator of the order.
        nodes: As in `Dag.from_edges`, for pairs.
        inputs: As in `Dag.from_edges`.
        outputs: As in `Dag.from_edges`.
    """
    raw = _undirected(graph, nodes)
    rank = generator(seed).permutation(len(raw.labels))
    return along(raw, rank, inputs, outputs)


def by_order(
    graph: Any,
    order: Iterable[Hashable],
    *,
    nodes: Nodes = None,
    inputs: LabelChoice = None,
    outputs: LabelChoice = None,
) -> Dag:
    """Direct an undirected graph from earlier to later nodes of an order that lists each label once."""
    raw = _undirected(graph, nodes)
    place = {label: k for k, label in enumerate(order)}
    missing = [label for label in raw.labels if label not in place]
    if missing or len(place) != len(raw.labels):
        extra = place.keys() - set(raw.labels)
        raise GraphError(
            f"the order must list each of the {len(raw.labels):,} nodes once; "
            f"missing: {summarize(missing) or 'none'}; not in the graph: {summarize(extra) or 'none'}."
        )
    rank = np.fromiter((place[label] for label in raw.labels), np.int64, len(raw.labels))
    return along(raw, rank, inputs, outputs)


def remove_feedback(
    graph: Any, *, nodes: Nodes = None, inputs: LabelChoice = None, outputs: LabelChoice = None
) -> Acyclic:
    """Make a directed graph acyclic by removing a small set of edges (Eades, Lin and Smyth, 1993).

    Only edges inside strongly connected components are candidates, so a graph without cycles loses nothing. Linear in
    the number of edges. A few of those removed could be put back without closing a cycle (in the worm 102 of 1,129),
    but finding them isn't linear.

    >>> dag, removed = remove_feedback([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
    >>> dag, removed
    (Dag(4 nodes, 3 edges, 1 input, 1 output), [('c', 'a')])
    """
    raw = _convert.read(graph, nodes)
    if not raw.directed:
        raise GraphError(
            "this graph is undirected, so it has no feedback edges to remove. Direct it with "
            "fourward.orient.random_order(graph, seed=0) or fourward.orient.by_order(graph, order)."
        )
    removed = feedback_edges(raw)
    pairs = [
        (raw.labels[u], raw.labels[v])
        for u, v in zip(raw.source[removed].tolist(), raw.target[removed].tolist(), strict=True)
    ]
    kept = raw._replace(source=raw.source[~removed], target=raw.target[~removed])
    return Acyclic(Dag.from_edge_list(kept, inputs=inputs, outputs=outputs), pairs)


def generator(seed: Seed) -> np.random.Generator:
    """NumPy's generator for a seed, itself, or nothing."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise OptionError(
            f"seed={seed!r} came, but a whole number from 0 on, a numpy Generator or None was wanted."
        ) from None


def _undirected(graph: Any, nodes: Nodes) -> EdgeList:
    raw = _convert.read(graph, nodes)
    if _convert.is_scipy(graph):
        return _from_symmetric(graph, raw)
    if raw.directed and hasattr(graph, "nodes") and not isinstance(graph, np.ndarray):
        raise GraphError(
            f"this {type(graph).__name__} is directed, and its directions would be lost. If it has no cycle, "
            "make a Dag of it as it is; if it has, call fourward.orient.remove_feedback(graph); if its "
            "directions mean nothing, pass graph.to_undirected()."
        )
    return raw


def _from_symmetric(matrix: Any, raw: EdgeList) -> EdgeList:
    import scipy.sparse as sp  # inside: only one of its own matrices needs it

    pattern = sp.csr_array((np.ones(len(raw.source), np.int8), (raw.source, raw.target)), shape=matrix.shape)
    pattern.data[:] = 1
    if (pattern != pattern.T).nnz:
        raise GraphError(
            "this matrix isn't symmetric, so its edges have directions, which would be lost. If it has no "
            "cycle, use Dag.from_scipy; if it has, call fourward.orient.remove_feedback(matrix)."
        )
    upper = raw.source <= raw.target
    return raw._replace(source=raw.source[upper], target=raw.target[upper])


def along(raw: EdgeList, rank: IntArray, inputs: LabelChoice = None, outputs: LabelChoice = None) -> Dag:
    """Each edge from the node of lower rank to the node of higher rank."""
    turn = rank[raw.source] > rank[raw.target]
    source = np.where(turn, raw.target, raw.source)
    target = np.where(turn, raw.source, raw.target)
    directed = raw._replace(source=source, target=target, directed=True)
    return Dag.from_edge_list(directed, inputs=inputs, outputs=outputs)


def feedback_edges(raw: EdgeList) -> BoolArray:
    """(E,) True for the edges to remove."""
    num_nodes = len(raw.labels)
    component = components(raw.source, raw.target, num_nodes, strong=True)
    loop = raw.source == raw.target
    inside = (component[raw.source] == component[raw.target]) & ~loop
    source, target = raw.source[inside].astype(np.int64), raw.target[inside].astype(np.int64)
    if not len(source):
        return np.asarray(loop)
    ahead = _adjacency(source, target, num_nodes)
    behind = _adjacency(target, source, num_nodes)
    rank = _eades_lin_smyth(*ahead, *behind)
    removed = loop.copy()
    removed[inside] = rank[source] > rank[target]
    return np.asarray(removed)


def _adjacency(source: IntArray, target: IntArray, num_nodes: int) -> tuple[IntArray, IntArray]:
    """Where each source's edges start, and their targets."""
    edges, start = sort_edges(target, source, np.arange(num_nodes, dtype=np.int32))
    return start, edges[0]


@cached_njit
def _eades_lin_smyth(out_start: IntArray, successor: IntArray, in_start: IntArray, predecessor: IntArray) -> IntArray:
    """Rank of each node in a sequence along which few edges point back.

    Takes sinks to the end of the sequence and sources to its front as long as there are any, then the node
    with the most outgoing over incoming edges to the front. Nodes wait in buckets, doubly linked lists:
    the sinks in the first, the sources in the last, all others by outgoing minus incoming edges.
    """
    num_nodes = len(out_start) - 1
    out_degree, in_degree = np.diff(out_start), np.diff(in_start)
    widest = max(out_degree.max(), in_degree.max())
    first = np.full(2 * widest + 1, -1, np.int64)  # first node of each bucket
    links = np.full((3, num_nodes), -1, np.int64)  # bucket, node before, node after; bucket -1: in none
    for v in range(num_nodes - 1, -1, -1):
        _enter(v, out_degree[v], in_degree[v], first, links)
    rank = np.empty(num_nodes, np.int64)
    front, back, best = 0, num_nodes, 2 * widest - 1
    while front < back:
        if first[0] >= 0:
            v = first[0]
            back -= 1
            rank[v] = back
        else:
            if first[2 * widest] >= 0:
                v = first[2 * widest]
            else:
                while first[best] < 0:
                    best -= 1
                v = first[best]
            rank[v] = front
            front += 1
        _leave(v, first, links)
        for k in range(out_start[v], out_start[v + 1]):
            u = successor[k]
            in_degree[u] -= 1
            if links[0, u] >= 0:
                _leave(u, first, links)
                best = max(best, min(_enter(u, out_degree[u], in_degree[u], first, links), 2 * widest - 1))
        for k in range(in_start[v], in_start[v + 1]):
            u = predecessor[k]
            out_degree[u] -= 1
            if links[0, u] >= 0:
                _leave(u, first, links)
                _enter(u, out_degree[u], in_degree[u], first, links)
    return rank


@cached_njit
def _enter(v: int, out_degree: int, in_degree: int, first: IntArray, links: IntArray) -> int:
    """Put node v at the head of its bucket, and say which that is."""
    widest = len(first) // 2
    bucket = widest + out_degree - in_degree
    if out_degree == 0:
        bucket = 0
    elif in_degree == 0:
        bucket = 2 * widest
    head = first[bucket]
    links[0, v], links[1, v], links[2, v] = bucket, -1, head
    if head >= 0:
        links[1, head] = v
    first[bucket] = v
    return bucket


@cached_njit
def _leave(v: int, first: IntArray, links: IntArray) -> None:
    """Take node v out of its bucket."""
    bucket, before, after = links[0, v], links[1, v], links[2, v]
    if before >= 0:
        links[2, before] = after
    else:
        first[bucket] = after
    if after >= 0:
        links[1, after] = before
    links[0, v] = -1

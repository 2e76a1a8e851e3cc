"""Dags from undirected graphs, along an order of their nodes, and from cyclic ones, without their feedback edges.

Labels are kept. So are directions: a directed edge is never reversed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.errors import GraphError, OptionError, WeightError, summarize
from fourward.graph import _convert
from fourward.graph._algorithms import BoolArray, FloatArray, connected_components, sort_edges
from fourward.graph._convert import EdgeList, Nodes
from fourward.graph._dag import Dag, LabelChoice
from fourward.graph._feedback import find_inputs, find_light_feedback

__all__ = ["Acyclic", "by_order", "random_order", "remove_feedback"]

Seed = int | np.random.Generator | None


class Acyclic(NamedTuple):
    """A directed graph without its feedback edges, and these edges."""

    dag: Dag
    removed: list[tuple[Hashable, Hashable]]  #: pairs of labels, self-loops included


def random_order(
    graph: Any, *, seed: Seed = None, nodes: Nodes = None, inputs: LabelChoice = None, outputs: LabelChoice = None
) -> Dag:
    """Direct an undirected graph along a random order of its nodes, as in RandWire and the paper.

    Args:
        graph: A networkx Graph, a rustworkx PyGraph, a symmetric scipy.sparse matrix, or pairs of labels
            in either direction.
        seed: Seed or generator of the order.
        nodes: As in `Dag.from_edges`, for pairs.
        inputs: As in `Dag.from_edges`.
        outputs: As in `Dag.from_edges`.
    """
    undirected = _read_undirected(graph, nodes)
    rank = make_generator(seed).permutation(len(undirected.labels))
    return Dag.from_edge_list(orient_along(undirected, rank), inputs=inputs, outputs=outputs)


def by_order(
    graph: Any,
    order: Iterable[Hashable],
    *,
    nodes: Nodes = None,
    inputs: LabelChoice = None,
    outputs: LabelChoice = None,
) -> Dag:
    """Direct an undirected graph from earlier to later nodes of an order that lists each label once."""
    undirected = _read_undirected(graph, nodes)
    labels = undirected.labels
    rank = {label: k for k, label in enumerate(order)}
    missing = [label for label in labels if label not in rank]
    if missing or len(rank) != len(labels):
        extra = rank.keys() - set(labels)
        raise GraphError(
            f"expected an order with each of the {len(labels):,} nodes once; "
            f"missing: {summarize(missing) or 'none'}; unknown: {summarize(extra) or 'none'}."
        )
    ranks = np.fromiter((rank[label] for label in labels), np.int64, len(labels))
    return Dag.from_edge_list(orient_along(undirected, ranks), inputs=inputs, outputs=outputs)


def remove_feedback(
    graph: Any, *, nodes: Nodes = None, inputs: LabelChoice = None, outputs: LabelChoice = None, weight: Any = None
) -> Acyclic:
    """Make a directed graph acyclic by removing a small set of edges (Eades, Lin and Smyth, 1993), or light edges.

    Only edges inside strongly connected components are candidates, so an acyclic graph loses nothing. Linear in the
    number of edges. A few of those removed could be put back without closing a cycle (in the worm 102 of 1,129), but
    finding them isn't linear.

    With weights or inputs, light edges are removed instead, such that every node that the inputs reached is still
    reached, as `fourward.files.read_dag` does.

    Args:
        graph: Pairs of labels, or a graph as in `Dag.from_networkx` and the like.
        nodes: As in `Dag.from_edges`, for pairs.
        inputs: As in `Dag.from_edges`.
        outputs: As in `Dag.from_edges`.
        weight: One number for each edge, in the graph's order, of which only sizes count. Default: all alike.

    >>> dag, removed = remove_feedback([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
    >>> dag, removed
    (Dag(4 nodes, 3 edges, 1 input, 1 output), [('c', 'a')])
    """
    edge_list = _convert.read(graph, nodes)
    if not edge_list.directed:
        raise GraphError(
            "expected a directed graph, got an undirected one, which has no feedback edges. Direct it with "
            "fourward.orient.random_order(graph, seed=0) or fourward.orient.by_order(graph, order)."
        )
    is_feedback = (
        find_feedback(edge_list) if weight is None and inputs is None else _find_light(edge_list, inputs, weight)
    )
    ends = np.stack((edge_list.source, edge_list.target), -1)[is_feedback]
    removed = [(edge_list.labels[u], edge_list.labels[v]) for u, v in ends.tolist()]
    rest = edge_list._replace(source=edge_list.source[~is_feedback], target=edge_list.target[~is_feedback])
    return Acyclic(Dag.from_edge_list(rest, inputs=inputs, outputs=outputs), removed)


def _find_light(graph: EdgeList, inputs: LabelChoice, weight: Any) -> BoolArray:
    size = None
    if weight is not None:
        size = np.asarray(_convert.as_numpy(weight), np.float64)
        if size.shape != graph.source.shape or not np.isfinite(size).all():
            raise WeightError(
                f"weight must be {len(graph.source):,} finite numbers, one for each edge, got shape {size.shape}."
            )
    chosen = graph if inputs is None else graph._replace(inputs=_convert.label_list(inputs, "inputs"))
    return find_light_feedback(graph, size, find_inputs(chosen))


def make_generator(seed: Seed) -> np.random.Generator:
    """numpy.random.default_rng, with an OptionError for an invalid seed; a generator is returned unchanged."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise OptionError(f"seed must be a non-negative int, a numpy Generator or None, got {seed!r}.") from None


def orient_along(graph: EdgeList, rank: IntArray) -> EdgeList:
    """Each edge directed from the node of lower rank to the node of higher rank."""
    reverse = rank[graph.source] > rank[graph.target]
    source = np.where(reverse, graph.target, graph.source)
    target = np.where(reverse, graph.source, graph.target)
    return graph._replace(source=source, target=target, directed=True)


def find_feedback(graph: EdgeList, weight: Any = None) -> BoolArray:
    """(E,) True for the edges that `remove_feedback` removes: self-loops, and those that lead back in rank.

    With weights (E,), of which only sizes count, heavy edges are kept where that is possible.
    """
    num_nodes = len(graph.labels)
    component = connected_components(graph.source, graph.target, num_nodes, strong=True)
    is_loop = graph.source == graph.target
    inside = (component[graph.source] == component[graph.target]) & ~is_loop
    source, target = graph.source[inside].astype(np.int64), graph.target[inside].astype(np.int64)
    if not len(source):
        return np.asarray(is_loop)
    size = None if weight is None else _integer_sizes(np.asarray(weight, np.float64)[inside])
    rank = _eades_lin_smyth(
        *_sorted_adjacency(source, target, size, num_nodes), *_sorted_adjacency(target, source, size, num_nodes)
    )
    is_feedback = is_loop.copy()
    is_feedback[inside] = rank[source] > rank[target]
    return np.asarray(is_feedback)


def _read_undirected(graph: Any, nodes: Nodes) -> EdgeList:
    edge_list = _convert.read(graph, nodes)
    if _convert.is_scipy(graph):
        return _upper_triangle(graph, edge_list)
    if edge_list.directed and hasattr(graph, "nodes") and not isinstance(graph, np.ndarray):
        raise GraphError(
            f"expected an undirected graph, got a {type(graph).__name__}, whose directions would be lost. If it is "
            "acyclic, make a Dag of it; if it has cycles, call fourward.orient.remove_feedback(graph); if its "
            "directions are arbitrary, pass graph.to_undirected()."
        )
    return edge_list


def _upper_triangle(matrix: Any, edge_list: EdgeList) -> EdgeList:
    """Each edge of a symmetric matrix once."""
    import scipy.sparse as sp  # imported here: only scipy's matrices need it

    ones = np.ones(len(edge_list.source), np.int8)
    pattern = sp.csr_array((ones, (edge_list.source, edge_list.target)), shape=matrix.shape)
    pattern.data[:] = 1
    if (pattern != pattern.T).nnz:
        raise GraphError(
            "expected a symmetric matrix, got one whose edges have directions, which would be lost. If it is acyclic, "
            "use Dag.from_scipy; if it has cycles, call fourward.orient.remove_feedback(matrix)."
        )
    upper = edge_list.source <= edge_list.target
    return edge_list._replace(source=edge_list.source[upper], target=edge_list.target[upper])


def _integer_sizes(weight: FloatArray) -> IntArray:
    """Weights as integers from 1 on, of mean 8 or so: a sum of them is the number of a bucket."""
    size = np.abs(weight)
    scale = 8 / max(float(size.mean()), np.finfo(np.float64).tiny)
    return (size * scale).round().clip(1, 2**16).astype(np.int64)


def _sorted_adjacency(
    source: IntArray, target: IntArray, size: IntArray | None, num_nodes: int
) -> tuple[IntArray, IntArray, IntArray]:
    """(N+1,) where each node's successors start, (E,) the successors, ascending, and the sizes of the edges to them."""
    if size is None:
        edges, start, _ = sort_edges(target, source, np.arange(num_nodes, dtype=np.int32))
        return start, edges[0], np.ones(len(source), np.int64)
    order = np.lexsort((target, source))
    start = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=num_nodes))))
    return start, target[order].astype(np.int32), size[order]


@cached_njit
def _eades_lin_smyth(
    out_start: IntArray,
    successor: IntArray,
    out_size: IntArray,
    in_start: IntArray,
    predecessor: IntArray,
    in_size: IntArray,
) -> IntArray:
    """(N,) rank of each node in a sequence against which few edges point.

    Moves sinks to the end of the sequence and sources to its front while there are any, else the node with the largest
    out-degree minus in-degree to the front, both sums of the sizes of edges. Remaining nodes are in buckets, doubly
    linked lists: sinks in the first bucket, sources in the last, all others by that difference.
    """
    num_nodes = len(out_start) - 1
    out_degree, in_degree = np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64)
    for v in range(num_nodes):
        for k in range(out_start[v], out_start[v + 1]):
            out_degree[v] += out_size[k]
        for k in range(in_start[v], in_start[v + 1]):
            in_degree[v] += in_size[k]
    max_degree = max(out_degree.max(), in_degree.max())
    first = np.full(2 * max_degree + 1, -1, np.int64)  # first node of each bucket
    links = np.full((3, num_nodes), -1, np.int64)  # bucket (-1: ranked), previous and next node of each node
    for v in range(num_nodes - 1, -1, -1):
        _insert(v, out_degree[v], in_degree[v], first, links)
    rank = np.empty(num_nodes, np.int64)
    front, back, best = 0, num_nodes, 2 * max_degree - 1  # all buckets over `best`, but the last, are empty
    while front < back:
        if first[0] >= 0:
            v = first[0]
            back -= 1
            rank[v] = back
        else:
            if first[2 * max_degree] >= 0:
                v = first[2 * max_degree]
            else:
                while first[best] < 0:
                    best -= 1
                v = first[best]
            rank[v] = front
            front += 1
        _unlink(v, first, links)
        for k in range(out_start[v], out_start[v + 1]):
            u = successor[k]
            in_degree[u] -= out_size[k]
            if links[0, u] >= 0:
                _unlink(u, first, links)
                best = max(best, min(_insert(u, out_degree[u], in_degree[u], first, links), 2 * max_degree - 1))
        for k in range(in_start[v], in_start[v + 1]):
            u = predecessor[k]
            out_degree[u] -= in_size[k]
            if links[0, u] >= 0:
                _unlink(u, first, links)
                _insert(u, out_degree[u], in_degree[u], first, links)
    return rank


@cached_njit
def _insert(v: int, out_degree: int, in_degree: int, first: IntArray, links: IntArray) -> int:
    """Put node v at the head of its bucket, and return the bucket."""
    max_degree = len(first) // 2
    bucket = max_degree + out_degree - in_degree
    if out_degree == 0:
        bucket = 0
    elif in_degree == 0:
        bucket = 2 * max_degree
    head = first[bucket]
    links[0, v], links[1, v], links[2, v] = bucket, -1, head
    if head >= 0:
        links[1, head] = v
    first[bucket] = v
    return bucket


@cached_njit
def _unlink(v: int, first: IntArray, links: IntArray) -> None:
    """Remove node v from its bucket."""
    bucket, previous, following = links[0, v], links[1, v], links[2, v]
    if previous >= 0:
        links[2, previous] = following
    else:
        first[bucket] = following
    if following >= 0:
        links[1, following] = previous
    links[0, v] = -1

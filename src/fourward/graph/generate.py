"""Seeded families of graphs, and random variants of a graph. No function touches global random state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import OptionError
from fourward.graph._algorithms import connected_components, random_ranks
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag
from fourward.graph._sampling import count_pairs, gnp_pairs, swap_targets, vacant_pairs
from fourward.graph.orient import Seed, make_generator, orient_along

__all__ = [
    "barabasi_albert",
    "chain",
    "complete",
    "erdos_renyi",
    "layered_mlp",
    "rewired_mlp",
    "shuffle_degrees",
    "thin",
    "watts_strogatz",
]

Order = Literal["random", "natural"]


def erdos_renyi(n: int, p: float, *, seed: Seed = None) -> Dag:
    """The paper's protocol: sample G(n, p), keep the largest connected component, direct it at random.

    Args:
        n: Number of nodes of the sample; the component may have fewer. Labels are 0 to n-1.
        p: Probability of each of the n (n - 1) / 2 edges.
        seed: Seed or generator of the sample and of the order.
    """
    _check_count("n", n, 1)
    _check_fraction("p", p)
    rng = make_generator(seed)
    return _largest_component(gnp_pairs(int(n), float(p), _seed(rng)), n, rng)


def watts_strogatz(n: int, k: int, p: float, *, order: Order = "random", seed: Seed = None) -> Dag:
    """A ring of n nodes, each joined to its k nearest, each edge rewired with probability p; then directed.

    Args:
        n: Number of nodes; the largest connected component is kept.
        k: Number of neighbours of a node in the ring, even.
        p: Probability that an edge is rewired.
        order: Node order along which the edges point: "random", or "natural", round the ring, as in RandWire, which
            makes networks nearly as deep as they have nodes.
        seed: Seed or generator.
    """
    _check_count("n", n, 1)
    _check_count("k", k, 0)
    _check_fraction("p", p)
    if k % 2 or k >= n:
        raise OptionError(f"k must be even and less than n={n}, k/2 neighbours on either side, got {k}.")
    import networkx as nx  # imported here: takes 0.05 s, and few graphs need it

    rng = make_generator(seed)
    graph = nx.watts_strogatz_graph(n, k, p, seed=_seed(rng))
    flat = np.fromiter((v for pair in graph.edges() for v in pair), np.int64, 2 * graph.number_of_edges())
    return _largest_component(flat.reshape(-1, 2), n, rng, order)


def barabasi_albert(n: int, m: int, *, order: Order = "random", seed: Seed = None) -> Dag:
    """Nodes arrive one by one and join m earlier ones, preferring those of high degree; then directed.

    Args:
        n: Number of nodes.
        m: Number of earlier nodes that an arriving one joins.
        order: Node order along which the edges point: "random", or "natural", by arrival, as in RandWire.
        seed: Seed or generator.
    """
    import rustworkx as rx  # imported here: no other generator needs it

    _check_count("m", m, 1)
    _check_count("n", n, 1)
    if n <= m:
        raise OptionError(f"n must be greater than m={m}, the number of nodes that each node joins, got {n}.")
    rng = make_generator(seed)
    graph = rx.barabasi_albert_graph(n, m, seed=_seed(rng))
    pairs = np.asarray(graph.edge_list(), dtype=np.int64).reshape(-1, 2)
    return _largest_component(pairs, n, rng, order)


def layered_mlp(sizes: Sequence[int]) -> Dag:
    """The graph of an MLP: layers of these sizes, each node joined to all of the next layer.

    Nodes are numbered layer by layer; the first layer has the inputs, the last the outputs.
    """
    bounds = _layer_bounds(sizes)
    pairs = [
        np.stack(np.meshgrid(np.arange(a, b), np.arange(b, c), indexing="ij"), -1).reshape(-1, 2)
        for a, b, c in zip(bounds, bounds[1:], bounds[2:], strict=False)
    ]
    return _mlp_dag(np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64), bounds)


def rewired_mlp(sizes: Sequence[int], fraction: float, *, seed: Seed = None) -> Dag:
    """An MLP with a fraction of its edges moved to other pairs of nodes, drawn at random.

    An edge may move to any vacant pair of nodes that follows the order of the MLP's nodes and leads neither into the
    first layer nor out of the last: shortcuts and edges inside hidden layers among them.
    """
    _check_fraction("fraction", fraction)
    rng = make_generator(seed)
    mlp, bounds = layered_mlp(sizes), _layer_bounds(sizes)
    n, num_inputs, first_output = bounds[-1], bounds[1], bounds[-2]
    num_moved = round(fraction * mlp.num_edges)
    num_vacant = count_pairs(num_inputs, first_output, n) - mlp.num_edges
    if num_moved > num_vacant:
        raise OptionError(
            f"fraction must be at most {num_vacant / mlp.num_edges:.3g} for an MLP of sizes {list(sizes)}, which has "
            f"only {num_vacant:,} vacant pairs of nodes, got {fraction}. Lower fraction, or add layers."
        )
    unmoved = np.sort(rng.permutation(mlp.num_edges)[num_moved:])
    occupied = np.sort(mlp.source.astype(np.int64) * n + mlp.target)
    keys = vacant_pairs(num_moved, occupied, num_inputs, first_output, n, rng)
    moved = np.stack((keys // n, keys % n), -1)
    return _mlp_dag(np.concatenate((mlp.edges[unmoved], moved)), bounds)


def chain(n: int) -> Dag:
    """Nodes 0 to n-1 in a row, each joined to the next."""
    _check_count("n", n, 1)
    return Dag.from_edges(np.stack((np.arange(n - 1), np.arange(1, n)), -1), nodes=n)


def complete(n: int) -> Dag:
    """Nodes 0 to n-1, each joined to every later one: the densest DAG there is."""
    _check_count("n", n, 1)
    return Dag.from_edges(np.stack(np.triu_indices(n, 1), -1), nodes=n)


def thin(dag: Dag, edges: int, *, seed: Seed = None) -> Dag:
    """A random subset of the edges, of this size, between the same nodes.

    No node loses its last incoming or its last outgoing edge, so sources stay sources and sinks stay sinks.

    >>> thin(complete(20), 50, seed=0)
    Dag(20 nodes, 50 edges, 1 input, 1 output)
    """
    _check_count("edges", edges, 0)
    shuffled = dag.edges[make_generator(seed).permutation(dag.num_edges)]
    selected = np.zeros(dag.num_edges, np.bool_)
    selected[np.unique(shuffled[:, 1], return_index=True)[1]] = True
    sources, first = np.unique(shuffled[:, 0], return_index=True)
    selected[first[~np.isin(sources, shuffled[selected, 0])]] = True
    required = np.count_nonzero(selected)
    if not required <= edges <= dag.num_edges:
        raise OptionError(
            f"edges must be from {required:,} to {dag.num_edges:,} for this graph, where each node keeps one incoming "
            f"and one outgoing edge if it has any, got {edges:,}."
        )
    selected[np.flatnonzero(~selected)[: edges - required]] = True
    return _with_edges(dag, shuffled[selected])


def shuffle_degrees(dag: Dag, *, rounds: int = 20, seed: Seed = None) -> Dag:
    """Rewire at random, with the in-degree and out-degree of every node unchanged.

    Each round draws a topological order and tries as many swaps as there are edges: u -> v and x -> y become u -> y and
    x -> v if that follows the order and duplicates no edge. So the graph stays acyclic.

    Args:
        dag: The graph; its labels, inputs and outputs are kept.
        rounds: Number of rounds.
        seed: Seed or generator of the orders and of the swaps.
    """
    _check_count("rounds", rounds, 0)
    rng = make_generator(seed)
    source, target = dag.source.astype(np.int64), dag.target.astype(np.int64)
    for _ in range(rounds if dag.num_edges else 0):
        rank = random_ranks(source, target, dag.num_nodes, rng.random(dag.num_nodes))
        first, second = rng.integers(dag.num_edges, size=(2, dag.num_edges))
        swap_targets(source, target, rank, first, second)
    return _with_edges(dag, np.stack((source, target), -1))


def _with_edges(dag: Dag, edges: IntArray) -> Dag:
    """Other edges between the same nodes, with the same inputs and outputs."""
    return Dag.from_arrays(edges, labels=dag.labels, inputs=dag.inputs, outputs=dag.outputs)


def _largest_component(pairs: IntArray, n: int, rng: np.random.Generator, order: Order = "random") -> Dag:
    """The largest connected component, directed along a random order or by node index."""
    if order not in ("random", "natural"):
        raise OptionError(f"order must be 'random' or 'natural', got {order!r}.")
    component = connected_components(pairs[:, 0], pairs[:, 1], n)
    labels: Sequence[int] = range(n)
    if component.any():
        inside = component == np.bincount(component).argmax()
        labels = tuple(np.flatnonzero(inside).tolist())
        pairs = (np.cumsum(inside) - 1)[pairs[inside[pairs[:, 0]]]]
    rank = rng.permutation(len(labels)) if order == "random" else np.arange(len(labels))
    return Dag.from_edge_list(orient_along(EdgeList(pairs[:, 0], pairs[:, 1], labels, directed=False), rank))


def _layer_bounds(sizes: Sequence[int]) -> list[int]:
    """Index of each layer's first node, and the number of nodes."""
    if not isinstance(sizes, Sequence | np.ndarray) or len(sizes) < 2:
        raise OptionError(f"sizes must list at least an input and an output layer, such as [64, 10], got {sizes!r}.")
    for size in sizes:
        _check_count("each of sizes", size, 1)
    return [0, *np.cumsum(sizes).tolist()]


def _mlp_dag(pairs: IntArray, bounds: list[int]) -> Dag:
    """Edges between the nodes of an MLP, with its inputs and outputs."""
    n = bounds[-1]
    return Dag.from_arrays(pairs, labels=n, inputs=range(bounds[1]), outputs=range(bounds[-2], n))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


def _check_count(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise OptionError(f"{name} must be an int of at least {least}, got {value!r}.")


def _check_fraction(name: str, value: float) -> None:
    if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise OptionError(f"{name} must be between 0 and 1, got {value!r}.")

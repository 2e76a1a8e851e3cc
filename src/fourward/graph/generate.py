"""Seeded families of graphs. Every function takes its own seed and touches no global random state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import networkx as nx
import numpy as np

from fourward._arrays import IntArray
from fourward.errors import OptionError
from fourward.graph._components import components
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag
from fourward.graph._gnp import gnp_pairs
from fourward.graph._swaps import random_ranks, swap_targets
from fourward.graph.orient import Seed, along, generator

Order = Literal["random", "natural"]


def erdos_renyi(n: int, p: float, *, seed: Seed = None) -> Dag:
    """The paper's protocol: sample G(n, p), keep the largest connected component, direct it at random.

    Args:
        n: Number of nodes that are sampled; the component may have fewer. Labels are 0 to n-1.
        p: Probability of each of the n (n - 1) / 2 edges.
        seed: Seed or generator of the sample and of the order.
    """
    _check_count("n", n, 1)
    _check_share("p", p)
    rng = generator(seed)
    return _largest_component(gnp_pairs(int(n), float(p), _seed(rng)), n, rng)


def watts_strogatz(n: int, k: int, p: float, *, order: Order = "random", seed: Seed = None) -> Dag:
    """A ring of n nodes, each joined to its k nearest, each edge rewired with probability p; then directed.

    Args:
        n: Number of nodes; the largest component is kept.
        k: Number of neighbours of a node in the ring, even.
        p: Probability that an edge is rewired.
        order: Along which the edges point: a "random" one, or the "natural" one round the ring, which
            RandWire takes and which makes networks nearly as deep as they have nodes.
        seed: Seed or generator.
    """
    _check_count("n", n, 1)
    _check_count("k", k, 0)
    _check_share("p", p)
    if k % 2 or k >= n:
        raise OptionError(f"k={k} came, but each node joins k/2 neighbours on either side: k is even and under n={n}.")
    rng = generator(seed)
    graph = nx.watts_strogatz_graph(n, k, p, seed=_seed(rng))
    flat = np.fromiter((v for pair in graph.edges() for v in pair), np.int64, 2 * graph.number_of_edges())
    return _largest_component(flat.reshape(-1, 2), n, rng, order)


def barabasi_albert(n: int, m: int, *, order: Order = "random", seed: Seed = None) -> Dag:
    """Nodes arrive one by one and join m earlier ones, preferring those of high degree; then directed.

    Args:
        n: Number of nodes.
        m: Number of earlier nodes that an arriving one joins.
        order: Along which the edges point: a "random" one, or the "natural" one of arrival, which RandWire
            takes.
        seed: Seed or generator.
    """
    import rustworkx as rx  # inside: nothing else here needs it, and a network runs without it

    _check_count("m", m, 1)
    _check_count("n", n, 1)
    if n <= m:
        raise OptionError(f"n={n} and m={m} came, but a node joins m others, so there must be more than m nodes.")
    rng = generator(seed)
    graph = rx.barabasi_albert_graph(n, m, seed=_seed(rng))
    pairs = np.asarray(graph.edge_list(), dtype=np.int64).reshape(-1, 2)
    return _largest_component(pairs, n, rng, order)


def layered_mlp(sizes: Sequence[int]) -> Dag:
    """The graph of an MLP: layers of these sizes, each node joined to all of the next layer.

    Nodes are numbered layer by layer; the first layer is the input, the last the output.
    """
    first = _layer_bounds(sizes)
    pairs = [
        np.stack(np.meshgrid(np.arange(a, b), np.arange(b, c), indexing="ij"), -1).reshape(-1, 2)
        for a, b, c in zip(first, first[1:], first[2:], strict=False)
    ]
    return _between(np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64), first)


def rewired_mlp(sizes: Sequence[int], fraction: float, *, seed: Seed = None) -> Dag:
    """An MLP of which a fraction of the edges is moved to other places, drawn at random.

    An edge may move to any pair of nodes that keeps the order of the MLP's nodes, doesn't lead into the
    first layer or out of the last, and held no edge: shortcuts and edges inside hidden layers among them.
    """
    _check_share("fraction", fraction)
    rng = generator(seed)
    mlp = layered_mlp(sizes)
    first = _layer_bounds(sizes)
    moved = round(fraction * mlp.num_edges)
    n, inputs, hidden = first[-1], first[1], first[-2]
    places = hidden * (n - inputs) - (hidden - inputs) * (hidden - inputs + 1) // 2
    free = places - mlp.num_edges
    if moved > free:
        raise OptionError(
            f"{moved:,} edges were to be moved, but an MLP of sizes {list(sizes)} has only {free:,} free places. "
            f"Lower fraction to {free / mlp.num_edges:.3g} at most, or add layers."
        )
    stay = np.sort(rng.permutation(mlp.num_edges)[moved:])
    taken = np.sort(mlp.source.astype(np.int64) * n + mlp.target)
    new = _free_places(moved, free, taken, inputs, hidden, n, rng)
    pairs = np.stack((new // n, new % n), -1)
    return _between(np.concatenate((mlp.edges[stay], pairs)), first)


def chain(n: int) -> Dag:
    """Nodes 0 to n-1 in a row, each joined to the next."""
    _check_count("n", n, 1)
    return Dag.from_edges(np.stack((np.arange(n - 1), np.arange(1, n)), -1), nodes=n)


def complete(n: int) -> Dag:
    """Nodes 0 to n-1, each joined to every later one: the densest DAG there is."""
    _check_count("n", n, 1)
    return Dag.from_edges(np.stack(np.triu_indices(n, 1), -1), nodes=n)


def thin(dag: Dag, edges: int, *, seed: Seed = None) -> Dag:
    """The same nodes with only so many of the edges, drawn at random.

    No node loses its last incoming or its last outgoing edge, so sources and sinks stay what they are.

    >>> thin(complete(20), 50, seed=0)
    Dag(20 nodes, 50 edges, 1 input, 1 output)
    """
    _check_count("edges", edges, 0)
    by_chance = dag.edges[generator(seed).permutation(dag.num_edges)]
    kept = np.zeros(dag.num_edges, np.bool_)
    kept[np.unique(by_chance[:, 1], return_index=True)[1]] = True
    senders, first = np.unique(by_chance[:, 0], return_index=True)
    kept[first[~np.isin(senders, by_chance[kept, 0])]] = True
    needed = np.count_nonzero(kept)
    if not needed <= edges <= dag.num_edges:
        raise OptionError(
            f"edges={edges:,} came, but of {dag.num_edges:,} edges only {needed:,} to {dag.num_edges:,} can be kept: "
            "each node keeps one incoming and one outgoing edge if it has any."
        )
    kept[np.flatnonzero(~kept)[: edges - needed]] = True
    return _with_edges(dag, by_chance[kept])


def shuffle_degrees(dag: Dag, *, rounds: int = 20, seed: Seed = None) -> Dag:
    """Another wiring at random in which every node keeps its number of incoming and of outgoing edges.

    Each round draws an order in which the graph can be walked, and tries as many swaps as there are edges: u -> v and
    x -> y become u -> y and x -> v where that follows the order and doubles no edge. So the graph stays acyclic.

    Args:
        dag: The graph; its labels, inputs and outputs are kept.
        rounds: Number of rounds.
        seed: Seed or generator of the orders and of the swaps.
    """
    _check_count("rounds", rounds, 0)
    rng = generator(seed)
    source, target = dag.source.astype(np.int64), dag.target.astype(np.int64)
    for _ in range(rounds if dag.num_edges else 0):
        rank = random_ranks(source, target, dag.num_nodes, rng.random(dag.num_nodes))
        first, second = rng.integers(dag.num_edges, size=(2, dag.num_edges))
        swap_targets(source, target, rank, first, second)
    return _with_edges(dag, np.stack((source, target), -1))


def _with_edges(dag: Dag, edges: IntArray) -> Dag:
    """Other edges between the same nodes."""
    return Dag.from_arrays(edges, labels=dag.labels, inputs=dag.inputs, outputs=dag.outputs)


def _largest_component(pairs: IntArray, n: int, rng: np.random.Generator, order: Order = "random") -> Dag:
    """The largest component, directed along a random order or by node number."""
    if order not in ("random", "natural"):
        raise OptionError(f"order={order!r} came, but it is either 'random' or 'natural'.")
    component = components(pairs[:, 0], pairs[:, 1], n)
    labels: Sequence[int] = range(n)
    if component.any():
        inside = component == np.bincount(component).argmax()
        labels = tuple(np.flatnonzero(inside).tolist())
        pairs = (np.cumsum(inside) - 1)[pairs[inside[pairs[:, 0]]]]
    rank = rng.permutation(len(labels)) if order == "random" else np.arange(len(labels))
    return along(EdgeList(pairs[:, 0], pairs[:, 1], labels, directed=False), rank)


def _free_places(
    count: int, free: int, taken: IntArray, inputs: int, hidden: int, n: int, rng: np.random.Generator
) -> IntArray:
    """`count` distinct keys u * n + v with u < v, u not an output, v not an input, none of them taken."""
    if 2 * count > free:  # most places are wanted: list them all, which are then fewer than 3 E
        low = np.maximum(np.arange(1, hidden + 1), inputs)
        width = n - low
        skipped = np.repeat(np.cumsum(width) - width, width)
        places = np.repeat(np.arange(hidden) * n + low, width) + np.arange(width.sum()) - skipped
        return rng.permutation(_without(places, taken))[:count]
    found = np.empty(0, np.int64)
    while len(found) < count:
        draws = 4 * (count - len(found))
        u, v = rng.integers(0, hidden, draws), rng.integers(inputs, n, draws)
        found = np.concatenate((found, _without((u * n + v)[u < v], taken)))
        _, place = np.unique(found, return_index=True)
        found = found[np.sort(place)]
    return found[:count]


def _without(keys: IntArray, taken: IntArray) -> IntArray:
    """The keys that aren't among the sorted `taken`."""
    fresh: IntArray = keys[taken[np.searchsorted(taken, keys).clip(max=len(taken) - 1)] != keys]
    return fresh


def _layer_bounds(sizes: Sequence[int]) -> list[int]:
    if not isinstance(sizes, Sequence | np.ndarray) or len(sizes) < 2:
        raise OptionError(f"sizes={sizes!r} came, but an MLP has at least an input and an output layer: [64, 10].")
    for size in sizes:
        _check_count("a layer's size", size, 1)
    return [0, *np.cumsum(sizes).tolist()]


def _between(pairs: IntArray, first: list[int]) -> Dag:
    n = first[-1]
    return Dag.from_edges(pairs, nodes=n, inputs=range(first[1]), outputs=range(first[-2], n))


def _seed(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


def _check_count(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise OptionError(f"{name}={value!r} came, but it must be a whole number of at least {least}.")


def _check_share(name: str, value: float) -> None:
    if not isinstance(value, int | float | np.number) or not 0 <= value <= 1:
        raise OptionError(f"{name}={value!r} came, but it must lie between 0 and 1.")

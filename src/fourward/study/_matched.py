"""Graphs of several families that match a nervous system in neurons, edges, inputs and outputs.

A family is sampled with a few more edges than needed and thinned; a sample is accepted if it has as many sources as the
nervous system has inputs, and no more sinks than it has outputs. Outputs are the sinks and, up to the required number,
neurons right before them. So every network has the same number of parameters, and so have the linear adapters before
and after it. Only "dense-mlp", with all edges between neighbouring layers, can't have as many neurons: with the 302 of
C. elegans it would be 31 layers of 9. It matches the edges, as closely as complete layers allow.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from fourward.errors import OptionError, summarize
from fourward.graph import generate
from fourward.graph._dag import Dag
from fourward.graph.connectomes import load

CONNECTOME = "c-elegans"
#: Hidden layers of the MLP that matches the neurons, and of the dense one.
HIDDEN_LAYERS, DENSE_HIDDEN_LAYERS = 4, 2
#: Probability that Watts-Strogatz rewires an edge: many shortcuts, and still more triangles than at random.
REWIRING = 0.25
MAX_SAMPLES = 5000
FAMILIES = {
    "erdos-renyi": lambda like, rng: generate.erdos_renyi(like.num_nodes, _density(like), seed=rng),
    "watts-strogatz": lambda like, rng: generate.watts_strogatz(like.num_nodes, _neighbours(like), REWIRING, seed=rng),
    "barabasi-albert": lambda like, rng: generate.barabasi_albert(like.num_nodes, _arrivals(like), seed=rng),
}
#: Every topology, in the order in which tables and figures show them.
TOPOLOGIES = (*FAMILIES, "connectome", "shuffled", "mlp", "dense-mlp")


def matched_graph(topology: str, seed: int, like: Dag | None = None) -> Dag:
    """A graph of this topology that has as many neurons, edges, inputs and outputs as `like`.

    Args:
        topology: One of `TOPOLOGIES`; "dense-mlp" matches the edges only, as closely as complete layers allow.
        seed: Seed of the sampling; the connectome itself and "dense-mlp" don't depend on it.
        like: The graph to match; default: the connectome of C. elegans without the fewest feedback edges, from all
            sources to all sinks, as stored results have it.

    >>> matched_graph("barabasi-albert", seed=0)
    Dag(302 nodes, 2,542 edges, 16 inputs, 30 outputs)
    """
    like = load(CONNECTOME).acyclic(inputs="sources", outputs="sinks").dag if like is None else like
    rng = np.random.default_rng([seed, _index(topology)])
    if topology == "connectome":
        return like
    if topology == "shuffled":
        return generate.shuffle_degrees(like, seed=rng)
    if topology == "mlp":
        return generate.thin(generate.layered_mlp(_even_layers(like)), like.num_edges, seed=rng)
    if topology == "dense-mlp":
        return generate.layered_mlp(_dense_layers(like))
    return _with_outputs(_sample(FAMILIES[topology], like, rng), like.num_outputs)


def _index(topology: str) -> int:
    if topology not in TOPOLOGIES:
        raise OptionError(f"unknown topology {topology!r}. Choose from {summarize(TOPOLOGIES, len(TOPOLOGIES))}.")
    return TOPOLOGIES.index(topology)


def _sample(family: Callable[[Dag, np.random.Generator], Dag], like: Dag, rng: np.random.Generator) -> Dag:
    """The first sample with all nodes in one component, enough edges, and matching numbers of sources and sinks."""
    for _ in range(MAX_SAMPLES):
        dag = family(like, rng)
        if (
            dag.num_nodes == like.num_nodes
            and dag.num_edges >= like.num_edges
            and dag.num_inputs == like.num_inputs
            and dag.num_outputs <= like.num_outputs
        ):
            return generate.thin(dag, like.num_edges, seed=rng)
    raise OptionError(
        f"none of {MAX_SAMPLES:,} samples matches {like!r} in neurons, edges and sources. Match another graph."
    )


def _with_outputs(dag: Dag, count: int) -> Dag:
    """The last nodes of the topological order as outputs: the sinks, and neurons right before sinks."""
    outputs = dag.order[-count:].tolist()
    return Dag.from_edges(dag.edges, nodes=dag.num_nodes, inputs=dag.inputs.tolist(), outputs=outputs)


def _density(like: Dag) -> float:
    """The p of an Erdos-Renyi graph with about 2 % more edges than needed: two standard deviations for C. elegans."""
    return min(1.02 * like.num_edges / (like.num_nodes * (like.num_nodes - 1) / 2), 1.0)


def _neighbours(like: Dag) -> int:
    """The smallest even k for which a ring of k neighbours has enough edges."""
    return 2 * -(-like.num_edges // like.num_nodes)


def _arrivals(like: Dag) -> int:
    """The smallest m for which n nodes that arrive with m edges each have enough edges."""
    n = like.num_nodes
    return next((m for m in range(1, n) if (n - m) * m >= like.num_edges), n // 2)


def _even_layers(like: Dag) -> list[int]:
    hidden = like.num_nodes - like.num_inputs - like.num_outputs
    widths = [len(part) for part in np.array_split(np.arange(hidden), HIDDEN_LAYERS)]
    return [like.num_inputs, *widths, like.num_outputs]


def _dense_layers(like: Dag) -> list[int]:
    """Hidden layers of the width that comes closest in the number of edges."""

    def sizes(width: int) -> list[int]:
        return [like.num_inputs, *[width] * DENSE_HIDDEN_LAYERS, like.num_outputs]

    def difference(width: int) -> int:
        layers = sizes(width)
        return abs(sum(a * b for a, b in pairwise(layers)) - like.num_edges)

    return sizes(min(range(1, like.num_edges + 1), key=difference))

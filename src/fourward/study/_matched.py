"""Graphs of several families that agree with a nervous system in neurons, edges, inputs and outputs.

The nervous system sets the four numbers. A family is drawn with a few more edges than wanted and thinned; a drawing
counts if it has as many sources, and no more sinks, than the nervous system has inputs and outputs. Outputs are the
sinks and, up to the wanted number, neurons right before them. So every network has the same number of parameters, and
so have the linear adaptors before and after it. Only "dense-mlp", with all edges between neighbouring layers, can't
have as many neurons: with the worm's 302 neurons it would be 31 layers of 9. It agrees in edges, as nearly as whole
layers allow.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from fourward.errors import OptionError
from fourward.graph import generate
from fourward.graph._dag import Dag
from fourward.graph.connectomes import load

CONNECTOME = "c-elegans"
#: Hidden layers of the MLP that agrees in neurons, and of the dense one.
HIDDEN, HIDDEN_DENSE = 4, 2
#: Share of the edges that Watts-Strogatz rewires: many shortcuts, and still more triangles than chance has.
REWIRED = 0.25
TRIES = 5000
FAMILIES = {
    "erdos-renyi": lambda like, rng: generate.erdos_renyi(like.num_nodes, _density(like), seed=rng),
    "watts-strogatz": lambda like, rng: generate.watts_strogatz(like.num_nodes, _neighbours(like), REWIRED, seed=rng),
    "barabasi-albert": lambda like, rng: generate.barabasi_albert(like.num_nodes, _arrivals(like), seed=rng),
}
#: Every topology, in the order in which tables and figures show them.
TOPOLOGIES = (*FAMILIES, "connectome", "shuffled", "mlp", "dense-mlp")


def matched(topology: str, seed: int, like: Dag | None = None) -> Dag:
    """A graph of this topology that agrees with `like`, by default the worm's, as the module says.

    >>> matched("barabasi-albert", seed=0)
    Dag(302 nodes, 2,542 edges, 16 inputs, 30 outputs)
    """
    like = load(CONNECTOME).dag if like is None else like
    rng = np.random.default_rng([seed, _number(topology)])
    if topology == "connectome":
        return like
    if topology == "shuffled":
        return generate.shuffle_degrees(like, seed=rng)
    if topology == "mlp":
        return generate.thin(generate.layered_mlp(_even_layers(like)), like.num_edges, seed=rng)
    if topology == "dense-mlp":
        return generate.layered_mlp(_dense_layers(like))
    return _with_outputs(_draw(FAMILIES[topology], like, rng), like.num_outputs)


def _number(topology: str) -> int:
    if topology not in TOPOLOGIES:
        raise OptionError(f"there is no topology {topology!r}. Choose from {', '.join(TOPOLOGIES)}.")
    return TOPOLOGIES.index(topology)


def _draw(family: Callable[[Dag, np.random.Generator], Dag], like: Dag, rng: np.random.Generator) -> Dag:
    """The first drawing that has all nodes in one component, enough edges, and the wanted number of ends."""
    for _ in range(TRIES):
        dag = family(like, rng)
        if (
            dag.num_nodes == like.num_nodes
            and dag.num_edges >= like.num_edges
            and dag.num_inputs == like.num_inputs
            and dag.num_outputs <= like.num_outputs
        ):
            return generate.thin(dag, like.num_edges, seed=rng)
    raise OptionError(
        f"in {TRIES:,} drawings none agreed with {like!r} in neurons, edges and sources. Choose another graph to match."
    )


def _with_outputs(dag: Dag, count: int) -> Dag:
    """The last nodes of the walking order as outputs: the sinks, and then neurons right before sinks."""
    chosen = dag.order[-count:].tolist()
    return Dag.from_edges(dag.edges, nodes=dag.num_nodes, inputs=dag.inputs.tolist(), outputs=chosen)


def _density(like: Dag) -> float:
    """Of an Erdos-Renyi graph that has about 2 % more edges than wanted, which is two deviations for the worm."""
    return min(1.02 * like.num_edges / (like.num_nodes * (like.num_nodes - 1) / 2), 1.0)


def _neighbours(like: Dag) -> int:
    """The least even k for which a ring of k neighbours has the edges."""
    return 2 * -(-like.num_edges // like.num_nodes)


def _arrivals(like: Dag) -> int:
    """The least m for which n nodes that arrive with m edges each have the edges."""
    n = like.num_nodes
    return next((m for m in range(1, n) if (n - m) * m >= like.num_edges), n // 2)


def _even_layers(like: Dag) -> list[int]:
    hidden = like.num_nodes - like.num_inputs - like.num_outputs
    widths = [len(part) for part in np.array_split(np.arange(hidden), HIDDEN)]
    return [like.num_inputs, *widths, like.num_outputs]


def _dense_layers(like: Dag) -> list[int]:
    """Hidden layers of the width that brings the number of edges closest."""

    def sizes(width: int) -> list[int]:
        return [like.num_inputs, *[width] * HIDDEN_DENSE, like.num_outputs]

    def missed(width: int) -> int:
        layers = sizes(width)
        return abs(sum(a * b for a, b in pairwise(layers)) - like.num_edges)

    return sizes(min(range(1, like.num_edges + 1), key=missed))

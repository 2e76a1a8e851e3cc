"""Named graphs on which all engines must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from fourward.graph import connectomes, generate
from fourward.graph._dag import Dag


class Case(NamedTuple):
    """A graph, and an activation with which signals and gradients neither vanish nor explode in it."""

    dag: Dag
    activation: str = "relu"


def _skip_heavy() -> Dag:
    """A chain of 40 with every skip of length 7 and 20: long edges, little width."""
    edges = [(u, u + skip) for skip in (1, 7, 20) for u in range(40 - skip)]
    return Dag.from_edges(edges)


def _source_neurons() -> Dag:
    """Sources that aren't inputs, hidden outputs, outputs out of order, an input that is an output."""
    dag = generate.erdos_renyi(40, 0.1, seed=3)
    sources = [dag.labels[v] for v in dag.inputs]
    outputs = [dag.labels[v] for v in (*dag.outputs[::-1], *dag.order[15:20], dag.inputs[0])]
    return Dag.from_edges(
        [(dag.labels[u], dag.labels[v]) for u, v in dag.edges.tolist()], inputs=sources[::-2], outputs=outputs
    )


def _isolated() -> Dag:
    edges = generate.erdos_renyi(20, 0.3, seed=1).edges
    return Dag.from_edges(np.array(edges) + 3, nodes=30)


ZOO: Mapping[str, Callable[[], Case]] = {
    "one node": lambda: Case(generate.complete(1)),
    "no edges": lambda: Case(Dag.from_edges([], nodes=list("abcde"))),
    "isolated nodes": lambda: Case(_isolated()),
    "chain 2000 deep": lambda: Case(generate.chain(2000), "abs"),
    "complete": lambda: Case(generate.complete(64), "leaky_relu"),
    "layered MLP": lambda: Case(generate.layered_mlp([7, 13, 63, 5]), "silu"),
    "rewired MLP": lambda: Case(generate.rewired_mlp([7, 13, 20, 5], 0.4, seed=0), "tanh"),
    "skip-heavy": lambda: Case(_skip_heavy(), "abs"),
    "Erdos-Renyi": lambda: Case(generate.erdos_renyi(63, 0.2, seed=0)),
    "Watts-Strogatz": lambda: Case(generate.watts_strogatz(80, 6, 0.2, seed=0)),
    "Barabasi-Albert": lambda: Case(generate.barabasi_albert(100, 4, seed=0)),
    "source neurons": lambda: Case(_source_neurons(), "gelu"),
    "C. elegans": lambda: Case(connectomes.load("c-elegans").dag),
}


@cache
def case(name: str) -> Case:
    """A case by its name, made once."""
    return ZOO[name]()

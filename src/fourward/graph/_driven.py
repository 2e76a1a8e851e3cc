"""A Dag with driven inputs as one without: each gets a node of its own for its feature, and an edge of weight 1."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.graph._convert import Labels, is_integer
from fourward.graph._dag import Dag


class FeatureDag(NamedTuple):
    """A Dag whose inputs have no incoming edges; nodes 0 to N-1 are those of the Dag it was made of."""

    dag: Dag  #: (N + D) nodes: node N + i carries the feature of the i-th driven input
    edge: IntArray  #: (E + D,) the edge of the original for each of dag.edges; E for the edges from feature nodes


def add_feature_nodes(dag: Dag, driven: IntArray | None = None, name_nodes: bool = False) -> FeatureDag:
    """Add a node for the feature of each driven input.

    Args:
        dag: The graph.
        driven: (D,) the driven inputs, in feature order. Default: dag.driven; feedback can drive others, too.
        name_nodes: Give the new nodes labels after those of the driven inputs, else labels are 0 to N + D - 1.
    """
    driven = dag.driven if driven is None else driven
    new_nodes = np.arange(dag.num_nodes, dag.num_nodes + len(driven))
    node = np.arange(dag.num_nodes)
    node[driven] = new_nodes
    edges = np.concatenate((dag.edges, np.stack((new_nodes, driven), -1)))
    labels = _name_nodes(dag.labels, driven) if name_nodes else len(node) + len(driven)
    result = Dag.from_arrays(edges, labels=labels, inputs=node[dag.inputs], outputs=dag.outputs)
    edge = np.full(result.num_edges, dag.num_edges)
    is_original = result.source < dag.num_nodes
    edge[is_original] = dag.find_edges(result.edges[is_original], by="index")
    return FeatureDag(result, edge)


def _name_nodes(labels: Labels, driven: IntArray) -> list[Hashable]:
    """The labels, and new ones: "x of AVAL" for text, the next integers, or ("x of", label)."""
    names: list[Hashable] = list(labels)
    if all(map(is_integer, labels)):
        first = max(labels) + 1  # type: ignore[type-var, operator]
        return names + list(range(first, first + len(driven)))
    known = set(labels)
    for v in driven.tolist():
        name: Hashable = f"x of {labels[v]}" if isinstance(labels[v], str) else ("x of", labels[v])
        while name in known:
            name = f"x of {name}"
        names.append(name)
        known.add(name)
    return names

"""Networks as weighted graphs: networkx, and the graph files that keep biases and activations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import torch

from fourward.errors import ActivationError, WeightError, pluralize, summarize
from fourward.graph import _annotated, files
from fourward.graph._annotated import AnnotatedDag
from fourward.graph._dag import LabelChoice
from fourward.nn._activations import ActivationLike
from fourward.nn._fourward import FourWard, builtin_activation_names


def from_networkx(
    graph: nx.DiGraph,
    *,
    activation: ActivationLike | None = None,
    inputs: LabelChoice = None,
    outputs: LabelChoice = None,
    **options: Any,
) -> FourWard:
    """A network from a graph with `weight` on its edges and, maybe, `bias` and `activation` on its nodes.

    What `FourWard.to_networkx` makes comes back as it was.

    Args:
        graph: The graph.
        activation: Of neurons whose node has no `activation`.
        inputs: As in Dag.from_networkx.
        outputs: Likewise.
        options: As in FourWard.
    """
    return from_loaded(
        _annotated.settle(_annotated.from_networkx(graph), inputs=inputs, outputs=outputs), activation, **options
    )


def read_network(
    path: str | Path, *, activation: ActivationLike | None = None, network: Any = None, **options: Any
) -> FourWard:
    """The same from a graph file; `options` as in `fourward.files.read_dag`, `network`: a dict of FourWard's own."""
    loaded = files.read_dag(path, **options)
    try:
        return from_loaded(loaded, activation, **(network or {}))
    except (WeightError, ActivationError) as error:
        error.prepend(str(path))
        raise


def from_loaded(loaded: AnnotatedDag, activation: ActivationLike | None = None, **options: Any) -> FourWard:
    """A network from a Dag and what came along with it."""
    dag = loaded.dag
    if loaded.weight is None and dag.num_edges:
        raise WeightError(
            "the edges have no weights. FourWard(dag) makes a network with new ones of a Dag; on the command line "
            "`fourward train` takes the graph as it is."
        )
    labels = [dag.labels[v] for v in dag.neurons.tolist()]
    chosen = (
        [activation] * len(labels) if loaded.activation is None else [one or activation for one in loaded.activation]
    )
    bare = [label for label, one in zip(labels, chosen, strict=True) if one is None]
    if bare:
        raise ActivationError(
            f"no activation came for {pluralize(len(bare), 'neuron')}: {summarize(bare)}. activation=, on the command "
            "line --activation, is for these."
        )
    options = {"bias": loaded.bias is not None, "init": "zeros"} | options
    # A neuron that is itself called "default" is the only one that the default is for: all others are named.
    net = FourWard(dag, dict(zip(labels, chosen, strict=True)) if labels else "identity", **options)  # type: ignore[arg-type]
    net.load_edge_weights(
        torch.zeros(0) if loaded.weight is None else torch.from_numpy(loaded.weight),
        None if loaded.bias is None else torch.from_numpy(loaded.bias),
    )
    return net


def write_graph(net: FourWard, path: str | Path, format: str | None = None) -> None:
    """The graph with weights, biases and activations, as a graph file."""
    kind = files.format_of(path, format)
    names = builtin_activation_names(net, f"a {kind} file", "export to .pt2")
    files.write(net.dag, path, weight=net.weight, bias=net.bias, activation=names, format=format)

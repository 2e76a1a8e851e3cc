"""Networks as graphs with weights, biases and activations: networkx, and the graph files that store them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from fourward.errors import ActivationError, FourwardError, OptionError, Repair, WeightError, pluralize, summarize
from fourward.graph import _annotated, files
from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph, Orient
from fourward.graph._choose import NodeChoice
from fourward.graph._digraph import Digraph
from fourward.graph._to_dag import IntoInputs, Merge, RemoveFeedback, SelfLoops
from fourward.nn._activations import ActivationLike
from fourward.nn._fourward import FourWard, builtin_activation_names, constraint_arrays, from_parameters
from fourward.nn._recurrent import Recurrent, check_without_tau, recurrent_from_parameters


def from_networkx(
    graph: nx.Graph,
    *,
    activation: ActivationLike | None = None,
    inputs: NodeChoice = None,
    outputs: NodeChoice = None,
    orient: Orient = None,
    seed: int | None = None,
    remove_feedback: RemoveFeedback = False,
    merge: Merge = False,
    self_loops: SelfLoops = None,
    into_inputs: IntoInputs = "drive",
    recurrent: bool = False,
    **options: Any,
) -> FourWard | Recurrent:
    """Convert a graph with the attribute `weight` on edges, and optionally `bias` and `activation` on nodes.

    A graph that `FourWard.to_networkx` or `Recurrent.to_networkx` made gives an equal network.

    Args:
        graph: The graph.
        activation: Activation of neurons without the attribute `activation`.
        inputs: Labels of the input nodes, in feature order; default: as in `Dag.from_networkx`.
        outputs: Labels of the output nodes, likewise.
        orient: "random" directs the edges of an undirected graph along a random order of its nodes.
        seed: Seed of this order, and of the network.
        remove_feedback: As in `fourward.files.read_dag`.
        merge: As in `fourward.files.read_dag`.
        self_loops: As in `fourward.files.read_dag`.
        into_inputs: As in `fourward.files.read_dag`.
        recurrent: Keep feedback, and make a Recurrent.
        options: Further keywords of FourWard, or of Recurrent.
    """
    choices: dict[str, Any] = {
        "orient": orient,
        "seed": seed,
        "merge": merge,
        "self_loops": self_loops,
        "into_inputs": into_inputs,
        "inputs": inputs,
        "outputs": outputs,
    }
    _check_recurrent(recurrent, remove_feedback)
    annotated: AnnotatedDag | AnnotatedDigraph
    with _values_required():
        if recurrent:
            annotated = _annotated.from_networkx(graph).to_digraph(**choices)
        else:
            annotated = _annotated.from_networkx(graph).to_dag(remove_feedback=remove_feedback, **choices)
    return from_annotated(annotated, activation, seed=seed, **options)


def _check_recurrent(recurrent: bool, remove_feedback: RemoveFeedback) -> None:
    if recurrent and remove_feedback:
        raise OptionError("remove_feedback has no effect here: recurrent=True keeps feedback. Omit one of them.")


def read_network(
    path: str | Path,
    *,
    activation: ActivationLike | None = None,
    net_options: Mapping[str, Any] | None = None,
    recurrent: bool = False,
    **options: Any,
) -> FourWard | Recurrent:
    """Read a network from a graph file; see `from_networkx`.

    Args:
        path: The file.
        activation: Activation of neurons that have none in the file.
        net_options: Keywords of FourWard, or of Recurrent.
        recurrent: Keep feedback, and make a Recurrent.
        options: Keywords of `fourward.files.read_dag`, or of `read_digraph`.
    """
    _check_recurrent(recurrent, options.get("remove_feedback", False))
    with _values_required():
        annotated = files.read_digraph(path, **options) if recurrent else files.read_dag(path, **options)
    try:
        return from_annotated(annotated, activation, **(net_options or {}))
    except (WeightError, ActivationError, OptionError) as error:
        error.prepend(str(path))
        raise


@contextmanager
def _values_required() -> Iterator[None]:
    """Drop the advice to read a graph without its values: a network needs them."""
    try:
        yield
    except FourwardError as error:
        error.repairs = tuple(repair for repair in error.repairs if repair != _annotated.TOPOLOGY_ONLY)
        raise


def from_annotated(
    annotated: AnnotatedDag | AnnotatedDigraph, activation: ActivationLike | None = None, **options: Any
) -> FourWard | Recurrent:
    """A network with the weights, biases and activations of an AnnotatedDag or an AnnotatedDigraph."""
    graph, weight = annotated[0], annotated.weight
    if weight is None and graph.num_edges:
        new = "Recurrent(graph)" if isinstance(graph, Digraph) else "FourWard(dag)"
        raise WeightError(f"expected a weight on every edge, got none. To train new weights, build {new}.")
    neurons = graph.neurons.tolist()
    activations = [name or activation for name in annotated.activation or [None] * len(neurons)]
    missing = [graph.labels[v] for v, choice in zip(neurons, activations, strict=True) if choice is None]
    if missing:
        raise ActivationError(
            f"no activation for {pluralize(len(missing), 'neuron')}: {summarize(missing)}.",
            Repair("activation", ..., "set the activation of these"),
        )
    weight = np.zeros(0) if weight is None else weight
    options = {name: _as_option(name, values) for name, values in annotated.constraints.items()} | options
    if isinstance(graph, Digraph):
        return recurrent_from_parameters(graph, weight, annotated.bias, activations, **options)  # type: ignore[arg-type]
    return from_parameters(graph, weight, annotated.bias, activations, **options)  # type: ignore[arg-type]


def _as_option(name: str, values: Any) -> Any:
    """A constraint as FourWard takes it, from the floats of a file."""
    dtype: Any = {"frozen": np.bool_, "tied": np.int64}.get(name, np.float64)
    return values.astype(dtype)


def write_graph(net: FourWard | Recurrent, path: str | Path, format: str | None = None) -> None:
    """Write the graph with weights, biases and activations to a graph file; feedback is marked."""
    destination = f"a {files.infer_format(path, format)} file"
    names = builtin_activation_names(net, destination, "export to .pt2")
    if isinstance(net, Recurrent):
        check_without_tau(net, destination)
    values = {"weight": net.weight, "bias": net.bias, "activation": names, "constraints": constraint_arrays(net)}
    files.write(net.graph, path, format=format, **values)  # type: ignore[arg-type]

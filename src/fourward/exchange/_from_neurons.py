"""A FourWard, or a Recurrent, from networks that are described neuron by neuron, as NEAT libraries do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fourward.errors import ActivationError, FileError
from fourward.graph._base import BaseGraph
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.nn._activations import ActivationLike
from fourward.nn._fourward import FourWard, from_parameters, name_activations
from fourward.nn._recurrent import Recurrent

#: Torch functions for activations that a user added to a library, by name.
CustomActivations = Mapping[str, Callable[[Tensor], Tensor]] | None
#: g_k(s_k ... g_1(s_1 z)) as pairs (s_1, g_1) ... (s_k, g_k). All but the last become neurons of their own, so that
#: built-in activations compose to functions that aren't built in.
Stages = tuple[tuple[float, ActivationLike], ...]


class Neuron(NamedTuple):
    """f(bias + the sum of weight times the activation of each source)."""

    label: int
    stages: Stages  #: f
    bias: float
    incoming: Sequence[tuple[int, float]]  #: sources and weights


def lookup_stages(name: str, label: int, table: Mapping[str, Stages], custom: CustomActivations) -> Stages:
    """The stages of another library's activation, by its name there."""
    if custom is not None and name in custom:
        return ((1.0, custom[name]),)
    if name not in table:
        raise ActivationError(
            f"neuron {label} has the unknown activation {name!r}. Pass a torch function for it: "
            f"activations={{{name!r}: ...}}."
        )
    return table[name]


def build_network(inputs: Sequence[int], outputs: Sequence[int], neurons: Sequence[Neuron], **options: Any) -> FourWard:
    """The network of these neurons; inputs and outputs by label, options as in FourWard."""
    neurons, labels, pairs, weight = _collect(inputs, neurons)
    dag = Dag.from_edges(pairs, nodes=labels, inputs=inputs, outputs=outputs)
    bias, activations = _in_order(dag, neurons)
    return from_parameters(dag, dag.align(np.array(weight, np.float64), pairs), bias, activations, **options)


def build_recurrent(
    inputs: Sequence[int], outputs: Sequence[int], neurons: Sequence[Neuron], delayed: Set[int], **options: Any
) -> Recurrent:
    """The same as a network with feedback: edges out of the neurons in `delayed` carry the value of the step before."""
    neurons, labels, pairs, weight = _collect(inputs, neurons)
    feedback = [pair for pair in pairs if pair[0] in delayed]
    graph = Digraph.from_edges(pairs, nodes=labels, inputs=inputs, outputs=outputs, feedback=feedback)
    bias, activations = _in_order(graph, neurons)
    net = Recurrent(graph, name_activations(graph, activations), **{"init": "zeros"} | options)
    net.load_edge_weights(graph.align(np.array(weight, np.float64), pairs), bias)
    return net


def _collect(
    inputs: Sequence[int], neurons: Sequence[Neuron]
) -> tuple[Sequence[Neuron], list[int], list[tuple[int, int]], list[float]]:
    """Neurons of one stage each, the labels of all nodes, and edges with their weights."""
    neurons = _expand_stages(neurons, 1 + max((*inputs, *(neuron.label for neuron in neurons)), default=0))
    labels = [*inputs, *(neuron.label for neuron in neurons)]
    known = set(labels)
    pairs, weight = [], []
    for neuron in neurons:
        for source, value in neuron.incoming:
            if source not in known:
                raise FileError(f"neuron {neuron.label} has a connection from {source}, which is not a node.")
            pairs.append((source, neuron.label))
            weight.append(value)
    return neurons, labels, pairs, weight


def _in_order(graph: BaseGraph, neurons: Sequence[Neuron]) -> tuple[Any, list[ActivationLike]]:
    """Biases and activations in the order of graph.neurons."""
    by_label = {neuron.label: neuron for neuron in neurons}
    ordered = [by_label[graph.labels[v]] for v in graph.neurons.tolist()]
    return np.array([neuron.bias for neuron in ordered], np.float64), [neuron.stages[0][1] for neuron in ordered]


def _expand_stages(neurons: Sequence[Neuron], next_label: int) -> list[Neuron]:
    """A neuron for each stage, factors multiplied into weights and biases; the last one keeps the label."""
    expanded = []
    for neuron in neurons:
        incoming, bias = list(neuron.incoming), neuron.bias
        for k, (factor, activation) in enumerate(neuron.stages):
            last = k == len(neuron.stages) - 1
            label = neuron.label if last else next_label
            scaled = [(source, factor * weight) for source, weight in incoming]
            expanded.append(Neuron(label, ((1.0, activation),), factor * bias, scaled))
            incoming, bias = [(label, 1.0)], 0.0
            next_label += not last
    return expanded

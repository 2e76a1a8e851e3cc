"""Populations from genomes as flat arrays: what those of neat-python and of TensorNEAT have in common."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.exchange._from_neurons import CustomActivations, Stages, lookup_stages
from fourward.exchange._neat import aggregation_factor
from fourward.graph._members import starts
from fourward.nn._activations import ActivationLike

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


class FlatGenomes(NamedTuple):
    """P genomes, one after another. Node indices count from 0 in each: its inputs, then its neurons in this order."""

    inputs: Sequence[Hashable]  #: (I,) labels of the inputs
    neuron_start: IntArray  #: (P+1,)
    label: IntArray  #: (N,) key of each neuron
    activation: IntArray  #: (N,) index among the names
    aggregation: IntArray  #: (N,) index among the names
    bias: FloatArray  #: (N,)
    response: FloatArray  #: (N,) factor of the aggregated terms
    edge_start: IntArray  #: (P+1,)
    edges: IntArray  #: (E, 2) node indices
    weight: FloatArray  #: (E,)
    outputs: IntArray  #: (P, O) node indices
    activations: Sequence[str]  #: names of activations
    aggregations: Sequence[str]  #: names of aggregations


class Flattened(NamedTuple):
    """Arguments of Population.from_arrays, and where the genes are in them: gene = parameter / factor."""

    arrays: dict[str, Any]
    edge: IntArray  #: (E,) index of each connection among the edges
    edge_factor: FloatArray  #: (E,)
    neuron: IntArray  #: (N,) index of each neuron's bias
    neuron_factor: FloatArray  #: (N,)


def flatten(genomes: FlatGenomes, table: Mapping[str, Stages], custom: CustomActivations) -> Flattened:
    """Multiply responses and the factors of activations into weights and biases, and add the neurons of stages.

    Args:
        genomes: The genomes.
        table: The library's activations, by name.
        custom: Activations that a user added to it.
    """
    stages = [
        lookup_stages(name, int(genomes.label[genomes.activation == k][0]), table, custom)
        for k, name in enumerate(genomes.activations)
    ]
    parts = _Parts(genomes, stages)
    target = genomes.edges[:, 1] - len(genomes.inputs) + np.repeat(genomes.neuron_start[:-1], parts.num_edges)
    first = parts.factor[parts.offset[genomes.activation]]
    edge_factor = (first * genomes.response * _mean_factor(genomes, target))[target]
    edges, edge_start, order, extra_weight = _add_edges(parts, target)
    weight = np.concatenate((genomes.weight * edge_factor, extra_weight))[order]
    bias, neuron = _add_neurons(parts, first * genomes.bias)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    arrays = {
        "edges": edges, "edge_start": edge_start, "num_nodes": len(genomes.inputs) + np.diff(parts.new_start),
        "inputs": len(genomes.inputs), "outputs": genomes.outputs, "weight": weight, "bias": bias,
        "activation": (parts.functions, parts.function), "labels": parts.labels(),
    }  # fmt: skip
    return Flattened(arrays, place[: len(target)], edge_factor, neuron, first)


class _Parts:
    """The neurons of all stages of all genomes: each genome's own, then those that it needs besides."""

    def __init__(self, genomes: FlatGenomes, stages: Sequence[Stages]) -> None:
        self.genomes, inputs = genomes, len(genomes.inputs)
        self.functions: list[ActivationLike] = [function for own in stages for _, function in own]
        self.factor = np.array([factor for own in stages for factor, _ in own], np.float64)
        self.offset = starts([len(own) for own in stages])  # where the stages of each activation start
        counts, self.num_edges = np.diff(genomes.neuron_start), np.diff(genomes.edge_start)
        self.member = np.repeat(np.arange(len(counts)), counts)  # (N,)
        self.extra = np.diff(self.offset)[genomes.activation] - 1  # (N,) neurons that each needs besides
        before = starts(self.extra)
        self.owner = np.repeat(np.arange(len(self.extra)), self.extra)  # (X,) whose neuron it is
        self.stage = np.arange(len(self.owner)) - before[:-1][self.owner]  # (X,)
        extra_start = before[genomes.neuron_start]
        self.new_start = genomes.neuron_start + extra_start  # (P+1,)
        in_member = np.arange(len(self.member)) - genomes.neuron_start[self.member]
        self.node = inputs + in_member  # (N,) node index
        self.first_node = (
            inputs + counts[self.member] + before[:-1] - extra_start[self.member]
        )  # (N,) of the extra ones
        self.neuron = self.new_start[self.member] + in_member  # (N,) index among all neurons
        owner_member = self.member[self.owner]
        self.extra_node = self.first_node[self.owner] + self.stage  # (X,)
        self.extra_neuron = self.new_start[owner_member] + self.extra_node - inputs  # (X,)
        self.function = np.empty(int(self.new_start[-1]), np.int64)
        self.function[self.neuron] = self.offset[genomes.activation] + self.extra  # the last stage
        self.function[self.extra_neuron] = self.offset[genomes.activation[self.owner]] + self.stage

    def labels(self) -> list[list[Hashable]]:
        """The labels of each member's nodes; those of extra neurons are new ones."""
        genomes, inputs = self.genomes, [*self.genomes.inputs]
        new, start = 1 + int(genomes.label.max(initial=len(inputs))), genomes.neuron_start.tolist()
        keys, extras = genomes.label.tolist(), (self.new_start - genomes.neuron_start).tolist()
        return [
            [*inputs, *keys[start[p] : start[p + 1]], *range(new, new + extras[p + 1] - extras[p])]
            for p in range(len(start) - 1)
        ]


def _add_edges(parts: _Parts, target: IntArray) -> tuple[IntArray, IntArray, IntArray, FloatArray]:
    """All edges, where those of each member start, and from which of the old and the new ones each is; new weights."""
    genomes, owner, stage = parts.genomes, parts.owner, parts.stage
    into = np.where(parts.extra > 0, parts.first_node, parts.node)  # where the connections into a neuron lead
    is_last = stage == parts.extra[owner] - 1
    links = np.stack((parts.extra_node, np.where(is_last, parts.node[owner], parts.extra_node + 1)), 1)
    edges = np.concatenate((np.stack((genomes.edges[:, 0], into[target]), 1), links))
    weight = parts.factor[parts.offset[genomes.activation[owner]] + stage + 1]
    member = np.concatenate((np.repeat(np.arange(len(parts.num_edges)), parts.num_edges), parts.member[owner]))
    order = np.argsort(member, kind="stable") if len(owner) else np.arange(len(edges))
    return edges[order], starts(np.bincount(member, minlength=len(parts.num_edges))), order, weight


def _add_neurons(parts: _Parts, bias: FloatArray) -> tuple[FloatArray, IntArray]:
    """The biases of all neurons, and where those of the genomes are among them: in the first stages."""
    biases, neuron = np.zeros(int(parts.new_start[-1])), parts.neuron.copy()
    is_first = parts.stage == 0
    neuron[parts.owner[is_first]] = parts.extra_neuron[is_first]
    biases[neuron] = bias
    return biases, neuron


def _mean_factor(genomes: FlatGenomes, target: IntArray) -> FloatArray:
    """(N,) the factors that turn sums into the aggregations."""
    count = np.bincount(target, minlength=len(genomes.label))
    factor = np.ones(len(genomes.label))
    for k, name in enumerate(genomes.aggregations):
        if name != "sum":
            for n in np.flatnonzero(genomes.aggregation == k).tolist():
                factor[n] = aggregation_factor(int(genomes.label[n]), name, int(count[n]))
    return factor

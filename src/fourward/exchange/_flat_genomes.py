"""Populations from genomes as flat arrays: what those of neat-python and of TensorNEAT have in common."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import BoolArray, IntArray
from fourward.exchange._aggregations import FOLDED, Added, aggregation_factor, fold_terms, is_folded
from fourward.exchange._from_neurons import CustomActivations, Stages, lookup_stages
from fourward.graph._members import starts
from fourward.nn._activations import ActivationLike

#: Activations of neurons that aggregations add, by names that no library has.
ADDED: Mapping[str, Stages] = {f"added {name}": ((1, name),) for name in ("identity", "relu", "square")}
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

    @property
    def members(self) -> int:
        """P."""
        return len(self.neuron_start) - 1


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
    genomes, is_connection, is_neuron = fold_aggregations(genomes)
    table = {**table, **ADDED}
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
    return Flattened(
        arrays, place[: len(target)][is_connection], edge_factor[is_connection], neuron[is_neuron], first[is_neuron]
    )


def fold_aggregations(genomes: FlatGenomes) -> tuple[FlatGenomes, BoolArray, BoolArray]:
    """Genomes whose aggregations are weighted sums, with further neurons behind the others of each genome.

    Returns:
        The genomes, and which of their connections (E',) and of their neurons (N',) are those of the genes.
    """
    inputs, start = len(genomes.inputs), genomes.neuron_start
    per_member = np.diff(genomes.edge_start)
    target = genomes.edges[:, 1] - inputs + np.repeat(start[:-1], per_member)
    count = np.bincount(target, minlength=len(genomes.label))
    names = np.array([name in FOLDED for name in genomes.aggregations], np.bool_)
    listed = np.flatnonzero(names[genomes.aggregation]).tolist()
    folded = [n for n in listed if is_folded(genomes.aggregations[genomes.aggregation[n]], int(count[n]))]
    if not folded:
        return genomes, np.ones(len(target), np.bool_), np.ones(len(genomes.label), np.bool_)
    by_target, bounds = np.argsort(target, kind="stable"), starts(count)
    member = np.searchsorted(start, folded, side="right") - 1
    nodes = {p: itertools.count(inputs + int(start[p + 1] - start[p])) for p in member.tolist()}
    edges, added = genomes.edges.copy(), list[tuple[int, Added]]()
    for n, p in zip(folded, member.tolist(), strict=True):
        own = by_target[bounds[n] : bounds[n + 1]]
        terms = [Added(next(nodes[p]), "identity", 0.0, ()) for _ in own]  # their edges are those of the genes
        edges[own, 1] = [term.node for term in terms]
        name = genomes.aggregations[genomes.aggregation[n]]
        further, value = fold_terms(name, [term.node for term in terms], nodes[p])
        added += [(p, neuron) for neuron in (*terms, *further)]
        added.append((p, Added(inputs + n - int(start[p]), "", 0.0, value)))  # edges into the neuron itself
    return _add_folded(genomes._replace(edges=edges), folded, added)


def _add_folded(
    genomes: FlatGenomes, folded: Sequence[int], added: Sequence[tuple[int, Added]]
) -> tuple[FlatGenomes, BoolArray, BoolArray]:
    """Append the added neurons and edges to those of their genomes; the folded neurons have sums of them."""
    activations, aggregations = [*genomes.activations, *ADDED], [*genomes.aggregations, "sum"]
    aggregation = genomes.aggregation.copy()
    aggregation[folded] = len(aggregations) - 1
    neurons = sorted(
        ((p, neuron) for p, neuron in added if neuron.activation), key=lambda pair: (pair[0], pair[1].node)
    )
    links = [(p, u, neuron.node, w) for p, neuron in added for u, w in neuron.incoming]
    sizes, edge_sizes = np.diff(genomes.neuron_start), np.diff(genomes.edge_start)
    neuron_counts, edge_counts = (
        np.bincount([x[0] for x in new], minlength=genomes.members) for new in (neurons, links)
    )
    order, edge_order = (
        _order_by_member(sizes, [p for p, _ in neurons]),
        _order_by_member(edge_sizes, [link[0] for link in links]),
    )
    first_label = 1 + max(int(genomes.label.max()), len(genomes.inputs))
    codes = [activations.index(f"added {neuron.activation}") for _, neuron in neurons]

    def extend(old: Any, new: Sequence[float]) -> Any:
        return np.concatenate((old, np.array(new, old.dtype)))[order]

    ends = np.array([(u, v) for _, u, v, _ in links], np.int64).reshape(-1, 2)
    result = genomes._replace(
        neuron_start=starts(sizes + neuron_counts),
        label=extend(genomes.label, [first_label + neuron.node for _, neuron in neurons]),
        activation=extend(genomes.activation, codes),
        aggregation=extend(aggregation, [len(aggregations) - 1] * len(neurons)),
        bias=extend(genomes.bias, [neuron.bias for _, neuron in neurons]),
        response=extend(genomes.response, [1.0] * len(neurons)),
        edge_start=starts(edge_sizes + edge_counts),
        edges=np.concatenate((genomes.edges, ends))[edge_order],
        weight=np.concatenate((genomes.weight, [w for *_, w in links]))[edge_order],
        aggregations=aggregations,
    )
    used, code = np.unique(result.activation, return_inverse=True)
    result = result._replace(activation=code, activations=[activations[k] for k in used.tolist()])
    return result, edge_order < len(genomes.edges), order < len(genomes.label)


def _order_by_member(sizes: IntArray, new_members: Sequence[int]) -> IntArray:
    """The order that puts new elements of some members, listed after all old ones, behind the old ones of each."""
    member = np.concatenate((np.repeat(np.arange(len(sizes)), sizes), np.array(new_members, np.int64)))
    return np.argsort(member, kind="stable")


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

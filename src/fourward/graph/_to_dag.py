"""From an AnnotatedGraph to an AnnotatedDag, step by step, each counted: what a table of synapses needs on its way."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import CycleError, GraphError, OptionError, Repair, WeightError, pluralize, summarize
from fourward.graph import _choose, _feedback, _validation
from fourward.graph._algorithms import BoolArray
from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph, AnnotatedGraph, FloatArray, Orient
from fourward.graph._base import BaseGraph
from fourward.graph._changes import Changes
from fourward.graph._choose import NodeChoice
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph, Feedback
from fourward.graph.orient import Seed, find_feedback, make_generator, orient_along

Merge = bool | Literal["sum", "mean", "max", "min", "first"]
SelfLoops = Literal["drop"] | None
IntoInputs = Literal["drive", "cut"]
Only = Literal["paths"] | None
RemoveFeedback = bool | Literal["fewest"]

REMOVE_FEEDBACK = Repair("remove_feedback", True, "remove a small set of edges, which breaks all cycles")
_MERGES = ("sum", "mean", "max", "min", "first")


class Options(NamedTuple):
    """How to make a Dag of a graph; see `fourward.files.read_dag`."""

    orient: Orient = None
    seed: Seed = None
    remove_feedback: RemoveFeedback = False
    merge: Merge = False
    self_loops: SelfLoops = None
    min_weight: float | None = None
    inputs: NodeChoice = None
    outputs: NodeChoice = None
    into_inputs: IntoInputs = "drive"
    only: Only = None

    def check(self) -> None:
        """Raise for an option with a value it doesn't have."""
        choices: dict[str, tuple[object, ...]] = {
            "orient": ("random", None),
            "remove_feedback": (True, False, "fewest"),
            "merge": (True, False, *_MERGES),
            "self_loops": ("drop", None),
            "into_inputs": ("drive", "cut"),
            "only": ("paths", None),
        }
        for name, allowed in choices.items():
            value = getattr(self, name)
            if not any(value is choice or (isinstance(value, str) and value == choice) for choice in allowed):
                raise OptionError(f"{name} must be {' or '.join(map(repr, allowed))}, got {value!r}.")
        least = self.min_weight
        if least is not None and not (isinstance(least, int | float) and 0 <= least < math.inf):
            raise OptionError(f"min_weight must be a non-negative number or None, got {least!r}.")


class _Removed(NamedTuple):
    """Removed edges, as pairs of labels, and their weights."""

    pairs: tuple[tuple[Hashable, Hashable], ...] = ()
    weight: FloatArray | None = None

    @property
    def total(self) -> float:
        return 0.0 if self.weight is None else float(np.abs(self.weight).sum())


def make_dag(annotated: AnnotatedGraph, options: Options) -> AnnotatedDag:
    """Orient, drop self-loops, merge, drop weak edges, cut edges into inputs, remove feedback, keep paths, freeze."""
    annotated, changes = _clean(annotated, options)
    original = annotated.graph
    annotated, cut, changes = _treat_edges_into_inputs(annotated, options.into_inputs, changes)
    annotated, feedback = _remove_feedback(annotated, options.remove_feedback)
    changes = replace(changes, feedback=len(feedback.pairs), feedback_weight=feedback.total)
    if options.only == "paths":
        annotated, changes = _keep_paths(annotated, changes)
    made = _freeze(annotated)
    if cut.pairs or feedback.pairs:
        changes = _describe_effects(made.dag, original, annotated.graph.inputs is None, changes)
    changes = replace(changes, driven=len(made.dag.driven))
    return made._replace(
        removed=feedback.pairs, merged=changes.merged, removed_weight=feedback.weight, cut=cut.pairs,
        cut_weight=cut.weight, changes=changes,
    )  # fmt: skip


def _clean(annotated: AnnotatedGraph, options: Options) -> tuple[AnnotatedGraph, Changes]:
    """The steps that a Dag and a Digraph share: to a directed graph with its final weights and chosen ends."""
    options.check()
    _validation.check_endpoints(annotated.graph)
    annotated, changes = _orient(annotated, options), Changes(skipped=annotated.skipped)
    if options.self_loops == "drop":
        annotated, changes = _drop_self_loops(annotated, changes)
    if options.merge:
        annotated, changes = _merge_duplicates(annotated, options.merge, changes)
    if options.min_weight is not None:
        annotated, changes = _drop_weak(annotated, options.min_weight, changes)
    total = None if annotated.weight is None else float(np.abs(annotated.weight).sum())
    return _choose_ends(annotated, options), replace(changes, total_weight=total)


def _orient(annotated: AnnotatedGraph, options: Options) -> AnnotatedGraph:
    graph = annotated.graph
    if options.orient is None:
        if not graph.directed:
            raise GraphError(
                f"expected a directed graph, got an undirected one with {len(graph.labels):,} nodes and "
                f"{len(graph.source):,} edges.",
                Repair("orient", "random", "direct the edges along a random order of the nodes"),
            )
        return annotated
    if graph.directed and annotated.states_direction:
        raise GraphError(
            "orient='random' needs an undirected graph; the directions of this one would be lost. Omit it."
        )
    rank = make_generator(options.seed).permutation(len(graph.labels))
    return annotated._replace(graph=orient_along(graph, rank))


def _drop_self_loops(annotated: AnnotatedGraph, changes: Changes) -> tuple[AnnotatedGraph, Changes]:
    is_loop = annotated.graph.source == annotated.graph.target
    return select_edges(annotated, np.flatnonzero(~is_loop)), replace(changes, self_loops=int(is_loop.sum()))


def _merge_duplicates(annotated: AnnotatedGraph, how: Merge, changes: Changes) -> tuple[AnnotatedGraph, Changes]:
    """One edge for each pair of nodes, the first, with the weights of all of them merged."""
    graph, weight = annotated.graph, annotated.weight
    _, first, inverse = np.unique(_pair_keys(graph), True, True)
    merged = None if weight is None else _merge_weights(weight, first, inverse, "sum" if how is True else str(how))
    order = np.argsort(first)
    selected = select_edges(annotated, first[order])
    selected = selected._replace(weight=None if merged is None else merged[order])
    return selected, replace(changes, merged=len(graph.source) - len(first))


def _merge_weights(weight: FloatArray, first: IntArray, inverse: IntArray, how: str) -> FloatArray:
    if how == "first":
        return weight[first]
    if how in ("max", "min"):
        merged = weight[first].copy()
        (np.maximum if how == "max" else np.minimum).at(merged, inverse, weight)
        return merged
    total = np.bincount(inverse, weight, len(first))
    count = np.bincount(inverse, minlength=len(first)) if how == "mean" else 1
    return np.asarray(total / count)


def _drop_weak(annotated: AnnotatedGraph, least: float, changes: Changes) -> tuple[AnnotatedGraph, Changes]:
    if annotated.weight is None:
        raise WeightError("min_weight needs weights, but this graph has none. Omit it, or name the column of weights.")
    is_weak = np.abs(annotated.weight) < least
    return select_edges(annotated, np.flatnonzero(~is_weak)), replace(changes, weak=int(is_weak.sum()))


def _choose_ends(annotated: AnnotatedGraph, options: Options) -> AnnotatedGraph:
    """The graph with the labels of the chosen inputs and outputs in place of its own."""
    graph = annotated.graph
    inputs, outputs = (
        own if choice is None else _choose.choose_labels(choice, graph.labels, annotated.attributes, role)
        for own, choice, role in ((graph.inputs, options.inputs, "input"), (graph.outputs, options.outputs, "output"))
    )
    return annotated._replace(graph=graph._replace(inputs=inputs, outputs=outputs))


def _treat_edges_into_inputs(
    annotated: AnnotatedGraph, how: IntoInputs, changes: Changes
) -> tuple[AnnotatedGraph, _Removed, Changes]:
    """Cut the edges into chosen inputs, or let them drive the inputs."""
    graph = annotated.graph
    if how == "drive" or graph.inputs is None:
        return annotated, _Removed(), changes
    is_input = np.zeros(len(graph.labels), np.bool_)
    is_input[_validation.look_up_labels(graph.inputs, graph.labels, "input")] = True
    annotated, cut = _remove(annotated, is_input[graph.target])
    return annotated, cut, replace(changes, cut=len(cut.pairs), cut_weight=cut.total)


def _remove_feedback(annotated: AnnotatedGraph, how: RemoveFeedback) -> tuple[AnnotatedGraph, _Removed]:
    if not how:
        return annotated, _Removed()
    if how == "fewest":
        return _remove(annotated, find_feedback(annotated.graph))
    graph = annotated.graph
    return _remove(annotated, _feedback.find_light_feedback(graph, annotated.weight, _feedback.find_inputs(graph)))


def _remove(annotated: AnnotatedGraph, is_removed: BoolArray) -> tuple[AnnotatedGraph, _Removed]:
    edges = np.flatnonzero(is_removed)
    weight = None if annotated.weight is None else annotated.weight[edges]
    removed = _Removed(tuple(label_pairs(annotated.graph, edges)), weight)
    return select_edges(annotated, np.flatnonzero(~is_removed)), removed


def _keep_paths(annotated: AnnotatedGraph, changes: Changes) -> tuple[AnnotatedGraph, Changes]:
    """The nodes on paths from an input to an output, and the edges between them."""
    graph, num_nodes = annotated.graph, len(annotated.graph.labels)
    inputs = _feedback.find_inputs(graph)
    if graph.outputs is not None:
        outputs = _validation.look_up_labels(graph.outputs, graph.labels, "output")
    else:
        outputs = np.flatnonzero(np.bincount(graph.source, minlength=num_nodes) == 0)
    keep = _feedback.find_reached(graph.source, graph.target, num_nodes, inputs)
    keep &= _feedback.find_reached(graph.target, graph.source, num_nodes, outputs)
    if not keep.any():
        raise GraphError("no path leads from an input to an output. Choose other inputs or outputs.")
    index = np.cumsum(keep) - 1
    annotated = select_edges(annotated, np.flatnonzero(keep[graph.source] & keep[graph.target]))
    nodes = np.flatnonzero(keep).tolist()
    labels = [graph.labels[v] for v in nodes]
    on_path = set(labels)
    ends = [
        [x for x in (chosen if chosen is not None else [graph.labels[v] for v in default.tolist()]) if x in on_path]
        for chosen, default in ((graph.inputs, inputs), (graph.outputs, outputs))
    ]
    source, target = index[annotated.graph.source], index[annotated.graph.target]
    return annotated._replace(
        graph=graph._replace(source=source, target=target, labels=labels, inputs=ends[0], outputs=ends[1]),
        bias=None if annotated.bias is None else annotated.bias[keep],
        activation=None if annotated.activation is None else tuple(annotated.activation[v] for v in nodes),
        attributes={name: tuple(values[v] for v in nodes) for name, values in annotated.attributes.items()},
    ), replace(changes, off_path=num_nodes - len(nodes))


def _freeze(annotated: AnnotatedGraph) -> AnnotatedDag:
    dag = _make_dag(annotated)
    weight, bias, activation, constraints = _align(annotated, dag)
    return AnnotatedDag(dag, weight, bias, activation, constraints=constraints)


def _align(annotated: AnnotatedGraph, made: BaseGraph) -> tuple[Any, Any, Any, dict[str, FloatArray]]:
    """Weights, biases, activations and constraints in the order of the graph that was made."""
    graph, weight, bias, activation, *_ = annotated
    pairs = np.stack((graph.source, graph.target), -1)
    if weight is not None:
        weight = made.align(weight, pairs, by="index")
    constraints = {name: made.align(values, pairs, by="index") for name, values in annotated.constraints.items()}
    if bias is not None:
        bias = _neuron_biases(bias, made)
    if activation is not None:
        activation = tuple(activation[v] for v in made.neurons.tolist())
    return weight, bias, activation, constraints


def make_digraph(annotated: AnnotatedGraph, options: Options, feedback: Feedback | None) -> AnnotatedDigraph:
    """Orient, merge, drop weak edges, cut edges into inputs, freeze; feedback and self-loops stay.

    Without a choice of `feedback` it is that of the file, or else "fewest".
    """
    annotated, changes = _clean(annotated, options)
    annotated, cut, changes = _treat_edges_into_inputs(annotated, options.into_inputs, changes)
    if feedback is None:
        own = annotated.feedback
        feedback = "fewest" if own is None else label_pairs(annotated.graph, np.flatnonzero(own))
    try:
        made = Digraph.from_edge_list(annotated.graph, feedback=feedback, weight=annotated.weight)
    except CycleError:
        raise
    except GraphError:
        _check_duplicates(annotated)
        raise
    if annotated.attributes:
        made = made.with_attributes(annotated.attributes)
    weight, bias, activation, constraints = _align(annotated, made)
    changes = replace(changes, driven=len(made.driven))
    return AnnotatedDigraph(made, weight, bias, activation, changes.merged, cut.pairs, changes, constraints)


def _describe_effects(dag: Dag, original: EdgeList, default_inputs: bool, changes: Changes) -> Changes:
    """What the removal of edges did to neurons; `original` is the graph before it."""
    real = original.source != original.target
    node = {label: v for v, label in enumerate(original.labels)}
    old = np.fromiter((node[label] for label in dag.labels), np.int64, dag.num_nodes)
    was_fed = np.bincount(original.target[real], minlength=len(node))[old] > 0
    starved = was_fed & (dag.in_degree == 0)
    new_inputs = dag.inputs[starved[dag.inputs]] if default_inputs else dag.inputs[:0]
    starved[dag.inputs] = False
    reached = _feedback.find_reached(dag.source, dag.target, dag.num_nodes, dag.inputs)
    before = _feedback.find_reached(original.source, original.target, len(node), old[dag.inputs])[old]
    lost = dag.outputs[before[dag.outputs] & ~reached[dag.outputs]]

    def name(nodes: IntArray) -> tuple[Hashable, ...]:
        return tuple(dag.labels[v] for v in nodes.tolist())

    return replace(
        changes, constants=name(np.flatnonzero(starved)), new_inputs=name(new_inputs),
        unreached=name(np.flatnonzero(~reached)), lost_outputs=name(lost),
    )  # fmt: skip


def select_edges(annotated: AnnotatedGraph, edges: IntArray) -> AnnotatedGraph:
    """The graph with these edges alone."""
    graph, locate = annotated.graph, annotated.locate_edge
    return annotated._replace(
        graph=graph._replace(source=graph.source[edges], target=graph.target[edges]),
        weight=None if annotated.weight is None else annotated.weight[edges],
        locate_edge=None if locate is None else lambda k: locate(int(edges[k])),
        constraints={name: values[edges] for name, values in annotated.constraints.items()},
        feedback=None if annotated.feedback is None else annotated.feedback[edges],
    )


def _make_dag(annotated: AnnotatedGraph) -> Dag:
    try:
        dag = Dag.from_edge_list(annotated.graph)
        return dag.with_attributes(annotated.attributes) if annotated.attributes else dag
    except CycleError as error:
        raise CycleError(error.cycle, REMOVE_FEEDBACK) from None
    except GraphError:
        _check_edges(annotated)
        raise


def _check_edges(annotated: AnnotatedGraph) -> None:
    """Raise for self-loops and duplicate edges, with lines in the file and options that help."""
    graph = annotated.graph
    loops = np.flatnonzero(graph.source == graph.target)
    if len(loops):
        raise GraphError(
            f"the graph has {pluralize(len(loops), 'self-loop')}: {_describe_edges(annotated, loops)}. "
            "A neuron can't feed itself in one pass.",
            Repair("self_loops", "drop", "remove self-loops"),
        )
    _check_duplicates(annotated)


def _check_duplicates(annotated: AnnotatedGraph) -> None:
    keys = _pair_keys(annotated.graph)
    order = np.argsort(keys, kind="stable")
    duplicates = np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])
    if len(duplicates):
        raise GraphError(
            f"the graph has {pluralize(len(duplicates), 'duplicate edge')}: {_describe_edges(annotated, duplicates)}. "
            "Each pair of nodes has one edge and one weight.",
            Repair("merge", True, "add up the weights of duplicate edges"),
        )


def _describe_edges(annotated: AnnotatedGraph, edges: IntArray, limit: int = 5) -> str:
    pairs = label_pairs(annotated.graph, edges[:limit])
    texts = [
        f"{u!r} -> {v!r}" + (f" ({annotated.locate_edge(k)})" if annotated.locate_edge is not None else "")
        for (u, v), k in zip(pairs, edges[:limit].tolist(), strict=True)
    ]
    rest = len(edges) - limit
    return ", ".join(texts) + (f" and {rest:,} more" if rest > 0 else "")


def label_pairs(graph: EdgeList, edges: IntArray) -> list[tuple[Hashable, Hashable]]:
    ends = zip(graph.source[edges].tolist(), graph.target[edges].tolist(), strict=True)
    return [(graph.labels[u], graph.labels[v]) for u, v in ends]


def _pair_keys(graph: EdgeList) -> IntArray:
    """(E,) an integer for each edge, equal for duplicates."""
    keys: IntArray = graph.target.astype(np.int64) * len(graph.labels) + graph.source
    return keys


def _neuron_biases(bias: FloatArray, graph: BaseGraph) -> FloatArray:
    """Select the biases of the neurons from the (N,) biases of all nodes."""
    undriven = np.setdiff1d(graph.inputs, graph.driven)
    biased_inputs = undriven[~np.isnan(bias[undriven])]
    if len(biased_inputs):
        labels = summarize(graph.labels[v] for v in biased_inputs)
        raise GraphError(
            f"inputs can't have a bias, because x sets their values, but these have: {labels}. "
            "Remove these biases, or choose other inputs."
        )
    return np.nan_to_num(bias[graph.neurons], nan=0.0)

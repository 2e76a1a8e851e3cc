"""Edits: a Dag or a Digraph with some edges and nodes more or fewer, and where those that stay were before."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fourward._arrays import BoolArray, IntArray, readonly
from fourward.errors import CycleError, GraphError, summarize
from fourward.graph import _validation
from fourward.graph._algorithms import connected_components, sort_edges
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph


class Changed(NamedTuple):
    """What an edit adds and removes. Nodes N, N+1, ... are the added ones, where the graph has N."""

    add: IntArray  #: (A, 2) pairs of nodes
    remove: IntArray  #: (R,) distinct indices of edges
    new_labels: Sequence[Hashable] = ()  #: labels of added nodes
    removed_nodes: IntArray = np.empty(0, np.int32)  #: distinct nodes, whose edges go, too
    feedback: BoolArray | None = None  #: (A,) which pairs carry the value of the step before; None: see `edit_graph`


class Edited(NamedTuple):
    """A graph, and where its edges and nodes were before the edit."""

    graph: Dag | Digraph
    edge: IntArray  #: (E',) the index that each edge had; E + k for the k-th added pair
    node: IntArray  #: (N',) the index that each node had; N + k for the k-th added node


_ADVICE: dict[type, str] = {
    Dag: "Nothing was changed. Add edges that lead forward, or make a fourward.Recurrent of a fourward.Digraph, which "
    "may have cycles.",
    Digraph: "Nothing was changed. These edges are followed within a step: add one of them as feedback.",
}


def edit_graph(graph: Dag | Digraph, change: Changed) -> Edited:
    """The graph after an edit, which is what its edges and nodes give when it is built anew.

    Of a Digraph, added pairs are feedback as `change` says. By default those are feedback that are on a cycle of edges
    within a step; where every edge is feedback, all are.
    """
    node, new_index = _renumber_nodes(graph, change)
    _check_pairs(graph, change, new_index)
    remains = np.ones(graph.num_edges, np.bool_)
    remains[change.remove] = False
    if len(change.removed_nodes):
        remains &= (new_index[graph.source] >= 0) & (new_index[graph.target] >= 0)
    stay, added = np.flatnonzero(remains), change.add.astype(np.int32)
    source, target = (
        np.concatenate((ends[remains], new)) for ends, new in zip((graph.source, graph.target), added.T, strict=True)
    )
    if node is not None:
        source, target = new_index[source], new_index[target]
    edge: IntArray = np.concatenate((stay, graph.num_edges + np.arange(len(change.add))))
    feedback = _select_feedback(graph, change, source, target, stay)
    try:
        edited, edge = _build(graph, source, target, edge, feedback, change, node, new_index)
    except CycleError as error:
        raise CycleError(error.cycle, advice=_ADVICE[type(graph)]) from None
    except GraphError:
        _check_duplicates(graph, change, stay)
        raise
    return Edited(edited, edge, np.arange(graph.num_nodes) if node is None else node)


def _build(
    graph: Dag | Digraph, source: IntArray, target: IntArray, edge: IntArray, feedback: BoolArray | None,
    change: Changed, node: IntArray | None, new_index: IntArray,
) -> tuple[Dag | Digraph, IntArray]:  # fmt: skip
    """The graph of these edges, and its edges' entries of `edge`."""
    labels: Any = graph.labels
    if node is not None:
        labels = [*graph.labels, *change.new_labels]
        labels = tuple(labels[v] for v in node.tolist())
        _validation.check_labels(labels)
    inputs, outputs = new_index[graph.inputs], new_index[graph.outputs]
    within = slice(None) if feedback is None else ~feedback
    dag, index = Dag._sort(source[within], target[within], labels, inputs, outputs)
    _carry_properties(graph.dag, dag, node)
    edges = edge[within][index]
    if feedback is None:
        return dag, edges
    delayed, _, index = sort_edges(source[feedback], target[feedback], dag.position)
    _validation.check_duplicates(delayed[0], delayed[1], labels)
    edited = Digraph(dag, readonly(np.ascontiguousarray(delayed.T)))
    if len(delayed[0]) and len(np.intersect1d(_keys(dag.edges, len(labels)), _keys(edited.feedback, len(labels)))):
        raise GraphError("an edge is followed within a step and as feedback.")  # `_check_duplicates` names it
    return edited, np.concatenate((edges, edge[feedback][index]))


def _renumber_nodes(graph: Dag | Digraph, change: Changed) -> tuple[IntArray | None, IntArray]:
    """(N',) as in `Edited`, None if nodes stay; and (N + new nodes,) their new indices, -1 for removed ones."""
    count = graph.num_nodes + len(change.new_labels)
    if not len(change.removed_nodes) and not len(change.new_labels):
        return None, np.arange(count, dtype=np.int32)
    remains = np.ones(count, np.bool_)
    remains[change.removed_nodes] = False
    for role, nodes in (("an input", graph.inputs), ("an output", graph.outputs)):
        ends = nodes[~remains[nodes]].tolist()
        if ends:
            raise GraphError(
                f"expected hidden neurons to remove, but {summarize(graph.labels[v] for v in ends)} is {role}. The "
                "inputs and outputs of a network stay: make a new network for others."
            )
    new_index = np.where(remains, np.cumsum(remains) - 1, -1).astype(np.int32)
    return np.flatnonzero(remains), new_index


def _check_pairs(graph: Dag | Digraph, change: Changed, new_index: IntArray) -> None:
    """Raise for added edges from or to removed nodes, and into inputs that carry their features."""
    if not len(change.add):
        return
    gone = change.add[(new_index[change.add] < 0).any(1)]
    if len(gone):
        raise GraphError(f"added edges have removed nodes: {_name(graph, change, gone)}. Omit either.")
    carries = np.zeros(len(new_index), np.bool_)
    carries[np.setdiff1d(graph.inputs, graph.driven)] = True
    wrong = change.add[carries[change.add[:, 1]]]
    if len(wrong):
        raise GraphError(
            f"expected added edges into neurons, got {_name(graph, change, wrong)}: these inputs have no incoming "
            "edges, so they carry their features and have no activation. Choose other targets, or make a new "
            "network in which they are driven."
        )
    if isinstance(graph, Dag):
        labels = [*graph.labels, *change.new_labels] if change.new_labels else graph.labels
        _validation.check_self_loops(change.add[:, 0], change.add[:, 1], labels)


def _check_duplicates(graph: Dag | Digraph, change: Changed, stay: IntArray) -> None:
    """Raise for pairs that are added twice, and for those that are edges already."""
    count = graph.num_nodes + len(change.new_labels)
    keys = _keys(change.add, count)
    _, first, repeats = np.unique(keys, return_index=True, return_counts=True)
    twice = change.add[first[repeats > 1]]
    if len(twice):
        raise GraphError(f"duplicate edges to add: {_name(graph, change, twice)}. Pass each pair once.")
    known = change.add[np.isin(keys, _keys(graph.edges[stay], count))]
    if len(known):
        raise GraphError(f"edges to add are there already: {_name(graph, change, known)}. Remove them, or omit them.")


def _keys(pairs: IntArray, num_nodes: int) -> IntArray:
    return pairs[:, 0].astype(np.int64) * num_nodes + pairs[:, 1]


def _name(graph: Dag | Digraph, change: Changed, pairs: IntArray) -> str:
    labels = [*graph.labels, *change.new_labels]
    return summarize(((labels[u], labels[v]) for u, v in pairs.tolist()), 3)


def _select_feedback(
    graph: Dag | Digraph, change: Changed, source: IntArray, target: IntArray, stay: IntArray
) -> BoolArray | None:
    """(E',) which of a Digraph's edges are feedback, those that stay before the added ones; None for a Dag."""
    if isinstance(graph, Dag):
        return None
    feedback = np.zeros(len(source), np.bool_)
    feedback[: len(stay)] = stay >= graph.dag.num_edges
    added = slice(len(stay), None)
    if change.feedback is not None:
        feedback[added] = change.feedback
    elif graph.num_feedback == graph.num_edges:
        feedback[added] = True
    elif len(change.add):
        feedback[added] = source[added] == target[added]
        within = ~feedback
        count = graph.num_nodes + len(change.new_labels) - len(change.removed_nodes)
        component = connected_components(source[within], target[within], count, strong=True)
        feedback[added] |= component[source[added]] == component[target[added]]
    return feedback


def _carry_properties(before: Dag, after: Dag, node: IntArray | None) -> None:
    """Give a Dag the attributes of the one before, and the look-up of its labels if these are the same."""
    known, properties = vars(before), vars(after)
    if node is None:
        properties.update({name: known[name] for name in ("attributes", "_find_node") if name in known})
    elif before.attributes:
        new = (None,) * (int(node.max()) + 1)
        columns = {name: (*values, *new[len(values) :]) for name, values in before.attributes.items()}
        listed = {name: tuple(column[v] for v in node.tolist()) for name, column in columns.items()}
        properties["attributes"] = MappingProxyType(listed)

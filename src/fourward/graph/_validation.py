"""The checks that every Dag passes, with their error messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import GraphError, pluralize, summarize
from fourward.graph._convert import EdgeList, Labels, as_labels, as_numpy, is_integer, label_list
from fourward.graph._tables import check_float_labels


def index_pairs(pairs: Any) -> IntArray:
    """(E, 2) node indices, checked for shape and dtype."""
    array: IntArray = _as_array(pairs)
    if array.size == 0 and array.shape in ((0,), (0, 2)):
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise GraphError(f"expected an (E, 2) array of integers, got {array.dtype} of shape {array.shape}.")
    return array


def index_vector(nodes: Any, num_nodes: int, name: str) -> IntArray:
    """(K,) node indices, checked completely; `name` is the argument's, for errors."""
    array: IntArray = _as_array(nodes)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise GraphError(f"{name} must be a vector of node indices, got {array.dtype} of shape {array.shape}.")
    check_indices(array, num_nodes, name)
    return array


def check_indices(array: IntArray, num_nodes: int, name: str) -> None:
    """Raise unless every entry is the index of a node."""
    if array.size and (array.min() < 0 or array.max() >= num_nodes):
        index = int(array.min() if array.min() < 0 else array.max())
        raise GraphError(f"{name} must be node indices from 0 to {num_nodes - 1:,}, got {index:,}.")


def _as_array(values: Any) -> Any:
    try:
        return np.asarray(as_numpy(values))
    except ValueError:  # rows of different lengths
        raise GraphError(f"expected an array of integers, got a ragged {type(values).__name__}.") from None


def check_directed(graph: EdgeList) -> None:
    """Raise for an undirected graph."""
    if not graph.directed:
        raise GraphError(
            "expected a directed graph, got an undirected one. "
            "fourward.orient.random_order(graph, seed=0) directs the edges along a random order of the nodes, "
            "fourward.orient.by_order(graph, order) along an order of your choice."
        )


def check_endpoints(graph: EdgeList) -> None:
    """Raise unless each edge has the index of a node as source and as target; compiled code doesn't check it."""
    for name, nodes in (("source", graph.source), ("target", graph.target)):
        index_vector(nodes, len(graph.labels), name)
    if len(graph.source) != len(graph.target):
        counts = f"{len(graph.source):,} sources and {len(graph.target):,} targets"
        raise GraphError(f"expected a source and a target for each edge, got {counts}.")


def check_size(num_nodes: int) -> None:
    """Raise for an empty graph, and for one with more nodes than 32-bit indices."""
    if num_nodes == 0:
        raise GraphError("the graph is empty: a network needs at least one node. Pass edges, or nodes=.")
    if num_nodes > np.iinfo(np.int32).max:
        raise GraphError(f"node indices are 32-bit: expected at most 2,147,483,647 nodes, got {num_nodes:,}.")


def check_labels(labels: Labels) -> None:
    """Raise if two nodes have the same label, or if a label is text that no file can hold."""
    if isinstance(labels, range):
        return
    if any(issubclass(kind, float | np.floating) for kind in set(map(type, labels))):
        check_float_labels(labels)
    if any(issubclass(kind, str | tuple) for kind in set(map(type, labels))):
        for label in labels:
            check_text(label, "labels")
    if len(set(labels)) != len(labels):
        raise GraphError(f"duplicate labels: {_repeated(labels)}. Labels must be unique.")


def check_text(value: Any, name: str) -> None:
    """Raise if text, or text in a tuple, has a lone surrogate: UTF-8 can't encode it, so files can't hold it."""
    if isinstance(value, tuple):
        for item in value:
            check_text(item, name)
    elif isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise GraphError(f"{name} must be valid Unicode text, got {value!a}, which has a lone surrogate.") from None


def compare_kinds(unknown: Iterable[Hashable], labels: Labels) -> str:
    """A sentence for errors about unknown labels if the labels of the graph are of another kind than these, else ""."""
    kinds = [_describe_kind(unknown), _describe_kind(labels)]
    return "" if kinds[0] == kinds[1] or None in kinds else f" These are {kinds[1]}, not {kinds[0]}."


def _describe_kind(labels: Iterable[Hashable]) -> str | None:
    """What all labels are, "integers" or "text"; None if they are something else."""
    if isinstance(labels, range) or all(map(is_integer, labels := list(labels))):
        return "integers"
    return "text" if all(isinstance(label, str) for label in labels) else None


def make_label_lookup(labels: Labels) -> Callable[[Hashable], int | None]:
    """A function from label to node index, or to None; labels 0 to N-1 need no dictionary of N entries."""
    if isinstance(labels, range):
        return lambda label: labels.index(label) if is_integer(label) and label in labels else None  # type: ignore[arg-type]
    return {label: node for node, label in enumerate(labels)}.get


def _repeated(items: Iterable[Hashable]) -> str:
    return summarize(item for item, count in Counter(items).items() if count > 1)


def check_self_loops(source: IntArray, target: IntArray, labels: Labels) -> None:
    """Raise if an edge leads from a node to itself."""
    loops = source[source == target]
    if len(loops):
        named = summarize(labels[v] for v in np.unique(loops).tolist())
        raise GraphError(
            f"the graph has {pluralize(len(loops), 'self-loop')}, at: {named}. "
            "A neuron can't feed itself in one pass: remove these edges, or call "
            "fourward.orient.remove_feedback(graph), which does."
        )


def check_duplicates(source: IntArray, target: IntArray, labels: Labels) -> None:
    """Raise if two consecutive edges, which are sorted, are equal."""
    repeated = np.flatnonzero((source[1:] == source[:-1]) & (target[1:] == target[:-1]))
    if len(repeated):
        named = summarize((labels[source[k]], labels[target[k]]) for k in repeated.tolist())
        raise GraphError(f"duplicate edges: {named}. Each edge has one weight: pass each pair once.")


def look_up_labels(chosen: Iterable[Hashable], labels: Labels, role: str) -> IntArray:
    """(K,) node indices of the labels chosen as inputs or outputs, as `role` says."""
    listed = label_list(chosen, f"{role}s")
    nodes = [*map(make_label_lookup(labels), listed)]
    unknown = [label for label, node in zip(listed, nodes, strict=True) if node is None]
    if unknown:
        raise GraphError(
            f"unknown {role} labels: {summarize(unknown)}. Choose from the graph's nodes, e.g. "
            f"{', '.join(map(repr, labels[:3]))}.{compare_kinds(unknown, labels)}"
        )
    return np.array(nodes, np.int64)


def check_ends(nodes: IntArray, labels: Labels, role: str) -> None:
    """Raise unless inputs or outputs, as `role` says, are distinct and at least one."""
    if not len(nodes):
        raise GraphError(f"a network needs at least one {role}, got {role}s=[]. Omit {role}s= for the default.")
    if len(np.unique(nodes)) != len(nodes):
        raise GraphError(f"duplicate {role}s: {_repeated(labels[v] for v in nodes.tolist())}. List each node once.")


def check_arrays(
    edges: Any, labels: Any, inputs: Any, outputs: Any
) -> tuple[IntArray, Labels, tuple[IntArray | None, IntArray | None]]:
    """(E, 2) edges, the label of each node, and the inputs and outputs as far as they are chosen, all checked."""
    array = index_pairs(edges)
    names = as_labels(int(array.max(initial=-1)) + 1 if labels is None else labels, "labels")
    check_indices(array, len(names), "edges")
    chosen = (
        None if inputs is None else index_vector(inputs, len(names), "inputs"),
        None if outputs is None else index_vector(outputs, len(names), "outputs"),
    )
    check_labels(names)
    return array, names, chosen


def check_edge_list(graph: EdgeList, inputs: Any, outputs: Any) -> tuple[IntArray | None, IntArray | None]:
    """Check an EdgeList completely; its inputs and outputs as node indices, or None for the default."""
    check_directed(graph)
    check_endpoints(graph)
    return look_up_ends(graph, inputs, outputs)


def look_up_ends(graph: EdgeList, inputs: Any, outputs: Any) -> tuple[IntArray | None, IntArray | None]:
    """Check the labels of a graph; the inputs and outputs as node indices, or None for the default."""
    check_labels(graph.labels)
    inputs = graph.inputs if inputs is None else inputs
    outputs = graph.outputs if outputs is None else outputs
    return (
        None if inputs is None else look_up_labels(inputs, graph.labels, "input"),
        None if outputs is None else look_up_labels(outputs, graph.labels, "output"),
    )

"""Members: many graphs as concatenated arrays, without an object or a label for each."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import GraphError, summarize
from fourward.graph import _validation
from fourward.graph._attributes import NO_ATTRIBUTES
from fourward.graph._convert import Labels
from fourward.graph._dag import Dag

Names = Sequence[Hashable] | None


@dataclass(frozen=True, eq=False)
class Members:
    """P graphs, one after another. Node indices count from 0 within each graph.

    Edges may be in any order within a graph. A plan checks whether graphs are acyclic, and indices in range.
    """

    edges: IntArray  #: (E, 2) node indices, source then target
    edge_start: IntArray  #: (P+1,) the edges of graph p are edge_start[p]:edge_start[p+1]
    num_nodes: IntArray  #: (P,)
    inputs: IntArray  #: (P, I) the node that takes each feature, -1 where a graph lacks that input; (1, I) for all
    outputs: IntArray  #: (P, O) node of each output; (1, O) for all
    graphs: tuple[Dag | Labels | None, ...]  #: what was passed: a Dag, labels, or nothing for the labels 0 to N-1

    def __len__(self) -> int:
        return len(self.num_nodes)

    @property
    def num_neurons(self) -> IntArray:
        """(P,) nodes that are no inputs; of invalid graphs, too, which may have fewer nodes than inputs."""
        count: IntArray = np.maximum(self.num_nodes - np.count_nonzero(self.inputs >= 0, axis=1), 0)
        return count

    def ends(self, p: int) -> tuple[IntArray, IntArray]:
        """The inputs and the outputs of graph p, in the order of features and of outputs."""
        inputs, outputs = (nodes[p if len(nodes) > 1 else 0] for nodes in (self.inputs, self.outputs))
        return inputs[inputs >= 0], outputs

    def dag(self, p: int, labels: Sequence[Hashable] | None = None) -> Dag:
        """Graph p as a Dag, which checks it.

        Args:
            p: Its index.
            labels: Label of each node; default: those that were passed, or 0 to N-1.
        """
        inputs, outputs = self.ends(p)
        graph, attributes = self.graphs[p], NO_ATTRIBUTES
        if isinstance(graph, Dag):
            if np.array_equal(graph.inputs, inputs) and np.array_equal(graph.outputs, outputs):
                return graph
            labels, attributes = graph.labels, graph.attributes
        elif labels is None:
            labels = graph
        names = int(self.num_nodes[p]) if labels is None else labels
        if labels is not None and len(labels) != self.num_nodes[p]:
            raise GraphError(f"member {p}: expected {self.num_nodes[p]:,} labels, got {len(labels):,}.")
        edges = self.edges[self.edge_start[p] : self.edge_start[p + 1]]
        made = Dag.from_arrays(edges, labels=names, inputs=inputs, outputs=outputs)
        return made.with_attributes(attributes) if attributes else made

    def in_order(self, edge: IntArray) -> Members:
        """The same graphs with their edges in another order."""
        edges = self.edges[edge].astype(np.int32)
        return Members(edges, self.edge_start, self.num_nodes, self.inputs, self.outputs, self.graphs)

    def replaced(self, where: Sequence[int], new: Members) -> Members:
        """These graphs with others in place of some: graph where[j] becomes graph j of `new`."""
        counts, num_nodes, graphs = np.diff(self.edge_start), self.num_nodes.copy(), list(self.graphs)
        counts[where], num_nodes[where] = np.diff(new.edge_start), new.num_nodes
        for p, graph in zip(where, new.graphs, strict=True):
            graphs[p] = graph
        inputs, outputs = (np.array(np.broadcast_to(e, (len(self), e.shape[1]))) for e in (self.inputs, self.outputs))
        inputs[where], outputs[where] = new.inputs, new.outputs
        edges = splice(self.edges, self.edge_start, where, new.edges, new.edge_start)
        return Members(edges, starts(counts), num_nodes, inputs, outputs, tuple(graphs))


def starts(counts: Any) -> IntArray:
    """(P+1,) where each of P parts starts, and the end of the last."""
    start = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=start[1:])
    return start


def splice(values: Any, start: IntArray, where: Sequence[int], new: Any, new_start: IntArray) -> Any:
    """Values of P members, one after another, with those of member where[j] replaced by those of member j of `new`."""
    pieces, begin = [], 0
    for j in sorted(range(len(where)), key=where.__getitem__):
        pieces += [values[begin : start[where[j]]], new[new_start[j] : new_start[j + 1]]]
        begin = int(start[where[j] + 1])
    return np.concatenate([*pieces, values[begin:]])


def from_dags(dags: Sequence[Dag], inputs: Names = None, outputs: Names = None) -> Members:
    """Concatenate the arrays of graphs.

    Args:
        dags: The graphs.
        inputs: A label for each feature, if graphs have some of these inputs; default: each has as many.
        outputs: A label for each output; default: each graph has as many outputs.
    """
    for p, dag in enumerate(dags):
        if len(dag.driven):
            raise GraphError(
                f"member {p}: expected inputs without incoming edges, got the driven input "
                f"{dag.labels[dag.driven[0]]!r}. Remove these edges with Dag.from_edges(..., driven=False)."
            )
    edges = np.concatenate([dag.edges for dag in dags])
    return Members(
        edges,
        starts([len(dag.edges) for dag in dags]),
        np.array([len(dag.labels) for dag in dags]),
        _ends(dags, "input", [dag.inputs for dag in dags]) if inputs is None else _find_inputs(dags, inputs),
        _ends(dags, "output", [dag.outputs for dag in dags]) if outputs is None else _find_outputs(dags, outputs),
        tuple(dags),
    )


def _ends(dags: Sequence[Dag], role: str, nodes: list[IntArray]) -> IntArray:
    """(P, I) or (P, O), of graphs with as many inputs or outputs."""
    for p, own in enumerate(nodes):
        if len(own) != len(nodes[0]):
            raise GraphError(
                f"expected as many {role}s in each member, got {len(nodes[0])} in member 0 and {len(own)} in member "
                f"{p}. Choose them by label: pass {role}s=[...]."
            )
    return np.array(nodes, np.int64)


def _find_inputs(dags: Sequence[Dag], names: Sequence[Hashable]) -> IntArray:
    column = {label: i for i, label in enumerate(_distinct(names, "input"))}
    nodes = np.full((len(dags), len(column)), -1)
    for p, dag in enumerate(dags):
        labels = [dag.labels[v] for v in dag.inputs.tolist()]
        unknown = [label for label in labels if label not in column]
        if unknown:
            raise GraphError(f"member {p} has inputs that inputs= lacks: {summarize(unknown)}. List them, too.")
        nodes[p, [column[label] for label in labels]] = dag.inputs
    return nodes


def _find_outputs(dags: Sequence[Dag], names: Sequence[Hashable]) -> IntArray:
    names, nodes = _distinct(names, "output"), np.empty((len(dags), len(names)), np.int64)
    for p, dag in enumerate(dags):
        try:
            nodes[p] = [dag.index(label) for label in names]
        except GraphError as error:
            error.prepend(f"member {p} lacks an output of outputs=")
            raise
    return nodes


def _distinct(names: Sequence[Hashable], role: str) -> list[Hashable]:
    listed = list(names)
    _validation.check_ends(np.arange(len(listed)), listed, role)
    if len(set(listed)) != len(listed):
        raise GraphError(f"expected distinct labels in {role}s=, got {summarize(listed)}.")
    return listed


def from_arrays(
    edges: Any, edge_start: Any, num_nodes: Any, inputs: Any, outputs: Any,
    labels: Sequence[Labels] | None = None, partial: bool = False,
) -> Members:  # fmt: skip
    """Check the shapes of concatenated arrays.

    Args:
        edges: (E, 2) node indices within their graph.
        edge_start: (P+1,) where the edges of each graph start.
        num_nodes: (P,) or one number for all graphs.
        inputs: A number: the first nodes; (I,) nodes of all graphs; or (P, I).
        outputs: A number: the nodes behind the inputs; (O,); or (P, O).
        labels: The labels of each graph's nodes; default: 0 to N-1.
        partial: Whether graphs may lack inputs, -1.
    """
    pairs = _validation.index_pairs(edges)
    start = np.asarray(edge_start)
    if start.ndim != 1 or len(start) < 2 or start.dtype.kind not in "iu":
        raise GraphError(
            f"edge_start must be (P+1,) integers for P >= 1 members, got {start.dtype} of shape {start.shape}."
        )
    start = start.astype(np.int64)
    if start[0] != 0 or start[-1] != len(pairs) or (np.diff(start) < 0).any():
        raise GraphError(
            f"edge_start must ascend from 0 to the {len(pairs):,} edges, got {start[0]:,} to {start[-1]:,}"
            f"{'' if (np.diff(start) >= 0).all() else ', descending in between'}."
        )
    members, nodes = len(start) - 1, np.asarray(num_nodes)
    if nodes.dtype.kind not in "iu" or nodes.shape not in ((), (members,)):
        raise GraphError(
            f"num_nodes must be an integer, or one for each of {members:,} members, got {nodes.dtype} of shape "
            f"{nodes.shape}."
        )
    nodes = np.array(np.broadcast_to(nodes, members), np.int64)
    if nodes.min() < 1 or nodes.max() >= 2**31:
        raise GraphError(f"num_nodes must be at least 1 and below 2**31, got {nodes.min():,} to {nodes.max():,}.")
    first = _index_rows(inputs, members, 0, "inputs", -1 if partial else 0)
    last = _index_rows(outputs, members, first.shape[1], "outputs")
    graphs = (None,) * members if labels is None else _check_labels(labels, nodes)
    return Members(np.ascontiguousarray(pairs), start, nodes, first, last, graphs)


def _check_labels(labels: Sequence[Labels], num_nodes: IntArray) -> tuple[Labels, ...]:
    sizes = [len(own) for own in labels]
    if sizes != num_nodes.tolist():
        p = next((p for p, (a, b) in enumerate(zip(sizes, num_nodes.tolist(), strict=False)) if a != b), None)
        problem = f"those of {len(sizes):,} members" if p is None else f"{sizes[p]:,} for member {p}"
        raise GraphError(
            f"expected labels for each of {len(num_nodes):,} members, one for each of their nodes, got {problem}."
        )
    return tuple(labels)


def _index_rows(nodes: Any, members: int, begin: int, name: str, least: int = 0) -> IntArray:
    """(P, K) or (1, K) node indices; a number K means K nodes from `begin` on."""
    array = np.asarray(nodes)
    if array.dtype.kind in "iu" and array.ndim == 0:
        array = np.arange(begin, begin + max(int(array), 0))
    if array.ndim == 1:
        array = array[None]
    if array.dtype.kind not in "iu" or array.ndim != 2 or array.shape[0] not in (1, members) or not array.shape[1]:
        raise GraphError(
            f"{name} must be a number of nodes, at least 1, or node indices (K,) or ({members}, K), got {array.dtype} "
            f"of shape {np.shape(nodes)}."
        )
    if array.min() < least:
        raise GraphError(f"{name} must be node indices from 0 on, got {int(array.min())}.")
    return np.ascontiguousarray(array, np.int64)

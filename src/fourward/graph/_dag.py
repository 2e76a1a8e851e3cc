"""Dag: a directed acyclic graph of neurons, frozen, checked once, with ordered inputs and outputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._arrays import IntArray, readonly
from fourward.errors import CycleError, GraphError
from fourward.graph import _convert, _validation
from fourward.graph._algorithms import find_cycle, longest_paths, sort_edges
from fourward.graph._attributes import node_attributes
from fourward.graph._base import BaseGraph, cut_inputs
from fourward.graph._convert import EdgeList, Labels, Nodes

if TYPE_CHECKING:
    import networkx as nx
    import rustworkx as rx

LabelChoice = Iterable[Hashable] | None


@dataclass(frozen=True, eq=False, repr=False)
class Dag(BaseGraph):
    """A directed acyclic graph of single neurons.

    Make one with `from_edges`, `from_arrays`, `from_networkx`, `from_rustworkx`, `from_scipy` or `from_mask`, or
    with `fourward.generate`. Nodes are numbered 0 to N-1 in the order of `labels`; all arrays are read-only. To index a
    torch tensor with one, copy it, as in `activations[:, torch.tensor(dag.outputs)]`: torch warns about read-only ones.

    >>> dag = Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
    >>> dag
    Dag(4 nodes, 3 edges, 2 inputs, 1 output)
    >>> [dag.labels[node] for node in dag.inputs]
    ['a', 'b']
    """

    edges: IntArray  #: (E, 2) node indices, source then target, sorted by `position` of the target, then of the source
    labels: Labels  #: label of each node
    inputs: IntArray  #: (I,) nodes that take the features of x, in feature order; with incoming edges they are `driven`
    outputs: IntArray  #: (O,) nodes whose activations the network returns, in order; any node may be one
    #: (N,) the nodes in execution order, a topological one: inputs without incoming edges, then the other sources, then
    #: the rest by descending `longest_path_to_sink`; ties by node index
    order: IntArray
    in_start: IntArray  #: (N+1,) the edges into node order[q] are edges[in_start[q]:in_start[q+1]]
    longest_path_to_sink: IntArray  #: (N,) number of edges on the longest path from each node to a sink

    def __new__(cls, *arrays: Any, **named: Any) -> Dag:
        """Refuse Dag(graph), and name the constructors."""
        if len(arrays) + len(named) != 7:
            raise GraphError(
                "Dag(...) doesn't take a graph: use Dag.from_edges(pairs), Dag.from_networkx(graph) or the like."
            )
        return super().__new__(cls)

    @classmethod
    def from_edges(
        cls,
        edges: Any,
        *,
        nodes: Nodes = None,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
    ) -> Dag:
        """From pairs of hashable labels, or from an (E, 2) integer array.

        Args:
            edges: Pairs (source, target).
            nodes: A count N, for the nodes 0 to N-1, or all labels in node order. Default: integers in ascending
                order, other labels in order of first appearance.
            inputs: Labels of the input nodes, in feature order. Default: all sources.
            outputs: Labels of the output nodes, in order. Default: all sinks.
            driven: Whether an input may have incoming edges: it is then driven, a neuron to whose sum x adds a
                feature. False removes the edges into inputs, and logs how many.

        >>> Dag.from_edges([("a", "b"), ("b", "c")], inputs=["a", "b"])
        Dag(3 nodes, 2 edges, 2 inputs (1 driven), 1 output)
        >>> Dag.from_edges([("a", "b"), ("b", "c")], inputs=["a", "b"], driven=False)
        Dag(3 nodes, 1 edge, 2 inputs, 2 outputs)
        """
        return cls._from_checked(_convert.from_pairs(edges, nodes), inputs, outputs, driven)

    @classmethod
    def from_networkx(
        cls, graph: nx.DiGraph, *, inputs: LabelChoice = None, outputs: LabelChoice = None, driven: bool = True
    ) -> Dag:
        """From a directed networkx graph, in its node order.

        Inputs and outputs default to those of a graph made by `to_networkx`. Attributes of nodes whose values are text,
        numbers or bools become `attributes`.
        """
        dag = cls.from_edge_list(_convert.from_networkx(graph), inputs=inputs, outputs=outputs, driven=driven)
        attributes = node_attributes(graph)
        return dag.with_attributes(attributes) if attributes else dag

    @classmethod
    def from_rustworkx(
        cls, graph: rx.PyDiGraph, *, inputs: LabelChoice = None, outputs: LabelChoice = None, driven: bool = True
    ) -> Dag:
        """From a PyDiGraph; labels are its node payloads if hashable and distinct, else its node indices."""
        return cls.from_edge_list(_convert.from_rustworkx(graph), inputs=inputs, outputs=outputs, driven=driven)

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
    ) -> Dag:
        """From a square scipy.sparse matrix: an entry stored at [u, v], even a zero, is the edge u -> v."""
        graph = _convert.from_scipy(matrix, labels)
        return cls.from_edge_list(graph, inputs=inputs, outputs=outputs, driven=driven)

    @classmethod
    def from_mask(
        cls,
        mask: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
    ) -> Dag:
        """From a square boolean array: True at [u, v] is the edge u -> v."""
        graph = _convert.from_mask(mask, labels)
        return cls.from_edge_list(graph, inputs=inputs, outputs=outputs, driven=driven)

    @classmethod
    def from_arrays(
        cls,
        edges: Any,
        *,
        labels: int | Iterable[Hashable] | None = None,
        inputs: Any = None,
        outputs: Any = None,
        driven: bool = True,
    ) -> Dag:
        """From node indices alone: nothing is looked up by label.

        Args:
            edges: (E, 2) integers, source then target, each the index of a node.
            labels: Label of each node, in node order, or a count N for the labels 0 to N-1. Default: 0 to the largest
                index in `edges`.
            inputs: (I,) indices of the input nodes, in feature order. Default: all sources.
            outputs: (O,) indices of the output nodes, in order. Default: all sinks.
            driven: As in `from_edges`.

        >>> Dag.from_arrays([[0, 2], [1, 2]], labels=["a", "b", "c"], outputs=[2])
        Dag(3 nodes, 2 edges, 2 inputs, 1 output)
        """
        array, names, ends = _validation.check_arrays(edges, labels, inputs, outputs)
        return cls._freeze(array[:, 0], array[:, 1], names, *ends, driven=driven)

    @classmethod
    def from_edge_list(
        cls, graph: EdgeList, *, inputs: LabelChoice = None, outputs: LabelChoice = None, driven: bool = True
    ) -> Dag:
        """From an `EdgeList`, as `fourward.files.read` returns one; its own inputs and outputs are the default."""
        _validation.check_directed(graph)
        _validation.check_endpoints(graph)
        return cls._from_checked(graph, inputs, outputs, driven)

    @classmethod
    def _from_checked(cls, graph: EdgeList, inputs: LabelChoice, outputs: LabelChoice, driven: bool) -> Dag:
        """From a directed graph whose edges are known to join its nodes."""
        ends = _validation.look_up_ends(graph, inputs, outputs)
        return cls._freeze(graph.source, graph.target, graph.labels, *ends, driven=driven)

    @classmethod
    def _freeze(
        cls,
        source: IntArray,
        target: IntArray,
        labels: Labels,
        inputs: IntArray | None,
        outputs: IntArray | None,
        driven: bool,
    ) -> Dag:
        """Check, sort and freeze node indices that are known to be in range; every constructor ends here."""
        num_nodes = len(labels)
        _validation.check_size(num_nodes)
        for role, nodes in (("input", inputs), ("output", outputs)):
            if nodes is not None:
                _validation.check_ends(nodes, labels, role)
        if inputs is not None and not driven:
            rest = cut_inputs(target, inputs, num_nodes)
            source, target = source[rest], target[rest]
        return cls._sort(source, target, labels, inputs, outputs)[0]

    @classmethod
    def _sort(
        cls, source: IntArray, target: IntArray, labels: Labels, inputs: IntArray | None, outputs: IntArray | None
    ) -> tuple[Dag, IntArray]:
        """Sort and freeze edges between nodes that are known to exist; (E,) the index that each edge had before."""
        source, target = np.ascontiguousarray(source, np.int32), np.ascontiguousarray(target, np.int32)
        _validation.check_self_loops(source, target, labels)
        length, in_degree = longest_paths(source, target, len(labels))
        if length.min() < 0:
            raise CycleError([labels[v] for v in find_cycle(source, target, length < 0)])
        inputs = np.flatnonzero(in_degree == 0) if inputs is None else inputs
        outputs = np.flatnonzero(length == 0) if outputs is None else outputs
        order = _execution_order(length, in_degree, inputs)
        position = _inverse(order)
        edges, start, index = sort_edges(source, target, position)
        _validation.check_duplicates(edges[0], edges[1], labels)
        arrays = (inputs.astype(np.int32), outputs.astype(np.int32), order, start, length)
        dag = cls(readonly(edges.T), labels, *map(readonly, arrays))
        # Cached properties whose values are known already.
        vars(dag).update(position=readonly(position), in_degree=readonly(in_degree.astype(np.int32)))
        return dag, index

    @property
    def dag(self) -> Dag:
        """The graph itself: all of its edges are followed within one pass."""
        return self

    @cached_property
    def in_degree(self) -> IntArray:
        """(N,) number of edges into each node."""
        return readonly(np.diff(self.in_start)[self.position].astype(np.int32))

    @cached_property
    def position(self) -> IntArray:
        """(N,) index of each node in `order`."""
        return readonly(_inverse(self.order))

    @cached_property
    def longest_path_from_source(self) -> IntArray:
        """(N,) number of edges on the longest path from a source to each node."""
        return readonly(longest_paths(self.target, self.source, self.num_nodes)[0])

    def _sort_keys(self, source: IntArray, target: IntArray) -> IntArray:
        """An integer for each pair of nodes, ascending in the order of `edges`."""
        return self.position[target].astype(np.int64) * self.num_nodes + self.position[source]

    def _sorted_edges(self) -> tuple[IntArray, None]:
        return self._sort_keys(self.source, self.target), None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dag):
            return NotImplemented
        return self is other or (
            self.num_nodes == other.num_nodes
            and all(a == b for a, b in zip(self.labels, other.labels, strict=True))
            and np.array_equal(self.edges, other.edges)
            and np.array_equal(self.inputs, other.inputs)
            and np.array_equal(self.outputs, other.outputs)
        )

    def __hash__(self) -> int:
        return self._digest

    @cached_property
    def _digest(self) -> int:
        digest = blake2b(digest_size=8)
        for array in (self.source, self.target, self.inputs, self.outputs):
            digest.update(np.ascontiguousarray(array).data)
        return hash((self.num_nodes, digest.digest()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Dag:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = (self.edges, self.inputs, self.outputs, self.order, self.in_start, self.longest_path_to_sink)
        return _restore, (self.labels, *arrays), {"attributes": dict(self.attributes)} if self.attributes else None


def _restore(labels: Labels, *arrays: IntArray) -> Dag:
    edges, *rest = map(readonly, arrays)
    return Dag(edges, labels, *rest)


def _execution_order(length: IntArray, in_degree: IntArray, inputs: IntArray) -> IntArray:
    """(N,) inputs in feature order, other sources, then the rest by descending longest path to a sink.

    Driven inputs are among the rest.
    """
    inputs = inputs[in_degree[inputs] == 0]
    key = -length  # int32, over -N
    key[in_degree == 0] = -len(key)
    key[inputs] = -len(key) - 1
    order = np.argsort(key, kind="stable").astype(np.int32)
    order[: len(inputs)] = inputs
    return order


def _inverse(order: IntArray) -> IntArray:
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position

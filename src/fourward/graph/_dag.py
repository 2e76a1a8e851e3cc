"""Dag: a directed acyclic graph of neurons, frozen, checked once, with ordered inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fourward._arrays import IntArray, readonly
from fourward.errors import CycleError, GraphError, OptionError, WeightError, pluralize, summarize
from fourward.graph import _convert, _validation
from fourward.graph._algorithms import find_cycle, longest_paths, sort_edges
from fourward.graph._attributes import NO_ATTRIBUTES, Attributes, as_attributes, node_attributes
from fourward.graph._convert import EdgeList, Labels, Nodes

if TYPE_CHECKING:
    import networkx as nx
    import rustworkx as rx
    import scipy.sparse as sp

LabelChoice = Iterable[Hashable] | None
PairKind = Literal["label", "index"]


@dataclass(frozen=True, eq=False, repr=False)
class Dag:
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
    inputs: IntArray  #: (I,) nodes that take the features of x, in feature order; none has incoming edges
    outputs: IntArray  #: (O,) nodes whose activations the network returns, in order; any node may be one
    #: (N,) the nodes in execution order, a topological one: inputs, then the other sources, then the rest by descending
    #: `longest_path_to_sink`; ties by node index
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
        cls, edges: Any, *, nodes: Nodes = None, inputs: LabelChoice = None, outputs: LabelChoice = None
    ) -> Dag:
        """From pairs of hashable labels, or from an (E, 2) integer array.

        Args:
            edges: Pairs (source, target).
            nodes: A count N, for the nodes 0 to N-1, or all labels in node order. Default: integers in ascending
                order, other labels in order of first appearance.
            inputs: Labels of the input nodes, in feature order. Default: all sources.
            outputs: Labels of the output nodes, in order. Default: all sinks.
        """
        return cls._from_checked(_convert.from_pairs(edges, nodes), inputs, outputs)

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph, *, inputs: LabelChoice = None, outputs: LabelChoice = None) -> Dag:
        """From a directed networkx graph, in its node order.

        Inputs and outputs default to those of a graph made by `to_networkx`. Attributes of nodes whose values are text,
        numbers or bools become `attributes`.
        """
        dag = cls.from_edge_list(_convert.from_networkx(graph), inputs=inputs, outputs=outputs)
        attributes = node_attributes(graph)
        return dag.with_attributes(attributes) if attributes else dag

    @classmethod
    def from_rustworkx(cls, graph: rx.PyDiGraph, *, inputs: LabelChoice = None, outputs: LabelChoice = None) -> Dag:
        """From a PyDiGraph; labels are its node payloads if hashable and distinct, else its node indices."""
        return cls.from_edge_list(_convert.from_rustworkx(graph), inputs=inputs, outputs=outputs)

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
    ) -> Dag:
        """From a square scipy.sparse matrix: an entry stored at [u, v], even a zero, is the edge u -> v."""
        return cls.from_edge_list(_convert.from_scipy(matrix, labels), inputs=inputs, outputs=outputs)

    @classmethod
    def from_mask(
        cls,
        mask: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
    ) -> Dag:
        """From a square boolean array: True at [u, v] is the edge u -> v."""
        return cls.from_edge_list(_convert.from_mask(mask, labels), inputs=inputs, outputs=outputs)

    @classmethod
    def from_arrays(
        cls,
        edges: Any,
        *,
        labels: int | Iterable[Hashable] | None = None,
        inputs: Any = None,
        outputs: Any = None,
    ) -> Dag:
        """From node indices alone: nothing is looked up by label.

        Args:
            edges: (E, 2) integers, source then target, each the index of a node.
            labels: Label of each node, in node order, or a count N for the labels 0 to N-1. Default: 0 to the largest
                index in `edges`.
            inputs: (I,) indices of the input nodes, in feature order. Default: all sources.
            outputs: (O,) indices of the output nodes, in order. Default: all sinks.

        >>> Dag.from_arrays([[0, 2], [1, 2]], labels=["a", "b", "c"], outputs=[2])
        Dag(3 nodes, 2 edges, 2 inputs, 1 output)
        """
        array = _validation.index_pairs(edges)
        if labels is None:
            labels = int(array.max(initial=-1)) + 1
        names = _convert.as_labels(labels, "labels")
        _validation.check_indices(array, len(names), "edges")
        ends = [
            None if nodes is None else _validation.index_vector(nodes, len(names), name)
            for name, nodes in (("inputs", inputs), ("outputs", outputs))
        ]
        _validation.check_labels(names)
        return cls._freeze(array[:, 0], array[:, 1], names, *ends)

    @classmethod
    def from_edge_list(cls, graph: EdgeList, *, inputs: LabelChoice = None, outputs: LabelChoice = None) -> Dag:
        """From an `EdgeList`, as `fourward.files.read` returns one; its own inputs and outputs are the default."""
        _validation.check_directed(graph)
        _validation.check_endpoints(graph)
        return cls._from_checked(graph, inputs, outputs)

    @classmethod
    def _from_checked(cls, graph: EdgeList, inputs: LabelChoice, outputs: LabelChoice) -> Dag:
        """From a directed graph whose edges are known to join its nodes."""
        _validation.check_labels(graph.labels)
        ends = [
            None if labels is None else _validation.look_up_labels(labels, graph.labels, role)
            for role, labels in (
                ("input", graph.inputs if inputs is None else inputs),
                ("output", graph.outputs if outputs is None else outputs),
            )
        ]
        return cls._freeze(graph.source, graph.target, graph.labels, *ends)

    @classmethod
    def _freeze(
        cls,
        source: IntArray,
        target: IntArray,
        labels: Labels,
        inputs: IntArray | None,
        outputs: IntArray | None,
    ) -> Dag:
        """Check, sort and freeze node indices that are known to be in range; every constructor ends here."""
        num_nodes = len(labels)
        _validation.check_size(num_nodes)
        source, target = np.ascontiguousarray(source, np.int32), np.ascontiguousarray(target, np.int32)
        _validation.check_self_loops(source, target, labels)
        length, in_degree = longest_paths(source, target, num_nodes)
        if length.min() < 0:
            raise CycleError([labels[v] for v in find_cycle(source, target, length < 0)])
        for role, nodes in (("input", inputs), ("output", outputs)):
            if nodes is not None:
                _validation.check_ends(nodes, labels, role)
        if inputs is not None:
            _validation.check_inputs(inputs, in_degree, labels)
        inputs = np.flatnonzero(in_degree == 0) if inputs is None else inputs
        outputs = np.flatnonzero(length == 0) if outputs is None else outputs
        order = _execution_order(length, in_degree, inputs)
        position = _inverse(order)
        edges, start = sort_edges(source, target, position)
        _validation.check_duplicates(edges[0], edges[1], labels)
        arrays = (inputs.astype(np.int32), outputs.astype(np.int32), order, start, length)
        dag = cls(readonly(edges.T), labels, *map(readonly, arrays))
        # Cached properties whose values are known already.
        vars(dag).update(position=readonly(position), in_degree=readonly(in_degree.astype(np.int32)))
        return dag

    @property
    def num_nodes(self) -> int:
        """N, the number of nodes."""
        return len(self.labels)

    @property
    def num_edges(self) -> int:
        """E, the number of edges, and of weights."""
        return len(self.edges)

    @property
    def num_inputs(self) -> int:
        """I, the number of features of x."""
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        """O, the number of values that a network returns for each sample."""
        return len(self.outputs)

    @property
    def source(self) -> IntArray:
        """(E,) the node where each edge starts."""
        return self.edges[:, 0]

    @property
    def target(self) -> IntArray:
        """(E,) the node where each edge ends."""
        return self.edges[:, 1]

    @cached_property
    def in_degree(self) -> IntArray:
        """(N,) number of edges into each node."""
        return readonly(np.diff(self.in_start)[self.position].astype(np.int32))

    @cached_property
    def position(self) -> IntArray:
        """(N,) index of each node in `order`."""
        return readonly(_inverse(self.order))

    @cached_property
    def out_degree(self) -> IntArray:
        """(N,) number of edges out of each node."""
        return readonly(np.bincount(self.source, minlength=self.num_nodes).astype(np.int32))

    @cached_property
    def neurons(self) -> IntArray:
        """(N-I,) the nodes that aren't inputs, ascending; a network's biases are in this order."""
        is_input = np.zeros(self.num_nodes, np.bool_)
        is_input[self.inputs] = True
        return readonly(np.flatnonzero(~is_input).astype(np.int32))

    @cached_property
    def longest_path_from_source(self) -> IntArray:
        """(N,) number of edges on the longest path from a source to each node."""
        return readonly(longest_paths(self.target, self.source, self.num_nodes)[0])

    @cached_property
    def attributes(self) -> Attributes:
        """Values of nodes by name, such as "class" or "transmitter": (N,) in node order, None for a missing value.

        They describe nodes and don't count when graphs are compared.
        """
        return NO_ATTRIBUTES

    def with_attributes(self, attributes: Mapping[str, Any]) -> Dag:
        """This graph with these attributes of its nodes, besides those it has.

        Args:
            attributes: A mapping from name to values: one for each node, or a mapping from label to value. Values are
                text, numbers or bools, and None for a node without one.

        >>> dag = Dag.from_edges([("a", "c"), ("b", "c")]).with_attributes({"class": {"a": "sensory", "c": "motor"}})
        >>> dag.attributes["class"]
        ('sensory', 'motor', None)
        """
        copied = Dag(*(getattr(self, field.name) for field in fields(self)))
        vars(copied)["attributes"] = MappingProxyType({**self.attributes, **as_attributes(attributes, self.labels)})
        return copied

    def index(self, label: Hashable) -> int:
        """Index of the node with this label."""
        node = self._find_node(label) if isinstance(label, Hashable) else None
        if node is None:
            raise GraphError(
                f"unknown label {label!r}. Labels of this graph are, for example, {summarize(self.labels)}."
            )
        return node

    @cached_property
    def _find_node(self) -> Callable[[Hashable], int | None]:
        return _validation.make_label_lookup(self.labels)

    def find_edges(self, pairs: Any, *, by: PairKind = "label") -> IntArray:
        """Index in `edges`, and so in a network's weights, of each of these edges.

        Args:
            pairs: Pairs (source, target).
            by: What the pairs hold: each node's "label", or its "index".
        """
        source, target = self._endpoints(pairs, by)
        keys, sorted_keys = self._sort_keys(source, target), self._sort_keys(self.source, self.target)
        index = np.searchsorted(sorted_keys, keys)
        known = sorted_keys[index.clip(max=max(self.num_edges - 1, 0))] == keys if self.num_edges else keys < 0
        if not known.all():
            ends = zip(source[~known].tolist(), target[~known].tolist(), strict=True)
            unknown = summarize((self.labels[u], self.labels[v]) for u, v in ends)
            raise GraphError(f"unknown edges: {unknown}. Choose pairs (source, target) among the graph's edges.")
        return index

    def align(self, values: Any, pairs: Any, *, by: PairKind = "label") -> Any:
        """Bring one value for each edge into the order of `edges`, the order of a network's weights.

        Args:
            values: (E, ...) array or tensor; values[k] belongs to pairs[k].
            pairs: Pairs (source, target), each edge of the graph once, in any order.
            by: What the pairs hold: each node's "label", or its "index".

        >>> dag = Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
        >>> dag.align(np.array([0.3, 0.1, 0.2]), [("c", "d"), ("a", "c"), ("b", "c")])
        array([0.1, 0.2, 0.3])
        """
        values = values if hasattr(values, "shape") else np.asarray(values)
        source, target = self._endpoints(pairs, by)
        if len(values) != len(source):
            raise WeightError(f"expected one value for each of {len(source):,} pairs, got {len(values):,}.")
        keys = self._sort_keys(source, target)
        order = np.argsort(keys)  # if keys repeat, the next line raises
        if not np.array_equal(keys[order], self._sort_keys(self.source, self.target)):
            index = self.find_edges(pairs, by=by)  # raises if the graph lacks one
            raise GraphError(
                f"expected each of the graph's {self.num_edges:,} edges once, got {len(index):,} pairs with "
                f"{pluralize(len(np.unique(index)), 'distinct edge')}."
            )
        return values[order]

    def _endpoints(self, pairs: Any, by: PairKind) -> tuple[IntArray, IntArray]:
        """Node indices of the sources and of the targets."""
        if by == "label":
            graph = _convert.from_pairs(pairs, self.labels)
            return graph.source, graph.target
        if by != "index":
            raise OptionError(f"by must be 'label' or 'index', got {by!r}.")
        array = _validation.index_pairs(pairs)
        _validation.check_indices(array, self.num_nodes, "pairs")
        return array[:, 0], array[:, 1]

    def _sort_keys(self, source: IntArray, target: IntArray) -> IntArray:
        """An integer for each pair of nodes, ascending in the order of `edges`."""
        return self.position[target].astype(np.int64) * self.num_nodes + self.position[source]

    def to_networkx(self) -> nx.DiGraph:
        """A networkx DiGraph with these labels and attributes; inputs and outputs are stored as node attributes."""
        graph = _convert.to_networkx(self.source, self.target, self.labels, self.inputs, self.outputs)
        for name, values in self.attributes.items():
            for label, value in zip(self.labels, values, strict=True):
                if value is not None:
                    graph.nodes[label][name] = value
        return graph

    def to_rustworkx(self) -> rx.PyDiGraph:
        """A rustworkx PyDiGraph whose node payloads are the labels."""
        return _convert.to_rustworkx(self.source, self.target, self.labels)

    def to_scipy(self, values: Any = None) -> sp.csc_array:
        """A sparse (N, N) matrix with `values` (default: True) at [source, target] of each edge."""
        import scipy.sparse as sp  # imported here: takes 0.2 s, and few need it

        data = np.ones(self.num_edges, np.bool_) if values is None else np.asarray(values)
        if data.shape != (self.num_edges,):
            raise GraphError(f"expected one value for each of {self.num_edges:,} edges, got shape {data.shape}.")
        shape = (self.num_nodes, self.num_nodes)
        return sp.coo_array((data, (self.source.copy(), self.target.copy())), shape=shape).tocsc()

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

    def __repr__(self) -> str:
        counts = ((self.num_nodes, "node"), (self.num_edges, "edge"))
        ends = ((self.num_inputs, "input"), (self.num_outputs, "output"))
        return "Dag(" + ", ".join(pluralize(count, noun) for count, noun in counts + ends) + ")"


def _restore(labels: Labels, *arrays: IntArray) -> Dag:
    edges, *rest = map(readonly, arrays)
    return Dag(edges, labels, *rest)


def _execution_order(length: IntArray, in_degree: IntArray, inputs: IntArray) -> IntArray:
    """(N,) inputs in feature order, other sources, then the rest by descending longest path to a sink."""
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

"""What Dag and Digraph share: labelled nodes, numbered edges, ordered inputs and outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from fourward._arrays import BoolArray, IntArray, readonly
from fourward.errors import GraphError, OptionError, WeightError, pluralize, summarize
from fourward.graph import _convert, _validation
from fourward.graph._attributes import NO_ATTRIBUTES, Attributes, as_attributes
from fourward.graph._convert import Labels

if TYPE_CHECKING:
    import networkx as nx
    import rustworkx as rx
    import scipy.sparse as sp

    from fourward.graph._dag import Dag

PairKind = Literal["label", "index"]


class BaseGraph:
    """A frozen graph of single neurons; its subclasses say what its arrays hold."""

    labels: Labels
    inputs: IntArray
    outputs: IntArray

    if TYPE_CHECKING:

        @property
        def edges(self) -> IntArray:
            """(E, 2) node indices, source then target."""

        @property
        def dag(self) -> Dag:
            """The edges that are followed within a pass, or within a step of it."""

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
        return readonly(np.bincount(self.target, minlength=self.num_nodes).astype(np.int32))

    @cached_property
    def out_degree(self) -> IntArray:
        """(N,) number of edges out of each node."""
        return readonly(np.bincount(self.source, minlength=self.num_nodes).astype(np.int32))

    @cached_property
    def driven(self) -> IntArray:
        """(D,) the inputs with incoming edges, in feature order: neurons to whose sums x adds their features."""
        return readonly(self.inputs[self.in_degree[self.inputs] > 0])

    @cached_property
    def neurons(self) -> IntArray:
        """The nodes with a bias and an activation, ascending: all but the inputs without incoming edges.

        A network's biases are in this order.
        """
        is_neuron = np.ones(self.num_nodes, np.bool_)
        is_neuron[self.inputs] = False
        is_neuron[self.driven] = True
        return readonly(np.flatnonzero(is_neuron).astype(np.int32))

    @cached_property
    def attributes(self) -> Attributes:
        """Values of nodes by name, such as "class" or "transmitter": (N,) in node order, None for a missing value.

        They describe nodes and don't count when graphs are compared.
        """
        return NO_ATTRIBUTES

    def with_attributes(self, attributes: Mapping[str, Any]) -> Self:
        """This graph with these attributes of its nodes, besides those it has.

        Args:
            attributes: A mapping from name to values: one for each node, or a mapping from label to value. Values are
                text, numbers or bools, and None for a node without one.

        >>> from fourward import Dag
        >>> dag = Dag.from_edges([("a", "c"), ("b", "c")]).with_attributes({"class": {"a": "sensory", "c": "motor"}})
        >>> dag.attributes["class"]
        ('sensory', 'motor', None)
        """
        copied = type(self)(*(getattr(self, field.name) for field in fields(self)))  # type: ignore[arg-type]
        vars(copied)["attributes"] = MappingProxyType({**self.attributes, **as_attributes(attributes, self.labels)})
        return copied

    def index(self, label: Hashable) -> int:
        """Index of the node with this label."""
        node = self._find_node(label) if isinstance(label, Hashable) else None
        if node is None:
            raise GraphError(
                f"unknown label {label!r}. Labels of this graph are, for example, {summarize(self.labels)}."
                f"{_validation.compare_kinds([label], self.labels)}"
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
        keys, (sorted_keys, edge) = self._sort_keys(source, target), self._sorted_edges()
        index = np.searchsorted(sorted_keys, keys)
        known = sorted_keys[index.clip(max=max(self.num_edges - 1, 0))] == keys if self.num_edges else keys < 0
        if not known.all():
            ends = zip(source[~known].tolist(), target[~known].tolist(), strict=True)
            unknown = summarize((self.labels[u], self.labels[v]) for u, v in ends)
            raise GraphError(f"unknown edges: {unknown}. Choose pairs (source, target) among the graph's edges.")
        return index if edge is None else edge[index]

    def align(self, values: Any, pairs: Any, *, by: PairKind = "label") -> Any:
        """Bring one value for each edge into the order of `edges`, the order of a network's weights.

        Args:
            values: (E, ...) array or tensor; values[k] belongs to pairs[k].
            pairs: Pairs (source, target), each edge of the graph once, in any order.
            by: What the pairs hold: each node's "label", or its "index".

        >>> from fourward import Dag
        >>> dag = Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
        >>> dag.align(np.array([0.3, 0.1, 0.2]), [("c", "d"), ("a", "c"), ("b", "c")])
        array([0.1, 0.2, 0.3])
        """
        values = values if hasattr(values, "shape") else np.asarray(values)
        source, target = self._endpoints(pairs, by)
        if len(values) != len(source):
            raise WeightError(f"expected one value for each of {len(source):,} pairs, got {len(values):,}.")
        keys, (sorted_keys, edge) = self._sort_keys(source, target), self._sorted_edges()
        order = np.argsort(keys)  # if keys repeat, the next line raises
        if not np.array_equal(keys[order], sorted_keys):
            index = self.find_edges(pairs, by=by)  # raises if the graph lacks one
            raise GraphError(
                f"expected each of the graph's {self.num_edges:,} edges once, got {len(index):,} pairs with "
                f"{pluralize(len(np.unique(index)), 'distinct edge')}."
            )
        return values[order if edge is None else order[np.argsort(edge)]]

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
        """A different integer for each pair of nodes."""
        return target.astype(np.int64) * self.num_nodes + source

    def _sorted_edges(self) -> tuple[IntArray, IntArray | None]:
        """(E,) the keys of the edges, ascending, and (E,) the edge of each; None if they are 0 to E-1."""
        keys = self._sort_keys(self.source, self.target)
        edge = np.argsort(keys)
        return keys[edge], edge

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

    def __repr__(self) -> str:
        inputs = pluralize(self.num_inputs, "input") + (f" ({len(self.driven):,} driven)" if len(self.driven) else "")
        counts = (pluralize(self.num_nodes, "node"), self._describe_edges(), inputs)
        return f"{type(self).__name__}({', '.join((*counts, pluralize(self.num_outputs, 'output')))})"

    def _describe_edges(self) -> str:
        return pluralize(self.num_edges, "edge")


def cut_inputs(target: IntArray, inputs: IntArray, num_nodes: int) -> BoolArray:
    """(E,) False for the edges that lead into an input."""
    is_input = np.zeros(num_nodes, np.bool_)
    is_input[inputs] = True
    rest: BoolArray = ~is_input[target]
    cut = len(rest) - int(np.count_nonzero(rest))
    logging.getLogger("fourward").info("removed %s into inputs", pluralize(cut, "edge"))
    return rest

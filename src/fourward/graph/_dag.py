"""Dag: a directed acyclic graph of neurons, frozen, checked once, with ordered inputs and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from fourward._arrays import IntArray, readonly
from fourward.errors import CycleError, GraphError, pluralize, summarize
from fourward.graph import _convert
from fourward.graph._convert import EdgeList, Labels, Nodes
from fourward.graph._toposort import find_cycle, peel_sinks, sort_edges

if TYPE_CHECKING:
    import rustworkx as rx
    import scipy.sparse as sp

Chosen = Iterable[Hashable] | None


@dataclass(frozen=True, eq=False, repr=False)
class Dag:
    """A directed acyclic graph of single neurons.

    Make one with `from_edges`, `from_networkx`, `from_rustworkx`, `from_scipy` or `from_mask`, or with
    `fourward.generate`. Nodes are numbered 0 to N-1 in the order of `labels`; all arrays are read-only.

    >>> dag = Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
    >>> dag
    Dag(4 nodes, 3 edges, 2 inputs, 1 output)
    >>> [dag.labels[node] for node in dag.inputs]
    ['a', 'b']
    """

    edges: (
        IntArray  #: (E, 2) node indices, source then target, for walking: by place in `order`, of target, then source
    )
    labels: Labels  #: label of each node
    inputs: IntArray  #: (I,) nodes that take the features of x, in feature order; none has incoming edges
    outputs: IntArray  #: (O,) nodes whose activations the network returns, in order; any node may be one
    order: IntArray  #: (N,) the nodes in a topological order: inputs, then the rest by longest-path layer and index
    in_start: IntArray  #: (N+1,) the edges into node order[q] are edges[in_start[q]:in_start[q+1]]

    def __new__(cls, *arrays: Any, **named: Any) -> Dag:
        """Say how a Dag is made to those who give a graph."""
        if len(arrays) + len(named) != 6:
            raise GraphError("a Dag isn't made by Dag(...): take Dag.from_edges(pairs), or Dag.from_networkx(graph).")
        return super().__new__(cls)

    @classmethod
    def from_edges(cls, edges: Any, *, nodes: Nodes = None, inputs: Chosen = None, outputs: Chosen = None) -> Dag:
        """From pairs of hashable labels, or from an (E, 2) integer array.

        Args:
            edges: Pairs (source, target).
            nodes: A count N, for the nodes 0 to N-1, or all labels in the order they are to have. Without
                it, integers stand in ascending order and other labels in order of first appearance.
            inputs: Labels of the input nodes, in feature order. Default: all sources.
            outputs: Labels of the output nodes, in order. Default: all sinks.
        """
        return cls._build(_convert.from_pairs(edges, nodes), inputs, outputs)

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph, *, inputs: Chosen = None, outputs: Chosen = None) -> Dag:
        """From a directed networkx graph, its nodes in their own order.

        A graph that `to_networkx` made brings its inputs and outputs along.
        """
        return cls._build(_convert.from_networkx(graph), inputs, outputs)

    @classmethod
    def from_rustworkx(cls, graph: rx.PyDiGraph, *, inputs: Chosen = None, outputs: Chosen = None) -> Dag:
        """From a PyDiGraph; labels are its node payloads if hashable and distinct, else its node indices."""
        return cls._build(_convert.from_rustworkx(graph), inputs, outputs)

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: Chosen = None,
        outputs: Chosen = None,
    ) -> Dag:
        """From a square scipy.sparse matrix: an entry stored at [u, v] is the edge u -> v, zero or not."""
        return cls._build(_convert.from_scipy(matrix, labels), inputs, outputs)

    @classmethod
    def from_mask(
        cls,
        mask: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: Chosen = None,
        outputs: Chosen = None,
    ) -> Dag:
        """From a square boolean array: True at [u, v] is the edge u -> v."""
        return cls._build(_convert.from_mask(mask, labels), inputs, outputs)

    @classmethod
    def _build(cls, raw: EdgeList, inputs: Chosen, outputs: Chosen) -> Dag:
        """Sort, check, and freeze; the one place where a Dag comes to be."""
        num_nodes = len(raw.labels)
        _check_size(num_nodes, raw)
        node_of = _lookup(raw.labels)
        _check_self_loops(raw)
        source, target = np.ascontiguousarray(raw.source), np.ascontiguousarray(raw.target)
        distance, in_degree = peel_sinks(source, target, num_nodes)
        if distance.min() < 0:
            raise CycleError([raw.labels[v] for v in find_cycle(source, target, distance < 0)])
        inputs = raw.inputs if inputs is None else inputs
        outputs = raw.outputs if outputs is None else outputs
        input_nodes = np.flatnonzero(in_degree == 0) if inputs is None else _chosen(inputs, node_of, "input")
        output_nodes = np.flatnonzero(distance == 0) if outputs is None else _chosen(outputs, node_of, "output")
        _check_inputs(input_nodes, in_degree, raw.labels)
        order = _walking_order(distance, in_degree, input_nodes)
        edges, start = sort_edges(source, target, _inverse(order))
        _check_duplicates(edges[0], edges[1], raw.labels)
        arrays = (edges.T, input_nodes.astype(np.int32), output_nodes.astype(np.int32), order, start)
        return cls(readonly(arrays[0]), raw.labels, *map(readonly, arrays[1:]))

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
        """I, the number of features that x has."""
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        """O, the number of values a network returns for a sample."""
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
        return readonly(np.diff(self.in_start)[self.position])

    @cached_property
    def position(self) -> IntArray:
        """(N,) the place of each node in `order`."""
        return readonly(_inverse(self.order))

    @cached_property
    def out_degree(self) -> IntArray:
        """(N,) number of edges out of each node."""
        return readonly(np.bincount(self.source, minlength=self.num_nodes))

    @cached_property
    def neurons(self) -> IntArray:
        """(N-I,) the nodes that aren't inputs, ascending: those that have a bias, in the order of the bias."""
        is_input = np.zeros(self.num_nodes, np.bool_)
        is_input[self.inputs] = True
        return readonly(np.flatnonzero(~is_input))

    def index(self, label: Hashable) -> int:
        """The node that has this label."""
        node = self._node_of(label) if isinstance(label, Hashable) else None
        if node is None:
            raise GraphError(f"no node has the label {label!r}. Labels are, for example, {summarize(self.labels)}.")
        return node

    @cached_property
    def _node_of(self) -> Callable[[Hashable], int | None]:
        return _lookup(self.labels)

    def find_edges(self, pairs: Any) -> IntArray:
        """Where the edges with these pairs of labels stand in `edges`, and so in a network's weights."""
        raw = _convert.from_pairs(pairs, self.labels)
        wanted, keys = (
            self.position[target].astype(np.int64) * self.num_nodes + self.position[source]
            for source, target in ((raw.source, raw.target), (self.source, self.target))
        )
        place = np.searchsorted(keys, wanted)
        found = keys[place.clip(max=max(self.num_edges - 1, 0))] == wanted if self.num_edges else wanted < 0
        if not found.all():
            k = int(np.flatnonzero(~found)[0])
            pair = (self.labels[int(raw.source[k])], self.labels[int(raw.target[k])])
            raise GraphError(f"the graph lacks {np.count_nonzero(~found):,} of these edges; the first is {pair!r}.")
        return place

    def to_networkx(self) -> nx.DiGraph:
        """A networkx DiGraph with these labels; inputs and outputs travel as node attributes."""
        return _convert.to_networkx(self.source, self.target, self.labels, self.inputs, self.outputs)

    def to_rustworkx(self) -> rx.PyDiGraph:
        """A rustworkx PyDiGraph whose node payloads are the labels."""
        return _convert.to_rustworkx(self.source, self.target, self.labels)

    def to_scipy(self, values: Any = None) -> sp.csc_array:
        """A sparse (N, N) matrix with `values` (default: True) at [source, target] of each edge."""
        import scipy.sparse as sp  # inside: a network runs without it

        data = np.ones(self.num_edges, np.bool_) if values is None else np.asarray(values)
        if data.shape != (self.num_edges,):
            raise GraphError(f"to_scipy needs one value for each of {self.num_edges:,} edges, got shape {data.shape}.")
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
        return self  # nothing in it can change

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = (self.edges, self.inputs, self.outputs, self.order, self.in_start)
        return _restore, (self.labels, *arrays)

    def __repr__(self) -> str:
        counts = ((self.num_nodes, "node"), (self.num_edges, "edge"))
        ends = ((self.num_inputs, "input"), (self.num_outputs, "output"))
        return "Dag(" + ", ".join(pluralize(n, word) for n, word in counts + ends) + ")"


def _restore(labels: Labels, *arrays: IntArray) -> Dag:
    edges, *rest = map(readonly, arrays)
    return Dag(edges, labels, *rest)


def _walking_order(distance: IntArray, in_degree: IntArray, inputs: IntArray) -> IntArray:
    """Inputs as they come, then all others by layer and index; layers count from the sinks, sources stand first."""
    layer = distance.max() - distance
    layer[in_degree == 0] = 0
    layer[inputs] = -1
    order = np.argsort(layer, kind="stable").astype(np.int32)
    order[: len(inputs)] = inputs
    return order


def _inverse(order: IntArray) -> IntArray:
    position = np.empty(len(order), np.int32)
    position[order] = np.arange(len(order), dtype=np.int32)
    return position


def _check_size(num_nodes: int, raw: EdgeList) -> None:
    if not raw.directed:
        raise GraphError(
            "this graph is undirected, and a network needs a direction for each edge. "
            "fourward.orient.random_order(graph, seed=0) directs the edges along a random order of the nodes, "
            "fourward.orient.by_order(graph, order) along one of your own."
        )
    if num_nodes == 0:
        raise GraphError("the graph is empty: a network needs at least one node. Give edges, or nodes=.")
    if num_nodes > np.iinfo(np.int32).max:
        raise GraphError(f"{num_nodes:,} nodes came, but node numbers are 32 bit: at most 2,147,483,647.")


def _lookup(labels: Labels) -> Callable[[Hashable], int | None]:
    """From label to node; labels that are 0 to N-1 need no dictionary of N entries."""
    if isinstance(labels, range):
        return lambda label: int(label) if _convert.is_integer(label) and label in labels else None  # type: ignore[call-overload]
    index = {label: node for node, label in enumerate(labels)}
    if len(index) != len(labels):
        twice = [label for label, count in Counter(labels).items() if count > 1]
        raise GraphError(f"labels must be distinct, but these come more than once: {summarize(twice)}.")
    return index.get


def _check_self_loops(raw: EdgeList) -> None:
    loops = raw.source[raw.source == raw.target]
    if len(loops):
        named = summarize(raw.labels[v] for v in np.unique(loops).tolist())
        raise GraphError(
            f"the graph has {pluralize(len(loops), 'edge')} from a node to itself, at: {named}. "
            "A neuron can't feed itself in one pass: remove these edges, or call "
            "fourward.orient.remove_feedback(graph), which does."
        )


def _check_duplicates(source: IntArray, target: IntArray, labels: Labels) -> None:
    twice = np.flatnonzero((source[1:] == source[:-1]) & (target[1:] == target[:-1]))
    if len(twice):
        named = summarize((labels[source[k]], labels[target[k]]) for k in twice[:6].tolist())
        raise GraphError(
            f"edges come more than once, {len(twice):,} in all: {named}. Each has one weight: give each pair once."
        )


def _chosen(wanted: Iterable[Hashable], node_of: Callable[[Hashable], int | None], role: str) -> IntArray:
    named = _convert.label_list(wanted, f"{role}s")
    nodes = [node_of(label) for label in named]
    unknown = [label for label, node in zip(named, nodes, strict=True) if node is None]
    if unknown:
        raise GraphError(
            f"these {role}s are no nodes of the graph: {summarize(unknown)}. Choose {role}s by label "
            "from the graph's nodes."
        )
    twice = [label for label, count in Counter(named).items() if count > 1]
    if twice:
        raise GraphError(f"{role}s must be distinct, but these come more than once: {summarize(twice)}.")
    if not nodes:
        raise GraphError(f"a network needs at least one {role}, but {role}s= is empty. Leave it away for the default.")
    return np.array(nodes, np.int64)


def _check_inputs(nodes: IntArray, in_degree: IntArray, labels: Labels) -> None:
    fed = nodes[in_degree[nodes] > 0]
    if len(fed):
        named = summarize(labels[v] for v in fed.tolist())
        raise GraphError(
            f"inputs can't have incoming edges, because x sets their values, but {len(fed):,} of these have: {named}. "
            "Remove the edges that lead to them, or choose other inputs."
        )

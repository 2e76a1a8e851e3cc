"""AnnotatedGraph: a graph with weights, biases and activations; AnnotatedDag: the same once it is a Dag."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fourward._arrays import BoolArray
from fourward.errors import FileError, Repair, WeightError, summarize
from fourward.graph import _convert
from fourward.graph._attributes import NO_ATTRIBUTES, Attributes, node_attributes
from fourward.graph._changes import Changes
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph, Feedback

if TYPE_CHECKING:
    import networkx as nx

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
Orient = Literal["random"] | None
#: Constraints of a network, by the names of FourWard's options, and what an edge without a value has.
CONSTRAINTS = {"sign": 0, "frozen": 0, "tied": -1, "scale": 1}
_PREFIX = "fourward_"  # before the names of constraints, as attributes of edges
CONSTRAINT_ATTRIBUTES = tuple(_PREFIX + name for name in CONSTRAINTS)
TOPOLOGY_ONLY = Repair("topology_only", True, "read the graph without weights, biases and activations")


class AnnotatedGraph(NamedTuple):
    """A graph as a file has it, with the values of its edges and nodes."""

    graph: EdgeList
    weight: FloatArray | None = None  #: (E,)
    bias: FloatArray | None = None  #: (N,) NaN for a node without one
    activation: tuple[str | None, ...] | None = None  #: (N,) None for a node without one
    states_direction: bool = True  #: False for formats that can't tell directed from undirected graphs
    locate_edge: Callable[[int], str] | None = None  #: tells where edge k is in the file, such as "line 7"
    attributes: Attributes = NO_ATTRIBUTES  #: (N,) values of the nodes, by name
    constraints: Mapping[str, FloatArray] = MappingProxyType({})  #: (E,) numbers, by the names in `CONSTRAINTS`
    skipped: int = 0  #: number of rows that lacked a value and were omitted
    feedback: BoolArray | None = None  #: (E,) True for the feedback edges of a Digraph that was stored; a Dag has none

    def to_dag(self, **options: Any) -> AnnotatedDag:
        """Make it a Dag; options as in `fourward.files.read_dag`."""
        from fourward.graph._to_dag import Options, make_dag  # imported here: it needs this class

        return make_dag(self, Options(**options))

    def __repr__(self) -> str:
        values = [name for name in ("weight", "bias", "activation") if getattr(self, name) is not None]
        return f"AnnotatedGraph({', '.join([repr(self.graph), *values, *map(repr, self.attributes)])})"

    def to_digraph(self, *, feedback: Feedback | None = None, **options: Any) -> AnnotatedDigraph:
        """Make it a Digraph; options as in `fourward.files.read_digraph`."""
        from fourward.graph._to_dag import Options, make_digraph  # imported here: it needs this class

        return make_digraph(self, Options(**options), feedback)


class AnnotatedDag(NamedTuple):
    """A Dag with the values of its edges and neurons, and how it differs from the graph it was made of."""

    dag: Dag
    weight: FloatArray | None = None  #: (E,) in the order of dag.edges
    bias: FloatArray | None = None  #: one for each neuron, in the order of dag.neurons; 0 for one without
    activation: tuple[str | None, ...] | None = None  #: one for each neuron, in the same order
    removed: tuple[tuple[Hashable, Hashable], ...] = ()  #: feedback edges that were removed, by labels
    merged: int = 0  #: number of duplicate edges that were merged into another
    constraints: Mapping[str, FloatArray] = MappingProxyType({})  #: (E,) numbers, by the names in `CONSTRAINTS`
    removed_weight: FloatArray | None = None  #: the weight of each edge in `removed`
    cut: tuple[tuple[Hashable, Hashable], ...] = ()  #: edges into inputs that were removed, by labels
    cut_weight: FloatArray | None = None  #: the weight of each edge in `cut`
    changes: Changes = Changes()  #: numbers of all changes to the graph, and what they did to neurons

    def __repr__(self) -> str:
        values = [name for name in ("weight", "bias", "activation") if getattr(self, name) is not None]
        head = f"AnnotatedDag({', '.join([repr(self.dag), *values, *map(repr, self.dag.attributes)])})"
        return "\n  ".join([head, *self.describe_changes()])

    def describe_changes(self) -> list[str]:
        """A line for each change, with some of the removed edges."""
        return self.changes.lines(cut=self.cut, feedback=self.removed)


class AnnotatedDigraph(NamedTuple):
    """A Digraph with the values of its edges and neurons."""

    graph: Digraph
    weight: FloatArray | None = None  #: (E,) in the order of graph.edges
    bias: FloatArray | None = None  #: one for each neuron, in the order of graph.neurons; 0 for one without
    activation: tuple[str | None, ...] | None = None  #: one for each neuron, in the same order
    merged: int = 0  #: number of duplicate edges that were merged into another
    cut: tuple[tuple[Hashable, Hashable], ...] = ()  #: edges into inputs that were removed, by labels
    changes: Changes = Changes()  #: numbers of all changes to the graph
    constraints: Mapping[str, FloatArray] = MappingProxyType({})  #: (E,) numbers, by the names in `CONSTRAINTS`

    def __repr__(self) -> str:
        values = [name for name in ("weight", "bias", "activation") if getattr(self, name) is not None]
        head = f"AnnotatedDigraph({', '.join([repr(self.graph), *values, *map(repr, self.graph.attributes)])})"
        return "\n  ".join([head, *self.describe_changes()])

    def describe_changes(self) -> list[str]:
        """A line for each change, with some of the removed edges."""
        return self.changes.lines(cut=self.cut)


def annotate(graph: Dag | Digraph, *values: Any, constraints: Mapping[str, Any]) -> AnnotatedDag | AnnotatedDigraph:
    """A graph with its weights, biases and activations, and with its constraints."""
    kind: Any = AnnotatedDigraph if isinstance(graph, Digraph) else AnnotatedDag
    annotated: AnnotatedDag | AnnotatedDigraph = kind(graph, *values, constraints=constraints)
    return annotated


def from_networkx(graph: nx.Graph, topology_only: bool = False) -> AnnotatedGraph:
    """A networkx graph with `weight` on edges, `bias` and `activation` on nodes, as `to_networkx` makes them."""
    edge_list = _convert.from_networkx(graph)
    marks = [mark for *_, mark in graph.edges(data=_convert.FEEDBACK_ATTRIBUTE)]
    feedback = np.array([mark is True for mark in marks]) if any(mark is not None for mark in marks) else None
    if topology_only:
        return AnnotatedGraph(edge_list, attributes=node_attributes(graph), feedback=feedback)
    weight = _numbers([value for *_, value in graph.edges(data="weight")], "edges", "weight")
    if weight is not None and np.isnan(weight).any():
        missing = [(u, v) for u, v, value in graph.edges(data="weight") if value is None]
        raise WeightError(
            f"expected a weight for every edge or for none, but {len(missing):,} of {len(weight):,} edges have no "
            f"weight: {summarize(missing)}.",
            TOPOLOGY_ONLY,
        )
    bias = _numbers([value for _, value in graph.nodes(data="bias")], "nodes", "bias")
    activation = tuple(value for _, value in graph.nodes(data="activation"))
    has_activations = any(value is not None for value in activation)
    return AnnotatedGraph(
        edge_list,
        weight,
        bias,
        activation if has_activations else None,
        attributes=node_attributes(graph),
        constraints=_read_constraints(graph),
        feedback=feedback,
    )


def to_networkx(annotated: AnnotatedDag | AnnotatedDigraph) -> nx.DiGraph:
    """The graph as a DiGraph with weights, biases and activations as attributes."""
    import networkx as nx

    made, weight, bias, activation, *_ = annotated
    graph = made.to_networkx()
    labels, neurons = made.labels, made.neurons.tolist()
    values = {} if weight is None else {"weight": weight}
    values |= {_PREFIX + name: numbers for name, numbers in annotated.constraints.items()}
    pairs = [(labels[u], labels[v]) for u, v in made.edges.tolist()] if values else []
    for attribute, numbers in values.items():
        nx.set_edge_attributes(graph, dict(zip(pairs, numbers.tolist(), strict=True)), attribute)
    if bias is not None:
        for v, number in zip(neurons, bias.tolist(), strict=True):
            graph.nodes[labels[v]]["bias"] = float(number)
    if activation is not None:
        for v, name in zip(neurons, activation, strict=True):
            if name is not None:
                graph.nodes[labels[v]]["activation"] = name
    return graph


def _read_constraints(graph: nx.Graph) -> dict[str, FloatArray]:
    """(E,) the constraints that `to_networkx` wrote as attributes of edges."""
    constraints = {}
    for name, missing in CONSTRAINTS.items():
        numbers = _numbers([value for *_, value in graph.edges(data=_PREFIX + name)], "edges", _PREFIX + name)
        if numbers is not None:
            constraints[name] = np.nan_to_num(numbers, nan=missing)
    return constraints


def _numbers(values: list[Any], owners: str, name: str) -> FloatArray | None:
    """Values as floats, NaN for None; or None if all are None."""
    if all(value is None for value in values):
        return None
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | np.number)):
            raise FileError(f"the {name} of {owners} must be a number, got {value!r}.", TOPOLOGY_ONLY)
    numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    is_given = np.array([value is not None for value in values])
    infinite = np.flatnonzero(is_given & ~np.isfinite(numbers))
    if len(infinite):
        raise WeightError(
            f"the {name} of {owners} must be finite, got {summarize(numbers[infinite].tolist())}.", TOPOLOGY_ONLY
        )
    return numbers

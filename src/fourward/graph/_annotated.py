"""AnnotatedGraph: a graph with weights, biases and activations; AnnotatedDag: the same once it is a Dag."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import CycleError, FileError, GraphError, OptionError, Repair, WeightError, pluralize, summarize
from fourward.graph import _convert, _validation
from fourward.graph._base import BaseGraph
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag, LabelChoice
from fourward.graph._digraph import Digraph, Feedback
from fourward.graph.orient import Seed, find_feedback, make_generator, orient_along

if TYPE_CHECKING:
    import networkx as nx

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
Orient = Literal["random"] | None
REMOVE_FEEDBACK = Repair("remove_feedback", True, "remove a small set of edges, which breaks all cycles")
TOPOLOGY_ONLY = Repair("topology_only", True, "read the graph without weights, biases and activations")


class AnnotatedGraph(NamedTuple):
    """A graph as a file has it, with the values of its edges and nodes."""

    graph: EdgeList
    weight: FloatArray | None = None  #: (E,)
    bias: FloatArray | None = None  #: (N,) NaN for a node without one
    activation: tuple[str | None, ...] | None = None  #: (N,) None for a node without one
    states_direction: bool = True  #: False for formats that can't tell directed from undirected graphs
    locate_edge: Callable[[int], str] | None = None  #: tells where edge k is in the file, such as "line 7"

    def to_dag(
        self,
        *,
        orient: Orient = None,
        seed: Seed = None,
        remove_feedback: bool = False,
        merge: bool = False,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
    ) -> AnnotatedDag:
        """Make it a Dag; options as in `fourward.files.read_dag`."""
        _validation.check_endpoints(self.graph)
        annotated, merged = _orient(self, orient, seed), 0
        if merge:
            annotated, merged = _merge_duplicates(annotated)
        removed: tuple[tuple[Hashable, Hashable], ...] = ()
        if remove_feedback:
            is_feedback = find_feedback(annotated.graph)
            removed = tuple(_label_pairs(annotated.graph, np.flatnonzero(is_feedback)))
            annotated = _select_edges(annotated, np.flatnonzero(~is_feedback))
        graph, weight, bias, activation, *_ = annotated
        dag = _make_dag(annotated, inputs, outputs)
        if weight is not None:
            weight = dag.align(weight, np.stack((graph.source, graph.target), -1), by="index")
        if bias is not None:
            bias = _neuron_biases(bias, dag)
        if activation is not None:
            activation = tuple(activation[v] for v in dag.neurons.tolist())
        return AnnotatedDag(dag, weight, bias, activation, removed, merged)

    def to_digraph(
        self,
        *,
        orient: Orient = None,
        seed: Seed = None,
        merge: bool = False,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        feedback: Feedback = "fewest",
    ) -> AnnotatedDigraph:
        """Make it a Digraph; options as in `fourward.files.read_digraph`."""
        _validation.check_endpoints(self.graph)
        annotated, merged = _orient(self, orient, seed), 0
        if merge:
            annotated, merged = _merge_duplicates(annotated)
        graph, weight, bias, activation, *_ = annotated
        try:
            ends = {"inputs": inputs, "outputs": outputs}
            digraph = Digraph.from_edge_list(graph, feedback=feedback, weight=weight, **ends)  # type: ignore[arg-type]
        except CycleError:
            raise
        except GraphError:
            _check_duplicates(annotated)
            raise
        if weight is not None:
            weight = digraph.align(weight, np.stack((graph.source, graph.target), -1), by="index")
        if bias is not None:
            bias = _neuron_biases(bias, digraph)
        if activation is not None:
            activation = tuple(activation[v] for v in digraph.neurons.tolist())
        return AnnotatedDigraph(digraph, weight, bias, activation, merged)


class AnnotatedDag(NamedTuple):
    """A Dag with the values of its edges and neurons, and how it differs from the graph it was made of."""

    dag: Dag
    weight: FloatArray | None = None  #: (E,) in the order of dag.edges
    bias: FloatArray | None = None  #: (N-I,) in the order of dag.neurons; 0 for a neuron without one
    activation: tuple[str | None, ...] | None = None  #: (N-I,) in the order of dag.neurons
    removed: tuple[tuple[Hashable, Hashable], ...] = ()  #: feedback edges that were removed, by labels
    merged: int = 0  #: number of duplicate edges that were merged into another


class AnnotatedDigraph(NamedTuple):
    """A Digraph with the values of its edges and neurons."""

    graph: Digraph
    weight: FloatArray | None = None  #: (E,) in the order of graph.edges
    bias: FloatArray | None = None  #: one for each neuron, in the order of graph.neurons; 0 for one without
    activation: tuple[str | None, ...] | None = None  #: one for each neuron, in the same order
    merged: int = 0  #: number of duplicate edges that were merged into another


def from_networkx(graph: nx.Graph, topology_only: bool = False) -> AnnotatedGraph:
    """A networkx graph with `weight` on edges, `bias` and `activation` on nodes, as `to_networkx` makes them."""
    edge_list = _convert.from_networkx(graph)
    if topology_only:
        return AnnotatedGraph(edge_list)
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
    return AnnotatedGraph(edge_list, weight, bias, activation if has_activations else None)


def to_networkx(annotated: AnnotatedDag) -> nx.DiGraph:
    """The Dag as a DiGraph with weights, biases and activations as attributes."""
    import networkx as nx

    dag, weight, bias, activation, *_ = annotated
    graph = dag.to_networkx()
    labels, neurons = dag.labels, dag.neurons.tolist()
    if weight is not None:
        ends = zip(dag.edges.tolist(), weight.tolist(), strict=True)
        by_pair: Mapping[Any, float] = {(labels[u], labels[v]): value for (u, v), value in ends}
        nx.set_edge_attributes(graph, by_pair, "weight")
    if bias is not None:
        for v, number in zip(neurons, bias.tolist(), strict=True):
            graph.nodes[labels[v]]["bias"] = float(number)
    if activation is not None:
        for v, name in zip(neurons, activation, strict=True):
            if name is not None:
                graph.nodes[labels[v]]["activation"] = name
    return graph


def _orient(annotated: AnnotatedGraph, orient: Orient, seed: Seed) -> AnnotatedGraph:
    graph = annotated.graph
    if orient is None:
        if not graph.directed:
            raise GraphError(
                f"expected a directed graph, got an undirected one with {len(graph.labels):,} nodes and "
                f"{len(graph.source):,} edges.",
                Repair("orient", "random", "direct the edges along a random order of the nodes"),
            )
        return annotated
    if orient != "random":
        raise OptionError(f"orient must be 'random' or None, got {orient!r}.")
    if graph.directed and annotated.states_direction:
        raise GraphError(
            "orient='random' needs an undirected graph; the directions of this one would be lost. Omit it."
        )
    rank = make_generator(seed).permutation(len(graph.labels))
    return annotated._replace(graph=orient_along(graph, rank))


def _merge_duplicates(annotated: AnnotatedGraph) -> tuple[AnnotatedGraph, int]:
    """One edge for each pair of nodes, the first, with the sum of the weights; and how many others there were."""
    graph = annotated.graph
    _, first, inverse = np.unique(_pair_keys(graph), True, True)
    weight: Any = None if annotated.weight is None else np.bincount(inverse, annotated.weight, len(first))
    order = np.argsort(first)
    merged = _select_edges(annotated, first[order])
    return merged._replace(weight=None if weight is None else weight[order]), len(graph.source) - len(first)


def _select_edges(annotated: AnnotatedGraph, edges: IntArray) -> AnnotatedGraph:
    graph, locate = annotated.graph, annotated.locate_edge
    return annotated._replace(
        graph=graph._replace(source=graph.source[edges], target=graph.target[edges]),
        weight=None if annotated.weight is None else annotated.weight[edges],
        locate_edge=None if locate is None else lambda k: locate(int(edges[k])),
    )


def _make_dag(annotated: AnnotatedGraph, inputs: LabelChoice, outputs: LabelChoice) -> Dag:
    try:
        return Dag.from_edge_list(annotated.graph, inputs=inputs, outputs=outputs)
    except CycleError as error:
        raise CycleError(error.cycle, REMOVE_FEEDBACK) from None
    except GraphError:
        _check_edges(annotated)
        raise


def _check_edges(annotated: AnnotatedGraph) -> None:
    """Raise for self-loops and duplicate edges, with their lines in the file and the option that removes them."""
    graph = annotated.graph
    loops = np.flatnonzero(graph.source == graph.target)
    if len(loops):
        raise GraphError(
            f"the graph has {pluralize(len(loops), 'self-loop')}: {_describe_edges(annotated, loops)}. "
            "A neuron can't feed itself in one pass.",
            Repair("remove_feedback", True, "remove self-loops"),
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
    pairs = _label_pairs(annotated.graph, edges[:limit])
    texts = [
        f"{u!r} -> {v!r}" + (f" ({annotated.locate_edge(k)})" if annotated.locate_edge is not None else "")
        for (u, v), k in zip(pairs, edges[:limit].tolist(), strict=True)
    ]
    rest = len(edges) - limit
    return ", ".join(texts) + (f" and {rest:,} more" if rest > 0 else "")


def _label_pairs(graph: EdgeList, edges: IntArray) -> list[tuple[Hashable, Hashable]]:
    ends = zip(graph.source[edges].tolist(), graph.target[edges].tolist(), strict=True)
    return [(graph.labels[u], graph.labels[v]) for u, v in ends]


def _pair_keys(graph: EdgeList) -> IntArray:
    """(E,) an integer for each edge, equal for duplicates."""
    keys: IntArray = graph.target.astype(np.int64) * len(graph.labels) + graph.source
    return keys


def _neuron_biases(bias: FloatArray, dag: BaseGraph) -> FloatArray:
    """Select the (N-I,) biases of the neurons from the (N,) biases of all nodes."""
    undriven = np.setdiff1d(dag.inputs, dag.driven)
    biased_inputs = undriven[~np.isnan(bias[undriven])]
    if len(biased_inputs):
        labels = summarize(dag.labels[v] for v in biased_inputs)
        raise GraphError(
            f"inputs can't have a bias, because x sets their values, but these have: {labels}. "
            "Remove these biases, or choose other inputs."
        )
    return np.nan_to_num(bias[dag.neurons], nan=0.0)


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

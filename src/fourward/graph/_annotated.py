"""AnnotatedGraph: a graph with the numbers that came along with it, and how it settles into a Dag."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, NamedTuple

import networkx as nx
import numpy as np

from fourward._arrays import IntArray
from fourward.errors import CycleError, FileError, GraphError, OptionError, Repair, WeightError, pluralize, summarize
from fourward.graph import _convert
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag, LabelChoice
from fourward.graph.orient import Seed, feedback_edges, generator

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
Orient = Literal["random"] | None
REMOVE_FEEDBACK = Repair("remove_feedback", True, "remove a small set of edges, which breaks all cycles")
_HAVE_IT = "(of graph, info, train, ...)"  # which commands have options to read a graph
_BARE = "; bare=True, on the command line `fourward graph --bare`, reads the graph of a file alone"


class AnnotatedGraph(NamedTuple):
    """A graph as it came, with what it says of its edges and nodes."""

    graph: EdgeList
    weight: FloatArray | None = None  #: (E,)
    bias: FloatArray | None = None  #: (N,) NaN where a node has none
    activation: tuple[str | None, ...] | None = None  #: (N,) None where a node has none
    stated: bool = True  #: it says itself whether it is directed
    where: Callable[[int], str] | None = None  #: says where in its file edge k stands


class AnnotatedDag(NamedTuple):
    """A Dag, and what came along with it."""

    dag: Dag
    weight: FloatArray | None = None  #: (E,) in the order of dag.edges
    bias: FloatArray | None = None  #: (N-I,) in the order of dag.neurons; 0 for a neuron that has none
    activation: tuple[str | None, ...] | None = None  #: (N-I,) in the order of dag.neurons
    removed: tuple[tuple[Hashable, Hashable], ...] = ()  #: feedback edges that the Dag lacks, by labels
    merged: int = 0  #: edges that were added to another between the same nodes


def from_networkx(graph: nx.Graph, bare: bool = False) -> AnnotatedGraph:
    """A networkx graph with `weight` on edges, `bias` and `activation` on nodes, as `to_networkx` makes them."""
    raw = _convert.from_networkx(graph)
    if bare:
        return AnnotatedGraph(raw)
    weight = _numbers([value for *_, value in graph.edges(data="weight")], "edges", "weight")
    if weight is not None and np.isnan(weight).any():
        missing = [(u, v) for u, v, value in graph.edges(data="weight") if value is None]
        raise WeightError(
            f"{len(missing):,} of {len(weight):,} edges have no weight: {summarize(missing)}. Give all, or none{_BARE}."
        )
    bias = _numbers([value for _, value in graph.nodes(data="bias")], "nodes", "bias")
    activation = tuple(value for _, value in graph.nodes(data="activation"))
    return AnnotatedGraph(raw, weight, bias, activation if any(value is not None for value in activation) else None)


def settle(
    given: AnnotatedGraph,
    *,
    orient: Orient = None,
    seed: Seed = None,
    remove_feedback: bool = False,
    merge: bool = False,
    inputs: LabelChoice = None,
    outputs: LabelChoice = None,
) -> AnnotatedDag:
    """Make a Dag of it, directed and rid of feedback edges as the options say; see `fourward.files.read_dag`."""
    directed = _direct(given, orient, seed)
    given, merged = _merge(directed) if merge else (directed, 0)
    removed: tuple[tuple[Hashable, Hashable], ...] = ()
    if remove_feedback:
        away = feedback_edges(given.graph)
        removed = tuple(_pairs(given.graph, np.flatnonzero(away)))
        given = _keep(given, ~away)
    dag = _build(given, inputs, outputs)
    weight = None
    if given.weight is not None:
        weight = dag.align(given.weight, np.stack((given.graph.source, given.graph.target), -1), by="index")
    bias = None if given.bias is None else _of_neurons(given.bias, dag)
    activation = None
    if given.activation is not None:
        activation = tuple(given.activation[v] for v in dag.neurons.tolist())
    return AnnotatedDag(dag, weight, bias, activation, removed, merged)


def _direct(given: AnnotatedGraph, orient: Orient, seed: Seed) -> AnnotatedGraph:
    graph = given.graph
    if orient is None:
        if not graph.directed:
            raise GraphError(
                f"this graph is undirected ({len(graph.labels):,} nodes, {len(graph.source):,} edges), and a network "
                "needs a direction for each edge. orient='random', on the command line --orient random --seed 0 "
                f"{_HAVE_IT}, directs the edges along a random order of the nodes."
            )
        return given
    if orient != "random":
        raise OptionError(f"orient={orient!r} came, but it is either 'random' or None.")
    if graph.directed and given.stated:
        raise GraphError(
            "this graph is directed, and orient='random' would lose its directions. Leave it away; if the graph has "
            f"cycles, remove_feedback=True, on the command line --remove-feedback {_HAVE_IT}, removes a small set of "
            "edges."
        )
    rank = generator(seed).permutation(len(graph.labels))
    turn = rank[graph.source] > rank[graph.target]
    source, target = np.where(turn, graph.target, graph.source), np.where(turn, graph.source, graph.target)
    return given._replace(graph=graph._replace(source=source, target=target, directed=True))


def _merge(given: AnnotatedGraph) -> tuple[AnnotatedGraph, int]:
    """One edge for each pair of nodes, the first, with the sum of the weights."""
    graph = given.graph
    _, first, which = np.unique(_keys(graph.source, graph.target, len(graph.labels)), True, True)
    weight: Any = None if given.weight is None else np.bincount(which, given.weight, len(first))
    order = np.argsort(first)
    kept = _keep(given, first[order])
    return kept._replace(weight=None if weight is None else weight[order]), len(graph.source) - len(first)


def _keep(given: AnnotatedGraph, chosen: Any) -> AnnotatedGraph:
    graph, where = given.graph, given.where
    kept = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen
    return given._replace(
        graph=graph._replace(source=graph.source[kept], target=graph.target[kept]),
        weight=None if given.weight is None else given.weight[kept],
        where=None if where is None else lambda k: where(int(kept[k])),
    )


def _build(given: AnnotatedGraph, inputs: LabelChoice, outputs: LabelChoice) -> Dag:
    try:
        return Dag.from_edge_list(given.graph, inputs=inputs, outputs=outputs)
    except CycleError as error:
        raise CycleError(error.cycle, REMOVE_FEEDBACK) from None
    except GraphError:
        _check_edges(given)
        raise


def _check_edges(given: AnnotatedGraph) -> None:
    """Say where self loops and repeated edges stand, and which option takes them away."""
    graph = given.graph
    loops = np.flatnonzero(graph.source == graph.target)
    if len(loops):
        raise GraphError(
            f"the graph has {pluralize(len(loops), 'edge')} from a node to itself: {_named(given, loops)}. A neuron "
            "can't feed itself in one pass: remove_feedback=True, on the command line --remove-feedback "
            f"{_HAVE_IT}, removes these."
        )
    keys = _keys(graph.source, graph.target, len(graph.labels))
    order = np.argsort(keys, kind="stable")
    again = np.sort(order[1:][keys[order[1:]] == keys[order[:-1]]])
    if len(again):
        raise GraphError(
            f"the graph repeats {pluralize(len(again), 'edge')}: {_named(given, again)}. Each pair of nodes has one "
            f"edge and one weight: merge=True, on the command line --merge {_HAVE_IT}, adds up the weights of those "
            "that come again."
        )


def _named(given: AnnotatedGraph, edges: IntArray, most: int = 5) -> str:
    pairs = _pairs(given.graph, edges[:most])
    words = [
        f"{u!r} -> {v!r}" + (f" ({given.where(k)})" if given.where is not None else "")
        for (u, v), k in zip(pairs, edges[:most].tolist(), strict=True)
    ]
    rest = len(edges) - most
    return ", ".join(words) + (f" and {rest:,} more" if rest > 0 else "")


def _pairs(graph: EdgeList, edges: IntArray) -> list[tuple[Hashable, Hashable]]:
    ends = zip(graph.source[edges].tolist(), graph.target[edges].tolist(), strict=True)
    return [(graph.labels[u], graph.labels[v]) for u, v in ends]


def _keys(source: IntArray, target: IntArray, num_nodes: int) -> IntArray:
    """A number for each pair of nodes, sorted as the pairs (target, source) are."""
    keys: IntArray = target.astype(np.int64) * num_nodes + source
    return keys


def _of_neurons(bias: FloatArray, dag: Dag) -> FloatArray:
    stray = dag.inputs[~np.isnan(bias[dag.inputs])]
    if len(stray):
        raise GraphError(
            f"{len(stray):,} inputs have a bias, though x sets their values: "
            f"{summarize(dag.labels[v] for v in stray)}. Take these biases away, or choose inputs= without these nodes."
        )
    return np.nan_to_num(bias[dag.neurons], nan=0.0)


def _numbers(values: list[Any], things: str, name: str) -> FloatArray | None:
    """Values as floats, NaN for None; or None if there are none at all."""
    if all(value is None for value in values):
        return None
    for value in values:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float | np.number)):
            raise FileError(f"{things} have a {name} of {value!r}, but it must be a number{_BARE}.")
    numbers = np.array([np.nan if value is None else value for value in values], np.float64)
    wrong = [v for v, number in zip(values, numbers.tolist(), strict=True) if v is not None and not np.isfinite(number)]
    if wrong:
        raise WeightError(f"{things} have a {name} of {summarize(wrong)}, but it must be finite{_BARE}.")
    return numbers


def to_networkx(loaded: AnnotatedDag) -> nx.DiGraph:
    """The Dag as a DiGraph that carries weights, biases and activations as attributes."""
    graph = loaded.dag.to_networkx()
    labels, neurons = loaded.dag.labels, loaded.dag.neurons.tolist()
    if loaded.weight is not None:
        ends, weights = loaded.dag.edges.tolist(), loaded.weight.tolist()
        pairs: Mapping[Any, float] = {
            (labels[u], labels[v]): weight for (u, v), weight in zip(ends, weights, strict=True)
        }
        nx.set_edge_attributes(graph, pairs, "weight")
    for name, values in (("bias", loaded.bias), ("activation", loaded.activation)):
        listed = [] if values is None else list(values)
        for v, value in zip(neurons, listed, strict=False):
            if value is not None:
                graph.nodes[labels[v]][name] = float(value) if name == "bias" else value
    return graph

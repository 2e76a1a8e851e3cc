"""Digraph: a directed graph of neurons that may have cycles, frozen, checked once, with ordered inputs and outputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fourward._arrays import BoolArray, IntArray, readonly
from fourward.errors import CycleError, GraphError, OptionError, Repair, WeightError
from fourward.graph import _convert, _sparse, _tables, _validation
from fourward.graph._algorithms import find_cycle, longest_paths
from fourward.graph._attributes import Attributes, node_attributes
from fourward.graph._base import BaseGraph, cut_inputs
from fourward.graph._convert import EdgeList, Labels, Nodes
from fourward.graph._dag import Dag, LabelChoice
from fourward.graph.orient import find_feedback

if TYPE_CHECKING:
    import networkx as nx
    import rustworkx as rx

#: "fewest" searches a small set, "all" takes every edge, and pairs (source, target) are taken as they are.
Feedback = Literal["fewest", "all"] | Iterable[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Digraph(BaseGraph):
    """A directed graph of single neurons, cycles and self-loops included.

    Its edges are split: those of `dag` are followed within a step, and *feedback* edges carry the value of the step
    before. Make one with the constructors of `Dag`, which take the keyword `feedback` here.

    >>> g = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "y")])
    >>> g
    Digraph(4 nodes, 4 edges (1 feedback), 1 input, 1 output)
    >>> [(g.labels[u], g.labels[v]) for u, v in g.feedback.tolist()]
    [('b', 'a')]
    """

    dag: Dag  #: the edges that are followed within a step, with the same nodes, inputs and outputs
    feedback: IntArray  #: (F, 2) node indices of the feedback edges, sorted by dag.position of target, then of source

    def __new__(cls, *fields: Any, **named: Any) -> Digraph:
        """Refuse Digraph(graph), and name the constructors."""
        if len(fields) + len(named) != 2:
            raise GraphError(
                "Digraph(...) doesn't take a graph: use Digraph.from_edges(pairs), Digraph.from_networkx(graph) or the "
                "like."
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
        feedback: Feedback = "fewest",
        weight: Any = None,
    ) -> Digraph:
        """From pairs of hashable labels, or from an (E, 2) integer array.

        Args:
            edges: Pairs (source, target).
            nodes: As in `Dag.from_edges`.
            inputs: Labels of the input nodes, in feature order. Default: all nodes without incoming edges.
            outputs: Labels of the output nodes, in order. Default: all nodes without outgoing edges.
            driven: As in `Dag.from_edges`.
            feedback: The edges that carry the value of the step before: "fewest" searches a small set whose other edges
                form a Dag, "all" takes every edge (the synchronous network of torch.nn.RNN), and pairs are taken as
                they are.
            weight: (E,) weights in the order of `edges`, of which "fewest" keeps heavy ones within a step where it can.
        """
        graph = _convert.from_pairs(edges, nodes)
        return cls.from_edge_list(
            graph, inputs=inputs, outputs=outputs, driven=driven, feedback=feedback, weight=weight
        )

    @classmethod
    def from_networkx(
        cls,
        graph: nx.DiGraph,
        *,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
        feedback: Feedback | None = None,
        weight: str | None = None,
    ) -> Digraph:
        """From a directed networkx graph, in its node order; `weight` names the attribute that holds the weights.

        Inputs, outputs and feedback default to those of a graph made by `to_networkx`; feedback is otherwise "fewest".
        Attributes of nodes whose values are text, numbers or bools become `attributes`.
        """
        edge_list, attributes = _convert.from_networkx(graph), node_attributes(graph)
        feedback = _convert.feedback_pairs(graph) if feedback is None else feedback
        feedback = "fewest" if feedback is None else feedback
        values = None if weight is None else [value for *_, value in graph.edges(data=weight, default=np.nan)]
        made = cls.from_edge_list(
            edge_list, inputs=inputs, outputs=outputs, driven=driven, feedback=feedback, weight=values
        )
        return made.with_attributes(attributes) if attributes else made

    @classmethod
    def from_rustworkx(
        cls,
        graph: rx.PyDiGraph,
        *,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
        feedback: Feedback = "fewest",
    ) -> Digraph:
        """From a PyDiGraph; labels are its node payloads if hashable and distinct, else its node indices."""
        edge_list = _convert.from_rustworkx(graph)
        return cls.from_edge_list(edge_list, inputs=inputs, outputs=outputs, driven=driven, feedback=feedback)

    @classmethod
    def from_scipy(
        cls,
        matrix: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
        feedback: Feedback = "fewest",
    ) -> Digraph:
        """From a square scipy.sparse matrix: an entry stored at [u, v], even a zero, is the edge u -> v.

        feedback="fewest" keeps large entries within a step where it can.
        """
        graph = _convert.from_scipy(matrix, labels)
        return cls.from_edge_list(
            graph,
            inputs=inputs,
            outputs=outputs,
            driven=driven,
            feedback=feedback,
            weight=_sparse.to_coordinates(matrix).data,
        )

    @classmethod
    def from_mask(
        cls,
        mask: Any,
        *,
        labels: Iterable[Hashable] | None = None,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
        feedback: Feedback = "fewest",
    ) -> Digraph:
        """From a square boolean array: True at [u, v] is the edge u -> v."""
        graph = _convert.from_mask(mask, labels)
        return cls.from_edge_list(graph, inputs=inputs, outputs=outputs, driven=driven, feedback=feedback)

    @classmethod
    def from_arrays(
        cls,
        edges: Any,
        *,
        labels: int | Iterable[Hashable] | None = None,
        inputs: Any = None,
        outputs: Any = None,
        driven: bool = True,
        feedback: Feedback = "fewest",
        weight: Any = None,
    ) -> Digraph:
        """From node indices alone, as `Dag.from_arrays`; pairs of `feedback` are node indices, too."""
        array, names, ends = _validation.check_arrays(edges, labels, inputs, outputs)
        if not isinstance(feedback, str):
            _check_listed(feedback)
        pairs = feedback if isinstance(feedback, str) else _validation.index_pairs(feedback)
        if not isinstance(pairs, str):
            _validation.check_indices(pairs, len(names), "feedback")
        return cls._freeze(EdgeList(array[:, 0], array[:, 1], names, True), ends, driven, pairs, weight)

    @classmethod
    def from_edge_list(
        cls,
        graph: EdgeList,
        *,
        inputs: LabelChoice = None,
        outputs: LabelChoice = None,
        driven: bool = True,
        feedback: Feedback = "fewest",
        weight: Any = None,
    ) -> Digraph:
        """From an `EdgeList`; its own inputs and outputs are the default."""
        ends = _validation.check_edge_list(graph, inputs, outputs)
        pairs: Any = feedback
        if not isinstance(feedback, str):
            _check_listed(feedback)
            listed = _convert.from_pairs(feedback, graph.labels)
            pairs = np.stack((listed.source, listed.target), -1)
        return cls._freeze(graph, ends, driven, pairs, weight)

    @classmethod
    def _freeze(
        cls,
        graph: EdgeList,
        ends: tuple[IntArray | None, IntArray | None],
        driven: bool,
        feedback: str | IntArray,
        weight: Any,
    ) -> Digraph:
        """Check, split and freeze an EdgeList whose indices are in range; every constructor ends here."""
        num_nodes = len(graph.labels)
        _validation.check_size(num_nodes)
        weight = _check_weight(weight, len(graph.source))
        if ends[0] is not None and not driven:
            rest = cut_inputs(graph.target, ends[0], num_nodes)
            weight = None if weight is None else weight[rest]
            graph = graph._replace(source=graph.source[rest], target=graph.target[rest])
        inputs, outputs = _find_ends(graph, ends)
        delayed = _select_feedback(graph, feedback, weight)
        source, target = graph.source, graph.target
        dag = Dag.from_arrays(
            np.stack((source[~delayed], target[~delayed]), -1), labels=graph.labels, inputs=inputs, outputs=outputs
        )
        source, target = source[delayed], target[delayed]
        order = np.lexsort((dag.position[source], dag.position[target]))
        source, target = source[order], target[order]
        _validation.check_duplicates(source, target, graph.labels)
        return cls(dag, readonly(np.stack((source, target), -1).astype(np.int32)))

    @cached_property
    def edges(self) -> IntArray:
        """(E, 2) node indices of all edges: those of `dag` in their order, then `feedback`."""
        return readonly(np.concatenate((self.dag.edges, self.feedback)))

    @property
    def labels(self) -> Labels:  # type: ignore[override]
        """Label of each node."""
        return self.dag.labels

    @property
    def inputs(self) -> IntArray:  # type: ignore[override]
        """(I,) the nodes that take the features of x, in feature order; with incoming edges they are `driven`."""
        return self.dag.inputs

    @property
    def outputs(self) -> IntArray:  # type: ignore[override]
        """(O,) the nodes whose activations the network returns, in order."""
        return self.dag.outputs

    @property
    def attributes(self) -> Attributes:
        """Values of nodes by name, as those of a Dag: `dag` has the same."""
        return self.dag.attributes

    def with_attributes(self, attributes: Mapping[str, Any]) -> Digraph:
        """This graph with these attributes of its nodes, besides those it has; as `Dag.with_attributes`."""
        return Digraph(self.dag.with_attributes(attributes), self.feedback)

    @property
    def num_feedback(self) -> int:
        """F, the number of feedback edges."""
        return len(self.feedback)

    def to_networkx(self) -> nx.DiGraph:
        """A networkx DiGraph with these labels and attributes; inputs, outputs and feedback are stored as well."""
        return _convert.mark_feedback(super().to_networkx(), self.feedback, self.labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digraph):
            return NotImplemented
        return self is other or (np.array_equal(self.feedback, other.feedback) and self.dag == other.dag)

    def __hash__(self) -> int:
        return hash((self.dag, self.feedback.tobytes()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Digraph:
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.dag, self.feedback)

    def _describe_edges(self) -> str:
        return f"{super()._describe_edges()} ({self.num_feedback:,} feedback)"


def _restore(dag: Dag, feedback: IntArray) -> Digraph:
    return Digraph(dag, readonly(feedback))


def _check_listed(feedback: Any) -> None:
    if not (_tables.is_table(feedback) or isinstance(feedback, Iterable)) or isinstance(feedback, bytes | Mapping):
        raise OptionError(f"feedback must be 'fewest', 'all' or a list of pairs of labels, got {feedback!r}.")


def _check_weight(weight: Any, num_edges: int) -> Any:
    if weight is None:
        return None
    array = np.asarray(_convert.as_numpy(weight), np.float64)
    if array.shape != (num_edges,) or not np.isfinite(array).all():
        raise WeightError(
            f"expected weight to hold a finite number for each of {num_edges:,} edges, got shape {array.shape} with "
            f"{np.count_nonzero(~np.isfinite(array)):,} values that are inf or NaN."
        )
    return array


def _find_ends(graph: EdgeList, chosen: tuple[IntArray | None, IntArray | None]) -> tuple[IntArray, IntArray]:
    """The inputs and outputs: by default the nodes without incoming, or without outgoing, edges of any kind."""
    ends = []
    for role, nodes, edge_end, direction in (
        ("input", chosen[0], graph.target, "incoming"),
        ("output", chosen[1], graph.source, "outgoing"),
    ):
        if nodes is None:
            nodes = np.flatnonzero(np.bincount(edge_end, minlength=len(graph.labels)) == 0)
            if not len(nodes):
                raise GraphError(
                    f"expected at least one {role}, but every node has {direction} edges.",
                    Repair(f"{role}s", [graph.labels[0]], f"choose {role}s by label, for example"),
                )
        ends.append(nodes)
    return ends[0], ends[1]


def _select_feedback(graph: EdgeList, feedback: str | IntArray, weight: Any) -> BoolArray:
    """(E,) True for the feedback edges."""
    if isinstance(feedback, str):
        if feedback not in ("fewest", "all"):
            raise OptionError(f"feedback must be 'fewest', 'all' or a list of pairs of labels, got {feedback!r}.")
        return np.ones(len(graph.source), np.bool_) if feedback == "all" else find_feedback(graph, weight)
    labels, num_nodes = graph.labels, len(graph.labels)
    keys = graph.source.astype(np.int64) * num_nodes + graph.target
    wanted = feedback[:, 0].astype(np.int64) * num_nodes + feedback[:, 1]
    unknown = feedback[~np.isin(wanted, keys)].tolist()
    if unknown:
        raise GraphError(
            f"feedback has pairs that aren't edges: {_convert.name_pairs(unknown, labels)}. Choose among the graph's "
            "edges, or pass feedback='fewest'."
        )
    delayed = np.isin(keys, wanted)
    _check_acyclic(graph.source[~delayed], graph.target[~delayed], labels)
    return delayed


def _check_acyclic(source: IntArray, target: IntArray, labels: Labels) -> None:
    """Raise, with the labels along a cycle, unless the edges within a step form a Dag."""
    loops = source[source == target]
    source, target = np.ascontiguousarray(source, np.int32), np.ascontiguousarray(target, np.int32)
    length, _ = longest_paths(source, target, len(labels))
    if length.min() >= 0:
        return
    cycle = [loops[0]] * 2 if len(loops) else find_cycle(source, target, length < 0)
    raise CycleError(
        [labels[v] for v in cycle],
        advice="These edges are followed within a step: add one of them to feedback, or pass feedback='fewest', which "
        "finds a small set.",
    )

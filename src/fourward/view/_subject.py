"""What a picture or page shows: a graph, its layering, and the weights and biases of a network."""

from __future__ import annotations

from typing import Any, NamedTuple
from unicodedata import category

import numpy as np
import torch

from fourward._arrays import IntArray, readonly
from fourward.errors import OptionError, WeightError
from fourward.graph._base import BaseGraph
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.graph._validation import check_indices, index_pairs
from fourward.layering import Layering, longest_path, push_sources
from fourward.layering._layering import check_same_graph
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.view._layout import FloatArray

#: Steps that a network with feedback takes before its activations are shown.
NUM_STEPS = 10
#: Kinds of nodes, by the code that `node_kinds` gives them; the paper draws them green, red, white and violet.
KINDS = ("source", "hidden", "hidden, could move", "sink")
#: The same for a graph whose inputs aren't its sources, or whose outputs aren't its sinks.
IO_KINDS = ("input", "hidden", "hidden, could move", "output", "input and output")


class Subject(NamedTuple):
    """A graph with a layering; of a network also its weights and biases."""

    graph: Dag | Digraph
    layering: Layering
    weight: FloatArray | None  #: (E,)
    bias: FloatArray | None  #: one for each neuron
    net: FourWard | Recurrent | None
    #: The graph without edges that are gone, where `graph` has them as its last feedback edges and `weight` says what
    #: changed: 1 for edges that grew, -1 for those that are gone, 0 for the others.
    current: Dag | Digraph | None = None

    @property
    def dag(self) -> Dag:
        """The graph, without feedback edges."""
        return self.graph.dag

    @property
    def present(self) -> Dag | Digraph:
        """The graph, without edges that are gone."""
        return self.graph if self.current is None else self.current

    def count_changes(self) -> tuple[int, int] | None:
        """How many edges grew, and how many are gone; None where changes aren't shown."""
        if self.current is None or self.weight is None:
            return None
        return int(np.count_nonzero(self.weight > 0)), int(np.count_nonzero(self.weight < 0))


def compare(subject: Subject, before: Any) -> Subject:
    """The subject with its changes since an earlier wiring, a graph with the same nodes or (E, 2) node indices."""
    graph = subject.graph
    if isinstance(before, Dag | Digraph):
        if before.num_nodes != graph.num_nodes or any(a != b for a, b in zip(before.labels, graph.labels, strict=True)):
            raise OptionError(f"before must be a graph with the same nodes, in their order, got {before!r}.")
        edges = before.edges
    else:
        edges = index_pairs(before)
        check_indices(edges, graph.num_nodes, "before")
    then, now = (pairs[:, 0].astype(np.int64) << 32 | pairs[:, 1] for pairs in (edges, graph.edges))
    gone = edges[~np.isin(then, now)].astype(np.int32)
    delayed = graph.feedback if isinstance(graph, Digraph) else gone[:0]
    status = np.concatenate((np.where(np.isin(now, then), 0, 1), np.full(len(gone), -1))).astype(np.float32)
    union = Digraph(graph.dag, readonly(np.concatenate((delayed, gone))))
    return subject._replace(graph=union, weight=status, current=graph)


def build_subject(net_or_dag: Any, layering: Layering | None = None, weight: Any = None) -> Subject:
    """Check what is to be shown. The default layering is the network's, or the paper's for a Dag."""
    if not isinstance(net_or_dag, Dag | Digraph | FourWard | Recurrent):
        raise OptionError(
            f"expected a Dag, a Digraph, a FourWard or a Recurrent, got {type(net_or_dag).__name__}. Pass the .dag or "
            "the .graph of a connectome; convert other graphs with fourward.Dag.from_networkx and the like."
        )
    net = None if isinstance(net_or_dag, Dag | Digraph) else net_or_dag
    graph: Any = net_or_dag if net is None else net.graph
    dag: Dag = graph.dag
    if layering is None:
        layering = push_sources(dag, longest_path(dag)) if net is None else net.layering
    check_same_graph(dag, layering)
    layering.verify()
    if net is None:
        return Subject(graph, layering, None if weight is None else _check_weight(weight, graph), None, None)
    if weight is not None:
        raise WeightError("weight is for a Dag, but a network has its own weights. Omit it, or pass net.dag.")
    bias = None if net.bias is None else net.bias.detach().float().cpu().numpy()
    return Subject(graph, layering, net.weight.detach().float().cpu().numpy(), bias, net)


def _check_weight(weight: Any, graph: BaseGraph) -> FloatArray:
    array = np.asarray(weight, np.float32)
    if array.shape != (graph.num_edges,):
        raise WeightError(f"expected weight of shape ({graph.num_edges},), one number per edge, got {array.shape}.")
    return array


def describe(graph: BaseGraph) -> str:
    """The size of a graph: "4 nodes, 4 edges, 2 inputs, 1 output"."""
    return repr(graph).partition("(")[2][:-1]


def format_all(number: int, word: str) -> str:
    """All of a number of things: "no edges", "the one edge", "all 3 edges"."""
    return {0: f"no {word}s", 1: f"the one {word}"}.get(number, f"all {number:,} {word}s")


def printable(text: str) -> str:
    """The text with whitespace as spaces, and with control characters, which SVG forbids, as U+FFFD."""
    return "".join(" " if c.isspace() else "�" if category(c) in ("Cc", "Cn", "Cs") else c for c in text)


def kind_names(dag: Dag) -> tuple[str, ...]:
    """KINDS if the inputs are the sources and the outputs the sinks, else as many of IO_KINDS as are needed."""
    if _has_default_ends(dag):
        return KINDS
    return IO_KINDS if len(np.intersect1d(dag.inputs, dag.outputs)) else IO_KINDS[:4]


def node_kinds(layering: Layering, movable: bool = True) -> IntArray:
    """(N,) the kind of each node, an index into `kind_names`; with movable=False no node is marked as movable."""
    dag = layering.dag
    kind = np.where((layering.slack > 0) & movable, 2, 1)
    if _has_default_ends(dag):
        return np.asarray(np.where(dag.in_degree == 0, 0, np.where(dag.out_degree == 0, 3, kind)))
    kind[dag.outputs] = 3
    kind[dag.inputs] = np.where(np.isin(dag.inputs, dag.outputs), 4, 0)
    return kind


def _has_default_ends(dag: Dag) -> bool:
    """Whether the inputs are the sources and the outputs the sinks, in any order."""
    ends = ((dag.inputs, dag.in_degree), (dag.outputs, dag.out_degree))
    return all(np.array_equal(np.sort(nodes), np.flatnonzero(degree == 0)) for nodes, degree in ends)


def colour_limit(values: FloatArray) -> float:
    """The absolute value at which a colour scale ends: the 98th percentile, and never 0."""
    sizes = np.abs(values[np.isfinite(values)])
    limit = float(np.quantile(sizes, 0.98)) if len(sizes) else 0.0
    return limit or (float(sizes.max(initial=0.0)) or 1.0)


def compute_activations(net: FourWard | Recurrent, x: torch.Tensor) -> torch.Tensor:
    """(S, N) the activations of all nodes for the samples x, without dropout, on the CPU.

    Of a network with feedback, those after NUM_STEPS steps with the same features, or after the last of a sequence
    (S, T, I).
    """
    was_training = net.training
    net.eval()
    try:
        with torch.no_grad():
            if isinstance(net, FourWard):
                return net.activations(x).cpu()
            steps = x.transpose(0, 1) if x.dim() == 3 else x.expand(NUM_STEPS, *x.shape)
            time = 1 if net.batch_first else 0
            return net.activations(steps.transpose(0, time)).select(time, -1).cpu()
    finally:
        net.train(was_training)

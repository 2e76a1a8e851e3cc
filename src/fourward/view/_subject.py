"""What is to be shown: a graph, its layering, and what a network adds to them."""

from __future__ import annotations

from typing import Any, NamedTuple
from unicodedata import category

import numpy as np
import torch

from fourward._arrays import IntArray
from fourward.errors import OptionError, WeightError
from fourward.graph._dag import Dag
from fourward.layering import Layering, longest_path, push_sources
from fourward.layering._layering import check_same_graph
from fourward.nn._fourward import FourWard
from fourward.view._layout import FloatArray

#: The kinds of node, by the code that `kinds` gives them; the paper draws them green, red, white and violet.
KINDS = ("source", "hidden", "hidden, could move", "sink")
#: The same for a graph whose inputs aren't its sources, or whose outputs aren't its sinks.
CHOSEN_KINDS = ("input", "hidden", "hidden, could move", "output", "input and output")


class Subject(NamedTuple):
    """A graph with a layering, and with weights where it is a network."""

    dag: Dag
    layering: Layering
    weight: FloatArray | None  #: (E,)
    bias: FloatArray | None  #: (N-I,)
    net: FourWard | None


def subject_of(thing: Any, layering: Layering | None = None, weight: Any = None) -> Subject:
    """A network, or a Dag and maybe numbers of its edges; its layering is the network's own, or the paper's."""
    if not isinstance(thing, Dag | FourWard):
        raise OptionError(
            f"a {type(thing).__name__} came, but a picture is made of a Dag or of a FourWard network. "
            "A connectome has a Dag as its .dag; fourward.Dag.from_networkx and the like make one."
        )
    net = None if isinstance(thing, Dag) else thing
    dag = thing if isinstance(thing, Dag) else thing.dag
    if layering is None:
        layering = push_sources(dag, longest_path(dag)) if net is None else net.layering
    check_same_graph(dag, layering)
    layering.verify()
    if net is None:
        return Subject(dag, layering, None if weight is None else _weights(weight, dag), None, None)
    if weight is not None:
        raise WeightError("weights came for a network that has its own. Leave them away, or give its .dag.")
    bias = None if net.bias is None else net.bias.detach().float().cpu().numpy()
    return Subject(dag, layering, net.weight.detach().float().cpu().numpy(), bias, net)


def _weights(weight: Any, dag: Dag) -> FloatArray:
    numbers = np.asarray(weight, np.float32)
    if numbers.shape != (dag.num_edges,):
        raise WeightError(
            f"weights of shape {numbers.shape} came, but the graph has {dag.num_edges:,} edges: one number for each."
        )
    return numbers


def describe(dag: Dag) -> str:
    """What a graph is made of, in words."""
    return repr(dag)[len("Dag(") : -1]


def all_of(number: int, word: str) -> str:
    """All of so many things, in words."""
    return {0: f"no {word}s", 1: f"the one {word}"}.get(number, f"all {number:,} {word}s")


def legible(text: str) -> str:
    """The same text without what no letter stands for, and no SVG file may hold."""
    return "".join(" " if c.isspace() else "�" if category(c) in ("Cc", "Cn", "Cs") else c for c in text)


def kind_names(dag: Dag) -> tuple[str, ...]:
    """KINDS where the inputs are the sources and the outputs the sinks, else those of CHOSEN_KINDS that it needs."""
    if _is_usual(dag):
        return KINDS
    return CHOSEN_KINDS if len(np.intersect1d(dag.inputs, dag.outputs)) else CHOSEN_KINDS[:4]


def kinds(layering: Layering, movable: bool = True) -> IntArray:
    """(N,) the kind of each node, an index into `kind_names`; without `movable`, no node is told to be so."""
    dag = layering.dag
    kind = np.where((layering.slack > 0) & movable, 2, 1)
    if _is_usual(dag):
        return np.asarray(np.where(dag.in_degree == 0, 0, np.where(dag.out_degree == 0, 3, kind)))
    kind[dag.outputs] = 3
    kind[dag.inputs] = np.where(np.isin(dag.inputs, dag.outputs), 4, 0)
    return kind


def _is_usual(dag: Dag) -> bool:
    """Whether the inputs are the sources and the outputs the sinks, in whatever order."""
    ends = ((dag.inputs, dag.in_degree), (dag.outputs, dag.out_degree))
    return all(np.array_equal(np.sort(nodes), np.flatnonzero(degree == 0)) for nodes, degree in ends)


def limit_of(values: FloatArray) -> float:
    """The size at which a colour scale ends: nearly all values are smaller, and it is never 0."""
    sizes = np.abs(values[np.isfinite(values)])
    limit = float(np.quantile(sizes, 0.98)) if len(sizes) else 0.0
    return limit or (float(sizes.max(initial=0.0)) or 1.0)


def activations_of(net: FourWard, x: torch.Tensor) -> torch.Tensor:
    """(S, N) what all nodes compute for the samples x, without dropout, on the CPU."""
    was_training = net.training
    net.eval()
    try:
        with torch.no_grad():
            return net.activations(x).cpu()
    finally:
        net.train(was_training)

"""Two bundled connectomes, each with its citation; `data/SOURCES.md` has the source of every file and number."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._arrays import IntArray, readonly
from fourward.errors import GraphError
from fourward.graph import _convert
from fourward.graph._annotated import AnnotatedGraph
from fourward.graph._choose import ALL_ENDS, NodeChoice
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph, Feedback
from fourward.graph.orient import Acyclic

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["NAMES", "Connectome", "load"]

_CITATIONS = {
    "c-elegans": (
        "Cook SJ, Jarrell TA, Brittin CA, et al. Whole-animal connectomes of both Caenorhabditis elegans "
        "sexes. Nature 571, 63-71 (2019). doi:10.1038/s41586-019-1352-7"
    ),
    "mushroom-body": (
        "Eichler K, Li F, Litwin-Kumar A, et al. The complete connectome of a learning and memory centre in "
        "an insect brain. Nature 548, 175-182 (2017). doi:10.1038/nature23455"
    ),
}

#: Classes of the neurons that are inputs and outputs.
_ENDS = {"c-elegans": ("sensory", "motorneuron"), "mushroom-body": ("PN", "MBON")}

#: Names for `load`: the worm's chemical synapses, the larval fly's mushroom bodies.
NAMES = tuple(_CITATIONS)


@dataclass(frozen=True, eq=False, repr=False)
class Connectome:
    """A nervous system as published: a directed graph of named neurons, with cycles.

    >>> worm = load("c-elegans")
    >>> worm
    Connectome('c-elegans', 302 neurons, 3,709 edges)
    >>> worm.dag
    Dag(302 nodes, 2,407 edges, 83 inputs, 123 outputs)
    >>> len(worm.removed)
    1302
    >>> worm.graph
    Digraph(302 nodes, 3,709 edges (1,409 feedback), 83 inputs (81 driven), 123 outputs)
    """

    name: str
    citation: str  #: the paper to cite
    classes: Mapping[str, str]  #: class of each neuron by name, such as "sensory"; its keys are the neurons
    edges: tuple[tuple[str, str], ...]  #: names of the presynaptic and the postsynaptic neuron
    strength: IntArray  #: (E,) as published: sections of synapses for the worm, synapses for the fly

    @property
    def dag(self) -> Dag:
        """The graph from sensory to motor neurons without feedback, as `acyclic` makes it by default."""
        return self._acyclic.dag

    @cached_property
    def graph(self) -> Digraph:
        """The whole nervous system; see `digraph`, which makes it with other inputs, outputs or feedback."""
        return self.digraph()

    @property
    def removed(self) -> list[tuple[Any, Any]]:
        """The edges that are not in `dag`, by names: edges into inputs, feedback, synapses of a neuron onto itself."""
        return self._acyclic.removed

    @cached_property
    def weight(self) -> IntArray:
        """(E,) the strength of each of `dag.edges`, as in fourward.draw(worm.dag, weight=worm.weight)."""
        removed = set(self.removed)
        acyclic = [k for k, edge in enumerate(self.edges) if edge not in removed]
        return readonly(self.dag.align(self.strength[acyclic], [self.edges[k] for k in acyclic]))

    @cached_property
    def _acyclic(self) -> Acyclic:
        return self.acyclic()

    def acyclic(self, *, inputs: NodeChoice = None, outputs: NodeChoice = None) -> Acyclic:
        """The Dag and the removed edges, with these inputs and outputs.

        Edges into inputs are cut, and feedback is removed by strength, as `fourward.files.read_dag` does: every neuron
        that the inputs reach stays reached. With inputs="sources", the fewest edges are removed instead, whatever their
        strengths, and all neurons that are then without incoming edges are inputs.

        Args:
            inputs: Names, or an attribute and its value, such as "class=interneuron", or "sources". Default: the
                sensory neurons, or the projection neurons of the mushroom bodies.
            outputs: The outputs, likewise, or "sinks". Default: the motor neurons, or the output neurons of the
                mushroom bodies.

        >>> load("c-elegans").acyclic(inputs="sources", outputs="sinks").dag
        Dag(302 nodes, 2,542 edges, 16 inputs, 30 outputs)
        """
        made = self.annotated.to_dag(inputs=inputs, outputs=outputs, **acyclic_options(inputs))
        return Acyclic(made.dag, [*made.cut, *made.removed])

    def digraph(
        self,
        *,
        inputs: NodeChoice = None,
        outputs: NodeChoice = None,
        driven: bool = True,
        feedback: Feedback = "fewest",
    ) -> Digraph:
        """All edges as a Digraph, which a `Recurrent` network runs; feedback="fewest" keeps strong synapses in a step.

        Args:
            inputs: As in `acyclic`.
            outputs: As in `acyclic`.
            driven: As in `fourward.Digraph.from_edges`.
            feedback: Likewise.
        """
        made = self.annotated.to_digraph(
            inputs=inputs, outputs=outputs, into_inputs="drive" if driven else "cut", feedback=feedback
        )
        return made.graph

    @property
    def annotated(self) -> AnnotatedGraph:
        """The whole graph with strengths, classes, and the default inputs and outputs."""
        first, last = map(self._names_of_class, _ENDS[self.name])
        graph = _convert.from_pairs(self.edges, self.classes)._replace(inputs=first, outputs=last)
        attributes = {"class": tuple(self.classes.values())}
        return AnnotatedGraph(graph, self.strength.astype(np.float64), attributes=attributes)

    def _names_of_class(self, kind: str) -> list[Hashable]:
        return [name for name, neuron_class in self.classes.items() if neuron_class == kind]

    def to_networkx(self) -> nx.DiGraph:
        """The connectome as a DiGraph: `strength` on edges, `neuron_class` on nodes, the citation on the graph."""
        import networkx as nx

        graph = nx.DiGraph(name=self.name, citation=self.citation)
        graph.add_nodes_from((name, {"neuron_class": kind}) for name, kind in self.classes.items())
        weighted = zip(self.edges, self.strength.tolist(), strict=True)
        graph.add_weighted_edges_from(((u, v, s) for (u, v), s in weighted), weight="strength")
        return graph

    def __repr__(self) -> str:
        return f"Connectome({self.name!r}, {len(self.classes):,} neurons, {len(self.edges):,} edges)"


def acyclic_options(inputs: NodeChoice) -> dict[str, Any]:
    """How a connectome becomes a Dag with these inputs, as options of `fourward.files.read_dag`."""
    all_sources = isinstance(inputs, str) and inputs == ALL_ENDS["input"]
    return {"remove_feedback": "fewest" if all_sources else True, "into_inputs": "cut"}


def load(name: str) -> Connectome:
    """Load a bundled connectome: "c-elegans", or "mushroom-body" of the larval fly."""
    if name not in NAMES:
        raise GraphError(f"unknown connectome {name!r}. Choose from {', '.join(NAMES)}.")
    nodes, rows = _read_table(f"{name}.nodes.csv"), _read_table(f"{name}.edges.csv")
    return Connectome(
        name,
        _CITATIONS[name],
        {row["neuron"]: row["class"] for row in nodes},
        tuple((row["source"], row["target"]) for row in rows),
        readonly(np.array([int(row["strength"]) for row in rows])),
    )


def _read_table(file: str) -> list[dict[str, str]]:
    with (files("fourward.graph") / "data" / file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))

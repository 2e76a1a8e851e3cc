"""Enters: anything that describes a graph of neurons. Leaves: a Dag, or a Digraph, frozen and checked.

Never belongs here: torch, or an import of `layering` or the packages after it. Layers, plans and training belong there.
"""

from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph, AnnotatedGraph
from fourward.graph._convert import EdgeList
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph

__all__ = ["AnnotatedDag", "AnnotatedDigraph", "AnnotatedGraph", "Dag", "Digraph", "EdgeList"]

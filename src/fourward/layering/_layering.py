"""Layering: the level of every node of a Dag, and quantities derived from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fourward._arrays import BoolArray, IntArray, readonly
from fourward.errors import LayeringError, pluralize
from fourward.graph._dag import Dag


@dataclass(frozen=True, eq=False, repr=False)
class Layering:
    """A partition of the nodes into layers 0 to H-1; every edge leads to a higher layer, which `verify` checks.

    >>> from fourward.layering import longest_path
    >>> lay = longest_path(Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("b", "d")]))
    >>> lay
    Layering(4 nodes in 3 layers, attenuation 1.33)
    """

    dag: Dag
    level: IntArray  #: (N,) the layer of each node

    def __post_init__(self) -> None:
        level = np.asarray(self.level)
        if level.shape != (self.dag.num_nodes,) or level.dtype.kind not in "iu":
            raise LayeringError(
                f"expected one integer level for each of {self.dag.num_nodes:,} nodes, "
                f"got {level.dtype} of shape {level.shape}."
            )
        if level.min() < 0 or level.max() >= self.dag.num_nodes:
            raise LayeringError(
                f"expected levels from 0 to at most {self.dag.num_nodes - 1} for {self.dag.num_nodes:,} nodes, "
                f"got levels from {level.min()} to {level.max()}."
            )
        object.__setattr__(self, "level", readonly(level.astype(np.int32)))

    @cached_property
    def height(self) -> int:
        """H, the number of layers."""
        return int(self.level.max()) + 1

    @property
    def attenuation(self) -> float:
        """N / H, the paper's height attenuation: mean number of nodes in a layer."""
        return self.dag.num_nodes / self.height

    @cached_property
    def layers(self) -> tuple[IntArray, ...]:
        """The nodes of each layer, ascending."""
        by_level = np.argsort(self.level, kind="stable")
        return tuple(map(readonly, np.split(by_level, np.cumsum(np.bincount(self.level))[:-1])))

    @cached_property
    def slack(self) -> IntArray:
        """(N,) how many layers towards the sources each hidden node could move; 0 for sources and sinks.

        The difference between a node's level and the lowest level that its ancestors allow. A node moves under
        `reassign` only if its slack is positive.
        """
        return readonly(np.where(is_hidden(self.dag), self.level - self.dag.longest_path_from_source, 0))

    @property
    def movable(self) -> IntArray:
        """The nodes whose slack is positive, ascending."""
        return np.flatnonzero(self.slack)

    def verify(self) -> None:
        """Raise a LayeringError unless every level has a node and every edge leads to a higher level."""
        dag = self.dag
        empty = np.flatnonzero(np.bincount(self.level, minlength=self.height) == 0)
        if len(empty):
            raise LayeringError(
                f"expected nodes in each of {self.height} layers, but {pluralize(len(empty), 'layer')} "
                f"{'is' if len(empty) == 1 else 'are'} empty; the first is layer {empty[0]}."
            )
        violations = np.flatnonzero(self.level[dag.source] >= self.level[dag.target])
        if len(violations):
            u, v = dag.edges[violations[0]].tolist()
            raise LayeringError(
                f"every edge must lead to a higher layer, but {len(violations):,} of {dag.num_edges:,} edges "
                f"{'does' if len(violations) == 1 else 'do'} not; the first leads from {dag.labels[u]!r} in layer "
                f"{self.level[u]} to {dag.labels[v]!r} in layer {self.level[v]}."
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layering):
            return NotImplemented
        return np.array_equal(self.level, other.level) and self.dag == other.dag

    def __hash__(self) -> int:
        return hash((self.dag, self.level.tobytes()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Layering:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.dag, np.asarray(self.level))

    def __repr__(self) -> str:
        size = f"{pluralize(self.dag.num_nodes, 'node')} in {pluralize(self.height, 'layer')}"
        return f"Layering({size}, attenuation {self.attenuation:.2f})"


def is_hidden(dag: Dag) -> BoolArray:
    """(N,) True for the paper's hidden nodes, with edges in and out; `Plan.hidden` is about inputs and outputs."""
    hidden: BoolArray = (dag.in_degree > 0) & (dag.out_degree > 0)
    return hidden


def check_same_graph(dag: Dag, layering: Layering) -> None:
    """Raise unless the layering was made for this graph."""
    if layering.dag is not dag and layering.dag != dag:
        raise LayeringError(f"expected a layering of {dag!r}, got one of {layering.dag!r}. Make one for this graph.")

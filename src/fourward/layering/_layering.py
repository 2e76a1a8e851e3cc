"""Layering: the level of every node of a Dag, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fourward._arrays import IntArray, readonly
from fourward._jit import cached_njit
from fourward.errors import LayeringError, pluralize
from fourward.graph._dag import Dag


@dataclass(frozen=True, eq=False, repr=False)
class Layering:
    """A partition of the nodes into layers 0 to H-1 such that every edge leads to a higher layer.

    >>> from fourward.layering import longest_path
    >>> lay = longest_path(Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d"), ("b", "d")]))
    >>> lay
    Layering(4 nodes in 3 layers, attenuation 1.33)
    """

    dag: Dag
    level: IntArray  #: (N,) the layer of each node

    def __post_init__(self) -> None:
        level = np.array(self.level)
        if level.shape != (self.dag.num_nodes,) or not np.issubdtype(level.dtype, np.integer):
            raise LayeringError(
                f"a layering needs one integer for each of {self.dag.num_nodes:,} nodes, "
                f"got {level.dtype} of shape {level.shape}."
            )
        if level.min() < 0 or level.max() >= self.dag.num_nodes:
            raise LayeringError(
                f"levels go from 0 to at most {self.dag.num_nodes - 1} for {self.dag.num_nodes:,} nodes, but these go "
                f"from {level.min()} to {level.max()}."
            )
        object.__setattr__(self, "level", readonly(level.astype(np.int32)))

    @cached_property
    def height(self) -> int:
        """H, the number of layers."""
        return int(self.level.max()) + 1

    @property
    def attenuation(self) -> float:
        """N / H, the paper's height attenuation: how many nodes a layer holds on average."""
        return self.dag.num_nodes / self.height

    @cached_property
    def layers(self) -> tuple[IntArray, ...]:
        """The nodes of each layer, ascending."""
        by_level = np.argsort(self.level, kind="stable")
        return tuple(map(readonly, np.split(by_level, np.cumsum(np.bincount(self.level))[:-1])))

    @cached_property
    def slack(self) -> IntArray:
        """(N,) how many layers towards the sources each hidden node could move; 0 for sources and sinks.

        Counts from where the node stands to the lowest layer that its ancestors allow. A node moves under
        `reassign` only if its slack is positive.
        """
        dag = self.dag
        lowest = _lowest_level(dag.order, dag.source, dag.in_start)
        hidden = (dag.in_degree > 0) & (dag.out_degree > 0)
        return readonly(np.where(hidden, self.level - lowest, 0))

    @property
    def movable(self) -> IntArray:
        """The nodes whose slack is positive, ascending."""
        return np.flatnonzero(self.slack)

    def verify(self) -> None:
        """Raise a LayeringError unless no level is empty and each edge leads upwards."""
        dag = self.dag
        empty = np.flatnonzero(np.bincount(self.level, minlength=self.height) == 0)
        if len(empty):
            raise LayeringError(f"layer {empty[0]} of {self.height} is empty, and {len(empty) - 1:,} others.")
        wrong = np.flatnonzero(self.level[dag.source] >= self.level[dag.target])
        if len(wrong):
            u, v = dag.edges[wrong[0]].tolist()
            raise LayeringError(
                f"{pluralize(len(wrong), 'edge')} should lead to a higher layer; the first leads from "
                f"{dag.labels[u]!r} in layer {self.level[u]} to {dag.labels[v]!r} in layer {self.level[v]}."
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


def check_same_graph(dag: Dag, layering: Layering) -> None:
    """A layering is of use for its own graph alone."""
    if layering.dag is not dag and layering.dag != dag:
        raise LayeringError(f"this layering belongs to {layering.dag!r}, not to {dag!r}. Make one for this graph.")


@cached_njit
def _lowest_level(order: IntArray, source: IntArray, in_start: IntArray) -> IntArray:
    """(N,) the number of edges on the longest path from a source to each node."""
    lowest = np.zeros(len(order), np.int32)
    for q in range(len(order)):
        deepest = 0
        for k in range(in_start[q], in_start[q + 1]):
            deepest = max(deepest, lowest[source[k]] + 1)
        lowest[order[q]] = deepest
    return lowest

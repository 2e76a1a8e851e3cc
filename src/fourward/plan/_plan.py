"""Plan: a Dag renumbered for walking, as flat arrays. All graph reasoning ends here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fourward._arrays import IntArray, readonly
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering, check_same_graph


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The order in which a network is computed.

    Nodes get positions: first the inputs, in feature order, then the neurons by level, and within a level by
    node index. So x fills a slice, and a level is a slice. Edges stand in the order of the positions they lead
    to, then of those they start from. With the default layering this is the Dag's own order of walking, and
    the weights need no permutation.
    """

    dag: Dag
    layering: Layering
    order: IntArray  #: (N,) the node at each position
    position: IntArray  #: (N,) the position of each node
    level_start: IntArray  #: (L+1,) the neurons of level l stand at level_start[l]:level_start[l+1]; starts at I
    code: IntArray  #: (N,) activation of each position; inputs, which have none, carry 0 (identity)
    edge: IntArray | None  #: (E,) which edge of the Dag, and so which weight, each edge of the plan is; None: the same
    source: IntArray  #: (E,) the position where each edge of the plan starts
    edge_start: IntArray  #: (N+1,) the plan's edges into position q are edge_start[q]:edge_start[q+1]
    neuron: IntArray  #: (N-I,) which entry of the bias belongs to each position from I on
    outputs: IntArray  #: (O,) the position of each output

    @property
    def num_levels(self) -> int:
        """L, the number of levels that hold neurons; inputs stand before all of them."""
        return len(self.level_start) - 1

    @cached_property
    def target(self) -> IntArray:
        """(E,) the position where each edge of the plan ends."""
        return np.repeat(np.arange(self.dag.num_nodes, dtype=np.int32), np.diff(self.edge_start))

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        code = np.empty_like(self.code)
        code[self.order] = self.code
        return build_plan, (self.dag, self.layering, code)

    def __repr__(self) -> str:
        return f"Plan({self.dag!r}, {self.num_levels:,} levels)"


def build_plan(dag: Dag, layering: Layering, code: IntArray) -> Plan:
    """Renumber a Dag for walking; `code` is the activation of each node (inputs: ignored)."""
    check_same_graph(dag, layering)
    neurons = dag.neurons
    walk = np.lexsort((neurons, layering.level[neurons]))
    order = np.concatenate((dag.inputs, neurons[walk])).astype(np.int32)
    per_level = np.bincount(layering.level[neurons])
    per_level = per_level[per_level > 0]
    if np.array_equal(order, dag.order):
        position, edge, source, edge_start = dag.position, None, dag.position[dag.source], dag.in_start
    else:
        position, edge, source, edge_start = _rewalk(dag, order)
    plan_code = np.where(np.arange(dag.num_nodes) < dag.num_inputs, 0, code[order])
    arrays = (
        order,
        position,
        dag.num_inputs + np.concatenate(([0], np.cumsum(per_level))),
        plan_code.astype(np.int32),
        edge,
        source,
        edge_start,
        walk.astype(np.int32),
        position[dag.outputs],
    )
    return Plan(dag, layering, *(array if array is None else readonly(array) for array in arrays))  # type: ignore[arg-type]


def _rewalk(dag: Dag, order: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Position, edge, source and edge_start for another order than the Dag's own."""
    position = np.empty(dag.num_nodes, np.int32)
    position[order] = np.arange(dag.num_nodes, dtype=np.int32)
    edge = np.lexsort((position[dag.source], position[dag.target]))
    start = np.concatenate(([0], np.cumsum(dag.in_degree[order])))
    return position, edge, position[dag.source[edge]], start

"""Plan: a Dag renumbered for walking, as flat arrays. All graph reasoning ends here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fourward.graph.convert import IntArray
from fourward.graph.dag import Dag
from fourward.layering.layering import Layering, check_same_graph


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The order in which a network is computed.

    Nodes get positions: first the inputs, in feature order, then the neurons by level, within a level by
    activation, within that by node index. So x fills a slice, a level is a slice, and the neurons of a level
    that share an activation are a slice. Edges stand in the order of the positions they lead to.
    """

    dag: Dag
    layering: Layering
    order: IntArray  #: (N,) the node at each position
    position: IntArray  #: (N,) the position of each node
    level_start: IntArray  #: (L+1,) the neurons of level l stand at level_start[l]:level_start[l+1]; starts at I
    code: IntArray  #: (N,) activation of each position; inputs, which have none, carry 0 (identity)
    edge: IntArray  #: (E,) which edge of the Dag, and so which weight, each edge of the plan is
    source: IntArray  #: (E,) the position where each edge of the plan starts
    edge_start: IntArray  #: (N+1,) the plan's edges into position q are edge_start[q]:edge_start[q+1]
    neuron: IntArray  #: (N-I,) which entry of the bias belongs to each position from I on
    outputs: IntArray  #: (O,) the position of each output

    @property
    def num_levels(self) -> int:
        """L, the number of levels that hold neurons; inputs stand before all of them."""
        return len(self.level_start) - 1

    def runs(self) -> list[tuple[int, int, int, int]]:
        """Each (level, start, stop, code): neurons side by side in a level that share an activation."""
        first = self.dag.num_inputs
        starts = np.zeros(self.dag.num_nodes + 1, np.bool_)
        starts[self.level_start] = True
        starts[first + 1 : -1] |= self.code[first + 1 :] != self.code[first:-1]
        bounds = np.flatnonzero(starts)
        level = np.searchsorted(self.level_start, bounds[:-1], side="right") - 1
        columns = (level, bounds[:-1], bounds[1:], self.code[bounds[:-1]])
        return list(zip(*(column.tolist() for column in columns), strict=True))

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
    walk = np.lexsort((neurons, code[neurons], layering.level[neurons]))
    order = np.concatenate((dag.inputs, neurons[walk]))
    position = np.empty(dag.num_nodes, np.int32)
    position[order] = np.arange(dag.num_nodes, dtype=np.int32)
    per_level = np.bincount(layering.level[neurons])
    per_level = per_level[per_level > 0]
    in_degree = dag.in_degree[order]
    edge_start = np.concatenate(([0], np.cumsum(in_degree)))
    edge = _ranges(dag.in_start[order], in_degree, edge_start)
    plan_code = np.where(np.arange(dag.num_nodes) < dag.num_inputs, 0, code[order])
    arrays = (
        order.astype(np.int32),
        position,
        dag.num_inputs + np.concatenate(([0], np.cumsum(per_level))),
        plan_code.astype(np.int32),
        edge,
        position[dag.source[edge]],
        edge_start,
        walk.astype(np.int32),
        position[dag.outputs],
    )
    for array in arrays:
        array.setflags(write=False)
    return Plan(dag, layering, *arrays)


def _ranges(first: IntArray, length: IntArray, start: IntArray) -> IntArray:
    """The ranges first[i]:first[i]+length[i], one after another; `start` is where each begins."""
    index = np.int32 if int(start[-1]) <= np.iinfo(np.int32).max else np.int64
    shift = np.repeat((first - start[:-1]).astype(index), length)
    shift += np.arange(len(shift), dtype=index)
    return shift

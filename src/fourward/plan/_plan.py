"""Plan: a Dag renumbered in execution order, as flat arrays. All reasoning about the graph ends here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._arrays import BoolArray, IntArray, readonly
from fourward._jit import cached_njit
from fourward.graph._algorithms import sort_edges
from fourward.graph._dag import Dag
from fourward.graph._driven import add_feature_nodes
from fourward.layering._layering import Layering, check_same_graph
from fourward.plan.activations import derivative_needs_z

if TYPE_CHECKING:
    from fourward.plan._schedule import Schedule


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The execution order of a network.

    Nodes are numbered by position: first the inputs, in feature order, then the neurons by level, and by node index
    within a level. So x fills the first I rows, and each level is a range of rows. Edges are sorted by the position of
    their target, then by that of their source. With the default layering this is the order of `dag.edges`, and weights
    need no permutation.
    """

    dag: Dag
    layering: Layering
    order: IntArray  #: (N,) the node at each position
    position: IntArray  #: (N,) the position of each node
    level_start: IntArray  #: (L+1,) the neurons of level l are at level_start[l]:level_start[l+1]; level_start[0] is I
    code: IntArray  #: (N,) the activation code at each position; 0 (identity) for inputs, which have no activation
    edge: IntArray | None  #: (E,) the edge of the Dag, and so the weight, of each of the plan; None: the same order
    source: IntArray  #: (E,) the position where each edge starts
    edge_start: IntArray  #: (N+1,) the edges into position q are edge_start[q]:edge_start[q+1]
    neuron: IntArray  #: (N-I,) the entry of the bias for each position from I on
    outputs: IntArray  #: (O,) the position of each output
    nodes: IntArray | None = None  #: (N,) if the Dag is a part of another, the index there of each node
    driven: tuple[int, ...] = ()  #: neurons that are inputs, too, fed by input nodes of their own; never dropped

    @property
    def num_levels(self) -> int:
        """L, the number of levels that contain neurons; inputs precede all of them."""
        return len(self.level_start) - 1

    @cached_property
    def target(self) -> IntArray:
        """(E,) the position where each edge ends."""
        return np.repeat(np.arange(self.dag.num_nodes, dtype=np.int32), np.diff(self.edge_start))

    @property
    def dropout_node(self) -> IntArray:
        """(N,) the node index that dropout draws by at each position."""
        return self.order if self.nodes is None else self.nodes[self.order]

    @cached_property
    def node_code(self) -> IntArray:
        """(N,) the activation code of each node, by node index."""
        return readonly(self.code[self.position])

    @cached_property
    def hidden(self) -> BoolArray:
        """(N,) True at the positions of hidden neurons, neither inputs nor outputs: dropout applies to them."""
        hidden = np.ones(self.dag.num_nodes, bool)
        hidden[: self.dag.num_inputs] = hidden[self.outputs] = hidden[self.position[list(self.driven)]] = False
        return readonly(hidden)

    @cached_property
    def reaches_output(self) -> BoolArray:
        """(N,) True at the positions from which an output can be reached; outputs included, inputs maybe not."""
        reaches = np.zeros(self.dag.num_nodes, np.bool_)
        reaches[self.outputs] = True
        _mark_ancestors(self.source, self.edge_start, reaches)
        return readonly(reaches)

    @cached_property
    def needs_z(self) -> BoolArray:
        """(N,) True at the positions whose activation's derivative needs z; False for custom activations."""
        return readonly(derivative_needs_z(self.code))

    @cached_property
    def schedule(self) -> Schedule:
        """The order in which an engine takes the nodes one by one."""
        from fourward.plan._schedule import build_schedule  # which builds on this module

        return build_schedule(self)

    def edges_by_source(self) -> tuple[IntArray, IntArray]:
        """The plan's edges (E,) sorted by source, then by target; and (N+1,) where those of each position start."""
        return sort_by_source(self.source, self.dag.num_nodes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Plan:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return build_plan, (self.dag, self.layering, self.node_code, self.nodes, self.driven)

    def __repr__(self) -> str:
        return f"Plan({self.dag!r}, {self.num_levels:,} levels)"


def build_plan(
    dag: Dag, layering: Layering, code: IntArray, nodes: IntArray | None = None, driven: tuple[int, ...] = ()
) -> Plan:
    """Renumber a Dag in execution order.

    Args:
        dag: The graph; none of its inputs has incoming edges. `build_driven_plan` plans a graph with driven inputs.
        layering: A layering of this graph.
        code: (N,) the activation code of each node, by node index; ignored for inputs.
        nodes: (N,) if the Dag is a part of another, the index there of each node, by which dropout draws.
        driven: As in `Plan`.
    """
    check_same_graph(dag, layering)
    neurons = dag.neurons
    level = layering.level[neurons]
    by_level = np.argsort(level, kind="stable")  # and so by node index within a level
    order = np.concatenate((dag.inputs, neurons[by_level]))
    level_size = np.bincount(level)
    level_size = level_size[level_size > 0]
    if np.array_equal(order, dag.order):
        position, edge, source, edge_start = dag.position, None, dag.position[dag.source], dag.in_start
    else:
        position, edge, source, edge_start = _sort_edges(dag, order)
    plan_code = code[order].astype(np.int32)
    plan_code[: dag.num_inputs] = 0
    arrays = (
        order,
        position,
        dag.num_inputs + np.concatenate(([0], np.cumsum(level_size))),
        plan_code,
        edge,
        source,
        edge_start,
        by_level.astype(np.int32),
        position[dag.outputs],
        nodes,
    )
    fields: Any = (dag, layering, *(array if array is None else readonly(array) for array in arrays), driven)
    return Plan(*fields)


def build_driven_plan(dag: Dag, layering: Layering, code: IntArray, driven: IntArray) -> tuple[Plan, IntArray | None]:
    """The plan of a graph with D driven inputs: that of a Dag with D input nodes more, which carry their features.

    Args:
        dag: The graph.
        layering: A layering of this graph.
        code: (N,) the activation code of each node, by node index.
        driven: (D,) the driven inputs; edges outside of `dag` can drive some of them. Without any, it is `build_plan`.

    Returns:
        The plan, whose Dag has nodes 0 to N-1 in common with `dag`; and for each of its E + D edges the edge of `dag`,
        or E for those out of the new nodes, whose weight is 1; None without driven inputs: edges are those of `dag`.
    """
    if not len(driven):
        return build_plan(dag, layering, code), None
    check_same_graph(dag, layering)
    with_features, edge = add_feature_nodes(dag, driven)
    above = int(np.any(layering.level[driven] == 0))  # 1 makes room for the new nodes below a driven node of level 0
    level = np.concatenate((layering.level + above, np.zeros(len(driven), np.int32)))
    code = np.concatenate((code, np.zeros(len(driven), np.int32)))
    return build_plan(with_features, Layering(with_features, level), code, driven=tuple(driven.tolist())), edge


def _sort_edges(dag: Dag, order: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Position, edge, source and edge_start for an order other than the Dag's."""
    position = np.empty(dag.num_nodes, np.int32)
    position[order] = np.arange(dag.num_nodes, dtype=np.int32)
    (source, _), start, edge = sort_edges(dag.source, dag.target, position)
    return position, edge, position[source], start


@cached_njit
def _mark_ancestors(source: IntArray, edge_start: IntArray, marked: BoolArray) -> None:
    """Mark all ancestors of the marked positions, in place."""
    for q in range(len(marked) - 1, -1, -1):  # sources precede their targets, so the mark of q is final
        if marked[q]:
            for k in range(edge_start[q], edge_start[q + 1]):
                marked[source[k]] = True


@cached_njit
def sort_by_source(source: IntArray, num_nodes: int) -> tuple[IntArray, IntArray]:
    """A stable counting sort: (E,) int32 edges by source, and (N+1,) where those of each source start."""
    start = np.zeros(num_nodes + 1, np.int64)
    for k in range(len(source)):
        start[source[k] + 1] += 1
    for q in range(num_nodes):
        start[q + 1] += start[q]
    free = start[:-1].copy()
    edge = np.empty(len(source), np.int32)
    for k in range(len(source)):
        edge[free[source[k]]] = k
        free[source[k]] += 1
    return edge, start

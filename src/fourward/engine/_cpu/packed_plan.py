"""Packed plans: a plan and its schedule as the kernels read them, one tensor of int32."""

# mypy: disable-error-code="call-arg"
# (Numba types what it compiles.)

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from numba.core import types
from torch import Tensor

from fourward._arrays import BoolArray, IntArray
from fourward._jit import cached_njit
from fourward.engine._cpu.arguments import tuple_reader
from fourward.engine._cpu.edge_runs import (
    BackwardEdges,
    Runs,
    backward_edges,
    backward_runs,
    forward_runs,
    sort_by_source,
)
from fourward.engine._cpu.simd import offset
from fourward.errors import EngineError
from fourward.plan._plan import Plan
from fourward.plan._recurrent_plan import RecurrentPlan
from fourward.plan._schedule import Schedule, build_schedule

ALIGN = 16  #: fields start at multiples of so many int32
#: The version of packed plans: changes whenever PackedPlan does. An exported network may meet newer kernels.
LAYOUT = 3
_NO_RUNS = Runs(*(np.empty(0, np.int32),) * 4)


class Sizes(NamedTuple):
    """Numbers of what a packed plan contains."""

    nodes: int  #: N
    edges: int  #: E
    z_rows: int  #: nodes whose z is saved
    needed: int  #: nodes that lead to an output: the first ones
    runs: int  #: R
    needed_runs: int  #: runs of nodes that lead to an output: the first ones
    back_runs: int  #: R'
    levels: int  #: L, 0 if steps aren't by level


class PackedPlan(NamedTuple):
    """A plan and its schedule as the kernels read them: int32 arrays, packed into one tensor by `pack`.

    N nodes, numbered by step; E edges. A node's first run starts its sum, its last one finishes it.
    """

    sizes: Any  #: Sizes
    run_step: Any  #: (R,) node that each run of a forward pass over wide slices adds to
    run_first: Any  #: (R,) its first edge
    run_last: Any  #: (R,) the edge after its last
    run_flag: Any  #: (R,) BEGIN, END, both or neither
    back_run_step: Any  #: (R',) the same for a backward pass from the outputs, over edges sorted by source
    back_run_first: Any
    back_run_last: Any
    back_run_flag: Any
    first: Any  #: (N,) each node's first edge
    last: Any  #: (N,) the edge after its last
    back_first: Any  #: (N,) its first edge, edges sorted by source
    back_needed: Any  #: (N,) the edge after its last one to a node that leads to an output
    back_last: Any  #: (N,) the edge after its last
    source: Any  #: (E,) node where each edge starts
    source_slot: Any  #: (E,) row of that node where rows are reused
    back_target_slot: Any  #: (E,) row of the gradient of the node where each edge ends, edges sorted by source
    back_edge: Any  #: (E,) index among the plan's edges, edges sorted by source
    step: Any  #: (N,) 0, 1, ..., N-1: row of each node where rows are not reused
    slot: Any  #: (N,) row of each node where they are
    back_slot: Any  #: (N,) row of its gradient
    code: Any  #: (N,) activation code
    bias_index: Any  #: (N,) index of the bias; -1 for inputs
    z_row: Any  #: (N,) row in which z is saved for the backward pass; -1 where a is enough
    node: Any  #: (N,) node index
    hidden: Any  #: (N,) 1 where dropout applies
    feature: Any  #: (N,) column of x that an input takes; -1 for neurons
    output: Any  #: (N,) column of the result; -1 for nodes that are no outputs
    level_first: (
        Any  #: (L+1,) the first node of each level, inputs being a level; nodes that lead to no output have others
    )


@njit(nogil=True)
def read_field(packed_plan: Any, i: int) -> Any:
    """Field i of a packed plan, which starts with where each of them starts, in units of ALIGN."""
    return offset(packed_plan, ALIGN * packed_plan[i])


#: The fields of a packed plan, for kernels.
unpack = tuple_reader(PackedPlan, read_field)

#: Its sizes, for kernels.
read_sizes = tuple_reader(Sizes, njit(nogil=True)(lambda sizes, i: types.int64(sizes[i])))


class Shape(NamedTuple):
    """The sizes of a packed plan that a launch needs to know without reading it."""

    nodes: int
    inputs: int
    outputs: int
    edges: int
    z_rows: int  #: nodes whose z the backward pass needs
    slots: int  #: rows of a forward pass that reuses rows
    back_slots: int  #: rows of gradients
    levels: int  #: L, as in `Sizes`


def pack(plan: Plan, position: IntArray | None = None) -> tuple[Tensor, Shape]:
    """Pack a plan; `position` is an order to take instead of the best, as in `build_schedule`."""
    dag, schedule = plan.dag, plan.schedule if position is None else build_schedule(plan, position)
    order, nodes = schedule.position, _node_fields(plan, schedule.position)
    step = nodes["step"]
    slot, back_slot = (step if slots is None else slots for slots in (schedule.slot, schedule.back_slot))
    edges = backward_edges(plan, schedule)
    runs, back_runs = forward_runs(plan, schedule), backward_runs(plan, schedule, edges)
    source, back_target = schedule.get_steps(plan.source), schedule.get_steps(plan.target[edges.edge])
    level_first = _find_levels(plan, schedule)
    needed_runs = len(runs.step) - (dag.num_nodes - schedule.needed) if runs else 0
    sizes = Sizes(
        nodes=dag.num_nodes,
        edges=dag.num_edges,
        z_rows=int(np.count_nonzero(plan.needs_z)),
        needed=schedule.needed,
        runs=len(runs.step) if runs else 0,
        needed_runs=needed_runs,
        back_runs=len(back_runs.step) if back_runs else 0,
        levels=len(level_first) - 1,
    )
    fields: dict[str, Any] = {
        "sizes": sizes,
        **{f"run_{name}": column for name, column in (runs or _NO_RUNS)._asdict().items()},
        **{f"back_run_{name}": column for name, column in (back_runs or _NO_RUNS)._asdict().items()},
        "first": plan.edge_start[order],
        "last": plan.edge_start[order + 1],
        "back_first": edges.first,
        "back_needed": edges.needed,
        "back_last": edges.last,
        "source": source,
        "back_edge": edges.edge,
        **nodes,
        "slot": slot,
        "source_slot": slot[source] if schedule.reuses_rows else source,
        "back_slot": back_slot,
        "back_target_slot": back_slot[back_target] if schedule.reuses_rows else back_target,
        "level_first": level_first,
    }
    return pack_fields(PackedPlan(**fields)), _shape(plan, sizes, schedule.num_slots, schedule.num_back_slots)


def _find_levels(plan: Plan, schedule: Schedule) -> IntArray:
    """(L+1,) where each level starts among the steps, and their number; [0] if they aren't by level."""
    if schedule.reuses_rows:
        return np.zeros(1, np.int64)
    level = np.searchsorted(plan.level_start, schedule.position, side="right")
    level[schedule.needed :] += len(plan.level_start) + 1
    return np.append(np.flatnonzero(np.diff(level, prepend=-1)), len(level))


def _node_fields(plan: Plan, order: IntArray) -> dict[str, Any]:
    """The fields that say what a node is, for nodes in an order of positions."""
    columns = _node_columns(order, plan.code, plan.neuron, plan.needs_z, plan.order, plan.hidden, plan.outputs)
    return dict(zip(_NODE_FIELDS, columns, strict=True))


_NODE_FIELDS = ("code", "bias_index", "z_row", "node", "hidden", "feature", "output", "step")


@cached_njit
def _node_columns(
    order: IntArray, code: IntArray, neuron: IntArray, needs_z: BoolArray, node: IntArray, hidden: BoolArray,
    outputs: IntArray,
) -> IntArray:  # fmt: skip
    """The columns of `_NODE_FIELDS`, in one pass: NumPy's calls would take longer than all else for a small network."""
    inputs, z_rows = len(order) - len(neuron), 0
    output = np.full(len(order), -1, np.int32)
    for column in range(len(outputs)):
        output[outputs[column]] = column
    columns = np.full((8, len(order)), -1, np.int32)
    for step in range(len(order)):
        position = order[step]
        columns[0, step] = code[position]
        if position < inputs:
            columns[5, step] = position
        else:
            columns[1, step] = neuron[position - inputs]
        if needs_z[position]:
            columns[2, step] = z_rows
            z_rows += 1
        columns[3, step] = node[position]
        columns[4, step] = hidden[position]
        columns[6, step] = output[position]
        columns[7, step] = step
    return columns


def _shape(plan: Plan, sizes: Sizes, slots: int, back_slots: int) -> Shape:
    dag = plan.dag
    return Shape(
        dag.num_nodes, dag.num_inputs, dag.num_outputs, sizes.edges, sizes.z_rows, slots, back_slots, sizes.levels
    )


def pack_recurrent(plan: RecurrentPlan) -> tuple[Tensor, Tensor, Shape, IntArray]:
    """Pack the plan of a network with feedback.

    Edges are sorted by target, those within a step first. Feedback edges lead to rows of another step: N rows before
    those of this step in a forward pass, and N rows after them in a backward pass.

    Returns:
        The packed plan; the same for the gradients of outputs, which edges to nodes that reach none have no part in;
        the shape; and the weight of each edge, (E+F,).
    """
    step, nodes = plan.step, plan.step.dag.num_nodes
    target = np.concatenate((step.target, plan.target))
    order = np.argsort(target, kind="stable")
    is_feedback, target = order >= step.dag.num_edges, target[order]
    source = np.concatenate((step.source, plan.source))[order]
    within = np.arange(step.dag.num_edges) if step.edge is None else step.edge
    start = np.concatenate(([0], np.cumsum(np.bincount(target, minlength=nodes))))
    edges, live = _sort_by_source_and_kind(source, is_feedback, plan.reaches_output[target], nodes)
    sizes = Sizes(nodes, len(order), int(np.count_nonzero(step.needs_z)), nodes, 0, 0, 0, 0)
    fields: dict[str, Any] = {
        "sizes": sizes,
        **{f"run_{name}": column for name, column in _NO_RUNS._asdict().items()},
        **{f"back_run_{name}": column for name, column in _NO_RUNS._asdict().items()},
        "first": start[:-1],
        "last": start[1:],
        "back_first": edges.first,
        "back_needed": edges.needed,
        "back_last": edges.last,
        "source": source - nodes * is_feedback,
        "back_edge": edges.edge,
        **_node_fields(step, np.arange(nodes, dtype=np.int32)),
        "back_target_slot": (target + nodes * is_feedback)[edges.edge],
        "level_first": np.zeros(1, np.int32),
    }
    fields |= {"slot": fields["step"], "back_slot": fields["step"], "source_slot": fields["source"]}
    weight = np.concatenate((within, step.dag.num_edges + plan.edge))[order]
    packed = pruned = pack_fields(PackedPlan(**fields))
    if live is not edges:
        pruned = pack_fields(PackedPlan(**fields | {"back_first": live.first, "back_last": live.last}))
    return packed, pruned, _shape(step, sizes, 2 * nodes, 2 * nodes), weight


def _sort_by_source_and_kind(
    source: IntArray, is_feedback: BoolArray, live: BoolArray, nodes: int
) -> tuple[BackwardEdges, BackwardEdges]:
    """Sort edges by source: first those within a step, where `needed` ends, then feedback edges.

    And the same for edges to nodes that reach an output alone, which stand on both sides of `needed`, with none between
    them; the same object if all do.
    """
    if live.all():
        edges = sort_by_source(source.astype(np.int32), ~is_feedback, nodes)
        return edges, edges
    kind = np.where(is_feedback, 3 - live, 0 + live)  # 0 and 3 lead to nodes that reach no output
    group = 4 * source.astype(np.int64) + kind
    edge = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group, minlength=4 * nodes)).reshape(nodes, 4)
    first = np.concatenate(([0], ends[:-1, 3]))
    return BackwardEdges(edge, first, ends[:, 1], ends[:, 3]), BackwardEdges(edge, ends[:, 0], ends[:, 1], ends[:, 2])


def pack_fields(fields: tuple[Any, ...]) -> Tensor:
    """Where each field starts in units of ALIGN, then the fields, then LAYOUT. What stands twice is stored once."""
    unit = ALIGN
    different = {id(field): field for field in fields}
    starts = np.cumsum([-(-len(fields) // unit), *(-(-len(field) // unit) for field in different.values())])
    packed = np.zeros(int(starts[-1]) * unit + 1, np.int32)
    packed[-1] = LAYOUT
    begin = dict(zip(different, starts.tolist(), strict=False))
    packed[: len(fields)] = [begin[id(field)] for field in fields]
    for key, field in different.items():
        packed[begin[key] * unit : begin[key] * unit + len(field)] = field
    return torch.from_numpy(packed)


def check_layout(packed_plan: Tensor, shape: list[int]) -> None:
    """Raise an EngineError if another version of fourward packed the plan."""
    if int(packed_plan[-1]) != LAYOUT:
        raise EngineError(
            f"this network was exported by another version of fourward (expected layout {LAYOUT}, got "
            f"{int(packed_plan[-1])}). Export it again with this version."
        )

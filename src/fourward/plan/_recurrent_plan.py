"""RecurrentPlan: the plan of a step, and the feedback edges that connect it with the step before."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fourward._arrays import BoolArray, IntArray, readonly
from fourward._jit import cached_njit
from fourward.layering._layering import Layering
from fourward.plan._plan import Plan, build_plan

#: "rate" integrates behind the activation, "voltage" before it.
Dynamics = Literal["rate", "voltage"]


@dataclass(frozen=True, eq=False, repr=False)
class RecurrentPlan:
    """The execution order of a network with feedback.

    A step is executed as its plan says. With the rows of all steps one after another, N for each, a feedback edge into
    row q of a step is an edge whose source row stands N rows before the row `source` of that step; the rows before the
    first step are those of h0. Feedback edges are sorted by the position of their target, then by that of their source.
    """

    step: Plan  #: the edges that are followed within a step
    source: IntArray  #: (F,) the position where each feedback edge starts, in the step before
    edge: IntArray  #: (F,) the index of each among the graph's feedback edges: its weight is weight[E + edge[k]]
    edge_start: IntArray  #: (N+1,) the feedback edges into position q are edge_start[q]:edge_start[q+1]
    dynamics: Dynamics  #: which of the two the neurons follow; without time constants it is "rate"
    leaky: bool  #: whether neurons have time constants; else each has the time constant 1, and keeps nothing

    @property
    def num_feedback(self) -> int:
        """F, the number of feedback edges."""
        return len(self.source)

    @cached_property
    def target(self) -> IntArray:
        """(F,) the position where each feedback edge ends."""
        return np.repeat(np.arange(self.step.dag.num_nodes, dtype=np.int32), np.diff(self.edge_start))

    @cached_property
    def reaches_output(self) -> BoolArray:
        """(N,) True at the positions from which an output can be reached, in whatever step; inputs maybe not."""
        reaches = np.zeros(self.step.dag.num_nodes, np.bool_)
        reaches[self.step.outputs] = True
        _mark_ancestors(self.step.source, self.step.edge_start, self.source, self.edge_start, reaches)
        return readonly(reaches)

    def __deepcopy__(self, memo: dict[int, Any]) -> RecurrentPlan:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _freeze, (self.step, self.source, self.edge, self.edge_start, self.dynamics, self.leaky)

    def __repr__(self) -> str:
        return f"RecurrentPlan({self.step!r}, {self.num_feedback:,} feedback edges)"


def build_recurrent_plan(
    step: Plan, feedback: IntArray, dynamics: Dynamics = "rate", leaky: bool = False
) -> RecurrentPlan:
    """Put feedback edges into the order of a step's plan.

    Args:
        step: The plan of a step.
        feedback: (F, 2) node indices, source then target; no target is an input of step.dag.
        dynamics: As in `RecurrentPlan`.
        leaky: Likewise.
    """
    source, target = step.position[feedback[:, 0]], step.position[feedback[:, 1]]
    edge = np.lexsort((source, target))
    start = np.concatenate(([0], np.cumsum(np.bincount(target, minlength=step.dag.num_nodes))))
    return _freeze(step, source[edge].astype(np.int32), edge.astype(np.int32), start, dynamics, leaky)


def move_dead_neurons_last(plan: RecurrentPlan) -> RecurrentPlan:
    """The same network with neurons that reach no output on levels after those of all others."""
    step, neurons = plan.step, plan.step.dag.num_inputs
    is_dead = ~plan.reaches_output[neurons:]
    if not is_dead.any():
        return plan
    level = step.layering.level.copy()
    level[step.order[neurons:][is_dead]] += step.layering.height
    layering = Layering(step.dag, np.unique(level, return_inverse=True)[1])
    feedback = np.empty((plan.num_feedback, 2), np.int64)
    feedback[plan.edge] = np.stack((step.order[plan.source], step.order[plan.target]), 1)
    reordered = build_plan(step.dag, layering, step.node_code, step.nodes, step.driven)
    return build_recurrent_plan(reordered, feedback, plan.dynamics, plan.leaky)


def _freeze(
    step: Plan, source: IntArray, edge: IntArray, edge_start: IntArray, dynamics: Dynamics, leaky: bool
) -> RecurrentPlan:
    return RecurrentPlan(step, readonly(source), readonly(edge), readonly(edge_start), dynamics, leaky)


@cached_njit
def _mark_ancestors(
    source: IntArray, edge_start: IntArray, feedback_source: IntArray, feedback_start: IntArray, marked: BoolArray
) -> None:
    """Mark all ancestors of the marked positions, in place."""
    stack = np.flatnonzero(marked)
    stack = np.concatenate((stack, np.empty(len(marked) - len(stack), stack.dtype)))  # each position enters once
    count = np.count_nonzero(marked)
    while count:
        count -= 1
        q = stack[count]
        for k in range(edge_start[q], edge_start[q + 1] + feedback_start[q + 1] - feedback_start[q]):
            u = source[k] if k < edge_start[q + 1] else feedback_source[feedback_start[q] + k - edge_start[q + 1]]
            if not marked[u]:
                marked[u] = True
                stack[count] = u
                count += 1

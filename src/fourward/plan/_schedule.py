"""Schedule: the order in which an engine takes the nodes of a network one by one, and the rows that they live in.

Any topological order gives the same result. What matters for the cache is how many rows are alive at once: a node's row
is from the node's own step to that of its last reader, and may then be taken by another node. On circuits and other
sparse graphs with locality, going depth first keeps up to 20 times fewer rows alive than going by level. On random
graphs nothing helps, and levels stay, along which edges can be taken in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fourward._arrays import IntArray, readonly
from fourward._jit import cached_njit
from fourward.plan._plan import Plan

#: Networks of fewer nodes go by level: their rows fit the cache in any order.
SMALL = 1024
#: Denser graphs go by level: blocks of their edges read rows that are in the first cache.
MOST_EDGES_PER_NODE = 64
#: Another order is taken if it keeps less than this fraction of the rows alive that going by level does.
GAIN = 0.8
#: Rows are reused where less than this fraction of them is alive at once: reuse takes index arrays of its own.
REUSE = 0.5


@dataclass(frozen=True, eq=False)
class Schedule:
    """A topological order: first the nodes that lead to an output, then all others.

    A step is a node's index in this order. No row is taken again before its last reader's step: `slot` holds the rows
    of a forward pass, `back_slot` those of a backward pass, which takes the steps from the last to the first.
    """

    name: str  #: how the order was found
    position: IntArray  #: (N,) the plan's position of the node at each step
    step: IntArray  #: (N,) the step of each position
    needed: int  #: number of nodes that lead to an output
    slot: IntArray | None  #: (N,) by step; None: each node has a row of its own, by step
    back_slot: IntArray | None  #: (N,) by step, likewise
    num_slots: int  #: rows of a forward pass
    num_back_slots: int  #: rows of a backward pass

    @cached_property
    def _is_order_of_plan(self) -> bool:
        return bool((self.step[:-1] < self.step[1:]).all())

    def get_steps(self, positions: IntArray) -> IntArray:
        """The steps of some positions: an array as long as the edges isn't indexed where both are the same."""
        steps: IntArray = positions if self._is_order_of_plan else self.step[positions]
        return steps

    @property
    def reuses_rows(self) -> bool:
        """Whether nodes share rows."""
        return self.slot is not None

    def __str__(self) -> str:
        if self.reuses_rows:
            rows = f"with at most {self.num_slots:,} of {len(self.step):,} rows alive at once"
        else:
            rows = "with a row for each"
        return f"nodes are computed {self.name}, {rows}"


def build_schedule(plan: Plan, position: IntArray | None = None) -> Schedule:
    """The schedule with the fewest rows alive at once.

    Args:
        plan: The plan.
        position: (N,) an order of the plan's positions to take instead; nodes that lead to no output are moved to its
            end. It must be topological.
    """
    nodes, edges = plan.dag.num_nodes, plan.dag.num_edges
    by_level = np.arange(nodes, dtype=np.int32)
    if position is not None:
        return _with_slots(plan, "as given", position.astype(np.int32))
    if nodes < SMALL or edges > MOST_EDGES_PER_NODE * nodes:
        return _without_slots(plan, by_level)
    orders = {
        "by level": by_level,
        "depth first from the outputs": _from_outputs(plan.edge_start, plan.source, plan.outputs),
        "depth first from the inputs": _from_sources(plan.source, plan.target, nodes),
    }
    steps = {name: _inverse(order) for name, order in orders.items()}
    alive = {name: rows_alive(plan.edge_start, plan.source, order, steps[name]) for name, order in orders.items()}
    best = min(alive, key=alive.__getitem__)
    if alive[best] > GAIN * alive["by level"]:
        best = "by level"
    if alive[best] > REUSE * nodes:
        return _without_slots(plan, by_level)
    return _with_slots(plan, best, orders[best])


def _needed_first(plan: Plan, position: IntArray) -> tuple[IntArray, IntArray, int]:
    """Position and step with the nodes that lead to an output first, and the number of these."""
    reaches = plan.reaches_output[position]
    needed = int(np.count_nonzero(reaches))
    if needed < len(position):
        position = np.concatenate((position[reaches], position[~reaches]))
    return readonly(position), readonly(_inverse(position)), needed


def _without_slots(plan: Plan, position: IntArray) -> Schedule:
    nodes = len(position)
    return Schedule("by level", *_needed_first(plan, position), None, None, nodes, nodes)


def _with_slots(plan: Plan, name: str, position: IntArray) -> Schedule:
    position, step, needed = _needed_first(plan, position)
    slot, num_slots = _assign_slots(plan.edge_start, plan.source, position, step)
    by_source, start = plan.edges_by_source()
    backwards = np.ascontiguousarray(position[::-1])
    back_slot, num_back_slots = _assign_slots(start, plan.target[by_source], backwards, _inverse(backwards))
    slots = readonly(slot), readonly(np.ascontiguousarray(back_slot[::-1]))
    return Schedule(name, position, step, needed, *slots, num_slots, num_back_slots)


def _inverse(position: IntArray) -> IntArray:
    step = np.empty(len(position), np.int32)
    step[position] = np.arange(len(position), dtype=np.int32)
    return step


@cached_njit
def _from_outputs(start: IntArray, source: IntArray, outputs: IntArray) -> IntArray:
    """(N,) positions: each output after all that it needs, the deepest predecessor first; at last, all other nodes.

    Predecessors are sorted by level, so the deepest is the last one.
    """
    nodes = len(start) - 1
    order, count = np.empty(nodes, np.int32), 0
    done, left = (
        np.zeros(nodes, np.bool_),
        np.empty(nodes, np.int64),
    )  # left[q]: edges of q that are still to be visited
    path = np.empty(nodes, np.int32)
    for i in range(len(outputs) + nodes):
        root = outputs[i] if i < len(outputs) else i - len(outputs)
        if done[root]:
            continue
        path[0], depth, left[root] = root, 1, start[root + 1]
        while depth > 0:  # the nodes of the path lead to each other, and none of them is done
            q = path[depth - 1]
            while left[q] > start[q] and done[source[left[q] - 1]]:
                left[q] -= 1
            if left[q] > start[q]:
                u = source[left[q] - 1]
                path[depth], left[u] = u, start[u + 1]
                depth += 1
            else:
                done[q] = True
                order[count] = q
                count += 1
                depth -= 1
    return order


@cached_njit
def _from_sources(source: IntArray, target: IntArray, nodes: int) -> IntArray:
    """(N,) positions: each next node is the one whose last predecessor was taken most recently."""
    start, missing = np.zeros(nodes + 1, np.int64), np.zeros(nodes, np.int32)
    for k in range(len(source)):
        start[source[k] + 1] += 1
        missing[target[k]] += 1
    for q in range(nodes):
        start[q + 1] += start[q]
    free, successor = start[:-1].copy(), np.empty(len(source), np.int32)
    for k in range(len(source)):
        successor[free[source[k]]] = target[k]
        free[source[k]] += 1
    order, ready, count, taken = np.empty(nodes, np.int32), np.empty(nodes, np.int32), 0, 0
    for q in range(nodes - 1, -1, -1):
        if missing[q] == 0:
            ready[count] = q
            count += 1
    while count > 0:
        count -= 1
        q = ready[count]
        order[taken] = q
        taken += 1
        for k in range(start[q + 1] - 1, start[q] - 1, -1):
            missing[successor[k]] -= 1
            if missing[successor[k]] == 0:
                ready[count] = successor[k]
                count += 1
    return order


@cached_njit
def rows_alive(start: IntArray, source: IntArray, position: IntArray, step: IntArray) -> int:
    """The largest number of rows that are alive at one step, the row that is written included."""
    nodes = len(step)
    last = step.copy()
    for q in range(nodes):
        for k in range(start[q], start[q + 1]):
            last[source[k]] = max(last[source[k]], step[q])
    dying = np.zeros(nodes, np.int32)
    for q in range(nodes):
        dying[last[q]] += 1
    alive, most = 0, 0
    for s in range(nodes):
        alive += 1
        most = max(most, alive)
        alive -= dying[s]
    return most


@cached_njit
def _assign_slots(start: IntArray, source: IntArray, position: IntArray, step: IntArray) -> tuple[IntArray, int]:
    """(N,) a row for each step, and the number of rows: a linear scan, which takes the row that died last.

    A node gets its row before those that it reads last die, since it is written while they are read.
    """
    nodes = len(step)
    last = step.copy()
    for q in range(nodes):
        for k in range(start[q], start[q + 1]):
            last[source[k]] = max(last[source[k]], step[q])
    slot, dead, free, used = np.empty(nodes, np.int32), np.empty(nodes, np.int32), 0, 0
    for s in range(nodes):
        q = position[s]
        if free > 0:
            free -= 1
            slot[s] = dead[free]
        else:
            slot[s] = used
            used += 1
        for k in range(start[q], start[q + 1]):
            if last[source[k]] == s:
                dead[free] = slot[step[source[k]]]
                free += 1
        if last[q] == s:
            dead[free] = slot[s]
            free += 1
    return slot, used

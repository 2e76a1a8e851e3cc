"""PopulationPlan: many networks in execution order, one after another, as flat arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fourward._arrays import BoolArray, IntArray, readonly
from fourward._jit import cached_njit
from fourward.errors import FourwardError, GraphError
from fourward.graph._algorithms import longest_paths
from fourward.graph._dag import Dag
from fourward.graph._members import Members, splice, starts
from fourward.layering._layering import Layering
from fourward.plan._plan import Plan, build_plan
from fourward.plan.activations import derivative_needs_z

#: Edges from which a second thread helps to sort them.
THREAD_EDGES = 50_000


@dataclass(frozen=True, eq=False, repr=False)
class PopulationPlan:
    """The execution order of a population: that of each member's Dag, one member after another.

    A member has I + n rows: row i < I holds feature i, row I + q the neuron that is computed q-th. All but the starts
    is local to a member, so that members are replaced by splicing. Weights are those of `source`, which is the order of
    the edges of a member's Dag; biases are in the order of a member's node indices.
    """

    num_inputs: int  #: I
    neuron_start: IntArray  #: (P+1,) the neurons, and biases, of member p are neuron_start[p]:neuron_start[p+1]
    edge_start: IntArray  #: (P+1,) the edges, and weights, of member p are edge_start[p]:edge_start[p+1]
    in_degree: IntArray  #: (M,) number of edges into each neuron, in execution order
    neuron: IntArray  #: (M,) index of each neuron's bias among those of its member
    code: IntArray  #: (M,) activation code
    level: IntArray  #: (M,) 1 + the highest level of its sources, or 1; inputs have level 0
    needed: BoolArray  #: (M,) whether an output can be reached
    source: IntArray  #: (E,) row where each edge starts; edges are sorted by target, then by source
    outputs: IntArray  #: (P, O) row of each output

    @property
    def num_members(self) -> int:
        """P."""
        return len(self.neuron_start) - 1

    @property
    def num_outputs(self) -> int:
        """O, the number of outputs of each member."""
        return int(self.outputs.shape[1])

    @property
    def num_neurons(self) -> int:
        """M, the number of neurons of all members."""
        return len(self.neuron)

    @property
    def num_edges(self) -> int:
        """E, the number of edges of all members."""
        return len(self.source)

    @cached_property
    def most_neurons(self) -> int:
        """The number of neurons of the largest member."""
        return int(np.diff(self.neuron_start).max())

    @cached_property
    def needs_z(self) -> BoolArray:
        """(M,) whether the activation's derivative needs z; False for custom activations."""
        return readonly(derivative_needs_z(self.code))

    @cached_property
    def dag(self) -> Dag:
        """The members as one graph with I inputs that feed all of them; its edges are in the order of `source`."""
        return _union_dag(self, self.num_inputs, 0)

    @cached_property
    def union(self) -> Plan:
        """The plan of `dag`: the members as one network."""
        return _union_plan(self, self.dag)

    @cached_property
    def separate_union(self) -> Plan:
        """The same with inputs of its own for each member: P * I, those of member 0 first."""
        return _union_plan(self, _union_dag(self, self.num_inputs * self.num_members, self.num_inputs))

    def union_outputs(self, separate: bool) -> IntArray:
        """(P * O,) the node of each output in one of the unions; members that share an input may share an output."""
        step = self.num_inputs if separate else 0
        shared = self.num_inputs * (self.num_members if separate else 1)
        nodes = np.concatenate((np.arange(shared), shared + self.neuron_nodes))
        return nodes[_global_rows(self, self.outputs, step, shared)].reshape(-1)

    @cached_property
    def neuron_nodes(self) -> IntArray:
        """(M,) index of each neuron's bias among those of all members, in execution order."""
        return np.repeat(self.neuron_start[:-1], np.diff(self.neuron_start)) + self.neuron

    def replaced(self, where: Sequence[int], new: PopulationPlan) -> PopulationPlan:
        """This population with other members in place of some: member where[j] becomes member j of `new`."""
        neurons, edges, outputs = np.diff(self.neuron_start), np.diff(self.edge_start), self.outputs.copy()
        neurons[where], edges[where] = np.diff(new.neuron_start), np.diff(new.edge_start)
        outputs[where] = new.outputs
        by_neuron = (
            splice(getattr(self, name), self.neuron_start, where, getattr(new, name), new.neuron_start)
            for name in ("in_degree", "neuron", "code", "level", "needed")
        )
        source = splice(self.source, self.edge_start, where, new.source, new.edge_start)
        return _freeze(self.num_inputs, starts(neurons), starts(edges), *by_neuron, source, outputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> PopulationPlan:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = (self.neuron_start, self.edge_start, self.in_degree, self.neuron, self.code, self.level, self.needed)
        return _freeze, (self.num_inputs, *arrays, self.source, self.outputs)

    def __repr__(self) -> str:
        sizes = f"{self.num_neurons:,} neurons, {self.num_edges:,} edges"
        return f"PopulationPlan({self.num_members:,} members, {sizes})"


def _freeze(num_inputs: int, *arrays: Any) -> PopulationPlan:
    return PopulationPlan(num_inputs, *map(readonly, arrays))


def build_population_plan(members: Members, code: IntArray) -> tuple[PopulationPlan, IntArray]:
    """Check and sort all members in one pass.

    Args:
        members: The graphs. Their inputs have no incoming edges.
        code: (M,) the activation code of each neuron, by node index within each member.

    Returns:
        The plan, and (E,) the edge of `members` for each of its edges.
    """
    neuron_start, edges = starts(members.num_neurons), len(members.edges)
    neurons, (rows, inputs) = int(neuron_start[-1]), (len(members), members.inputs.shape[1])
    source, target = (np.ascontiguousarray(members.edges[:, k], np.int64) for k in (0, 1))
    in_degree, neuron, level = (np.empty(neurons, np.int32) for _ in range(3))
    needed, outputs = np.zeros(neurons, np.bool_), np.empty((rows, members.outputs.shape[1]), np.int32)
    row, edge = np.empty(edges, np.int32), np.empty(edges, np.int64)

    def sort(first: int, last: int) -> int:
        return _sort_members(
            first, last, source, target, members.edge_start, members.num_nodes, members.inputs, members.outputs,
            neuron_start, in_degree, neuron, level, needed, row, edge, outputs,
        )  # fmt: skip

    invalid = [p for p in _in_threads(sort, len(members), edges) if p >= 0]
    if invalid:
        _explain(members, min(invalid))
    ordered = np.asarray(code, np.int32)[np.repeat(neuron_start[:-1], np.diff(neuron_start)) + neuron]
    arrays = (neuron_start, members.edge_start, in_degree, neuron, ordered, level, needed, row, outputs)
    return _freeze(inputs, *arrays), edge


def _in_threads(sort: Any, members: int, edges: int) -> list[int]:
    """Call sort(first, last) for ranges of members, in threads where that pays."""
    threads = min(os.cpu_count() or 1, members, 1 + edges // THREAD_EDGES)
    bounds = [members * i // threads for i in range(threads + 1)]
    if threads == 1:
        return [sort(0, members)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(sort, bounds, bounds[1:]))


def _explain(members: Members, p: int) -> None:
    """Raise the error of an invalid member, which is that of its Dag."""
    inputs, outputs = members.ends(p)
    edges = members.edges[members.edge_start[p] : members.edge_start[p + 1]]
    try:
        dag = Dag.from_arrays(edges, labels=int(members.num_nodes[p]), inputs=inputs, outputs=outputs)
    except FourwardError as error:
        error.prepend(f"member {p}")
        raise
    raise GraphError(
        f"member {p}: expected inputs without incoming edges, got edges into input {int(dag.driven[0])}. Remove them."
    )


@cached_njit
def _sort_members(
    first: int, last: int, all_sources: IntArray, all_targets: IntArray, edge_start: IntArray, num_nodes: IntArray,
    inputs: IntArray, outputs: IntArray, neuron_start: IntArray, in_degree: IntArray, neuron: IntArray,
    level: IntArray, needed: BoolArray, row: IntArray, edge: IntArray, output_row: IntArray,
) -> int:  # fmt: skip
    """Fill the arrays from in_degree on for members first:last; the first invalid one, or -1.

    As `Dag` does: inputs, then other sources, then the rest by descending longest path to a sink, ties by node index.
    """
    most_nodes, most_edges, num_inputs = 0, 0, inputs.shape[1]
    for p in range(first, last):
        most_nodes = max(most_nodes, num_nodes[p])
        most_edges = max(most_edges, edge_start[p + 1] - edge_start[p])
    node_row, rank = np.empty(most_nodes, np.int32), np.empty(most_nodes, np.int32)
    in_count, left = np.empty(most_nodes, np.int32), np.empty(most_nodes, np.int32)
    length, queue = np.empty(most_nodes, np.int32), np.empty(most_nodes, np.int32)
    start = np.empty(most_nodes + num_inputs + 2, np.int64)
    predecessor, by_source = np.empty(most_edges, np.int32), np.empty(most_edges, np.int64)
    row_level = np.empty(most_nodes + num_inputs, np.int32)
    reaches = np.empty(most_nodes + num_inputs, np.bool_)
    for p in range(first, last):
        nodes, begin, end = num_nodes[p], edge_start[p], edge_start[p + 1]
        own_inputs, own_outputs = inputs[p if len(inputs) > 1 else 0], outputs[p if len(outputs) > 1 else 0]
        for v in range(nodes):
            node_row[v], in_count[v], left[v], length[v] = -1, 0, 0, 0
        for i in range(num_inputs):
            v = own_inputs[i]
            if v >= nodes or (v >= 0 and node_row[v] >= 0):
                return p
            if v >= 0:
                node_row[v] = i
        neurons = 0
        for v in range(nodes):
            if node_row[v] < 0:
                rank[v] = neurons
                neurons += 1
        for k in range(begin, end):
            u, v = all_sources[k], all_targets[k]
            if u < 0 or u >= nodes or v < 0 or v >= nodes or u == v or node_row[v] >= 0:
                return p
            in_count[v] += 1
            left[u] += 1  # out-degree
        # Kahn's algorithm from the sinks, over the predecessors of each node.
        start[0] = 0
        for v in range(nodes):
            start[v + 1] = start[v] + in_count[v]
        for k in range(begin, end):
            v = all_targets[k]
            predecessor[start[v]] = all_sources[k]
            start[v] += 1
        head, tail, longest = 0, 0, 0
        for v in range(nodes):
            if left[v] == 0:
                queue[tail] = v
                tail += 1
        while head < tail:
            v = queue[head]
            head += 1
            longest = max(longest, length[v])
            for k in range(start[v] - in_count[v], start[v]):
                u = predecessor[k]
                length[u] = max(length[u], length[v] + 1)
                left[u] -= 1
                if left[u] == 0:
                    queue[tail] = u
                    tail += 1
        if tail < nodes:  # a cycle
            return p
        # A counting sort of the neurons: sources first, then by descending length.
        for key in range(longest + 3):
            start[key] = 0
        for v in range(nodes):
            if node_row[v] < 0:
                start[1 if in_count[v] == 0 else longest + 2 - length[v]] += 1
        for key in range(1, longest + 3):
            start[key] += start[key - 1]
        base = neuron_start[p]
        for v in range(nodes):
            if node_row[v] < 0:
                key = 0 if in_count[v] == 0 else longest + 1 - length[v]
                q = start[key]
                start[key] += 1
                node_row[v] = num_inputs + q
                neuron[base + q], in_degree[base + q] = rank[v], in_count[v]
        # A radix sort of the edges: by the row of their source, then by that of their target.
        rows = num_inputs + neurons
        for r in range(rows + 1):
            start[r] = 0
        for k in range(begin, end):
            start[node_row[all_sources[k]] + 1] += 1
        for r in range(rows):
            start[r + 1] += start[r]
        for k in range(begin, end):
            r = node_row[all_sources[k]]
            by_source[start[r]] = k
            start[r] += 1
        start[num_inputs] = begin
        for q in range(neurons):
            start[num_inputs + q + 1] = start[num_inputs + q] + in_degree[base + q]
        for i in range(end - begin):
            k = by_source[i]
            r = node_row[all_targets[k]]
            slot, u = start[r], node_row[all_sources[k]]
            start[r] += 1
            edge[slot], row[slot] = k, u
        # Levels, duplicate edges, and what the outputs need.
        for i in range(num_inputs):
            row_level[i], reaches[i] = 0, False
        k = begin
        for q in range(neurons):
            highest, before = 0, -1
            for _ in range(in_degree[base + q]):
                if row[k] == before:
                    return p
                before = row[k]
                highest = max(highest, row_level[before])
                k += 1
            row_level[num_inputs + q], level[base + q] = highest + 1, highest + 1
            reaches[num_inputs + q] = False
        for o in range(len(own_outputs)):
            v = own_outputs[o]
            if v < 0 or v >= nodes or reaches[node_row[v]]:
                return p
            output_row[p, o], reaches[node_row[v]] = node_row[v], True
        for q in range(neurons - 1, -1, -1):
            needed[base + q] = reaches[num_inputs + q]
            for _ in range(in_degree[base + q]):
                k -= 1
                if needed[base + q]:
                    reaches[row[k]] = True
    return -1


def _global_rows(plan: PopulationPlan, rows: IntArray, input_step: int, shared: int) -> IntArray:
    """Rows (P, K) of members as rows of a union: inputs first, `input_step` for each member, then all neurons."""
    member = np.arange(plan.num_members)[:, None]
    is_input = rows < plan.num_inputs
    return np.where(
        is_input, rows + input_step * member, rows - plan.num_inputs + shared + plan.neuron_start[:-1, None]
    )


def _union_dag(plan: PopulationPlan, shared: int, input_step: int) -> Dag:
    """A Dag whose nodes are `shared` inputs, then each member's neurons by node index; its order is the plan's."""
    order = np.concatenate((np.arange(shared), shared + plan.neuron_nodes)).astype(np.int32)
    member = np.repeat(np.arange(plan.num_members), np.diff(plan.edge_start))
    offset = shared - plan.num_inputs + plan.neuron_start[:-1]
    is_input = plan.source < plan.num_inputs
    source = order[plan.source + np.where(is_input, input_step * member, offset[member])]
    target = np.repeat(order[shared:], plan.in_degree)
    in_start = np.concatenate((np.zeros(shared, np.int64), starts(plan.in_degree)))
    outputs = np.unique(plan.union_outputs(input_step > 0)).astype(np.int32)
    length = longest_paths(source, target, len(order))[0]
    arrays = (np.arange(shared, dtype=np.int32), outputs, order, in_start, length)
    return Dag(readonly(np.stack((source, target), 1)), range(len(order)), *map(readonly, arrays))


def _union_plan(plan: PopulationPlan, dag: Dag) -> Plan:
    level, code = np.zeros(dag.num_nodes, np.int32), np.zeros(dag.num_nodes, np.int32)
    neurons = dag.order[dag.num_inputs :]
    level[neurons], code[neurons] = plan.level, plan.code
    return build_plan(dag, Layering(dag, level), code)

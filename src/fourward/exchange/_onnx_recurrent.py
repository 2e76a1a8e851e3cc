"""Export of networks with feedback to ONNX, for a fixed number of steps: the operations of a step, as often."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import OptionError
from fourward.exchange._onnx import GraphBuilder, add_activations, add_sums, write_model
from fourward.exchange._steps import Step, dense_block, list_plan_steps, order_rows
from fourward.graph._annotated import FloatArray
from fourward.nn._fourward import builtin_activation_names
from fourward.nn._recurrent import Recurrent


def to_onnx_recurrent(net: Recurrent, path: str | Path, steps: int) -> None:
    """Write a network with feedback as ONNX, opset 18, float32, for any batch size and a fixed number of steps T.

    From `x` (T, batch, inputs) and `h0` (batch, nodes), zeros for a new sequence, to `y` (T, batch, outputs) and `h`.
    With batch_first the first two dimensions of x and y change places.

    Args:
        net: The network.
        path: The file.
        steps: T.
    """
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise OptionError(f"steps must be an int of at least 1 for ONNX, which fixes their number, got {steps!r}.")
    builtin_activation_names(net, "ONNX", "save net.state_dict() with torch.save")
    graph, nodes = GraphBuilder(), net.graph.num_nodes
    _RecurrentGraph(graph, net).add(steps)
    time = ["batch", steps] if net.batch_first else [steps, "batch"]
    state = ["batch", nodes]
    inputs = {"x": [*time, net.graph.num_inputs], "h0": state}
    write_model(graph, inputs, {"y": [*time, net.graph.num_outputs], "h": state}, path)


class _RecurrentGraph:
    """Tensors have a row for each node, inputs first and then neurons by level and activation; (rows, batch)."""

    def __init__(self, graph: GraphBuilder, net: Recurrent) -> None:
        plan, step = net.recurrent_plan, net.plan
        self.graph, self.net, self.step = graph, net, step
        self.first, self.is_rate = step.dag.num_inputs, plan.dynamics == "rate"
        order, row = order_rows(step)
        neuron = step.neuron[order - self.first]  # (N-I,) the neuron of each row from the first on
        weight = net.weight.detach().double().cpu().numpy().astype(np.float32)
        within = net.dag.num_edges
        edge = np.arange(within) if net.plan_edge is None else net.plan_edge
        own = np.append(weight[:within], np.float32(1))[edge]  # 1: edges that feed features to driven inputs
        own = own if step.edge is None else own[step.edge]
        self.levels = list_plan_steps(step, own, np.zeros(len(neuron), np.float32))
        bias = np.zeros(len(neuron), np.float32)
        if net.bias is not None:
            bias = net.bias.detach().double().cpu().numpy().astype(np.float32)[neuron]
        feedback = weight[within:][plan.edge]
        self.delayed = _delayed_sums(row[plan.source], row[plan.target] - self.first, feedback, bias, len(row))
        self.rate: FloatArray | None = None
        if net.tau is not None:
            tau = net.tau.detach().double().clamp(min=1).cpu().numpy()
            self.rate = (1 / tau).astype(np.float32)[neuron].reshape(-1, 1)
        self.node = np.empty(len(row), np.int64)  # (N,) the node of each row
        self.node[row[step.position]] = np.arange(len(row))
        self.bounds = self.first + np.cumsum([0, *(len(level.bias) for level in self.levels.steps)])

    def add(self, steps: int) -> None:
        """Add the operations of all steps."""
        graph, time = self.graph, 1 if self.net.batch_first else 0
        time_axis = graph.indices(np.array([time]))
        batch = graph.op("Slice", graph.op("Shape", "h0"), *(graph.indices(np.array([k])) for k in (0, 1)))
        graph.column_shape = graph.op("Concat", graph.indices(np.array([1])), batch, axis=0)
        known = np.where(self.node < self.net.graph.num_nodes, self.node, 0)  # nothing reads the features' own rows
        state = graph.op("Gather", graph.op("Transpose", "h0", perm=[1, 0]), graph.indices(known), axis=0)
        a, results = self._activate(state), []
        for t in range(steps):
            x = graph.op("Squeeze", graph.op("Gather", "x", graph.indices(np.array([t])), axis=time), time_axis)
            a, state = self._add_step(graph.op("Transpose", x, perm=[1, 0]), a, state)
            y = graph.op("Transpose", graph.op("Gather", a, graph.indices(self.levels.outputs), axis=0), perm=[1, 0])
            results.append(graph.op("Unsqueeze", y, time_axis))
        graph.nodes.append(graph.helper.make_node("Concat", results, ["y"], axis=time))
        row = np.argsort(self.node)[: self.net.graph.num_nodes]
        last = graph.op("Gather", state, graph.indices(row), axis=0)
        graph.nodes.append(graph.helper.make_node("Transpose", [last], ["h"], perm=[1, 0]))

    def _add_step(self, x: str, a: str, state: str) -> tuple[str, str]:
        """A step from the features (I, batch), activations and state of the step before, to both of this one."""
        graph = self.graph
        offset = self._split(add_sums(graph, a, self.delayed), 0)
        before, a, parts = self._split(state, self.first), x, [x]
        for k, level in enumerate(self.levels.steps):
            z = graph.op("Add", add_sums(graph, a, level), offset[k])
            if self.is_rate:
                new = self._integrate(before[k], self._join(add_activations(graph, z, level.sections)), k)
            else:
                parts.append(self._integrate(before[k], z, k))
                new = self._join(add_activations(graph, parts[-1], level.sections))
            a = graph.op("Concat", a, new, axis=0)
        return a, a if self.is_rate else self._join(parts)

    def _activate(self, state: str) -> str:
        """The activations before the first step."""
        if self.is_rate or not self.levels.steps:
            return state
        inputs = self.graph.op("Slice", state, *(self.graph.indices(np.array([k])) for k in (0, self.first)))
        pieces = zip(self._split(state, self.first), self.levels.steps, strict=True)
        return self._join([inputs, *(a for z, level in pieces for a in add_activations(self.graph, z, level.sections))])

    def _integrate(self, state: str, value: str, level: int) -> str:
        if self.rate is None:
            return value
        graph, (start, stop) = self.graph, list(pairwise(self.bounds - self.first))[level]
        moved = graph.op("Mul", graph.op("Sub", value, state), graph.constant(self.rate[start:stop]))
        return graph.op("Add", state, moved)

    def _split(self, rows: str, skip: int) -> list[str]:
        """The rows of each level; `skip` rows precede those of the neurons."""
        sizes = np.diff(self.bounds)
        if not len(sizes):
            return []
        parts = [skip, *sizes.tolist()] if skip else sizes.tolist()
        if len(parts) == 1:
            return [rows]
        return self.graph.ops("Split", rows, self.graph.indices(np.array(parts)), outputs=len(parts), axis=0)[
            bool(skip) :
        ]

    def _join(self, parts: list[str]) -> str:
        return parts[0] if len(parts) == 1 else self.graph.op("Concat", *parts, axis=0)


def _delayed_sums(source: IntArray, target: IntArray, weight: FloatArray, bias: FloatArray, num_rows: int) -> Step:
    """Biases and sums over feedback edges; sources are rows of the step before."""
    rows, block = dense_block(source, target, weight, len(bias), num_rows)
    return Step(rows, block, weight, target, bias, [])

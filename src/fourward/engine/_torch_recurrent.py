"""The torch engine for networks with feedback: a level at a time, one step after another."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import RecurrentRunner, exporting_to_onnx, index_tensor
from fourward.engine._torch_activations import LevelActivations
from fourward.plan._recurrent_plan import RecurrentPlan, move_dead_neurons_last


class WeightedSums(nn.Module):
    """Sums over some edges into a range of neurons.

    Products with dense blocks of weights, zeros included, were up to twice as fast on small graphs. But a NaN or an
    infinite activation would reach neurons that it has no edge to, which the definition excludes.

    Args:
        source: (E,) the row of each edge's source.
        target: (E,) the index of its target among the neurons, ascending.
        size: The number of neurons.
    """

    source: Tensor
    target: Tensor

    def __init__(self, source: IntArray, target: IntArray, size: int) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("source", index_tensor(source), persistent=False)
        self.register_buffer("target", index_tensor(target), persistent=False)

    def forward(self, weight: Tensor, a: Tensor) -> Tensor:
        """(size, B) the sums over rows of a, for weights (E, 1)."""
        rows = a.index_select(0, self.source).to(weight.dtype)
        if self.size == 1:
            return weight.t() @ rows
        if exporting_to_onnx():  # it would keep the last of repeated indices
            leads_to = self.target == torch.arange(self.size, device=weight.device).unsqueeze(1)  # (size, E)
            return (leads_to.to(weight.dtype) * weight.t()) @ rows
        return rows.new_zeros(self.size, a.shape[1]).index_add(0, self.target, rows * weight)


class TorchRecurrentRunner(RecurrentRunner):
    """Plain torch operations, none of them in place.

    Neurons that reach no output are computed after all others, in tensors of their own: where only outputs have
    gradients, no NaN or infinity of theirs can reach a gradient.
    """

    edge: Tensor
    neuron: Tensor
    node: Tensor
    position: Tensor
    outputs: Tensor
    hidden: Tensor

    def __init__(self, plan: RecurrentPlan) -> None:
        super().__init__()
        plan = move_dead_neurons_last(plan)
        step, inputs = plan.step, plan.step.dag.num_inputs
        self.num_inputs, self.is_rate = inputs, plan.dynamics == "rate"
        within = np.arange(len(step.source)) if step.edge is None else step.edge
        edge = np.concatenate((within, len(within) + plan.edge))
        arrays = {"edge": edge, "neuron": step.neuron, "node": step.order, "position": step.position}
        for name, array in {**arrays, "outputs": step.outputs}.items():
            self.register_buffer(name, index_tensor(array), persistent=False)
        self.register_buffer("hidden", torch.from_numpy(step.hidden[inputs:].copy()), persistent=False)
        self.activations = LevelActivations(step)
        bounds, edges = step.level_start.tolist(), step.edge_start[step.level_start].tolist()
        self.levels = list(pairwise(bounds))
        self.sums = nn.ModuleList(
            WeightedSums(step.source[first:last], step.target[first:last] - start, stop - start)
            for (start, stop), first, last in zip(self.levels, edges[:-1], edges[1:], strict=True)
        )
        live = inputs + int(np.count_nonzero(plan.reaches_output[inputs:]))
        split = bounds.index(live)
        self.has_live = split > 0
        self.parts = [part for part in (range(split), range(split, len(self.levels))) if part]  # levels of each part
        ends = [(bounds[part[0]], bounds[part[-1] + 1]) for part in self.parts]
        feedback = [slice(*plan.edge_start[list(end)].tolist()) for end in ends]  # edges into each part
        self.feedback = nn.ModuleList(
            WeightedSums(plan.source[into], plan.target[into] - start, stop - start)
            for into, (start, stop) in zip(feedback, ends, strict=True)
        )
        self.edge_counts = [*np.diff(edges).tolist(), *(into.stop - into.start for into in feedback)]

    def forward(
        self,
        x: Tensor,
        h0: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        rate: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> tuple[Tensor, Tensor]:
        """Compute all steps of a batch of sequences."""
        wide = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype  # the dtype of sums
        weights = weight.index_select(0, self.edge).to(wide).unsqueeze(1).split(self.edge_counts)
        step = _Step(self, list(weights), custom, x)
        step.bias = None if bias is None else self._column(bias, wide)
        step.rate = None if rate is None else self._column(rate, wide)
        step.scale = None if dropout is None else self._scale(dropout, x.shape[1], x.dtype)
        start = x.new_zeros(len(self.node), x.shape[1]) if h0 is None else h0.t().index_select(0, self.node)
        a, states = step.start(start)
        rows, results = self.position if all_nodes else self.outputs, []
        for features in x.unbind():
            a, states = step(features.t(), a, states)
            values = a[-1] if all_nodes else a[0] if self.has_live else features.t()
            results.append(values.index_select(0, rows))
        state = torch.cat((x[-1].t(), *states))
        return torch.stack(results).transpose(1, 2), state.index_select(0, self.position).t()

    def _column(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """(N-I, 1) one value for each neuron, by position."""
        return values.index_select(0, self.neuron).to(dtype).unsqueeze(1)

    def _scale(self, dropout: Dropout, batch: int, dtype: torch.dtype) -> Tensor:
        """(N-I, B) the factors of dropout."""
        drawn = dropout_scale(dropout, self.node[self.num_inputs :], batch, dtype)
        return torch.where(self.hidden.unsqueeze(1), drawn, 1)


class _Step:
    """A step of the network; rows of activations and states are by position."""

    def __init__(
        self, runner: TorchRecurrentRunner, weights: list[Tensor], custom: nn.ModuleList, like: Tensor
    ) -> None:
        self.runner, self.weights, self.custom, self.like = runner, weights, custom, like
        self.bias: Tensor | None = None  # (N-I, 1)
        self.rate: Tensor | None = None  # (N-I, 1)
        self.scale: Tensor | None = None  # (N-I, B) factors of dropout

    def start(self, state: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """What a step takes from the step before, from the states (N, B) before the first."""
        a, parts, states = state[: self.runner.num_inputs], [], []
        for part in self.runner.parts:
            own = [state[slice(*self.runner.levels[level])] for level in part]
            if not self.runner.is_rate:
                a = torch.cat((a, *(self._apply(level, u) for level, u in zip(part, own, strict=True))))
            else:
                a = torch.cat((a, *own))
            parts.append(a)
            states.append(torch.cat(own))
        return parts or [a], states

    def __call__(
        self, features: Tensor, before: list[Tensor], states: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The activations up to the end of each part, the last of all nodes; and the states of each part.

        Args:
            features: (I, B) the features.
            before: What this function returned for the step before; likewise
            states: the states.
        """
        a, parts, new_states = features, [], []
        for i, part in enumerate(self.runner.parts):
            a, state = self._compute_part(a, part, self._offset(i, before[i]), states[i])
            parts.append(a)
            new_states.append(state)
        return parts or [a], new_states

    def _offset(self, i: int, before: Tensor) -> Tensor | None:
        """What is added to all sums of part i, from its feedback edges and biases."""
        sums, weight = self.runner.feedback[i], self.weights[len(self.runner.levels) + i]
        offset = sums(weight, before) if len(weight) else None
        if self.bias is None:
            return offset
        start = self.runner.levels[self.runner.parts[i][0]][0] - self.runner.num_inputs
        bias = self.bias[start : start + sums.size].expand(-1, before.shape[1])
        return bias if offset is None else offset + bias

    def _compute_part(self, a: Tensor, part: range, offset: Tensor | None, state: Tensor) -> tuple[Tensor, Tensor]:
        new_states, first = [], self.runner.levels[part[0]][0]
        for level in part:
            start, stop = self.runner.levels[level]
            z = self.runner.sums[level](self.weights[level], a)
            if offset is not None:
                z = z + offset[start - first : stop - first]
            old = state[start - first : stop - first]
            if self.runner.is_rate:
                new = self._integrate(old, self._apply(level, z), level).to(self.like.dtype)
                new_states.append(new)
            else:
                new_states.append(self._integrate(old, z, level).to(self.like.dtype))
                new = self._apply(level, new_states[-1]).to(self.like.dtype)
            a = torch.cat((a, new))
        return a, torch.cat(new_states)

    def _rows(self, values: Tensor, level: int) -> Tensor:
        """The rows of a level, of one for each neuron."""
        start, stop = self.runner.levels[level]
        return values[start - self.runner.num_inputs : stop - self.runner.num_inputs]

    def _apply(self, level: int, z: Tensor) -> Tensor:
        a: Tensor = self.runner.activations(level, z, self.custom)
        return a if self.scale is None else a * self._rows(self.scale, level)

    def _integrate(self, state: Tensor, value: Tensor, level: int) -> Tensor:
        return value if self.rate is None else state + (value - state) * self._rows(self.rate, level)

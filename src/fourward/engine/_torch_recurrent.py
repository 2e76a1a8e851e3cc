"""The torch engine for networks with feedback: a level at a time, one step after another."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import RecurrentRunner, exporting_to_onnx, index_tensor
from fourward.engine._torch_activations import LevelActivations
from fourward.plan._recurrent_plan import RecurrentPlan


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
    """Plain torch operations, none of them in place."""

    edge: Tensor
    neuron: Tensor
    node: Tensor
    position: Tensor
    outputs: Tensor
    hidden: Tensor

    def __init__(self, plan: RecurrentPlan) -> None:
        super().__init__()
        step, inputs = plan.step, plan.step.dag.num_inputs
        self.plan, self.num_inputs = plan, inputs
        within = np.arange(len(step.source)) if step.edge is None else step.edge
        edge = np.concatenate((within, len(within) + plan.edge))
        arrays = {"edge": edge, "neuron": step.neuron, "node": step.order, "position": step.position}
        for name, array in {**arrays, "outputs": step.outputs}.items():
            self.register_buffer(name, index_tensor(array), persistent=False)
        self.register_buffer("hidden", torch.from_numpy(step.hidden[inputs:].copy()), persistent=False)
        self.activations = LevelActivations(step)
        bounds, edges = step.level_start.tolist(), step.edge_start[step.level_start].tolist()
        self.levels = list(pairwise(bounds))
        self.edge_counts = [*np.diff(edges).tolist(), plan.num_feedback]
        self.sums = nn.ModuleList(
            WeightedSums(step.source[first:last], step.target[first:last] - start, stop - start)
            for (start, stop), first, last in zip(self.levels, edges[:-1], edges[1:], strict=True)
        )
        self.feedback = WeightedSums(plan.source, plan.target - inputs, step.dag.num_nodes - inputs)

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
        *within, delayed = weight.index_select(0, self.edge).to(wide).unsqueeze(1).split(self.edge_counts)
        bias = None if bias is None else self._column(bias, wide)
        step = _Step(self, within, rate if rate is None else self._column(rate, wide), custom, x.dtype)
        if dropout is not None:
            step.scale = self._scale(dropout, x.shape[1], x.dtype)
        state = x.new_zeros(len(self.node), x.shape[1]) if h0 is None else h0.t().index_select(0, self.node)
        a = state if self.plan.dynamics == "rate" else torch.cat((state[: self.num_inputs], *step.activate(state)))
        rows, results = self.position if all_nodes else self.outputs, []
        for features in x.unbind():
            offset = self.feedback(delayed, a) if self.plan.num_feedback else None
            if bias is not None:
                offset = bias.expand(-1, x.shape[1]) if offset is None else offset + bias
            a, state = step(features.t(), state, offset)
            results.append(a.index_select(0, rows))
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
        self,
        runner: TorchRecurrentRunner,
        weights: list[Tensor],
        rate: Tensor | None,
        custom: nn.ModuleList,
        dtype: torch.dtype,
    ) -> None:
        self.runner, self.weights, self.rate, self.custom, self.dtype = runner, weights, rate, custom, dtype
        self.scale: Tensor | None = None  # (N-I, B) factors of dropout
        self.is_rate = runner.plan.dynamics == "rate"

    def __call__(self, a: Tensor, state: Tensor, offset: Tensor | None) -> tuple[Tensor, Tensor]:
        """Activations and the new state, both (N, B), from the features (I, B); `offset` is added to all sums."""
        inputs, voltages = self.runner.num_inputs, [a]
        for level, (start, stop) in enumerate(self.runner.levels):
            z = self.runner.sums[level](self.weights[level], a)
            if offset is not None:
                z = z + offset[start - inputs : stop - inputs]
            if self.is_rate:
                new = self._integrate(state[start:stop], self._apply(level, z), start, stop)
            else:
                voltages.append(self._integrate(state[start:stop], z, start, stop).to(self.dtype))
                new = self._apply(level, voltages[-1])
            a = torch.cat((a, new.to(self.dtype)))
        return a, a if self.is_rate else torch.cat(voltages)

    def activate(self, state: Tensor) -> Iterator[Tensor]:
        """The activations of the levels whose voltages these are."""
        for level, (start, stop) in enumerate(self.runner.levels):
            yield self._apply(level, state[start:stop]).to(self.dtype)

    def _apply(self, level: int, z: Tensor) -> Tensor:
        a: Tensor = self.runner.activations(level, z, self.custom)
        if self.scale is None:
            return a
        start, stop = self.runner.levels[level]
        return a * self.scale[start - self.runner.num_inputs : stop - self.runner.num_inputs]

    def _integrate(self, state: Tensor, value: Tensor, start: int, stop: int) -> Tensor:
        if self.rate is None:
            return value
        rate = self.rate[start - self.runner.num_inputs : stop - self.runner.num_inputs]
        return state + (value - state) * rate

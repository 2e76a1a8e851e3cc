"""The torch engine: a level at a time over flat edges, on any device, in any dtype, with any torch callable."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import Engine, RecurrentRunner, Request, Runner, exporting_to_onnx, index_tensor
from fourward.engine._pruned import prepare_pruned
from fourward.engine._torch_activations import LevelActivations
from fourward.engine._torch_recurrent import TorchRecurrentRunner
from fourward.errors import EngineError
from fourward.plan._plan import Plan
from fourward.plan._recurrent_plan import RecurrentPlan

_MAX_BLOCK = 2**28  # entries of a level's dense block in ONNX, 1 GiB in float32


class TorchOps(Engine):
    """Plain torch operations, none of them in place: twice differentiable, exportable, compatible with vmap."""

    name = "torch"
    summary = "a level at a time in plain torch operations: any device, dtype and activation"
    supports_feedback = True

    def supports(self, request: Request) -> str | None:
        """All requests."""
        return None

    def prepare(self, plan: Plan, plan_order: bool = False) -> Runner:
        """Make index tensors; with `plan_order`, for weights in the order of the plan instead of the Dag."""
        return prepare_pruned(plan, _TorchRunner, plan_order)

    def prepare_recurrent(self, plan: RecurrentPlan) -> RecurrentRunner:
        """Make index tensors."""
        return TorchRecurrentRunner(plan)


class _TorchRunner(Runner):
    edge: Tensor
    source: Tensor
    target_row: Tensor
    neuron: Tensor
    outputs: Tensor
    position: Tensor
    node: Tensor
    hidden: Tensor

    def __init__(self, plan: Plan, plan_order: bool = False) -> None:
        super().__init__()
        self.plan = plan
        level = np.searchsorted(plan.level_start, plan.target, side="right") - 1
        self.permuted = plan.edge is not None and not plan_order
        if plan.edge is not None:
            self._index("edge", plan.edge)
        self._index("source", plan.source)
        self._index("target_row", plan.target - plan.level_start[level])  # row of each edge's target within its level
        self._index("neuron", plan.neuron)
        self._index("outputs", plan.outputs)
        self._index("position", plan.position)
        self._index("node", plan.dropout_node)
        hidden = torch.from_numpy(plan.hidden[plan.dag.num_inputs :].copy())
        self.register_buffer("hidden", hidden, persistent=False)
        self.activations = LevelActivations(plan)
        self.num_inputs = plan.dag.num_inputs
        # (first neuron, end, first edge, end) of each level
        edges = plan.edge_start[plan.level_start].tolist()
        bounds = plan.level_start.tolist()
        self.levels = list(zip(bounds, bounds[1:], edges, edges[1:], strict=False))

    def _index(self, name: str, array: IntArray) -> None:
        kind = np.int32 if array.size < 2**31 else np.int64
        self.register_buffer(name, torch.from_numpy(array.astype(kind)), persistent=False)

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        dtype, batch, inputs = x.dtype, x.shape[0], self.num_inputs
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype  # the dtype of sums
        weight = weight.index_select(0, self.edge) if self.permuted else weight
        weight = weight.to(wide).unsqueeze(1)
        if bias is not None:
            bias = bias.index_select(0, self.neuron).to(wide).unsqueeze(1)
        scale = self._scale(dropout, batch, dtype) if dropout is not None else None
        a = x.t()  # (nodes so far, B), by position; grows by a level at a time
        dense = exporting_to_onnx()
        for level, (start, stop, first, last) in enumerate(self.levels):
            # The bias is added last: torch 2.13's inductor can't compile an index_add into an expanded bias.
            if dense:
                z = self._dense_sums(a.to(wide), weight[first:last, 0], start, stop, first, last)
            elif stop - start == 1:
                z = weight[first:last].t() @ a.index_select(0, self.source[first:last]).to(wide)
            else:
                products = a.index_select(0, self.source[first:last]).to(wide) * weight[first:last]
                z = a.new_zeros(stop - start, batch, dtype=wide).index_add(0, self.target_row[first:last], products)
            if bias is not None:
                z = z + bias[start - inputs : stop - inputs]
            new = self.activations(level, z, custom).to(dtype)
            if scale is not None:
                new = new * scale[start - inputs : stop - inputs]
            a = torch.cat((a, new))
        return a.index_select(0, self.position if all_nodes else self.outputs).t()

    def _dense_sums(self, a: Tensor, weight: Tensor, start: int, stop: int, first: int, last: int) -> Tensor:
        """(neurons, B) the weighted sums of a level as one matrix product.

        For ONNX: torch's exporters translate an index_add with repeated indices to one that keeps the last of them.
        """
        if first == last:
            return a.new_zeros(stop - start, a.shape[1])
        sources, column = np.unique(self.plan.source[first:last], return_inverse=True)
        shape = stop - start, len(sources)
        if shape[0] * shape[1] > _MAX_BLOCK:
            raise EngineError(
                f"expected levels of at most {_MAX_BLOCK:,} neurons times sources for torch.onnx.export, got "
                f"{shape[0]:,} times {shape[1]:,}. Export the FourWard alone with fourward.exchange.export, which "
                "writes sparse levels."
            )
        row = self.plan.target[first:last] - start
        entry = index_tensor(row * shape[1] + column).to(a.device)
        block = weight.new_zeros(shape[0] * shape[1]).scatter(0, entry, weight).reshape(shape)
        return block @ a.index_select(0, index_tensor(sources).to(a.device))

    def _scale(self, dropout: Dropout, batch: int, dtype: torch.dtype) -> Tensor:
        """(N-I, B) the factors of dropout; outputs are never dropped."""
        drawn = dropout_scale(dropout, self.node[self.num_inputs :], batch, dtype)
        return torch.where(self.hidden.unsqueeze(1), drawn, 1)

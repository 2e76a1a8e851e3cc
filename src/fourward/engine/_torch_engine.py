"""The torch engine: a level at a time over flat edges, on any device, in any dtype, with any torch callable."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import Engine, Request, Runner
from fourward.engine._torch_activations import LevelActivations
from fourward.plan._plan import Plan


class TorchOps(Engine):
    """Plain torch operations, none of them in place: twice differentiable, exportable, compatible with vmap."""

    name = "torch"
    summary = "a level at a time in plain torch operations: any device, dtype and activation"

    def supports(self, request: Request) -> str | None:
        """All requests."""
        return None

    def prepare(self, plan: Plan, plan_order: bool = False) -> Runner:
        """Make index tensors; with `plan_order`, for weights in the order of the plan instead of the Dag."""
        return _TorchRunner(plan, plan_order)


class _TorchRunner(Runner):
    edge: Tensor
    source: Tensor
    target_row: Tensor
    neuron: Tensor
    outputs: Tensor
    position: Tensor
    node: Tensor
    hidden: Tensor

    def __init__(self, plan: Plan, plan_order: bool) -> None:
        super().__init__()
        level = np.searchsorted(plan.level_start, plan.target, side="right") - 1
        self.permuted = plan.edge is not None and not plan_order
        if plan.edge is not None:
            self._index("edge", plan.edge)
        self._index("source", plan.source)
        self._index("target_row", plan.target - plan.level_start[level])  # row of each edge's target within its level
        self._index("neuron", plan.neuron)
        self._index("outputs", plan.outputs)
        self._index("position", plan.position)
        self._index("node", plan.order)
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
        for level, (start, stop, first, last) in enumerate(self.levels):
            values, weights = a.index_select(0, self.source[first:last]).to(wide), weight[first:last]
            # The bias is added last: torch 2.13's inductor can't compile an index_add into an expanded bias.
            if stop - start == 1:
                z = weights.t() @ values
            else:
                z = a.new_zeros(stop - start, batch, dtype=wide).index_add(
                    0, self.target_row[first:last], values * weights
                )
            if bias is not None:
                z = z + bias[start - inputs : stop - inputs]
            new = self.activations(level, z, custom).to(dtype)
            if scale is not None:
                new = new * scale[start - inputs : stop - inputs]
            a = torch.cat((a, new))
        return a.index_select(0, self.position if all_nodes else self.outputs).t()

    def _scale(self, dropout: Dropout, batch: int, dtype: torch.dtype) -> Tensor:
        """(N-I, B) the factors of dropout; outputs are never dropped."""
        drawn = dropout_scale(dropout, self.node[self.num_inputs :], batch, dtype)
        return torch.where(self.hidden.unsqueeze(1), drawn, 1)

"""Vectorised PyTorch: a level at a time over flat edges. Any device, any dtype, any torch callable."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine.activations import TORCH_FUNCTIONS, apply
from fourward.engine.base import Dropout, Engine, Request, Runner, dropout_scale
from fourward.graph.convert import IntArray
from fourward.plan.plan import Plan


class TorchOps(Engine):
    """Plain torch operations, none of them in place: differentiable twice, exportable, fit for vmap."""

    name = "torch"
    summary = "a level at a time in plain torch operations: any device, dtype and activation"

    def supports(self, request: Request) -> str | None:
        """Everything."""
        return None

    def prepare(self, plan: Plan) -> Runner:
        """Index tensors as buffers."""
        return _TorchRunner(plan)


class _TorchRunner(Runner):
    edge: Tensor
    source: Tensor
    slot: Tensor
    neuron: Tensor
    outputs: Tensor
    position: Tensor
    node: Tensor
    hidden: Tensor

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        target = np.repeat(np.arange(plan.dag.num_nodes), np.diff(plan.edge_start))
        level = np.searchsorted(plan.level_start, target, side="right") - 1
        self._index("edge", plan.edge)
        self._index("source", plan.source)
        self._index("slot", target - plan.level_start[level])  # place of each edge's target within its level
        self._index("neuron", plan.neuron)
        self._index("outputs", plan.outputs)
        self._index("position", plan.position)
        self._index("node", plan.order)
        hidden = ~np.isin(plan.order[plan.dag.num_inputs :], plan.dag.outputs)
        self.register_buffer("hidden", torch.from_numpy(hidden), persistent=False)
        self.num_inputs = plan.dag.num_inputs
        edges = plan.edge_start[plan.level_start].tolist()
        bounds = plan.level_start.tolist()
        runs = [list(group) for _, group in groupby(plan.runs(), key=lambda run: run[0])]
        # (first neuron, last, first edge, last, [(how many neurons, activation), ...]) of each level
        self.levels = [
            (
                bounds[i],
                bounds[i + 1],
                edges[i],
                edges[i + 1],
                [(stop - start, code) for _, start, stop, code in run],
            )
            for i, run in enumerate(runs)
        ]

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
        everything: bool,
    ) -> Tensor:
        dtype, batch, inputs = x.dtype, x.shape[0], self.num_inputs
        wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype  # sums are kept in this
        weight = weight.index_select(0, self.edge).to(wide).unsqueeze(1)
        if bias is not None:
            bias = bias.index_select(0, self.neuron).to(wide).unsqueeze(1)
        scale = self._scale(dropout, batch, dtype) if dropout is not None else None
        a = x.t()  # (known nodes, B), by position; grows by a level at a time
        for start, stop, first, last, runs in self.levels:
            known, own = a.index_select(0, self.source[first:last]).to(wide), weight[first:last]
            # The bias is added last: torch 2.13's inductor can't compile an index_add into an expanded bias.
            if stop - start == 1:
                z = own.t() @ known
            else:
                z = a.new_zeros(stop - start, batch, dtype=wide).index_add(0, self.slot[first:last], known * own)
            if bias is not None:
                z = z + bias[start - inputs : stop - inputs]
            pieces = z.split([length for length, _ in runs])
            new = [
                apply(code, piece, custom, TORCH_FUNCTIONS).to(dtype)
                for piece, (_, code) in zip(pieces, runs, strict=True)
            ]
            if scale is not None:
                new = [torch.cat(new) * scale[start - inputs : stop - inputs]]
            a = torch.cat((a, *new))
        return a.index_select(0, self.position if everything else self.outputs).t()

    def _scale(self, dropout: Dropout, batch: int, dtype: torch.dtype) -> Tensor:
        """(N-I, B) what dropout multiplies each neuron with; outputs are never dropped."""
        drawn = dropout_scale(dropout, self.node[self.num_inputs :], batch, dtype)
        return torch.where(self.hidden.unsqueeze(1), drawn, 1)

"""The reference engine, which defines what all others compute: one neuron at a time, slow and readable."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import Engine, Request, Runner
from fourward.engine._torch_activations import TABLE_FUNCTIONS, apply_activation
from fourward.plan._plan import Plan


class Reference(Engine):
    """a_v = f_v(b_v + sum over the edges u -> v of w_uv a_u), for one v after another."""

    name = "reference"
    summary = "one neuron at a time: the definition, made for checking"

    def supports(self, request: Request) -> str | None:
        """All requests."""
        return None

    def prepare(self, plan: Plan) -> Runner:
        """Nothing to compute beforehand."""
        return _ReferenceRunner(plan)


class _ReferenceRunner(Runner):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        dag = self.plan.dag
        code = self.plan.node_code
        neuron = {int(v): i for i, v in enumerate(dag.neurons)}
        a: dict[int, Tensor] = {int(v): x[:, i] for i, v in enumerate(dag.inputs)}
        for q, v in enumerate(dag.order.tolist()):
            if v in a:
                continue
            z = x.new_zeros(x.shape[0]) if bias is None else bias[neuron[v]].expand(x.shape[0])
            for k in range(dag.in_start[q], dag.in_start[q + 1]):
                z = z + weight[k] * a[int(dag.source[k])]
            a[v] = apply_activation(int(code[v]), z, custom, TABLE_FUNCTIONS)
            if dropout is not None and self.plan.hidden[self.plan.position[v]]:
                a[v] = a[v] * dropout_scale(dropout, torch.tensor([v], device=x.device), len(x), x.dtype)[0]
        return torch.stack([a[v] for v in (range(dag.num_nodes) if all_nodes else dag.outputs.tolist())], 1)

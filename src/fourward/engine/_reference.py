"""The reference engine, which defines what all others compute: one neuron at a time, slow and readable."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import Engine, RecurrentRunner, Request, Runner
from fourward.engine._torch_activations import TABLE_FUNCTIONS, apply_activation
from fourward.plan._plan import Plan
from fourward.plan._recurrent_plan import RecurrentPlan, build_recurrent_plan


class Reference(Engine):
    """a_v = f_v(b_v + sum over the edges u -> v of w_uv a_u), for one v after another, one step after another.

    The a_u of a feedback edge is that of the step before.
    """

    name = "reference"
    summary = "one neuron at a time: the definition, made for checking"
    supports_feedback = True

    def supports(self, request: Request) -> str | None:
        """All requests."""
        return None

    def prepare(self, plan: Plan) -> Runner:
        """A network without feedback takes a single step."""
        return _OneStep(self.prepare_recurrent(build_recurrent_plan(plan, np.empty((0, 2), np.int64))))

    def prepare_recurrent(self, plan: RecurrentPlan) -> RecurrentRunner:
        """Nothing to compute beforehand."""
        return _ReferenceRunner(plan)


class _OneStep(Runner):
    def __init__(self, runner: RecurrentRunner) -> None:
        super().__init__()
        self.runner = runner

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        y, _ = self.runner(x.unsqueeze(0), None, weight, bias, None, custom, dropout, all_nodes)
        return y[0]  # type: ignore[no-any-return]


class _ReferenceRunner(RecurrentRunner):
    def __init__(self, plan: RecurrentPlan) -> None:
        super().__init__()
        self.plan, self.dag = plan, plan.step.dag
        self.feature = {v: i for i, v in enumerate(self.dag.inputs.tolist())}
        self.neuron = {v: i for i, v in enumerate(self.dag.neurons.tolist())}

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
        dag, nodes, is_rate = self.dag, range(self.dag.num_nodes), self.plan.dynamics == "rate"
        f = partial(self._activate, custom=custom, dropout=dropout)
        zeros = x.new_zeros(x.shape[1])
        state = [zeros if h0 is None else h0[:, v] for v in nodes]
        a = [state[v] if is_rate or v in self.feature else f(v, state[v]) for v in nodes]
        steps = []
        for features in x:
            before, a = a, list(a)
            for v in dag.order.tolist():
                if v in self.feature:
                    a[v] = state[v] = features[:, self.feature[v]]
                    continue
                z = self._sum(v, a, before, weight, zeros if bias is None else bias[self.neuron[v]].expand_as(zeros))
                value = f(v, z) if is_rate else z
                state[v] = value if rate is None else state[v] + (value - state[v]) * rate[self.neuron[v]]
                a[v] = state[v] if is_rate else f(v, state[v])
            steps.append(torch.stack([a[v] for v in (nodes if all_nodes else dag.outputs.tolist())], 1))
        return torch.stack(steps), torch.stack(state, 1)

    def _sum(self, v: int, a: list[Tensor], before: list[Tensor], weight: Tensor, bias: Tensor) -> Tensor:
        """The bias plus the weighted activations: of this step `a`, and along feedback edges of the step `before`."""
        plan, dag, z = self.plan, self.dag, bias
        for k in range(dag.in_start[dag.position[v]], dag.in_start[dag.position[v] + 1]):
            z = z + weight[k] * a[int(dag.source[k])]
        q = plan.step.position[v]
        for k in range(plan.edge_start[q], plan.edge_start[q + 1]):
            z = z + weight[dag.num_edges + int(plan.edge[k])] * before[int(plan.step.order[plan.source[k]])]
        return z

    def _activate(self, v: int, z: Tensor, custom: nn.ModuleList, dropout: Dropout | None) -> Tensor:
        """f_v(z), times the factor of dropout."""
        a = apply_activation(int(self.plan.step.node_code[v]), z, custom, TABLE_FUNCTIONS)
        if dropout is None or not self.plan.step.hidden[self.plan.step.position[v]]:
            return a
        return a * dropout_scale(dropout, torch.tensor([v], device=a.device), len(a), a.dtype)[0]

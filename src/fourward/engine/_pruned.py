"""Engines that compute outputs without the neurons that reach none.

No gradient passes through such a neuron. Were it computed, its gradient of 0 times an infinite derivative, activation
or weight would be NaN, which would reach the gradients of everything before it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout
from fourward.engine._interface import Runner, index_tensor
from fourward.errors import pluralize
from fourward.plan._plan import Plan
from fourward.plan._prune import PrunedPlan, prune


def prepare_pruned(plan: Plan, prepare: Callable[..., Runner], plan_order: bool = False) -> Runner:
    """Prepare a plan, and for its outputs the pruned one if neurons can be left out.

    Args:
        plan: The plan.
        prepare: Takes a plan, and plan_order=True if weights come in the order of the plan instead of the Dag.
        plan_order: Whether they do.
    """
    pruned = prune(plan)
    runner = prepare(plan, plan_order=True) if plan_order else prepare(plan)
    if pruned is None:
        return runner
    edge = pruned.edge
    if plan_order and plan.edge is not None:
        edge = np.argsort(plan.edge)[edge]
    return _PrunedRunner(runner, prepare(pruned.plan), edge, pruned)


class _PrunedRunner(Runner):
    """Two runners in one.

    Args:
        all_nodes: Computes the activations of all nodes.
        outputs: Computes outputs, by a pruned plan.
        edge: (E',) the weights of the pruned plan's edges.
        pruned: The pruned plan.
    """

    edge: Tensor
    neuron: Tensor

    def __init__(self, all_nodes: Runner, outputs: Runner, edge: IntArray, pruned: PrunedPlan) -> None:
        super().__init__()
        self.all_nodes, self.outputs, self.plan = all_nodes, outputs, pruned.plan
        self.register_buffer("edge", index_tensor(edge), persistent=False)
        self.register_buffer("neuron", index_tensor(pruned.neuron), persistent=False)

    def describe(self) -> str:
        """The strategy for outputs, and how many nodes they need."""
        size = f"outputs are computed by {pluralize(self.plan.dag.num_nodes, 'node')}: the others reach none"
        return "\n".join(filter(None, (self.outputs.describe(), size)))

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        """Run one of the two."""
        if all_nodes:
            return self.all_nodes(x, weight, bias, custom, dropout, True)  # type: ignore[no-any-return]
        weight = weight.index_select(0, self.edge)
        bias = None if bias is None else bias.index_select(0, self.neuron)
        return self.outputs(x, weight, bias, custom, dropout, False)  # type: ignore[no-any-return]

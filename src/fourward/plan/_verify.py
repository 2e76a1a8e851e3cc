"""The rules that every Plan satisfies."""

from __future__ import annotations

import numpy as np

from fourward.errors import PlanError
from fourward.plan._plan import Plan


def verify(plan: Plan) -> None:
    """Raise a PlanError for the first rule that a plan violates; for tests, and for code that builds plans."""
    dag, inputs = plan.dag, plan.dag.num_inputs
    nodes, edges = np.arange(dag.num_nodes), np.arange(dag.num_edges)
    edge = edges if plan.edge is None else plan.edge
    key = plan.target.astype(np.int64) * dag.num_nodes + plan.source
    level = np.searchsorted(plan.level_start, nodes, side="right")  # 0 for inputs
    rules = {
        "order must contain each node once": np.array_equal(np.sort(plan.order), nodes),
        "position must be the inverse of order": np.array_equal(plan.position[plan.order], nodes),
        "inputs must come first, in feature order": np.array_equal(plan.order[:inputs], dag.inputs),
        "levels must cover the neurons": (plan.level_start[0], plan.level_start[-1]) == (inputs, dag.num_nodes),
        "no level may be empty": bool(np.all(np.diff(plan.level_start) > 0)),
        "edge must contain each edge once": np.array_equal(np.sort(edge), edges),
        "edges must be sorted by target, then by source": bool(np.all(np.diff(key) > 0)),
        "edges must start where the Dag's do": np.array_equal(plan.order[plan.source], dag.source[edge]),
        "edges must end where the Dag's do": np.array_equal(plan.order[plan.target], dag.target[edge]),
        "every edge must lead to a higher level": bool(np.all(level[plan.source] < level[plan.target])),
        "neuron must be the bias index of each position": np.array_equal(dag.neurons[plan.neuron], plan.order[inputs:]),
        "outputs must be the Dag's": np.array_equal(plan.order[plan.outputs], dag.outputs),
    }
    for rule, satisfied in rules.items():
        if not satisfied:
            raise PlanError(f"invalid {plan!r}: {rule}.")

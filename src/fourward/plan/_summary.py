"""Size, depth and cost of a plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from fourward.graph._base import BaseGraph
from fourward.layering._layering import Layering
from fourward.plan._cost import cost
from fourward.plan._plan import Plan
from fourward.plan._recurrent_plan import RecurrentPlan


def summarize(
    graph: BaseGraph,
    layering: Layering,
    plan: Plan | RecurrentPlan,
    batch: int,
    *,
    bias: bool = True,
    itemsize: int = 4,
    steps: int | None = None,
) -> dict[str, Any]:
    """Counts, height, degrees, memory and operations, serializable as JSON; arguments as in `cost`.

    The graph isn't that of the plan where inputs are driven: the latter has input nodes more.
    """
    return {
        **summarize_graph(graph, layering),
        "feedback": plan.num_feedback if isinstance(plan, RecurrentPlan) else 0,
        "batch": batch,
        **({"steps": steps or 1} if isinstance(plan, RecurrentPlan) else {}),
        "cost": asdict(cost(plan, batch, bias=bias, itemsize=itemsize, steps=steps)),
    }


def summarize_graph(graph: BaseGraph, layering: Layering) -> dict[str, Any]:
    """Counts, height and degrees."""
    degrees = {"in": graph.in_degree, "out": graph.out_degree}
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "inputs": graph.num_inputs,
        "outputs": graph.num_outputs,
        "height": layering.height,
        "attenuation": layering.attenuation,
        "widest_layer": int(np.bincount(layering.level).max()),
        "degrees": {
            kind: {"min": int(d.min()), "mean": float(d.mean()), "max": int(d.max())} for kind, d in degrees.items()
        },
    }

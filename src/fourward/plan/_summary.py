"""Size, depth and cost of a plan."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from fourward.plan._cost import cost
from fourward.plan._plan import Plan


def summarize(plan: Plan, batch: int, *, bias: bool = True, itemsize: int = 4) -> dict[str, Any]:
    """Counts, height, degrees, memory and operations, serializable as JSON; arguments as in `cost`."""
    dag, layering = plan.dag, plan.layering
    degrees = {"in": dag.in_degree, "out": dag.out_degree}
    return {
        "nodes": dag.num_nodes,
        "edges": dag.num_edges,
        "inputs": dag.num_inputs,
        "outputs": dag.num_outputs,
        "height": layering.height,
        "attenuation": layering.attenuation,
        "widest_layer": int(np.bincount(layering.level).max()),
        "degrees": {
            kind: {"min": int(d.min()), "mean": float(d.mean()), "max": int(d.max())} for kind, d in degrees.items()
        },
        "batch": batch,
        "cost": asdict(cost(plan, batch, bias=bias, itemsize=itemsize)),
    }

"""Size, depth, engine and cost of a network."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from fourward.nn._fourward import FourWard
from fourward.plan._cost import cost


def summary(net: FourWard, batch: int = 64) -> dict[str, Any]:
    """Summarize a network: counts, height, degrees, engine, memory and operations; serializable as JSON.

    Args:
        net: The network.
        batch: Number of samples that memory and operations are computed for.
    """
    dag, layering = net.dag, net.layering
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
        "engine": net.engine,
        "explanation": net.explain().splitlines(),
        "batch": batch,
        "cost": asdict(cost(net.plan, batch, bias=net.bias is not None, itemsize=net.weight.dtype.itemsize)),
    }

"""What there is to know of a network before it runs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from fourward.nn._fourward import FourWard
from fourward.plan._cost import cost


def facts(net: FourWard, batch: int = 64) -> dict[str, Any]:
    """Counts, height, degrees, the engine and why, memory and operations for a batch; fit for JSON."""
    dag, lay = net.dag, net.layering
    weight = net.weight
    degrees = {"in": dag.in_degree, "out": dag.out_degree}
    return {
        "nodes": dag.num_nodes,
        "edges": dag.num_edges,
        "inputs": dag.num_inputs,
        "outputs": dag.num_outputs,
        "height": lay.height,
        "attenuation": lay.attenuation,
        "widest_layer": int(np.bincount(lay.level).max()),
        "degrees": {
            kind: {"least": int(d.min()), "mean": float(d.mean()), "most": int(d.max())} for kind, d in degrees.items()
        },
        "engine": net.engine,
        "why": net.explain().splitlines(),
        "batch": batch,
        "cost": asdict(cost(net.plan, batch, bias=net.bias is not None, itemsize=weight.dtype.itemsize)),
    }

"""Size, depth, engine and cost of a network."""

from __future__ import annotations

from typing import Any

from fourward.errors import OptionError
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.plan._summary import summarize


def summary(net: FourWard | Recurrent, batch: int = 64, steps: int | None = None) -> dict[str, Any]:
    """Summarize a network: counts, height, degrees, constraints, engine, memory, operations; serializable as JSON.

    Args:
        net: The network.
        batch: Number of samples that memory and operations are computed for.
        steps: Likewise the number of steps of a Recurrent. Default: 1.
    """
    if not isinstance(net, FourWard | Recurrent):
        raise OptionError(
            f"expected a FourWard or a Recurrent, got a {type(net).__name__}. A population's networks are pop[0], "
            "pop[1] and so on."
        )
    plan = net.recurrent_plan if isinstance(net, Recurrent) else net.plan
    options: dict[str, Any] = {"bias": net.bias is not None, "itemsize": net.weight.dtype.itemsize, "steps": steps}
    result = summarize(net.graph, net.layering, plan, batch, **options)
    if net.constraints is not None:  # fewer parameters than edges
        count = net.constraints.free_weight.numel() + (0 if net.bias is None else net.bias.numel())
        result["cost"] |= {"parameters": count, "parameter_bytes": count * net.weight.dtype.itemsize}
        result["constraints"] = net.constraints.extra_repr()
    return result | {"engine": net.engine, "explanation": net.explain().splitlines()}

"""Size, depth, engine and cost of a network."""

from __future__ import annotations

from typing import Any

from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.plan._summary import summarize, summarize_graph


def summary(net: FourWard | Recurrent, batch: int = 64) -> dict[str, Any]:
    """Summarize a network: counts, height, degrees, engine, memory and operations; serializable as JSON.

    Args:
        net: The network. Of a Recurrent, memory and operations are those of a step.
        batch: Number of samples that memory and operations are computed for.
    """
    feedback = len(net.graph.feedback) if isinstance(net, Recurrent) else 0
    result = summarize(
        net.plan, batch, bias=net.bias is not None, itemsize=net.weight.dtype.itemsize, feedback=feedback
    )
    result |= summarize_graph(net.graph, net.layering)  # the plan's has input nodes more, where inputs are driven
    return result | {"engine": net.engine, "explanation": net.explain().splitlines()}

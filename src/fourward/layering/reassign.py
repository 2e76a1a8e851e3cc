"""The paper's stochastic node reassignment: another layering of the same height."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward._jit import compiled
from fourward.graph.convert import IntArray
from fourward.graph.dag import Dag
from fourward.layering.layering import Layering, check_same_graph


def reassign(dag: Dag, layering: Layering, *, seed: int | np.random.Generator | None = None) -> Layering:
    """Draw a new layer for each hidden node of the layers 2 to H-2, as the paper's appendix B does.

    Layer by layer, a node's new layer is drawn uniformly from the one above its highest predecessor up to
    the one it stands in. Sources, sinks and layer 1 stay, so the height stays too.
    """
    check_same_graph(dag, layering)
    draw = np.random.default_rng(seed).random(dag.num_nodes)
    by_level = np.argsort(layering.level, kind="stable")
    top = layering.height - 2
    level = _draw_levels(by_level, dag.position, dag.source, dag.in_start, layering.level, draw, top)
    return Layering(dag, level)


@compiled
def _draw_levels(
    by_level: IntArray,
    position: IntArray,
    source: IntArray,
    in_start: IntArray,
    level: IntArray,
    draw: np.ndarray[Any, np.dtype[np.float64]],
    top: int,
) -> IntArray:
    level = level.copy()
    for v in by_level:
        upper, q = level[v], position[v]
        if upper < 2 or upper > top or in_start[q] == in_start[q + 1]:
            continue
        lower = 0
        for k in range(in_start[q], in_start[q + 1]):
            lower = max(lower, level[source[k]] + 1)
        level[v] = lower + int(draw[v] * (upper - lower + 1))
    return level

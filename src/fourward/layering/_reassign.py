"""The paper's stochastic node reassignment: another layering of the same height."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.errors import LayeringError
from fourward.graph._dag import Dag
from fourward.graph.orient import make_generator
from fourward.layering._layering import Layering, check_same_graph, is_hidden
from fourward.layering._longest_path import longest_path


def reassign(dag: Dag, layering: Layering, *, seed: int | np.random.Generator | None = None) -> Layering:
    """Draw a new layer for each hidden node of the layers 2 to H-2, as in the paper's appendix B.

    Layer by layer, a node's new layer is drawn uniformly, from the one after its highest predecessor up to its present
    one. Sources, sinks and layer 1 stay, and so does the height. The layering must have minimum height, as
    `longest_path` has: in a higher one, a layer could lose all its nodes.
    """
    check_same_graph(dag, layering)
    layering.verify()
    least = longest_path(dag).height
    if layering.height > least:
        raise LayeringError(
            f"expected a layering of minimum height, {least:,} layers, got {layering.height:,} layers. "
            "Start from longest_path(dag)."
        )
    draw = make_generator(seed).random(dag.num_nodes)
    by_level = np.argsort(layering.level, kind="stable")
    by_level = by_level[is_hidden(dag)[by_level]]
    top = layering.height - 2
    level = _draw_levels(by_level, dag.position, dag.source, dag.in_start, layering.level, draw, top)
    return Layering(dag, level)


@cached_njit
def _draw_levels(
    by_level: IntArray,
    position: IntArray,
    source: IntArray,
    in_start: IntArray,
    level: IntArray,
    draw: np.ndarray[Any, np.dtype[np.float64]],
    top: int,
) -> IntArray:
    """(N,) new levels; predecessors of a node have theirs before it is drawn, since `by_level` is sorted."""
    level = level.copy()
    for v in by_level:
        upper, q = level[v], position[v]
        if upper < 2 or upper > top:
            continue
        lower = 0
        for k in range(in_start[q], in_start[q + 1]):
            lower = max(lower, level[source[k]] + 1)
        level[v] = lower + int(draw[v] * (upper - lower + 1))
    return level

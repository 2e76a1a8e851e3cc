"""Selection: which edges go, by their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from torch import Tensor

from fourward._arrays import BoolArray, IntArray
from fourward.errors import OptionError
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
#: "magnitude", the absolute weights; or a function of the network that returns (E,) scores, or these scores. The edges
#: with the smallest go.
By = Literal["magnitude"] | Callable[[Any], Any] | Tensor | np.ndarray[Any, Any]


def score_edges(net: FourWard | Recurrent, by: By) -> FloatArray:
    """(E,) the scores of all edges."""
    if isinstance(by, str):
        if by != "magnitude":
            raise OptionError(f"by must be 'magnitude', a function of the network, or scores, got {by!r}.")
        magnitude: FloatArray = net.weight.detach().abs().float().cpu().numpy()
        return magnitude
    values = by(net) if callable(by) else by
    scores = np.asarray(values.detach().double().cpu() if isinstance(values, Tensor) else values, np.float64)
    if scores.shape != (net.graph.num_edges,) or np.isnan(scores).any():
        raise OptionError(
            f"expected a score for each of {net.graph.num_edges:,} edges, none of them NaN, got shape {scores.shape}."
        )
    return scores


def removable(net: FourWard | Recurrent) -> BoolArray | None:
    """(E,) which edges may go: those that are neither frozen nor tied; None for all."""
    arrays = None if net.constraints is None else net.constraints.arrays
    if arrays is None or (arrays.frozen is None and arrays.tied is None):
        return None
    may_go = np.ones(net.graph.num_edges, np.bool_)
    if arrays.frozen is not None:
        may_go &= ~arrays.frozen
    if arrays.tied is not None:
        may_go &= arrays.tied < 0
    return may_go


def select_weakest(scores: FloatArray, edges: IntArray, count: int, ordered: bool = True) -> IntArray:
    """(count,) of these edges, those with the smallest scores, ascending by score if `ordered`."""
    if count <= 0:
        return edges[:0]
    values = scores[edges]
    if count < len(edges):
        smallest = np.sort(np.argpartition(values, count - 1)[:count])
        edges, values = edges[smallest], values[smallest]
    return edges[np.argsort(values, kind="stable")] if ordered else edges


def keep_driven(graph: Dag | Digraph, scores: FloatArray, selected: IntArray) -> IntArray:
    """The selected edges without the strongest one into each driven input, which otherwise would be driven no more."""
    if not len(graph.driven):
        return selected
    into = np.flatnonzero(np.isin(graph.target, graph.driven))
    strongest = into[np.lexsort((scores[into], graph.target[into]))]
    last = np.flatnonzero(np.diff(graph.target[strongest], append=-1))
    return selected[~np.isin(selected, strongest[last])]

"""prune: remove the edges that matter least."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import OptionError
from fourward.graph._convert import is_integer
from fourward.graph._edit import Changed
from fourward.sparse._optimizers import Optimizers
from fourward.sparse._rewire import Edit, Network, rewire_indices, unwrap
from fourward.sparse._selection import By, keep_driven, removable, score_edges, select_weakest


def prune(
    net: Network, optimizer: Optimizers = None, *, amount: float, by: By = "magnitude", neurons: bool = True
) -> Edit:
    """Remove the edges of a network that matter least, in place, as `rewire` does.

    Frozen and tied edges stay, and so does the strongest edge into each driven input.

    Args:
        net: A FourWard or a Recurrent.
        optimizer: As in `rewire`.
        amount: The fraction of all edges that goes, or as an int how many.
        by: "magnitude", the absolute weights; or a function that receives the network and returns (E,) scores, or these
            scores themselves, such as `fw.importance(net, x, y, by="gradient", of="edges")`. The smallest go.
        neurons: Whether hidden neurons that lose all their edges go, too.

    >>> from fourward import FourWard, generate
    >>> net = FourWard(generate.layered_mlp([4, 8, 2]), seed=0)
    >>> prune(net, amount=0.75)
    Edit(0 edges added, 36 removed, 12 kept)
    """
    net = unwrap(net)
    edges = select_prunable(net, _as_count(amount, net.graph.num_edges), by)
    nodes = _isolated(net, edges) if neurons else edges[:0]
    return rewire_indices(net, optimizer, Changed(np.empty((0, 2), np.int64), edges, removed_nodes=nodes))


def select_prunable(net: Network, count: int, by: By) -> IntArray:
    """(count,) the edges that go."""
    scores, may_go = score_edges(net, by), removable(net)
    edges = np.arange(net.graph.num_edges) if may_go is None else np.flatnonzero(may_go)
    selected = keep_driven(net.graph, scores, select_weakest(scores, edges, len(edges)))[:count]
    if len(selected) < count:
        raise OptionError(
            f"expected at least {count:,} edges that can go, got {len(selected):,}: frozen and tied edges stay, and "
            "the strongest into each driven input. Choose a smaller amount."
        )
    return np.sort(selected)


def _as_count(amount: Any, num_edges: int) -> int:
    if is_integer(amount) and 0 <= amount <= num_edges:
        return int(amount)
    if isinstance(amount, float) and 0 <= amount <= 1:
        return int(amount * num_edges)
    raise OptionError(
        f"amount must be a fraction of the edges as a float from 0 to 1, or a number of edges from 0 to {num_edges:,}, "
        f"got {amount!r}."
    )


def _isolated(net: Network, edges: IntArray) -> IntArray:
    """Hidden neurons that have edges, and none without these."""
    graph = net.graph
    degree = graph.in_degree + graph.out_degree
    ends, counts = np.unique(graph.edges[edges], return_counts=True)
    isolated = ends[degree[ends] == counts]
    return np.setdiff1d(isolated, np.concatenate((graph.inputs, graph.outputs)))

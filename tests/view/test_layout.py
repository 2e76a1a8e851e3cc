"""Layout: nodes spread over their layers in an order with few crossings."""

import numpy as np
import pytest

from fourward import connectomes, generate
from fourward.graph._dag import Dag
from fourward.layering import longest_path, push_sources
from fourward.view._layout import bend_edges, count_crossings, layout_nodes

GRAPHS = {
    "one node": generate.complete(1),
    "chain": generate.chain(30),
    "complete": generate.complete(12),
    "no edges": Dag.from_edges(np.empty((0, 2), int), nodes=5),
    "sparse": generate.erdos_renyi(64, 0.05, seed=1),
    "64 nodes": generate.erdos_renyi(64, 0.1, seed=0),
    "scale-free": generate.barabasi_albert(100, 2, seed=0),
}


def layered(dag):
    return push_sources(dag, longest_path(dag))


def shuffled(layering, y, rng):
    """The same y in each layer, shuffled among its nodes."""
    result = y.copy()
    for nodes in layering.layers:
        result[nodes] = rng.permutation(y[nodes])
    return result


@pytest.mark.parametrize("dag", GRAPHS.values(), ids=GRAPHS)
def test_nodes_are_spread_evenly_over_their_layer(dag):
    layering = layered(dag)
    y = layout_nodes(dag, layering)
    assert y.shape == (dag.num_nodes,)
    assert (y > 0).all()
    assert (y < 1).all()
    for nodes in layering.layers:
        gaps = np.diff(np.sort(y[nodes]))
        np.testing.assert_allclose(gaps, 1 / len(nodes), rtol=1e-9, err_msg="nodes spread evenly over a layer")
    np.testing.assert_array_equal(y, layout_nodes(dag, layering), err_msg="the same graph, the same picture")


@pytest.mark.parametrize(
    ("name", "most"),
    [("sparse", 0.4), ("64 nodes", 0.65), ("scale-free", 0.45), ("c-elegans", 0.65), ("mushroom-body", 0.6)],
)
def test_far_fewer_crossings_than_at_random(name, most):
    dag = GRAPHS[name] if name in GRAPHS else connectomes.load(name).dag
    layering = layered(dag)
    y = layout_nodes(dag, layering)
    rng = np.random.default_rng(0)
    random = np.mean([count_crossings(dag, layering, shuffled(layering, y, rng)) for _ in range(3)])
    assert count_crossings(dag, layering, y) < most * random


def test_crossings_are_counted():
    dag = Dag.from_edges([("a", "c"), ("b", "d")], nodes=list("abcd"))
    layering = layered(dag)
    assert count_crossings(dag, layering, np.array([0.2, 0.8, 0.2, 0.8])) == 0
    assert count_crossings(dag, layering, np.array([0.2, 0.8, 0.8, 0.2])) == 1
    fan = Dag.from_edges([("a", "c"), ("a", "d"), ("b", "d")], nodes=list("abcd"))
    assert count_crossings(fan, layered(fan), np.array([0.2, 0.8, 0.2, 0.8])) == 0, (
        "edges that share a node don't cross"
    )


def test_a_planar_tangle_is_undone():
    dag = Dag.from_edges([(i, 10 + (7 * i) % 10) for i in range(10)])
    layering = layered(dag)
    assert count_crossings(dag, layering, layout_nodes(dag, layering)) == 0


def test_long_edges_bend_and_short_ones_are_straight():
    dag = generate.complete(6)
    layering = layered(dag)
    bend = bend_edges(dag, layering, layout_nodes(dag, layering))
    span = layering.level[dag.target] - layering.level[dag.source]
    assert (bend[span == 1] == 0).all()
    assert (np.abs(bend[span == 5]) == np.abs(bend).max()).all()
    assert np.abs(bend).max() <= 0.5, "within the picture"

"""Where nodes go: each in a place of its own, in an order with few crossings."""

import numpy as np
import pytest

from fourward import connectomes, generate
from fourward.graph._dag import Dag
from fourward.layering import longest_path, push_sources
from fourward.view._layout import bows, crossings, place_nodes

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


def shuffled(layering, height, rng):
    """The same heights in each layer, given to its nodes at random."""
    result = height.copy()
    for nodes in layering.layers:
        result[nodes] = rng.permutation(height[nodes])
    return result


@pytest.mark.parametrize("dag", GRAPHS.values(), ids=GRAPHS)
def test_every_node_has_a_place_of_its_own(dag):
    layering = layered(dag)
    height = place_nodes(dag, layering)
    assert height.shape == (dag.num_nodes,)
    assert (height > 0).all()
    assert (height < 1).all()
    for nodes in layering.layers:
        gaps = np.diff(np.sort(height[nodes]))
        np.testing.assert_allclose(gaps, 1 / len(nodes), rtol=1e-9, err_msg="nodes spread evenly over a layer")
    np.testing.assert_array_equal(height, place_nodes(dag, layering), err_msg="the same graph, the same picture")


@pytest.mark.parametrize(
    ("name", "most"),
    [("sparse", 0.4), ("64 nodes", 0.65), ("scale-free", 0.45), ("c-elegans", 0.65), ("mushroom-body", 0.6)],
)
def test_far_fewer_crossings_than_at_random(name, most):
    dag = GRAPHS[name] if name in GRAPHS else connectomes.load(name).dag
    layering = layered(dag)
    height = place_nodes(dag, layering)
    rng = np.random.default_rng(0)
    random = np.mean([crossings(dag, layering, shuffled(layering, height, rng)) for _ in range(3)])
    assert crossings(dag, layering, height) < most * random


def test_crossings_are_counted_as_the_eye_counts_them():
    dag = Dag.from_edges([("a", "c"), ("b", "d")], nodes=list("abcd"))
    layering = layered(dag)
    assert crossings(dag, layering, np.array([0.2, 0.8, 0.2, 0.8])) == 0
    assert crossings(dag, layering, np.array([0.2, 0.8, 0.8, 0.2])) == 1
    fan = Dag.from_edges([("a", "c"), ("a", "d"), ("b", "d")], nodes=list("abcd"))
    assert crossings(fan, layered(fan), np.array([0.2, 0.8, 0.2, 0.8])) == 0, "edges that share a node don't cross"


def test_a_planar_tangle_is_undone():
    dag = Dag.from_edges([(i, 10 + (7 * i) % 10) for i in range(10)])
    layering = layered(dag)
    assert crossings(dag, layering, place_nodes(dag, layering)) == 0


def test_long_edges_bow_and_short_ones_are_straight():
    dag = generate.complete(6)
    layering = layered(dag)
    bow = bows(dag, layering, place_nodes(dag, layering))
    span = layering.level[dag.target] - layering.level[dag.source]
    assert (bow[span == 1] == 0).all()
    assert (np.abs(bow[span == 5]) == np.abs(bow).max()).all()
    assert np.abs(bow).max() <= 0.5, "within the picture"

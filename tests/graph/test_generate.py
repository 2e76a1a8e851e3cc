import random

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, connectomes, generate
from fourward.errors import OptionError

SEEDED = {
    "erdos_renyi": lambda seed: generate.erdos_renyi(60, 0.1, seed=seed),
    "watts_strogatz": lambda seed: generate.watts_strogatz(60, 4, 0.3, seed=seed),
    "barabasi_albert": lambda seed: generate.barabasi_albert(60, 3, seed=seed),
    "rewired_mlp": lambda seed: generate.rewired_mlp([5, 10, 5], 0.3, seed=seed),
}


@pytest.mark.parametrize("name", SEEDED)
def test_seeded_and_local(name):
    before = random.getstate(), np.random.get_state()[1].copy()
    make = SEEDED[name]
    assert make(0) == make(0)
    assert make(0) != make(1)
    assert make(None) != make(None)
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all()


def test_erdos_renyi_keeps_the_largest_component():
    dag = generate.erdos_renyi(200, 0.008, seed=0)
    graph = dag.to_networkx().to_undirected()
    assert nx.is_connected(graph)
    assert 20 < dag.num_nodes < 200
    assert set(dag.labels) <= set(range(200))


def test_erdos_renyi_has_the_right_density():
    dag = generate.erdos_renyi(1024, 0.2, seed=0)
    pairs = 1024 * 1023 / 2
    assert abs(dag.num_edges - 0.2 * pairs) < 5 * (0.16 * pairs) ** 0.5
    assert generate.erdos_renyi(40, 1.0, seed=3).num_edges == 40 * 39 // 2


def test_direction_is_random():
    dag = generate.erdos_renyi(300, 0.1, seed=1)
    forward = np.count_nonzero(dag.source < dag.target)
    assert abs(forward / dag.num_edges - 0.5) < 0.1


def test_natural_order():
    for dag in (
        generate.barabasi_albert(50, 2, order="natural", seed=0),
        generate.watts_strogatz(50, 4, 0.2, order="natural", seed=0),
    ):
        assert (dag.source < dag.target).all()
    ring = generate.watts_strogatz(20, 4, 0.0, order="natural")
    assert ring.num_edges == 40


def test_watts_strogatz_rewires_a_fraction():
    ring = set(map(tuple, generate.watts_strogatz(500, 6, 0.0, order="natural").edges.tolist()))
    moved = [
        len(ring - set(map(tuple, generate.watts_strogatz(500, 6, p, order="natural", seed=0).edges.tolist())))
        for p in (0.0, 0.2, 1.0)
    ]
    assert moved[0] == 0
    assert abs(moved[1] - 0.2 * len(ring)) < 5 * (0.16 * len(ring)) ** 0.5
    assert moved[2] > 0.95 * len(ring)


def test_barabasi_albert_degrees():
    dag = generate.barabasi_albert(5000, 3, seed=0)
    degree = dag.in_degree + dag.out_degree
    assert degree.min() >= 1
    assert degree.max() > 20 * np.median(degree), "a scale-free graph has hubs"


def test_layered_mlp():
    dag = generate.layered_mlp([2, 3, 1])
    assert dag.num_edges == 2 * 3 + 3
    assert dag.inputs.tolist() == [0, 1]
    assert dag.outputs.tolist() == [5]
    assert generate.layered_mlp([2, 2]).edges.tolist() == [[0, 2], [1, 2], [0, 3], [1, 3]]


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.7])
def test_rewired_mlp_moves_that_many(fraction):
    sizes = [8, 12, 12, 6]
    mlp, dag = generate.layered_mlp(sizes), generate.rewired_mlp(sizes, fraction, seed=0)
    before, after = (set(map(tuple, d.edges.tolist())) for d in (mlp, dag))
    assert len(after) == len(before)
    assert len(before - after) == round(fraction * len(before))
    assert dag.inputs.tolist() == list(range(8))
    assert dag.outputs.tolist() == list(range(32, 38))
    assert all(u < 32 and v >= 8 and u < v for u, v in after)


def test_rewired_mlp_reaches_every_vacant_pair():
    sizes = [2, 3, 2]
    vacant = 4 + 3  # inputs to outputs, and among three hidden nodes
    dag = generate.rewired_mlp(sizes, vacant / 12, seed=0)
    moved = set(map(tuple, dag.edges.tolist())) - set(map(tuple, generate.layered_mlp(sizes).edges.tolist()))
    assert moved == {(0, 5), (0, 6), (1, 5), (1, 6), (2, 3), (2, 4), (3, 4)}
    with pytest.raises(OptionError, match=r"at most 0.583 .*only 7 vacant pairs"):
        generate.rewired_mlp(sizes, 8 / 12)


def test_small_and_regular():
    assert generate.chain(1).num_edges == 0
    assert generate.chain(4).edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert generate.complete(5).num_edges == 10


def test_a_million_edges():
    sizes = [
        generate.erdos_renyi(100_000, 2e-4, seed=0),
        generate.barabasi_albert(100_000, 10, seed=0),
        generate.watts_strogatz(100_000, 20, 0.1, seed=0),
        generate.rewired_mlp([800, 800, 800], 0.2, seed=0),
    ]
    assert all(dag.num_edges > 990_000 for dag in sizes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate.erdos_renyi(0, 0.1), "n must be an int of at least 1, got 0"),
        (lambda: generate.erdos_renyi(10.5, 0.1), "n must be .* got 10.5"),
        (lambda: generate.erdos_renyi(10, 1.1), "p must be between 0 and 1, got 1.1"),
        (lambda: generate.erdos_renyi(10, float("nan")), "p must be .* got nan"),
        (lambda: generate.watts_strogatz(10, 3, 0.1), "k must be even.* got 3"),
        (lambda: generate.watts_strogatz(10, 10, 0.1), "less than n=10.* got 10"),
        (lambda: generate.watts_strogatz(10, 4, 0.1, order="left"), "'random' or 'natural'"),
        (lambda: generate.barabasi_albert(3, 3), "n must be greater than m=3.* got 3"),
        (lambda: generate.layered_mlp([3]), "at least an input and an output"),
        (lambda: generate.layered_mlp([3, 0]), "each of sizes must be .* got 0"),
        (lambda: generate.chain(0), "n must be an int of at least 1, got 0"),
        (lambda: generate.layered_mlp(5), "sizes must list .* got 5"),
        (lambda: generate.erdos_renyi(5, "x"), "p must be .* got 'x'"),
        (lambda: generate.erdos_renyi(5, 0.5, seed=-1), "seed must be a non-negative int.* got -1"),
        (lambda: generate.complete(-1), "n must be .* got -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(OptionError, match=message):
        call()


def pairs(dag):
    return set(map(tuple, dag.edges.tolist()))


@st.composite
def dags(draw):
    n = draw(st.integers(1, 14))
    ascending = [(u, v) for u in range(n) for v in range(u + 1, n)]
    edges = draw(st.lists(st.sampled_from(ascending), unique=True)) if ascending else []
    rank = draw(st.permutations(range(n)))
    return Dag.from_edges([(rank[u], rank[v]) for u, v in edges], nodes=n)


@given(dags(), st.integers(0, 2**32))
def test_a_shuffle_keeps_every_degree(dag, seed):
    shuffled = generate.shuffle_degrees(dag, seed=seed, rounds=3)  # a cycle or a double edge would raise
    assert (shuffled.in_degree == dag.in_degree).all()
    assert (shuffled.out_degree == dag.out_degree).all()
    assert (shuffled.inputs == dag.inputs).all()
    assert (shuffled.outputs == dag.outputs).all()
    assert shuffled.labels == dag.labels


def test_a_shuffle_moves_most_edges_and_is_seeded():
    worm = connectomes.load("c-elegans").dag
    first, second = generate.shuffle_degrees(worm, seed=1), generate.shuffle_degrees(worm, seed=2)
    assert len(pairs(first) & pairs(worm)) < 0.2 * worm.num_edges
    assert first == generate.shuffle_degrees(worm, seed=1)
    assert first != second
    assert generate.shuffle_degrees(worm, rounds=0) == worm


def test_a_shuffle_reaches_every_wiring_alike():
    dag = Dag.from_edges([("a", "x"), ("a", "y"), ("b", "y"), ("b", "z")])
    wirings = [frozenset(pairs(generate.shuffle_degrees(dag, seed=seed))) for seed in range(300)]
    counts = [wirings.count(wiring) for wiring in set(wirings)]
    assert len(counts) == 2  # y keeps two sources, so x and z take one each
    assert min(counts) > 110


def test_a_complete_graph_has_one_wiring():
    assert generate.shuffle_degrees(generate.complete(9), seed=0) == generate.complete(9)


@given(dags(), st.data())
def test_thinning_keeps_sources_and_sinks(dag, data):
    # At least one edge out of every node and one into it, where there are any.
    least = len(set(dag.source.tolist())) + len(set(dag.target.tolist()))
    size = data.draw(st.integers(min(least, dag.num_edges), dag.num_edges))
    thinned = generate.thin(dag, size, seed=data.draw(st.integers(0, 2**32)))
    assert thinned.num_edges == size
    assert pairs(thinned) <= pairs(dag)
    assert ((thinned.in_degree == 0) == (dag.in_degree == 0)).all()
    assert ((thinned.out_degree == 0) == (dag.out_degree == 0)).all()


def test_thinning_is_seeded_and_fair():
    dag = generate.layered_mlp([10, 20, 10])
    assert generate.thin(dag, 200, seed=0) == generate.thin(dag, 200, seed=0)
    assert generate.thin(dag, 200, seed=0) != generate.thin(dag, 200, seed=1)
    first_half = [np.count_nonzero(generate.thin(dag, 200, seed=seed).source < 10) for seed in range(50)]
    assert 90 < np.mean(first_half) < 110


@pytest.mark.parametrize("edges", [-1, 3, 51, 2.5])
def test_thinning_to_an_impossible_size(edges):
    with pytest.raises(OptionError, match="edges must be"):
        generate.thin(generate.layered_mlp([5, 10]), edges, seed=0)

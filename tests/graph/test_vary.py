"""Graphs made from other graphs: thinned, and shuffled with all degrees kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, connectomes, generate
from fourward.errors import OptionError


def pairs(dag):
    return set(map(tuple, dag.edges.tolist()))


@st.composite
def dags(draw):
    n = draw(st.integers(1, 14))
    places = [(u, v) for u in range(n) for v in range(u + 1, n)]
    edges = draw(st.lists(st.sampled_from(places), unique=True)) if places else []
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
    one, two = generate.shuffle_degrees(worm, seed=1), generate.shuffle_degrees(worm, seed=2)
    assert len(pairs(one) & pairs(worm)) < 0.2 * worm.num_edges
    assert one == generate.shuffle_degrees(worm, seed=1)
    assert one != two
    assert generate.shuffle_degrees(worm, rounds=0) == worm


def test_a_shuffle_reaches_every_wiring_alike():
    dag = Dag.from_edges([("a", "x"), ("a", "y"), ("b", "y"), ("b", "z")])
    found = [frozenset(pairs(generate.shuffle_degrees(dag, seed=seed))) for seed in range(300)]
    counts = [found.count(wiring) for wiring in set(found)]
    assert len(counts) == 2  # y keeps two senders, so x and z take one each
    assert min(counts) > 110


def test_a_complete_graph_has_one_wiring():
    assert generate.shuffle_degrees(generate.complete(9), seed=0) == generate.complete(9)


@given(dags(), st.data())
def test_thinning_keeps_sources_and_sinks(dag, data):
    least = len(set(dag.source.tolist())) + len(
        set(dag.target.tolist())
    )  # one edge out and one in, where there are any
    wanted = data.draw(st.integers(min(least, dag.num_edges), dag.num_edges))
    thinned = generate.thin(dag, wanted, seed=data.draw(st.integers(0, 2**32)))
    assert thinned.num_edges == wanted
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
def test_thinning_says_what_is_possible(edges):
    with pytest.raises(OptionError, match="edges="):
        generate.thin(generate.layered_mlp([5, 10]), edges, seed=0)

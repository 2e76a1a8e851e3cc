import copy
import pickle

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases import ZOO, case
from fourward import Dag, Layering, generate, layering
from fourward.errors import LayeringError


def by_the_paper(dag: Dag) -> list[int]:
    """Algorithm 6 of the paper, word for word: slow, and with sets."""
    successors = [set() for _ in range(dag.num_nodes)]
    for u, v in dag.edges.tolist():
        successors[u].add(v)
    placed, below, layer, level = set(), set(), 1, {}
    while len(placed) < dag.num_nodes:
        ready = {v for v in range(dag.num_nodes) if v not in placed and successors[v] <= below}
        if ready:
            v = min(ready)
            level[v] = layer
            placed.add(v)
        else:
            layer += 1
            below |= placed
    return [layer - level[v] for v in range(dag.num_nodes)]


@pytest.mark.parametrize("name", [name for name in ZOO if "2000" not in name])
def test_longest_path_is_the_papers(name):
    dag = case(name).dag
    assert layering.longest_path(dag).level.tolist() == by_the_paper(dag)


@given(st.integers(1, 60), st.floats(0.01, 0.6), st.integers(0, 10**6))
def test_longest_path_properties(n, p, seed):
    dag = generate.erdos_renyi(n, p, seed=seed)
    lay = layering.longest_path(dag)
    lay.verify()
    assert lay.height == nx.dag_longest_path_length(dag.to_networkx()) + 1, "minimum height"
    assert (lay.level[dag.out_degree == 0] == lay.height - 1).all(), "all sinks in the last layer"
    lowest = np.full(dag.num_nodes, lay.height)
    np.minimum.at(lowest, dag.source, lay.level[dag.target])
    assert (lay.level == lowest - 1).all(), "as close to the sinks as possible"
    assert lay.attenuation == dag.num_nodes / lay.height
    assert sorted(np.concatenate(lay.layers)) == list(range(dag.num_nodes))
    assert all((lay.level[nodes] == i).all() for i, nodes in enumerate(lay.layers))


@given(st.integers(1, 60), st.floats(0.01, 0.6), st.integers(0, 10**6))
def test_push_sources_and_reassign(n, p, seed):
    dag = generate.erdos_renyi(n, p, seed=seed)
    first = layering.longest_path(dag)
    pushed = layering.push_sources(dag, first)
    pushed.verify()
    assert (pushed.level[dag.in_degree == 0] == 0).all()
    stay = dag.in_degree > 0
    assert (pushed.level[stay] == first.level[stay]).all()
    moved = layering.reassign(dag, pushed, seed=seed)
    moved.verify()
    assert moved.height == pushed.height
    assert (moved.level <= pushed.level).all()
    changed = np.flatnonzero(moved.level != pushed.level)
    assert set(changed) <= set(pushed.movable)
    sinks = dag.out_degree == 0
    assert (moved.level[sinks] == pushed.level[sinks]).all()


def test_reassign_reaches_every_layer_alike():
    # A long path of 6, and one node beside it that may stand in layers 1 to 4.
    dag = Dag.from_edges([*((f"p{i}", f"p{i + 1}") for i in range(5)), ("p0", "free"), ("free", "p5")])
    lay = layering.push_sources(dag, layering.longest_path(dag))
    free = dag.index("free")
    assert lay.level[free] == 4
    assert lay.movable.tolist() == [free]
    assert lay.slack[free] == 3
    levels = [layering.reassign(dag, lay, seed=s).level[free] for s in range(400)]
    counts = np.bincount(levels, minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]
    assert (counts[1:5] > 60).all()
    assert layering.reassign(dag, lay, seed=1) == layering.reassign(dag, lay, seed=1)


def test_reassign_draws_for_each_node_alone():
    pairs = [*((f"p{i}", f"p{i + 1}") for i in range(5)), ("p0", "one"), ("one", "p5"), ("p0", "two"), ("two", "p5")]
    dag = Dag.from_edges(pairs)
    lay = layering.push_sources(dag, layering.longest_path(dag))
    both = {tuple(layering.reassign(dag, lay, seed=s).level[[dag.index("one"), dag.index("two")]]) for s in range(300)}
    assert len(both) == 16, "every pair of layers 1 to 4"


def test_reassign_refuses_what_it_would_break():
    dag = Dag.from_edges([("a", "b"), ("b", "c")], nodes=["a", "b", "c", "d"])
    with pytest.raises(LayeringError, match="4 layers, but 3 are enough"):
        layering.reassign(dag, Layering(dag, np.array([0, 1, 3, 2])), seed=0)


def test_push_sources_moves_sources_that_are_no_inputs():
    dag = Dag.from_edges([("x", "a"), ("a", "b"), ("s", "b")], inputs=["x"])
    lay = layering.push_sources(dag, layering.longest_path(dag))
    assert lay.level[dag.index("s")] == 0


def test_every_movable_node_moves_some_time():
    dag = generate.erdos_renyi(40, 0.1, seed=4)
    lay = layering.push_sources(dag, layering.longest_path(dag))
    moved = set()
    for seed in range(300):
        moved |= set(np.flatnonzero(layering.reassign(dag, lay, seed=seed).level != lay.level).tolist())
    assert moved == set(lay.movable.tolist())


def test_complete_graph_has_one_layering():
    dag = generate.complete(30)
    lay = layering.longest_path(dag)
    assert lay.height == 30
    assert not lay.slack.any()
    assert layering.reassign(dag, lay, seed=0) == lay


def test_verify_names_the_edge():
    dag = Dag.from_edges([("a", "b"), ("b", "c")])
    with pytest.raises(LayeringError, match=r"from 'b' in layer 1 to 'c' in layer 1"):
        Layering(dag, np.array([0, 1, 1])).verify()
    with pytest.raises(LayeringError, match="layer 1 of 3 is empty"):
        Layering(dag, np.array([0, 2, 2])).verify()
    for levels in ([-1, 0, 1], [0, 1, 3], [0, 1, 2**32 + 2]):
        with pytest.raises(LayeringError, match="levels go from 0 to at most 2"):
            Layering(dag, np.array(levels))
    with pytest.raises(LayeringError, match="one integer for each of 3 nodes"):
        Layering(dag, np.array([0, 1]))
    with pytest.raises(LayeringError, match="one integer"):
        Layering(dag, np.array([0.0, 1.0, 2.0]))


def test_a_layering_belongs_to_its_graph():
    one, other = generate.chain(3), generate.chain(4)
    with pytest.raises(LayeringError, match="belongs to"):
        layering.reassign(other, layering.longest_path(one))
    with pytest.raises(LayeringError, match="belongs to"):
        layering.push_sources(other, layering.longest_path(one))


def test_frozen_copy_pickle():
    lay = layering.longest_path(generate.chain(5))
    with pytest.raises(ValueError, match="read-only"):
        lay.level[0] = 3
    assert copy.deepcopy(lay) is lay
    twin = pickle.loads(pickle.dumps(lay))
    assert twin == lay
    assert hash(twin) == hash(lay)

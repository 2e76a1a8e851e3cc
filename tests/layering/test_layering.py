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


def algorithm_6(dag: Dag) -> list[int]:
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
    assert layering.longest_path(dag).level.tolist() == algorithm_6(dag)


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
    # A path of 6 nodes, and a node beside it that can be in layers 1 to 4.
    dag = Dag.from_edges([*((f"p{i}", f"p{i + 1}") for i in range(5)), ("p0", "side"), ("side", "p5")])
    lay = layering.push_sources(dag, layering.longest_path(dag))
    side = dag.index("side")
    assert lay.level[side] == 4
    assert lay.movable.tolist() == [side]
    assert lay.slack[side] == 3
    levels = [layering.reassign(dag, lay, seed=s).level[side] for s in range(400)]
    counts = np.bincount(levels, minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]
    assert (counts[1:5] > 60).all()
    assert layering.reassign(dag, lay, seed=1) == layering.reassign(dag, lay, seed=1)


def test_reassign_draws_for_each_node_alone():
    pairs = [*((f"p{i}", f"p{i + 1}") for i in range(5)), ("p0", "s"), ("s", "p5"), ("p0", "t"), ("t", "p5")]
    dag = Dag.from_edges(pairs)
    lay = layering.push_sources(dag, layering.longest_path(dag))
    both = {tuple(layering.reassign(dag, lay, seed=s).level[[dag.index("s"), dag.index("t")]]) for s in range(300)}
    assert len(both) == 16, "every pair of layers 1 to 4"


def test_reassign_needs_minimum_height():
    dag = Dag.from_edges([("a", "b"), ("b", "c")], nodes=["a", "b", "c", "d"])
    with pytest.raises(LayeringError, match="minimum height, 3 layers, got 4 layers"):
        layering.reassign(dag, Layering(dag, np.array([0, 1, 3, 2])), seed=0)


def test_push_sources_moves_sources_that_arent_inputs():
    dag = Dag.from_edges([("x", "a"), ("a", "b"), ("s", "b")], inputs=["x"])
    lay = layering.push_sources(dag, layering.longest_path(dag))
    assert lay.level[dag.index("s")] == 0


def test_every_movable_node_moves_for_some_seed():
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
    with pytest.raises(LayeringError, match="each of 3 layers, but 1 layer is empty; the first is layer 1"):
        Layering(dag, np.array([0, 2, 2])).verify()
    for levels in ([-1, 0, 1], [0, 1, 3], [0, 1, 2**32 + 2]):
        with pytest.raises(LayeringError, match="expected levels from 0 to at most 2"):
            Layering(dag, np.array(levels))
    with pytest.raises(LayeringError, match="one integer level for each of 3 nodes"):
        Layering(dag, np.array([0, 1]))
    with pytest.raises(LayeringError, match="one integer"):
        Layering(dag, np.array([0.0, 1.0, 2.0]))


def test_a_layering_belongs_to_its_graph():
    dag, other = generate.chain(3), generate.chain(4)
    with pytest.raises(LayeringError, match="expected a layering of"):
        layering.reassign(other, layering.longest_path(dag))
    with pytest.raises(LayeringError, match="expected a layering of"):
        layering.push_sources(other, layering.longest_path(dag))


def test_frozen_copy_pickle():
    lay = layering.longest_path(generate.chain(5))
    with pytest.raises(ValueError, match="read-only"):
        lay.level[0] = 3
    assert copy.deepcopy(lay) is lay
    twin = pickle.loads(pickle.dumps(lay))
    assert twin == lay
    assert hash(twin) == hash(lay)

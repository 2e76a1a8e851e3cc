import pytest

from fourward import connectomes, generate
from fourward.errors import OptionError
from fourward.layering import longest_path
from fourward.study._matched import TOPOLOGIES, matched

WORM = connectomes.load("c-elegans").dag


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("topology", [name for name in TOPOLOGIES if name != "dense-mlp"])
def test_counts_agree_with_the_worm(topology, seed):
    dag = matched(topology, seed)
    assert (dag.num_nodes, dag.num_edges) == (WORM.num_nodes, WORM.num_edges)
    assert (dag.num_inputs, dag.num_outputs) == (WORM.num_inputs, WORM.num_outputs)
    assert (dag.in_degree == 0).sum() == dag.num_inputs, "no neuron is without input"
    assert set((dag.out_degree == 0).nonzero()[0]) <= set(dag.outputs.tolist()), "no neuron is a dead end"


def test_a_dense_mlp_agrees_in_edges_as_far_as_whole_layers_allow():
    dag = matched("dense-mlp", 0)
    assert dag == generate.layered_mlp([16, 32, 32, 30])
    wider = generate.layered_mlp([16, 33, 33, 30])
    assert abs(dag.num_edges - WORM.num_edges) <= abs(wider.num_edges - WORM.num_edges)


def test_seeds_draw_graphs_and_leave_the_connectome():
    for topology in TOPOLOGIES:
        again = matched(topology, 3)
        assert again == matched(topology, 3)
        assert (again == matched(topology, 4)) == (topology in ("connectome", "dense-mlp"))
    assert matched("connectome", 0) == WORM


def test_families_are_what_they_say():
    hubs = matched("barabasi-albert", 0)
    even = matched("watts-strogatz", 0)
    degrees = [(dag.in_degree + dag.out_degree).max() for dag in (hubs, even)]
    assert degrees[0] > 2 * degrees[1]
    assert longest_path(matched("mlp", 0)).height == 6
    shuffled = matched("shuffled", 0)
    assert (shuffled.in_degree == WORM.in_degree).all()
    assert (shuffled.out_degree == WORM.out_degree).all()


def test_another_graph_can_be_matched():
    like = generate.erdos_renyi(60, 0.2, seed=1)
    for topology in TOPOLOGIES[:-1]:
        dag = matched(topology, 0, like)
        assert (dag.num_nodes, dag.num_edges, dag.num_inputs) == (60, like.num_edges, like.num_inputs)


def test_what_can_not_be_matched_is_said(monkeypatch):
    monkeypatch.setattr("fourward.study._matched.TRIES", 50)
    with pytest.raises(OptionError, match="no topology 'torus'"):
        matched("torus", 0)
    with pytest.raises(OptionError, match="none agreed"):
        matched("erdos-renyi", 0, generate.chain(50))

import pytest

from fourward import connectomes, generate
from fourward.errors import OptionError
from fourward.layering import longest_path
from fourward.study._matched import TOPOLOGIES, matched_graph

WORM = connectomes.load("c-elegans").acyclic(inputs="sources", outputs="sinks").dag


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("topology", [name for name in TOPOLOGIES if name != "dense-mlp"])
def test_counts_agree_with_the_worm(topology, seed):
    dag = matched_graph(topology, seed)
    assert (dag.num_nodes, dag.num_edges) == (WORM.num_nodes, WORM.num_edges)
    assert (dag.num_inputs, dag.num_outputs) == (WORM.num_inputs, WORM.num_outputs)
    assert (dag.in_degree == 0).sum() == dag.num_inputs, "no neuron is without input"
    assert set((dag.out_degree == 0).nonzero()[0]) <= set(dag.outputs.tolist()), "no neuron is a dead end"


def test_a_dense_mlp_matches_edges_as_far_as_complete_layers_allow():
    dag = matched_graph("dense-mlp", 0)
    assert dag == generate.layered_mlp([16, 32, 32, 30])
    wider = generate.layered_mlp([16, 33, 33, 30])
    assert abs(dag.num_edges - WORM.num_edges) <= abs(wider.num_edges - WORM.num_edges)


def test_seeds_draw_graphs_and_leave_the_connectome():
    for topology in TOPOLOGIES:
        graph = matched_graph(topology, 3)
        assert graph == matched_graph(topology, 3)
        assert (graph == matched_graph(topology, 4)) == (topology in ("connectome", "dense-mlp"))
    assert matched_graph("connectome", 0) == WORM


def test_families_are_what_they_say():
    hubs = matched_graph("barabasi-albert", 0)
    even = matched_graph("watts-strogatz", 0)
    degrees = [(dag.in_degree + dag.out_degree).max() for dag in (hubs, even)]
    assert degrees[0] > 2 * degrees[1]
    assert longest_path(matched_graph("mlp", 0)).height == 6
    shuffled = matched_graph("shuffled", 0)
    assert (shuffled.in_degree == WORM.in_degree).all()
    assert (shuffled.out_degree == WORM.out_degree).all()


def test_another_graph_can_be_matched_graph():
    like = generate.erdos_renyi(60, 0.2, seed=1)
    for topology in TOPOLOGIES[:-1]:
        dag = matched_graph(topology, 0, like)
        assert (dag.num_nodes, dag.num_edges, dag.num_inputs) == (60, like.num_edges, like.num_inputs)


def test_what_can_not_be_matched_is_refused(monkeypatch):
    monkeypatch.setattr("fourward.study._matched.MAX_SAMPLES", 50)
    with pytest.raises(OptionError, match=r"unknown topology 'torus'\. Choose from"):
        matched_graph("torus", 0)
    with pytest.raises(OptionError, match="none of 50 samples matches"):
        matched_graph("erdos-renyi", 0, generate.chain(50))

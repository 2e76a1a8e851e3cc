"""Networks as graphs with weights, in networkx and in graph files."""

import networkx as nx
import pytest
import torch

from fourward import files, generate
from fourward.errors import ActivationError, CycleError, GraphError, WeightError
from fourward.exchange import export, from_networkx, read_network
from tests.exchange.helpers import batch, labelled_network


@pytest.mark.parametrize("bias", [True, False])
def test_networkx_round_trip(bias):
    net = labelled_network(bias=bias)
    restored = from_networkx(net.to_networkx(), dtype=torch.float64)
    assert restored.dag == net.dag
    assert torch.equal(restored(batch(2)), net(batch(2)))
    assert (restored.bias is None) == (net.bias is None)


@pytest.mark.parametrize("ending", ["graphml", "gexf", "json", "npz"])
def test_graph_file_round_trip(ending, tmp_path):
    net = labelled_network()
    export(net, tmp_path / f"net.{ending}")
    restored = read_network(tmp_path / f"net.{ending}", net_options={"dtype": torch.float64})
    assert restored.dag == net.dag
    assert torch.equal(restored(batch(2)), net(batch(2)))


def test_missing_weights_and_activations(tmp_path):
    graph = nx.DiGraph([("a", "b")])
    with pytest.raises(WeightError, match="expected a weight on every edge, got none"):
        from_networkx(graph, activation="relu")
    graph.edges["a", "b"]["weight"] = 2.0
    with pytest.raises(ActivationError, match=r"no activation for 1 neuron: 'b'\. Pass activation=\.\.\. to set"):
        from_networkx(graph)
    assert from_networkx(graph, activation="relu")(torch.tensor([3.0])).item() == 6
    graph.nodes["b"]["activation"] = "swish"
    with pytest.raises(ActivationError, match="unknown activation 'swish'"):
        from_networkx(graph)
    files.write(generate.chain(3), tmp_path / "x.csv")
    with pytest.raises(WeightError, match=r"x\.csv: expected a weight on every edge"):
        read_network(tmp_path / "x.csv")


def test_options_that_errors_recommend():
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([("a", "b", 1.0), ("b", "c", 2.0), ("c", "b", 3.0)])
    with pytest.raises(CycleError, match="remove_feedback=True"):
        from_networkx(graph, activation="relu")
    assert from_networkx(graph, activation="relu", remove_feedback=True).dag.num_edges == 2
    repeated = nx.MultiDiGraph()
    repeated.add_weighted_edges_from([("a", "b", 1.0), ("a", "b", 2.0)])
    with pytest.raises(GraphError, match="merge=True"):
        from_networkx(repeated, activation="relu")
    assert from_networkx(repeated, activation="relu", merge=True).weight.tolist() == [3]
    with pytest.raises(GraphError, match="orient='random'"):
        from_networkx(graph.to_undirected(), activation="relu")
    assert from_networkx(graph.to_undirected(), activation="relu", orient="random", seed=0).dag.num_edges == 2
    del graph.edges["a", "b"]["weight"]
    with pytest.raises(WeightError, match=r"1 of 3 edges have no weight: \('a', 'b'\)\.$"):
        from_networkx(graph, activation="relu")

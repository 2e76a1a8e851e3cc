"""Networks with feedback as graphs with weights: networkx, graph files, and the command line."""

import networkx as nx
import numpy as np
import pytest
import torch

from fourward import Digraph, FourWard, Recurrent, connectomes, exchange, files, save
from fourward._cli.app import main
from fourward.errors import CycleError, FileError, OptionError, WeightError
from tests.tolerance import assert_near

PAIRS = [("x", "a"), ("a", "b"), ("b", "a"), ("b", "b"), ("b", "y"), ("y", "x")]
X = torch.randn(5, 3, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def network(**options) -> Recurrent:
    g = Digraph.from_edges(PAIRS, inputs=["x"], outputs=["y"], feedback=[("a", "b"), ("b", "b"), ("y", "x")])
    return Recurrent(g, {"b": "relu", "default": "tanh"}, seed=0, dtype=torch.float64, **options)


def assert_same_network(got: FourWard | Recurrent, want: Recurrent) -> None:
    assert isinstance(got, Recurrent)
    assert got.graph == want.graph
    assert got.neuron_activations() == want.neuron_activations()
    assert torch.equal(got.double()(X)[0], want(X)[0])


@pytest.mark.parametrize("suffix", files.NETWORK_SUFFIXES)
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"sign": {"b": -1}, "frozen": [("x", "a")]}], ids=str)
def test_graph_files(suffix, options, tmp_path):
    net = network(**options)
    exchange.export(net, tmp_path / f"net{suffix}")
    assert [path.name for path in tmp_path.iterdir()] == [f"net{suffix}"]
    got = exchange.read_network(tmp_path / f"net{suffix}", recurrent=True, net_options={"dtype": torch.float64})
    assert_same_network(got, net)
    assert (got.constraints is None) == (net.constraints is None)
    with pytest.raises(CycleError, match="remove_feedback=True"):
        exchange.read_network(tmp_path / f"net{suffix}", self_loops="drop")


def test_networkx():
    net = network()
    graph = net.to_networkx()
    assert {(u, v) for u, v, mark in graph.edges(data="fourward_feedback") if mark} == {
        ("a", "b"), ("b", "b"), ("y", "x"),
    }  # fmt: skip
    assert_same_network(exchange.from_networkx(graph, recurrent=True, dtype=torch.float64), net)
    ring = nx.DiGraph([("a", "b"), ("b", "a")])
    with pytest.raises(WeightError, match=r"weight on every edge, got none.*Recurrent\(graph\)"):
        exchange.from_networkx(ring, recurrent=True, inputs=["a"], outputs=["b"], activation="tanh")
    with pytest.raises(OptionError, match="recurrent=True keeps feedback"):
        exchange.from_networkx(ring, recurrent=True, remove_feedback=True)


def test_what_files_cannot_hold(tmp_path):
    leaky = network(tau=2.0)
    with pytest.raises(OptionError, match=r"graphml file can't store time constants.*fourward\.save"):
        exchange.export(leaky, tmp_path / "net.graphml")
    with pytest.raises(FileError, match=r"one of the suffixes \.onnx, \.safetensors, \.graphml.*got \.c"):
        exchange.export(leaky, tmp_path / "net.c")
    with pytest.raises(OptionError, match=r"steps is for \.onnx alone"):
        exchange.export(leaky, tmp_path / "net.safetensors", steps=3)
    with pytest.raises(OptionError, match="fixes their number, got"):
        exchange.export(leaky, tmp_path / "net.onnx", steps=[3, 4])
    assert not list(tmp_path.iterdir())


def test_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net = network().float()
    save(net, "net.safetensors")
    assert main(["export", "net.safetensors", "--out", "net.graphml"]) == 0
    assert "(3 feedback)" in capsys.readouterr().out
    assert main(["import", "net.graphml", "--recurrent", "--out", "again.safetensors"]) == 0
    assert_same_network(exchange.read_network("net.graphml", recurrent=True).double(), net.double())
    assert main(["import", "net.graphml", "--out", "again.safetensors"]) == 2
    assert "--recurrent" in capsys.readouterr().err
    assert main(["info", "net.graphml"]) == 2
    assert "--recurrent" in capsys.readouterr().err, "of self-loops, too"
    assert main(["info", "net.graphml", "--recurrent"]) == 0
    assert "3 of them feedback" in capsys.readouterr().out
    assert main(["graph", "c-elegans", "--recurrent", "--out", "worm.csv"]) == 0
    assert "(1,409 feedback)" in capsys.readouterr().out
    worm = connectomes.load("c-elegans").graph
    assert files.read_digraph("worm.csv").graph == worm
    assert main(["graph", "worm.csv", "--recurrent", "--out", "worm.npz", "--json"]) == 0
    assert '"feedback": 1409' in capsys.readouterr().out
    assert np.array_equal(files.read_digraph("worm.npz").graph.feedback, worm.feedback)
    assert main(["graph", "worm.csv", "--recurrent", "--report", "r.csv", "--out", "worm.npz"]) == 2
    assert "--recurrent keeps feedback" in capsys.readouterr().err


def test_importance_says_what_it_takes():
    import fourward as fw

    net = network()
    with pytest.raises(OptionError, match="expected a FourWard, got a Recurrent, whose feedback isn't supported here"):
        fw.importance(net, X, X)
    assert_near(exchange.from_networkx(net.to_networkx(), recurrent=True).weight, net.weight.detach().float())

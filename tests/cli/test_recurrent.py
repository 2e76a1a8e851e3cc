"""Networks with feedback at the command line: info, train, draw, view, export."""

import json
from pathlib import Path

import numpy as np
import pytest

from fourward import Digraph, Recurrent, load, save
from fourward._cli.app import main
from fourward.nn import summary

RING = "source,target,weight\na,b,5\nb,c,4\nc,a,1\nc,d,2\nx,a,3\n"


@pytest.fixture(autouse=True)
def ring(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring.csv").write_text(RING)


def run(*args: str) -> int:
    return main([*map(str, args)])


def test_info(capsys):
    assert run("info", "ring.csv", "--recurrent") == 0
    assert "edges        5, 1 of them feedback" in capsys.readouterr().out
    assert run("info", "ring.csv", "--recurrent", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["nodes"], report["edges"], report["feedback"], report["inputs"]) == (5, 5, 1, 1)
    assert report["cost"]["parameters"] == 5 + 4
    save(Recurrent(Digraph.from_edges([("a", "a"), ("x", "a")], outputs=["a"]), seed=0), "net.safetensors")
    assert run("info", "net.safetensors", "--json") == 0
    assert json.loads(capsys.readouterr().out)["feedback"] == 1
    assert summary(load("net.safetensors"))["cost"]["parameters"] == 3
    assert run("info", "ring.csv", "--recurrent", "--steps", 7) == 0
    assert "batch of 64, 7 steps" in capsys.readouterr().out
    assert run("info", "ring.csv", "--remove-feedback", "--steps", 7) == 2
    assert run("info", "net.safetensors", "--recurrent") == 2
    assert run("info", "ring.csv", "--recurrent", "--remove-feedback") == 2
    assert "--recurrent keeps feedback" in capsys.readouterr().err


def test_train_export_draw(capsys):
    args = ("--recurrent", "--steps", 3, "--activation", "tanh", "--data", "wine", "--epochs", 2, "--out", "run")
    assert run("train", "c-elegans", *args) == 0
    out = capsys.readouterr().out
    assert "Digraph(302 nodes, 3,709 edges (1,409 feedback), 83 inputs (81 driven), 123 outputs)" in out
    assert run("evaluate", "run", "--json") == 0
    assert run("predict", "run", "wine", "--out", "p.csv") == 0
    capsys.readouterr()
    assert run("export", "run", "--network-only", "--out", "net.onnx", "--steps", 2) == 0
    assert "largest difference between onnxruntime and torch" in capsys.readouterr().out
    assert run("export", "run", "--out", "net.onnx") == 2
    assert "--network-only" in capsys.readouterr().err
    assert run("export", "run", "--network-only", "--out", "net.onnx") == 2
    assert "--steps" in capsys.readouterr().err
    assert run("draw", "ring.csv", "--recurrent", "--out", "ring.svg") == 0
    assert run("view", "ring.csv", "--recurrent", "--out", "ring.html") == 0


def test_constraints_and_changes(capsys):
    Path("wheel.csv").write_text("x,a,1\na,b,3\nb,a,2\nb,y,1\ny,x,1\n")
    Path("nodes.csv").write_text("name,transmitter\na,gaba\nb,ach\n")
    graph = ("wheel.csv", "--nodes", "nodes.csv", "--inputs", "x", "--outputs", "y", "--recurrent")
    options = ("--steps", 2, "--activation", "tanh", "--data", "wine", "--epochs", 1, "--strengths", "scale")
    assert run("train", *graph, *options, "--sign", "transmitter", "--out", "signed") == 0
    assert "1 input is driven" in capsys.readouterr().err
    net = load("signed")
    inhibits, excites = net.graph.find_edges([("a", "b"), ("b", "a")]).tolist()
    assert net.weight[inhibits] <= 0 <= net.weight[excites]
    assert run("info", *graph, "--json", "--into-inputs", "cut") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["changes"]["cut"], report["changes"]["driven"], report["attributes"]) == (1, 0, ["transmitter"])


def test_sequences_and_repairs(capsys):
    x = np.random.default_rng(0).normal(size=(40, 5, 2))
    np.savez("rows.npz", x=x, y=(x.sum((1, 2)) > 0))
    assert run("train", "ring.csv", "--recurrent", "--data", "rows.npz", "--epochs", 1, "--out", "run") == 0
    assert run("predict", "run", "rows.npz", "--out", "p.csv") == 0
    assert run("train", "er:20:0.2", "--data", "rows.npz", "--out", "other") == 2
    assert "--recurrent" in capsys.readouterr().err
    assert run("train", "ring.csv", "--recurrent", "--data", "wine", "--out", "other") == 2
    assert "--steps" in capsys.readouterr().err

"""Graphs by specification."""

import re

import numpy as np
import pytest

from fourward import Dag, _memory, connectomes, files, generate
from fourward.errors import FileError, GraphError, OptionError
from fourward.graph._spec import USAGE, resolve_graph


@pytest.mark.parametrize(
    ("spec", "dag"),
    [
        ("er:40:0.1:3", generate.erdos_renyi(40, 0.1, seed=3)),
        ("er:40:0.1", generate.erdos_renyi(40, 0.1, seed=0)),
        ("ws:30:4:0.2:1", generate.watts_strogatz(30, 4, 0.2, seed=1)),
        ("ba:30:2:1", generate.barabasi_albert(30, 2, seed=1)),
        ("mlp:3-4-2", generate.layered_mlp([3, 4, 2])),
        ("rewired:3-4-2:0.2:5", generate.rewired_mlp([3, 4, 2], 0.2, seed=5)),
        ("chain:4", generate.chain(4)),
        ("complete:4", generate.complete(4)),
    ],
)
def test_families(spec, dag):
    assert resolve_graph(spec).dag == dag
    assert any(usage.startswith(spec.split(":")[0]) for usage in USAGE)


def test_connectomes():
    for name in connectomes.NAMES:
        system, got = connectomes.load(name), resolve_graph(name)
        assert got.dag == system.dag
        assert [*got.cut, *got.removed] == system.removed
        assert resolve_graph(name, remove_feedback=True).dag == system.dag
        ends = {"inputs": "sources", "outputs": "sinks"}
        assert resolve_graph(name, **ends).dag == system.acyclic(**ends).dag
        strength = dict(zip(system.edges, system.strength.tolist(), strict=True))
        labels = got.dag.labels
        assert got.weight.tolist() == [strength[labels[u], labels[v]] for u, v in got.dag.edges.tolist()]


def test_files(tmp_path):
    path = tmp_path / "x.csv"
    files.write(generate.chain(4), path, weight=np.arange(3.0))
    got = resolve_graph(path, inputs=["0"], outputs=["3", "2"])
    assert got.dag == Dag.from_edges([(0, 1), (1, 2), (2, 3)], outputs=[3, 2])
    assert got.weight.tolist() == [0, 1, 2]
    path.write_text("1,2\n2,x\n")
    assert resolve_graph(path, outputs=["x", "2"]).dag.outputs.tolist() == [2, 1]
    path.write_text("a,b\nb,a\n")
    assert resolve_graph(path, remove_feedback=True).removed == (("b", "a"),)
    assert resolve_graph(path, orient="random", seed=0, merge=True).merged == 1
    with pytest.raises(GraphError, match=r"x\.csv: unknown output labels: '--5'"):
        resolve_graph(path, remove_feedback=True, outputs=["--5"])


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("er:40", r"expected er:N:P\[:SEED\], got"),
        ("er:40:0.1:2:7", "expected er:N:P"),
        ("er:forty:0.1", r"expected er:N:P\[:SEED\] with numbers"),
        ("er:40:1.5", "between 0 and 1"),
        ("er:40:0.1:-1", "seed"),
        ("mlp:3-x", "expected mlp:SIZES"),
    ],
)
def test_invalid_families(spec, match):
    with pytest.raises(OptionError, match=match):
        resolve_graph(spec)


@pytest.mark.parametrize("spec", ["er:90000:0.9", "ws:99999999:90:0.1", "ba:99999999:90", "mlp:90000-90000"])
def test_families_larger_than_memory_are_refused_before_they_are_made(spec, monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**36)
    with pytest.raises(FileError, match=rf"{spec} is too large for this machine: it has about [\d,]+ edges"):
        resolve_graph(spec)


def test_the_estimate_of_a_familys_edges_is_near(monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 0)
    for spec in (
        "er:200:0.5:0",
        "ws:200:4:0.1",
        "ba:200:3",
        "mlp:20-30-9",
        "rewired:20-30-9:0.1",
        "chain:50",
        "complete:50",
    ):
        with pytest.raises(FileError) as caught:
            resolve_graph(spec)
        estimate = int(re.search(r"about ([\d,]+) edges", str(caught.value))[1].replace(",", ""))
        with monkeypatch.context() as unlimited:
            unlimited.setattr(_memory, "available_memory", lambda: None)
            assert resolve_graph(spec).dag.num_edges == pytest.approx(estimate, rel=0.05)


def test_unknown_specifications(tmp_path):
    for spec in (str(tmp_path), "net.safetensors"):
        with pytest.raises(FileError, match=r"expected a graph.*fourward\.load"):
            resolve_graph(spec)
    for spec in ("er", "zebrafish", "missing.csv"):
        with pytest.raises(FileError, match=r"neither a file nor .*er:N:P.*c-elegans"):
            resolve_graph(spec)
    assert resolve_graph("c-elegans", topology_only=True).weight is None
    with pytest.raises(OptionError, match="header= is an option of graph files"):
        resolve_graph("c-elegans", header=True)

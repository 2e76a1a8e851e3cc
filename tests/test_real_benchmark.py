"""The benchmark of real graphs on small ones: that it measures, checks, leaves out and reports; no time is asserted."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import checkout as checkouts
from benchmarks import contest as contests
from benchmarks import cpu, latency, real, real_graphs, real_report
from benchmarks.checkout import Checkout, RemoteCall, TurnClock
from fourward import Dag, FourWard, generate

ROOT = Path(__file__).parents[1]


@pytest.fixture
def small(monkeypatch):
    """One small graph, and turns of one call."""
    monkeypatch.setattr(contests, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(checkouts, "SETTLE", 0.0)
    monkeypatch.setattr(real, "ROUNDS", 3)
    edges = np.ascontiguousarray(generate.erdos_renyi(20, 0.3, seed=0).edges)
    monkeypatch.setattr(real, "cases", lambda folder, quick: [real_graphs.Case("a small graph", edges, 20)])
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def checkout():
    """This checkout, in another process."""
    with Checkout(ROOT, threads=1) as other:
        yield other


def run(folder, *words):
    cpu.main(["--only", "real", "--quick", "--threads", "1", "--out", str(folder), *words])
    return json.loads((folder / "real.json").read_text()), (folder / "real.md").read_text()


def test_a_dry_run_measures_and_reports(tmp_path, small, checkout, monkeypatch):
    monkeypatch.setattr(real, "Checkout", lambda folder, threads: checkout)
    monkeypatch.setattr(checkout, "close", lambda: None)
    monkeypatch.setattr(real, "measure_latency", lambda *arguments: [])
    data, text = run(tmp_path, "--before", str(ROOT))
    assert data["facts"]["before"] == checkout.commit
    assert [(cell["activation"], cell["batch"]) for cell in data["real"]] == [("relu", 2), ("tanh", 2)]
    for cell in data["real"]:
        assert cell["missing"] == {"forward": {}, "train": {}}
        assert cell["forward"].keys() == {"fourward", "before", "csr", "mlp", "copy"}
        assert cell["train"].keys() == {"fourward", "before", "mlp", "copy"}
        assert cell["errors"]["csr"] < 1e-5
    assert data["building"]["seconds"].keys() == real_report.LABELS.keys()
    assert all(times.keys() == {"fourward", "before"} for times in data["building"]["seconds"].values())
    assert text.count("\n| a small graph |") == 4
    assert f"before: the same with commit {checkout.commit[:7]}" in text
    assert "microseconds" not in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_without_another_checkout_its_columns_are_left_out(tmp_path, small, monkeypatch):
    monkeypatch.setattr(real, "measure_building", lambda *arguments: {"nodes": 1, "edges": 0, "seconds": {"ids": {}}})
    data, text = run(tmp_path)
    assert data["facts"]["before"] is None
    assert "before" not in data["real"][0]["forward"]
    assert "before" not in text
    assert data["latency"][0]["microseconds"].keys() == {"fourward", "onnx"} < latency.COLUMNS.keys()
    assert "## Latency at batch 1" in text


def test_cells_with_too_many_activations_are_left_out(tmp_path, small, monkeypatch):
    monkeypatch.setattr(real, "MOST_ROWS", 20)
    dag = generate.chain(11)
    assert real.measure_graph(real_graphs.Case("too many", dag.edges, 11), dag, None, tmp_path, quick=True) == []


def test_a_rival_that_is_too_slow_is_cut_off(small):
    net = FourWard(generate.chain(3), seed=0)

    def csr(x):
        time.sleep(0.02)
        return net(x)

    outcome = real._compete(net, csr, "forward", 2, None, limit=0.03)
    assert outcome.missing["csr"].startswith("cut off: a call takes")
    assert outcome.times.keys() >= {"fourward", "copy"}


def test_two_checkouts_compute_the_grid_in_turn(checkout, monkeypatch):
    monkeypatch.setattr(cpu, "DUEL_SECONDS", 0.0)
    pair = {"fourward": checkout, "before": checkout}
    cells = cpu.measure_duels(generate.chain(3), {"n": 3}, (1, 2), pair)
    assert [(cell["n"], cell["batch"]) for cell in cells] == [(3, 1), (3, 2)]
    for cell in cells:
        assert all(cell[f"{kind}, before"].keys() == pair.keys() for kind in ("forward", "train"))


@pytest.mark.parametrize("words", [[], ["--before", ".", "--quick"]])
def test_a_comparison_of_the_grid_needs_another_checkout(words, capsys):
    with pytest.raises(SystemExit):
        cpu.main(["--only", "before", *words])
    assert "--only before needs --before CHECKOUT" in capsys.readouterr().err


def test_another_checkout_computes_the_same_and_is_timed(checkout, tmp_path):
    edges = np.ascontiguousarray(generate.erdos_renyi(20, 0.3, seed=0).edges)
    np.save(tmp_path / "edges.npy", edges)
    checkout.request("load", path=str(tmp_path / "edges.npy"), nodes=20, activation="tanh")
    net = FourWard(Dag.from_edges(edges, nodes=20), activation="tanh", seed=0)
    x = real.worker.draw_inputs(3, net.dag.num_inputs)
    mean = net(x).abs().mean().item()
    call = real._prepare(checkout, "forward", 3, mean)
    call()
    assert call.warmup == 1
    assert TurnClock().time(call, 2) > 0
    assert call.warmup == 0
    with pytest.raises(ValueError, match="wrong result"):
        real._prepare(checkout, "train", 3, 2 * mean)
    with pytest.raises(RuntimeError, match="KeyError: 'nothing'"):
        RemoteCall(checkout, "nothing").time(1)


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        (
            """print('{"value": "/elsewhere/fourward/__init__.py"}')""",
            ValueError,
            r"expected fourward of .*src, got /else",
        ),
        ("""print('{"error": "no such module"}')""", RuntimeError, "no such module"),
        ("exit(3)", RuntimeError, "ended with code 3"),
    ],
)
def test_a_folder_must_be_a_checkout(tmp_path, monkeypatch, script, error, message):
    (tmp_path / "script.py").write_text(f"input()\n{script}")
    monkeypatch.setattr(real.worker, "__file__", str(tmp_path / "script.py"))
    with pytest.raises(error, match=message):
        Checkout(tmp_path, threads=1)


def test_graphs_from_a_folder(tmp_path):
    for name in real_graphs.FILES:
        np.savez(tmp_path / f"{name}.npz", edges=np.array([[0, 1]], np.int32), nodes=3)
    named = {case.name: case for case in real_graphs.cases(tmp_path, quick=True)}
    assert [*named][:2] == ["memctrl", "log2"]
    assert named["log2"].nodes == 3
    assert len(named) == 8
    for case in named.values():
        assert Dag.from_edges(case.edges, nodes=case.nodes).num_edges == len(case.edges)


def test_the_stand_in_has_the_published_statistics():
    nodes = real_graphs.FLYWIRE_NODES
    edges = real_graphs.flywire_edges(seed=0)
    assert 2.6e6 < len(edges) < 2.9e6, "published: 2.70 million"
    keys = edges[:, 0] * nodes + edges[:, 1]
    assert (np.diff(keys) > 0).all(), "distinct"
    assert (edges[:, 0] != edges[:, 1]).all()
    degrees = [np.bincount(ends, minlength=nodes) for ends in edges.T]
    for degree in degrees:
        np.testing.assert_allclose(np.percentile(degree, real_graphs.PERCENTILES), real_graphs.DEGREES, rtol=0.06)
    assert abs(degrees[0].mean() / 20.9 - 1) < 0.05
    assert 0.8 < degrees[0].max() / real_graphs.LARGEST_OUT <= 1.05
    assert 0.8 < degrees[1].max() / real_graphs.LARGEST_IN <= 1.05
    reciprocal = np.intersect1d(keys, edges[:, 1] * nodes + edges[:, 0], assume_unique=True)
    assert abs(len(reciprocal) / len(keys) - real_graphs.RECIPROCAL) < 0.01
    assert abs(np.corrcoef(*degrees)[0, 1] - 0.76) < 0.05


def test_losses_are_named_in_the_summary():
    cell = {"graph": "a graph", "edges": 5, "activation": "relu", "batch": 1, "train": {"fourward": 1.0}}
    cell["forward"] = {"fourward": 2.0, "before": 4.0, "csr": 1.0, "copy": 0.5}
    lines = [*real_report._summary([cell])]
    assert lines[0] == "Forward, time over copying N B floats: 4.00 (4.00 to 4.00)."
    assert lines[1] == "Forward, gain over before: 2.00 (2.00 to 2.00)."
    assert lines[2] == "Forward, slower than before in 0 of 1 cells."
    assert lines[3] == "Forward, slower than CSR levels in 1 of 1 cells."
    won = cell | {"batch": 2, "forward": cell["forward"] | {"csr": 3.0}}
    lines = [*real_report._summary([cell, won])]
    assert lines[3] == "Forward, slower than CSR levels in 1 of 2 cells: a graph (5 edges), relu, B=1."
    lines = [*real_report._summary([cell, cell, won])]
    assert lines[3] == "Forward, slower than CSR levels in 2 of 3 cells; not slower: a graph (5 edges), relu, B=2."

"""A dry run of the GPU benchmark on the CPU: that it measures, cuts off, resumes and reports; no time is asserted."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import (
    activations,
    busy,
    constraints,
    digits_by_row,
    gpu,
    gpu_cells,
    gpu_large,
    gpu_real,
    latency,
    mnist,
    neat_hybrid,
    population,
    population_studies,
    real_report,
    recurrent,
    sparse,
    sparse_learning,
    storage,
)
from benchmarks import contest as contests
from benchmarks.contest import as_is, contest
from benchmarks.gpu_report import goals, loses_to, plot_gpu, report_text
from fourward import Dag, FourWard, connectomes, generate
from fourward.plan.activations import ACTIVATIONS
from fourward.study._timing import HostClock

TINY = ["--device", "cpu", "--sizes", "9", "14", "--densities", "0.5", "1.0", "--batches", "2", "3", "--rounds", "3"]
TINY += ["--edges", "300", "--cell-seconds", "5"]


@pytest.fixture
def small_steps(monkeypatch):
    """Turns of one call, so that a dry run takes no time."""
    monkeypatch.setattr(contests, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(gpu, "DEGREES", (3, 10))
    monkeypatch.setattr(gpu, "plot_gpu", lambda data, path: None)


def dry_run(folder, *words):
    code = gpu.main([*TINY, "--out", str(folder), *words])
    return code, json.loads((folder / "gpu-smoke.json").read_text()), (folder / "gpu-smoke.md").read_text()


def test_a_dry_run_measures_and_reports(tmp_path, small_steps, capsys):
    for part in ("grid", "worm", "large"):
        code, data, text = dry_run(tmp_path / part, "--part", part)
        assert code == 0, data["failures"]
        cells = {"grid": 8, "worm": 2, "large": 2}[part]
        assert len(data[part]) == cells
        for cell in data[part]:
            assert {"fourward", "mlp"} <= cell["forward"].keys() & cell["train"].keys()
            assert cell["errors"]["fourward"] < 1e-4
        assert text.startswith("# GPU benchmark")
        assert text.count("\n| N=") + text.count("\n| B=") == (3 if part == "large" else 2) * cells
    assert "training step against the eager MLP's" in capsys.readouterr().out


def test_what_is_too_slow_shows_as_cut_off(tmp_path, small_steps, monkeypatch):
    monkeypatch.setattr(gpu_cells, "MOST_PAIRS", 3)
    code, data, text = dry_run(tmp_path, "--part", "grid", "--cell-seconds", "0")
    assert code == 0
    missing = data["grid"][0]["missing"]
    assert missing["forward"]["deepstruct"].startswith("cut off: ")
    assert missing["forward"]["sequential"].startswith("cut off: a call takes")
    assert missing["train"].keys() == {"mlp"}
    assert {"fourward", "masked"} <= data["grid"][0]["forward"].keys()
    row = next(line for line in text.splitlines() if line.startswith("| N=9, p=0.5, B=2 |"))
    assert row.count("cut off") == 4
    assert "deepstruct, cut off in 8 of 8 cells" in text


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path, small_steps, monkeypatch):
    assert dry_run(tmp_path, "--part", "grid", "--commit", "one", "--sizes", "9")[0] == 0
    measured = []
    original = gpu.measure
    monkeypatch.setattr(gpu, "measure", lambda dag, what, *rest: measured.append(what) or original(dag, what, *rest))
    _, data, _ = dry_run(tmp_path, "--part", "grid", "--commit", "one")
    assert {what["n"] for what in measured} == {14}
    assert len(data["grid"]) == 8
    assert len(dry_run(tmp_path, "--part", "grid", "--commit", "two", "--sizes", "9")[1]["grid"]) == 4
    assert len(dry_run(tmp_path, "--part", "grid", "--commit", "two", "--sizes", "9", "--fresh")[1]["grid"]) == 4


def test_a_run_stops_when_its_time_is_up(tmp_path, small_steps, capsys):
    code, data, _ = dry_run(tmp_path, "--seconds", "0")
    assert code == 0
    assert "grid" not in data
    assert "the same command resumes" in capsys.readouterr().out


def test_a_cell_that_breaks_leaves_the_others(tmp_path, small_steps, monkeypatch, capsys):
    original = gpu.measure

    def breaks(dag, what, *rest):
        if what["n"] == 9:
            raise RuntimeError("no luck")
        return original(dag, what, *rest)

    monkeypatch.setattr(gpu, "measure", breaks)
    code, data, text = dry_run(tmp_path, "--part", "grid")
    assert code == 1
    assert len(data["grid"]) == 4
    assert "grid: RuntimeError: no luck" in text
    assert "no luck" in capsys.readouterr().err


def test_without_a_card_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_contest_times_the_right_and_names_the_rest():
    right, wrong = torch.ones(3), torch.tensor([1.0, 1.0, float("nan")])

    def broken():
        raise RuntimeError("can't\nbe made")

    makers = {"right": as_is(lambda: right), "wrong": as_is(lambda: wrong), "broken": broken}
    makers |= {"slow": as_is(lambda: time.sleep(0.02)), "needed": as_is(lambda: time.sleep(0.02))}
    expected = {"right": right, "wrong": right}
    outcome = contest(makers, HostClock(), expected=expected, rounds=3, limit=0.03, always=("needed",))
    assert outcome.times.keys() == {"right", "needed"}
    assert outcome.missing["wrong"] == "failed: ValueError: wrong result, relative error inf"
    assert outcome.missing["broken"] == "failed: RuntimeError: can't"
    assert outcome.missing["slow"].startswith("cut off: a call takes 0.02")
    assert outcome.errors == {"right": 0.0, "wrong": float("inf")}


def cell(ours, graph, **times):
    forward = {"fourward": ours, "fourward graph": graph, "masked": 1e-2, "masked graph": 1e-3, "mlp": 1e-4, **times}
    train = {"fourward": 2e-3, "mlp": 1e-3}
    missing = {"forward": {"sequential": "cut off: a call takes 9 s"}, "train": {}}
    what = {"n": 64, "p": 1.0, "batch": 32, "nodes": 64, "edges": 2016, "height": 64, "engine": "gpu"}
    return {**what, "forward": forward, "train": train, "missing": missing, "errors": {"fourward": 1e-7}}


ENVIRONMENT = {
    "card": "a card",
    "driver": "1",
    "cuda": "12",
    "matmul": "highest",
    "copy_bandwidth": 1e12,
    "date": "today",
}
ENVIRONMENT |= {"processor": "one", "threads": 1, "cores": 1, "memory_gib": 1, "system": "a system", "python": "3"}
ENVIRONMENT |= {"versions": {"torch": "2", "triton": "3"}, "commit": "none"}


def test_losing_cases_are_in_the_same_table_and_marked():
    won = cell(4e-5, 1e-5, **{"solve, by rows": 6e-5, "solve, by columns": 7e-5})
    graph = {"solve, by rows graph": 4e-5, "solve, by columns graph": 2e-5}
    lost = cell(2e-4, 3e-5, **{"solve, by rows": 1e-4, "solve, by columns": 7e-5, **graph})
    data = {"facts": ENVIRONMENT, "grid": [won, lost], "failures": []}
    table = "\n".join(goals(data))
    assert "| 100x | 111.8x (50.0x to 250.0x) | met |" in table
    assert "| 20x | 57.7x (33.3x to 100.0x) | met |" in table
    assert "over 1 in 1 of 2) | **missed** |" in table
    rows = [line for line in report_text(data).splitlines() if line.startswith("| N=64")]
    assert rows[0].endswith("| 250x | 100x |  |")
    assert rows[1].endswith("| 50x | 33.3x | **MLP, linear solve, linear solve, graph** |")
    assert "cut off" in rows[0]
    assert rows[2].endswith("| 0.5x | **MLP** |")
    assert "a card, driver 1, CUDA 12" in report_text(data)
    assert "triton 3" in report_text(data)


def test_a_loss_counts_like_against_like():
    assert loses_to({"fourward": 2.0, "fourward graph": 1.0, "mlp graph": 1.5, "mlp": 3.0}) == ""
    assert loses_to({"fourward": 2.0, "fourward graph": 1.0, "mlp graph": 0.5}) == "**MLP, graph**"


def test_it_runs_with_nothing_but_torch_numpy_scipy_networkx_and_numba(tmp_path):
    code = """
import sys
for name in ("rustworkx", "safetensors", "matplotlib", "rich", "sklearn", "pytest", "hypothesis"):
    sys.modules[name] = None
from benchmarks import gpu
gpu.DEGREES = (3,)
sys.exit(gpu.main(sys.argv[1:]))
"""
    words = [*TINY, "--sizes", "9", "--batches", "2", "--part", "grid", "--out", str(tmp_path)]
    command = [sys.executable, "-W", "error", "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "gpu-smoke.md").exists()
    assert not (tmp_path / "gpu-smoke.png").exists()


def test_a_plot_where_matplotlib_is(tmp_path):
    plot_gpu({"grid": [cell(1e-5, 1e-5), cell(2e-5, 1e-5)]}, tmp_path / "plot.png")
    plot_gpu({}, tmp_path / "none.png")
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]


def test_the_bare_launch_has_the_pointers_it_says():
    pytest.importorskip("triton")
    from benchmarks import bare_launch

    assert len(bare_launch._touch.arg_names) == bare_launch.POINTERS + 1


def test_the_table_of_latencies_is_that_of_the_results():
    data = json.loads((storage.RESULTS / "latency.json").read_text())
    assert latency.format_table(data) in Path("docs/exchange.md").read_text()


@pytest.mark.skipif(shutil.which(latency.COMPILER) is None, reason="no C compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_latencies_are_measured(tmp_path):
    cell = latency.measure(generate.erdos_renyi(12, 0.3, seed=0), tmp_path, seconds=0)
    assert cell["microseconds"].keys() == latency.COLUMNS.keys()


def test_mnist_trains_what_has_no_result_yet(tmp_path, monkeypatch, capsys):
    draw = np.random.default_rng(0)
    for part, count in (("train", 200), ("t10k", 50)):
        labels = draw.integers(0, 2, count).astype(np.uint8)
        images = np.repeat(labels * 200, 28 * 28)  # zeros are black, ones are grey
        for name, array, header in (("images-idx3", images, 16), ("labels-idx1", labels, 8)):
            (tmp_path / f"{part}-{name}-ubyte").write_bytes(bytes(header) + array.astype(np.uint8).tobytes())
    monkeypatch.setattr(mnist, "RESULTS", tmp_path)
    monkeypatch.setattr(mnist, "write_results", lambda name, data: storage.write_results(name, data, tmp_path))
    monkeypatch.setattr(mnist, "BATCH", 16)
    monkeypatch.setattr(mnist, "LEARNING_RATE", 0.01)
    for seeds in ("1", "2"):
        monkeypatch.setattr(sys, "argv", ["mnist", str(tmp_path), "--seeds", seeds])
        mnist.main()
    runs = json.loads((tmp_path / "mnist.json").read_text())["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    assert all((run["nodes"], run["edges"]) == (282, 2402) for run in runs)
    assert all(run["accuracy"][-1] > 90 for run in runs)
    assert "published: 98.05 %" in capsys.readouterr().out


def _call_once(calls, *_, **__):
    for call in calls.values():
        call()
    return dict.fromkeys(calls, 1.0)


@pytest.mark.filterwarnings("ignore:.*beta state:UserWarning", "ignore:Sparse:UserWarning")
def test_networks_with_feedback_are_measured_against_what_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(recurrent, "median_seconds", _call_once)
    graph = recurrent.stand_in(40)
    assert graph.num_feedback == graph.num_edges > 200
    cell = recurrent.measure("stand-in", graph, 5, 4)
    assert len(cell["forward"]) == len(cell["train"]) == 7


def test_digits_by_row():
    worm = connectomes.load("c-elegans").graph
    null = digits_by_row.shuffled(worm, 0)
    assert (null.in_degree == worm.in_degree).all()
    assert (null.out_degree == worm.out_degree).all()
    assert null != worm
    assert digits_by_row.without_feedback(worm).num_edges == worm.dag.num_edges
    network = digits_by_row.worm(worm, 0)
    count = sum(p.numel() for p in network.parameters())
    assert network(torch.zeros(2, 8, 8)).shape == (2, 10)
    assert abs(sum(p.numel() for p in digits_by_row.gru(0, count).parameters()) / count - 1) < 0.05
    runs = [{"a": {"accuracy": value, "parameters": 7}} for value in (0.5, 0.7)]
    assert digits_by_row.summarize(runs)[-1] == "| a | 7 | 0.600 ± 1.271 |"


@pytest.mark.parametrize("wiring", ["layered", "Erdos-Renyi", "worm"])
def test_a_dry_run_of_sparse_learning(monkeypatch, wiring):
    monkeypatch.setitem(sparse_learning.DATA, "wine", sparse_learning.DATA["wine"]._replace(epochs=6))
    monkeypatch.setattr(sparse_learning, "RATES", (3e-3,))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    (part,) = [each for each in sparse_learning.list_parts(["wine"]) if each[1] == wiring][:1]
    runs = [sparse_learning.run(part, seed, None) for seed in (0, 1)]
    edges = {name: result["edges"] for name, result in runs[0].items()}
    assert edges["fixed"] == edges["set"] == edges["rigl"] < edges["dense"]
    assert ("narrow" in edges) == (wiring == "layered")
    assert abs(edges.get("narrow", edges["fixed"]) / edges["fixed"] - 1) < 0.1
    methods = {name: [run[name] for run in runs] for name in runs[0]}
    data = {"environment": storage.describe_environment(), "settings": {"seeds": 2}, "parts": [
        part._asdict() | {"methods": methods}]}  # fmt: skip
    assert f"| {wiring} | wine | {edges['fixed']:,} |" in sparse_learning.report_text(data)


def test_intervals_and_bold_differences():
    mean, half = sparse_learning.interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.302652730 / 3**0.5)
    accuracies = {"fixed": (90.0, 80.0), "set": (92.0, 82.0), "rigl": (91.0, 80.0), "dense": (95.0, 95.0)}
    runs = {name: [{"accuracy": a, "edges": 5} for a in values] for name, values in accuracies.items()}
    row = sparse_learning._row({"wiring": "a", "data": "b", "methods": runs})
    assert "| **+2.0 ± 0.0** | +0.5 ± 6.4 |" in row


def test_the_how_to_has_the_measured_table():
    folder = Path(sparse_learning.__file__).parents[1]
    report = (folder / "benchmarks" / "results" / "sparse-learning.md").read_text()
    assert report == sparse_learning.report_text(json.loads((storage.RESULTS / "sparse-learning.json").read_text()))
    table = report[report.index("| wiring |") : report.index("\n\nThe same")]
    assert table in (folder / "docs" / "howto" / "rewiring.md").read_text()


def test_a_dry_run_of_populations(monkeypatch, tmp_path):
    monkeypatch.setattr(population, "median_seconds", _call_once)
    monkeypatch.setattr(population, "MOST_SECONDS", 0.0)
    words = ["--members", "5", "--rows", "3", "--sizes", "14,20", "--generations", "2"]
    data = population.main(words, tmp_path)
    assert data["cells"][0]["forward"].keys() == {"fourward", *population.RIVALS}
    assert data["cells"][0]["measured members"]["neat-python"] == 4
    neat_run = data["neat"]
    assert sum(neat_run["parts"].values()) == pytest.approx(neat_run["seconds"])
    assert neat_run["parts"].keys() == {"evaluation", "reproduction", "speciation", "other"}
    assert min(neat_run["parts"].values()) > 0 < neat_run["evaluation by neat-python"]
    text = (tmp_path / "population.md").read_text()
    assert text.count("| 5 | 14, 20 | 3 |") == 3
    padded = population.PADDED["vmap, padded"](population.Cell(3, 14, 20, 3, "cpu"), 3)[0]
    masked = population.RIVALS["vmap, masked"](population.Cell(3, 14, 20, 3, "cpu"), 3)[0]
    torch.testing.assert_close(padded(), masked())


@pytest.mark.parametrize("name", ["activations", "busy", "gpu-large", "gpu-real", "real", "recurrent", "sparse"])
def test_stored_pages_are_those_of_the_stored_results(name):
    def load(of: str) -> Any:
        return json.loads((storage.RESULTS / f"{of}.json").read_text())

    make: dict[str, Callable[[], str]] = {
        "activations": lambda: activations.format_report(load(name)),
        "busy": lambda: busy.format_report(load(name)),
        "gpu-large": lambda: gpu_large.format_report(load(name)),
        "gpu-real": lambda: gpu_real.format_report(load(name), load("real")),
        "real": lambda: real_report.format_real_report(load(name)),
        "recurrent": lambda: recurrent.format_report(storage.RESULTS),
        "sparse": lambda: sparse.format_report(storage.RESULTS),
    }
    assert make[name]() == (storage.RESULTS / f"{name}.md").read_text()


def test_a_dry_run_of_activations(monkeypatch, tmp_path):
    monkeypatch.setattr(activations, "median_seconds", lambda calls, **_: _call_once(calls))
    activations.main(tmp_path)
    text = (tmp_path / "activations.md").read_text()
    assert all(f"| {name} | " in text for name in ACTIVATIONS)


def test_large_graphs_of_the_gpu_benchmark():
    """Graphs have one height at any size, and are trained in both dtypes."""
    pairs = gpu_large.circulant(6_000)
    dag = Dag.from_arrays(pairs, labels=6_000)
    assert dag.num_edges == len(pairs)
    assert FourWard(dag).layering.height == gpu_large.HEIGHT
    result = gpu_large.measure(300_000, [2], "cpu")
    assert [step["activations"] for step in result["steps"]] == ["float32", "bfloat16"]
    assert result["edges"] >= 300_000
    machine = storage.describe_environment() | {"card": "a GPU", "driver": "1"}
    report = gpu_large.format_report({"facts": machine, "graphs": [result]})
    assert f"| {result['nodes']:,} | {result['edges']:,} | " in report
    assert f"| {result['edges']:,} | 2 | bfloat16 | " in report


def test_a_dry_run_of_studies_with_populations(monkeypatch, tmp_path):
    monkeypatch.setattr(population_studies, "median_seconds", lambda calls, **_: _call_once(calls))
    data = population_studies.main(["--data", "wine", "--epochs", "1", "--rows", "5"], tmp_path)
    assert list(data["cells"]) == ["training, wine", "removals, wine", "ablations, 5 rows"]
    assert "| training, wine | 1e+03 | 1e+03 | 1 |" in (tmp_path / "population-studies.md").read_text()


def test_a_dry_run_of_hybrid_evolution(tmp_path):
    data = neat_hybrid.main(["--seeds", "2", "--generations", "3", "--genomes", "20"], tmp_path)
    for runs in data["tasks"].values():
        for run in runs:
            assert len(run["lamarckian"]["error"]) == len(run["baldwinian"]["error"]) == 3
            assert run["neat"]["seconds"][-1] >= run["lamarckian"]["seconds"][-1]
            for own in run.values():
                assert own["seconds"] == sorted(own["seconds"])
    table = neat_hybrid.final_errors(data["tasks"]["xor"], 3)
    assert next(iter(table)) == "NEAT, as many generations"
    assert neat_hybrid.interval([1e-2, 1e-4])[0] == pytest.approx(1e-3)
    text = (tmp_path / "neat-hybrid.md").read_text()
    assert text.count(" of 2 |") == 12
    repeated = neat_hybrid.main(["--seeds", "1", "--generations", "3", "--genomes", "20"], tmp_path)
    for name, runs in repeated["tasks"].items():
        assert runs[0]["lamarckian"]["error"] == data["tasks"][name][0]["lamarckian"]["error"], "seeded"


def test_a_dry_run_of_constraints(tmp_path, capsys):
    tiny = ["--n", "30", "--batch", "2", "--rounds", "2", "--neurons", "40", "--ends", "3", "--samples", "5"]
    data = constraints.main(tiny, tmp_path)
    for clock in ("wall", "processor"):
        assert data["training"][clock]["ratio"].keys() == {"free", "sign", "frozen", "tied", "scale", "all"}
        assert data["training"][clock]["ratio"]["free"] == 1
    assert data["ablations"]["seconds"].keys() == {"change of the outputs", "increase of the loss"}
    assert json.loads((tmp_path / "constraints.json").read_text())["environment"]["commit"]
    assert "| all |" in capsys.readouterr().out


@pytest.fixture
def small_ladder(monkeypatch, tmp_path):
    """A ladder of one low rung, in this process, and small layers and graphs."""
    monkeypatch.setattr(sparse, "LADDER", {40: (0.3, 1)})
    monkeypatch.setattr(sparse, "FEATURES", 30)
    monkeypatch.setattr(sparse, "ROWS", 5)
    monkeypatch.setattr(sparse, "EDITED", (1000,))
    monkeypatch.setattr(sparse, "DENSITIES", (0.3,))
    monkeypatch.setattr(sparse, "EDITS", 2)
    monkeypatch.setattr(sparse, "median_seconds", _call_once)
    small = sparse.compare
    monkeypatch.setattr(sparse, "compare", lambda density, device: small(density, device, (20, 30, 30, 10)))
    monkeypatch.setattr(sparse, "in_fresh_process", lambda *words: sparse.call(list(map(str, words))))
    monkeypatch.setattr(sparse, "memory", lambda *_: {"mib": 12.0})


@pytest.mark.filterwarnings("ignore:Sparse")
def test_wiring_that_changes(tmp_path, small_ladder, capsys):
    stored = sparse.main([], tmp_path)
    assert json.loads((tmp_path / "sparse.json").read_text()) == json.loads(json.dumps(stored))
    (rung,), (layers,), (edits,) = stored["ladder"], stored["layers"], stored["edits"]
    assert rung["replaced"] > 0
    assert 0 < rung["rewiring"] < rung["seconds"]
    assert set(layers["train"]) == set(layers["memory"]) == set(sparse.CONTESTANTS)
    assert edits["replaced"] <= 100
    text = (tmp_path / "sparse.md").read_text()
    assert "| 155 |" in text
    assert "12 MiB" in text
    assert "sparse" not in capsys.readouterr().err


def test_rungs_that_fail_are_cut_off_or_say_so(monkeypatch):
    assert "cut off" in sparse.in_fresh_process("climb", 10, 1, "cpu", seconds=0.01)["missing"]
    assert "failed" in sparse.in_fresh_process("climb", "none", 1, "cpu")["missing"]
    table = sparse._ladder_table([{"hidden": 10, "published": 18.0, "missing": "cut off after 1 s"}])
    assert "| 3,347 | | cut off after 1 s | | 0.3 min | | |" in table


def test_masked_layers_that_mask_after_each_step_keep_their_zeros():
    model = sparse.make("dense, masked after each step", 0.3, "cpu", (20, 30, 10))
    assert isinstance(model, sparse.MaskedLayers)
    sparse.training(model, *sparse.data((20, 10), "cpu"))()
    for weight, mask in zip(model.weights, model.masks, strict=True):
        assert torch.equal(weight != 0, mask != 0)


def test_a_cell_takes_the_place_of_the_one_before():
    first, second = {"rows": 4, "ms": 2.0}, {"rows": 1, "ms": 3.0}
    cells = storage.put_cell(storage.put_cell([], first, ("rows",), "a"), second, ("rows",), "b")
    assert cells == [second | {"commit": "b"}, first | {"commit": "a"}]
    cells = storage.put_cell(cells, {"rows": 4, "ms": 1.0}, ("rows",), "c")
    assert cells[1:] == [{"rows": 4, "ms": 1.0, "commit": "c"}]
    assert storage.list_commits(cells) == "b, c"

"""train, evaluate and predict from the command line."""

import csv
import errno
import json
import os
import signal

import numpy as np
import pytest

import fourward as fw
from fourward._cli import app
from fourward._cli import train as command
from fourward.errors import require
from fourward.train import _callbacks, _checkpoint
from fourward.view import _curves


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a table of two classes."""
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(240, 3))
    lines = [f"{a},{b},{1000 * c},{'up' if a > b else 'down'}" for a, b, c in rows.tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,sign", *lines]) + "\n")
    return tmp_path


@pytest.fixture(autouse=True)
def draw_pictures(monkeypatch):
    """Skip the pictures, which take most of the time of a short run; the function that draws them."""
    draw = command._draw
    monkeypatch.setattr(command, "_draw", lambda result: "pictures: none")
    return draw


def run(*words):
    return app.main([*map(str, words)])


def train(*words):
    return run("train", "er:30:0.2:0", "--device", "cpu", "--data", "t.csv", "--target", "sign", *words)


def test_a_run_that_rewires_shows_what_changed(folder, capsys):
    options = "--epochs", 4, "--batch-size", 16
    assert train(*options, "--rewire", "set", "--out", "a", "--json") == 0
    replaced = json.loads(capsys.readouterr().out)["edges_replaced"]
    assert replaced > 0
    assert run("view", "a", "--changes", "--no-open", "--out", "a.html") == 0
    assert "edges grew" in capsys.readouterr().out
    assert run("draw", "a", "--changes", "--out", "a.png") == 0
    assert train(*options, "--out", "b") == 0
    assert run("view", "b", "--changes", "--no-open", "--out", "b.html") == 2
    assert "needs the folder of a run whose wiring changed" in capsys.readouterr().err


def test_from_a_table_to_predictions(folder, capsys):
    assert train("--epochs", 25, "--batch-size", 16, "--out", "a", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["test"]["accuracy"] > 0.8
    assert run("evaluate", "a", "--json") == 0
    assert json.loads(capsys.readouterr().out) == result["test"]
    assert run("evaluate", "a/best.safetensors", "--data", "t.csv", "--graph", "er:30:0.2:0") == 0
    shown = capsys.readouterr().out
    assert "samples 240" in shown
    assert "down" in shown
    new = [line.rsplit(",", 1)[0].split(",") for line in (folder / "t.csv").read_text().split()[:11]]
    (folder / "new.csv").write_text("\n".join(",".join([c, "?", b, a]) for a, b, c in new).replace("?", "note", 1))
    assert run("predict", "a", "new.csv", "--out", "p.csv") == 0
    assert capsys.readouterr().out == "p.csv\n"
    assert run("predict", "a", "t.csv") == 0
    by_name = list(csv.DictReader((folder / "p.csv").read_text().splitlines()))
    all_rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(by_name[0]) == ["row", "sign", "p(down)", "p(up)"]
    assert len(by_name) == 10
    for row, expected in zip(by_name, all_rows[:10], strict=True):
        assert row["sign"] == expected["sign"] == max(("down", "up"), key=lambda name: float(row[f"p({name})"]))
        assert float(row["p(up)"]) == pytest.approx(float(expected["p(up)"]), rel=1e-4)


def test_a_run_is_trained_further_from_its_folder(folder, capsys):
    assert train("--epochs", 1, "--out", "a") == 0
    assert run("train", "a", "--device", "cpu", "--data", "t.csv", "--target", "sign", "--epochs", 1, "--out", "b") == 0
    assert fw.load("b/best.safetensors").dag == fw.load("a/best.safetensors").dag
    assert run("train", "a", "--data", "t.csv", "--target", "sign", "--activation", "tanh", "--out", "c") == 2
    assert "--activation has no effect here: a is a network, which has its own" in capsys.readouterr().err


def test_a_constant_output_is_warned_of(folder, capsys):
    net = fw.FourWard(fw.generate.erdos_renyi(30, 0.2, seed=0), seed=0)
    net.bias.data.fill_(-100.0)
    fw.save(net, "dead.safetensors")
    words = ("--device", "cpu", "--data", "t.csv", "--target", "sign", "--epochs", 1)
    assert run("train", "dead.safetensors", *words, "--out", "a") == 0
    assert "the network's output is the same for every row" in capsys.readouterr().err
    assert train("--epochs", 1, "--out", "b") == 0
    assert "every row" not in capsys.readouterr().err


def test_a_folder_named_like_a_connectome_does_not_hide_it(folder, capsys):
    (folder / "c-elegans").mkdir()
    assert run("info", "c-elegans", "--json") == 0
    assert json.loads(capsys.readouterr().out)["nodes"] == 302


def test_a_cyclic_graph_is_trained_without_its_feedback(folder, capsys):
    (folder / "g.csv").write_text("a,b\nb,c\nc,b\nc,d\na,e\n")
    words = ("train", "g.csv", "--data", "wine", "--epochs", 1, "--device", "cpu", "--out", "a")
    assert run(*words) == 2
    assert "--remove-feedback" in capsys.readouterr().err
    assert run(*words, "--remove-feedback", "--outputs", "d") == 0
    assert "removed 1 feedback edge" in capsys.readouterr().err
    assert fw.load("a/best.safetensors").dag.num_outputs == 1
    assert run("evaluate", "a", "--graph", "g.csv") == 2


def test_pictures_are_drawn_where_they_can_be(folder, capsys, monkeypatch, draw_pictures):
    monkeypatch.setattr(command, "_draw", draw_pictures)
    assert train("--epochs", 2, "--out", "a") == 0
    shown = capsys.readouterr().out
    for name in ("curves.png", "activations.png"):
        assert f"a/{name}" in shown
        assert (folder / "a" / name).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(_curves, "learning_curves", lambda *_: require("a_package_nobody_has", "plot"))
    assert train("--epochs", 2, "--out", "b") == 0
    assert "no pictures: the package" in capsys.readouterr().out


def test_regression_predicts_in_the_units_of_the_target(folder, capsys):
    rows = np.random.default_rng(0).normal(size=(200, 2))
    np.savez("t.npz", x=rows, y=5000 + 100 * rows.sum(1))
    options = ("--epochs", 40, "--batch-size", 16, "--out", "r", "--device", "cpu")
    assert run("train", "mlp:2-16-1", "--data", "t.npz", "--no-adapters", "--activation", "tanh", *options) == 0
    assert "r2" in capsys.readouterr().out
    assert run("predict", "r", "t.npz") == 0
    predicted = [float(row["y"]) for row in csv.DictReader(capsys.readouterr().out.splitlines())]
    assert np.abs(np.array(predicted) - 5000 - 100 * rows.sum(1)).mean() < 30
    assert run("evaluate", "r", "--data", "t.npz", "--json") == 0
    metrics = json.loads(capsys.readouterr().out)
    assert metrics["r2"] > 0.9
    assert metrics["rmse"] >= metrics["mae"] > 0


BAD = "a,b,sign\n1,2,up\n3,four,down\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["er:30:0.2:0", "--data", "bad.csv", "--target", "sign"],
            "row 2, column 'b' holds 'four', expected a finite number. Correct or remove the row. Pass --drop b to",
        ),
        (["er:30:0.2:0", "--data", "gap.csv", "--target", "sign"], "row 2, column 'b' is empty"),
        (["er:30:0.2:0", "--data", "t.csv", "--target", "weight"], "no column 'weight'"),
        (
            ["er:30:0.2:0", "--data", "t.csv"],
            "t.csv needs a target. Its columns are 'a', 'b', 'c', 'sign'. Pass --target ...",
        ),
        (["er:30:0.2:0", "--data", "evil.npz"], "pickles, which could run code"),
        (["er:30:0.2:0"], "pass a graph and --data to start a run"),
        (
            ["mlp:3-5-1", "--data", "t.csv", "--target", "sign", "--no-adapters"],
            "expected 2 outputs, got 1",
        ),
        (
            ["mlp:4-5-2", "--data", "t.csv", "--target", "sign", "--no-adapters"],
            "expected 3 inputs, got 4. Choose a graph that fits. Pass --adapters to put",
        ),
        (["er:30", "--data", "wine"], "er:N:P"),
        (["nowhere.graphml", "--data", "wine"], "nowhere.graphml"),
        (["er:30:0.2:0", "--data", "wine", "--dropout", "1"], "dropout must be a number in [0, 1), got 1.0"),
        (["er:30:0.2:0", "--data", "wine", "--activation", "tangens"], "tangens"),
        (["er:30:0.2:0", "--data", "wine", "--device", "cuda:9"], "device='cuda:9' is not available"),
        (["net.safetensors", "--data", "wine", "--dropout", "0.1"], "--dropout has no effect here: net.safetensors"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(folder, capsys, words, message):
    (folder / "bad.csv").write_text(BAD)
    (folder / "gap.csv").write_text(BAD.replace("four", ""))
    np.savez("evil.npz", x=np.eye(3), y=np.array([{}, 1, 2], object))
    fw.save(fw.FourWard(fw.generate.chain(3)), folder / "net.safetensors")
    before = sorted(folder.iterdir())
    assert run("train", *words, "--out", "x") == 2
    err = capsys.readouterr().err
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


def test_bad_checkpoints(folder, capsys):
    assert train("--epochs", 1, "--out", "a") == 0
    content = (folder / "a" / "best.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(content[: len(content) // 2])
    (folder / "less.csv").write_text("a,sign\n1,up\n2,up\n")
    (folder / "other.csv").write_text("a,b,c,sign\n1,2,3,sideways\n")
    cases = {
        ("evaluate", "cut.safetensors"): "truncated",
        ("predict", "cut.safetensors", "t.csv"): "truncated",
        ("evaluate", "nothing"): "file not found: nothing",
        ("evaluate", "a", "--graph", "er:30:0.2:1"): "checkpoint of another graph",
        ("train", "er:30:0.2:1", "--out", "a", "--resume"): "checkpoint of another graph",
        (
            "train",
            "--out",
            "a",
            "--resume",
            "--epochs",
            "5",
        ): "--epochs has no effect here: a resumed run keeps its options",
        ("evaluate", "a", "--data", "less.csv"): "no columns 'b', 'c'",
        ("predict", "a", "less.csv"): "no columns 'b', 'c'",
        ("evaluate", "a", "--data", "other.csv"): "unknown classes 'sideways'",
        ("evaluate", "a", "--data", "wine"): "wine has 13 features, but the model was trained on 3",
    }
    for words, message in cases.items():
        assert run(*words) == 2
        assert message in capsys.readouterr().err, words
    assert train("--epochs", 1, "--out", "a") == 2
    assert "a already contains a run. Pass --resume to continue it" in capsys.readouterr().err
    assert (folder / "a" / "best.safetensors").read_bytes() == content


@pytest.fixture
def ctrl_c():
    """Ctrl-C as at a terminal; a shell has programs that it runs in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_saves_and_names_the_command_to_continue(folder, capsys, monkeypatch):
    monkeypatch.setattr(_callbacks.Progress, "on_epoch_end", lambda self, trainer: signal.raise_signal(signal.SIGINT))
    assert train("--epochs", 6, "--out", "a b") == 130
    assert "saved. Continue with: fourward train --out 'a b' --resume" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("train", "--out", "a b", "--resume", "--device", "cpu", "--json") == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 6


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_stops_at_once(folder, capsys, monkeypatch):
    def impatient(self, trainer):
        if trainer.epoch == impatient.epoch:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(_callbacks.Progress, "on_epoch_end", impatient)
    impatient.epoch = 1
    assert train("--epochs", 6, "--out", "a") == 130, "before anything was saved"
    assert not (folder / "a" / "last.safetensors").exists()
    impatient.epoch = 3
    assert train("--epochs", 6, "--out", "a") == 130
    assert "the last checkpoint is intact. Continue with: fourward train --out a --resume" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is handler
    impatient.epoch = None
    assert run("train", "--out", "a", "--resume", "--device", "cpu") == 0


def test_a_full_disk_is_a_failure(folder, capsys, monkeypatch):
    def full(path, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(_checkpoint, "save_checkpoint", full)
    assert train("--epochs", 6, "--out", "a") == 1
    assert capsys.readouterr().err.endswith("best.safetensors: No space left on device\n")


def test_names_in_square_brackets_are_shown_as_they_are(folder, capsys):
    text = (folder / "t.csv").read_text().replace("sign", "[/sign]").replace("up", "[/up]").replace("down", "[red]")
    (folder / "b.csv").write_text(text)
    words = ("--data", "b.csv", "--target", "[/sign]", "--epochs", 1, "--out", "[/a]")
    assert run("train", "er:30:0.2:0", "--device", "cpu", *words) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("[/sign]", "[/up]", "[red]", "[/a]"))
    assert run("evaluate", "[/a]") == 0
    assert "[/up]" in capsys.readouterr().out


def test_weights_of_a_graph_file_are_not_looked_at(folder, capsys):
    (folder / "g.csv").write_text("source,target,weight\na,b,nan\nb,c,heavy\n")
    words = ("--data", "t.csv", "--target", "sign", "--epochs", 1, "--out", "a", "--device", "cpu")
    assert run("train", "g.csv", *words) == 0, capsys.readouterr().err
    assert run("evaluate", "a", "--graph", "g.csv") == 0


def test_signs_strengths_importance_and_pictures(folder, capsys):
    names = [f"n{k}" for k in range(12)]
    rng = np.random.default_rng(0)
    rows = [f"{names[u]},{names[v]},{rng.integers(1, 99)}" for u in range(12) for v in range(u + 1, 12)]
    (folder / "g.csv").write_text("\n".join(["pre,post,count", *rows]) + "\n")
    kinds = [f"{name},{'GABA' if k % 3 else 'glutamate'},{k % 2}" for k, name in enumerate(names)]
    (folder / "nodes.csv").write_text("\n".join(["name,transmitter,type", *kinds]) + "\n")
    graph = ["g.csv", "--nodes", "nodes.csv", "--data", "t.csv", "--target", "sign", "--device", "cpu"]
    options = ["--sign", "transmitter:glutamate=1", "--strengths", "scale", "--tied", "type", "--activation", "tanh"]
    assert run("train", *graph, *options[2:], "--sign", "transmitter", "--out", "x") == 2
    err = capsys.readouterr().err
    assert "no sign for these values of the attribute 'transmitter': 'glutamate'. Pass --sign transmitter:glut" in err
    assert run("train", *graph, *options, "--epochs", "4", "--out", "run") == 0
    net = fw.load("run")
    signs = np.array([-1 if k % 3 else 1 for k in range(12)])
    assert (net.weight.detach().numpy() * signs[net.dag.source] > 0).all()
    assert net.constraints.free_weight.shape == (4,)
    assert run("train", *graph, "--strengths", "frozen", "--epochs", "1", "--out", "frozen") == 0
    assert fw.load("frozen").constraints.free_weight.shape == (0,)
    capsys.readouterr()
    assert run("importance", "run", "--out", "importance.csv", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["picture"], made["rows"], len(made["first"])) == ("importance.png", 36, 10)
    with open("importance.csv") as file:
        table = list(csv.DictReader(file))
    assert {row["neuron"] for row in table} == set(names)
    scores = [float(row["importance"]) for row in table]
    assert scores == sorted(scores, reverse=True)
    assert table[0]["transmitter"] in ("GABA", "glutamate")
    assert run("importance", "run", "--data", "t.csv", "--by", "gradient", "--no-picture", "--rows", "20") == 0
    capsys.readouterr()
    assert run("importance", "run", "--of", "edges", "--out", "edges.csv") == 0
    assert "the 10 most important of 66 edges, on 36 rows:" in capsys.readouterr().out
    with open("edges.csv") as file:
        table = list(csv.DictReader(file))
    assert {(row["source"], row["target"]) for row in table} == {(names[u], names[v]) for u, v in net.dag.edges}
    assert float(table[0]["importance"]) == max(float(row["importance"]) for row in table)
    assert run("draw", "run", "--colour", "importance.csv", "--out", "i.svg") == 0
    assert "importance" in (folder / "i.svg").read_text()
    assert run("view", "run", "--colour", "transmitter", "--only", "paths", "--no-open") == 0
    assert run("draw", "run", "--colour", "transmitter", "--only", "paths") == 0
    assert run("info", "run", "--only", "paths") == 2
    assert "--only has no effect here" in capsys.readouterr().err


def test_a_constrained_run_resumes_to_the_same_bits(folder):
    graph = fw.generate.erdos_renyi(20, 0.3, seed=0)
    options = {"sign": np.where(np.arange(20) % 2, 1, -1), "frozen": np.arange(graph.num_edges) % 4 == 0}
    config = {"data": "t.csv", "target": "sign"}
    for epochs, out in ((4, "whole"), (2, "part")):
        run_config = fw.train.RunConfig(**config, train=fw.train.TrainConfig(epochs=epochs, schedule="constant"))
        fw.train.start_run(graph, run_config, out, network=options, device="cpu")
    path = folder / "part" / "last.safetensors"
    model, about, state = fw.train.load_checkpoint(path)
    about["config"]["train"]["epochs"] = 4
    fw.train.save_checkpoint(path, model, about, state)
    fw.train.resume_run("part", device="cpu")
    parameters = [
        [p.detach().numpy() for p in fw.train.load_checkpoint(folder / out / "last.safetensors").model.parameters()]
        for out in ("whole", "part")
    ]
    assert all(map(np.array_equal, *parameters))

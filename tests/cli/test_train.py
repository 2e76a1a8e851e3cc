"""train, evaluate and predict as someone at a terminal meets them."""

import csv
import errno
import json
import os
import signal

import numpy as np
import pytest

import fourward as fw
from fourward._cli import app
from fourward.errors import require
from fourward.train import _callbacks, _checkpoint
from fourward.train import _run as run_module


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a table of two classes."""
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(240, 3))
    lines = [f"{a},{b},{1000 * c},{'up' if a > b else 'down'}" for a, b, c in rows.tolist()]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,c,way", *lines]) + "\n")
    return tmp_path


def run(*words):
    return app.main([*map(str, words)])


def train(*words):
    return run("train", "er:30:0.2:0", "--device", "cpu", "--data", "t.csv", "--target", "way", *words)


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
    whole = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert list(by_name[0]) == ["row", "way", "p(down)", "p(up)"]
    assert len(by_name) == 10
    for few, many in zip(by_name, whole[:10], strict=True):
        assert few["way"] == many["way"] == max(("down", "up"), key=lambda name: float(few[f"p({name})"]))
        assert float(few["p(up)"]) == pytest.approx(float(many["p(up)"]), rel=1e-4)


def test_a_run_is_trained_on_by_its_folder(folder, capsys):
    assert train("--epochs", 1, "--out", "a") == 0
    assert run("train", "a", "--device", "cpu", "--data", "t.csv", "--target", "way", "--epochs", 1, "--out", "b") == 0
    assert fw.load("b/best.safetensors").dag == fw.load("a/best.safetensors").dag
    assert run("train", "a", "--data", "t.csv", "--target", "way", "--activation", "tanh", "--out", "c") == 2
    assert "--activation has no effect here: a is a network and has its own" in capsys.readouterr().err


def test_a_network_whose_neurons_are_dead_is_told_of(folder, capsys):
    net = fw.FourWard(fw.generate.erdos_renyi(30, 0.2, seed=0), seed=0)
    net.bias.data.fill_(-100.0)
    fw.save(net, "dead.safetensors")
    words = ("--device", "cpu", "--data", "t.csv", "--target", "way", "--epochs", 1)
    assert run("train", "dead.safetensors", *words, "--out", "a") == 0
    assert "The network says the same of every row" in capsys.readouterr().err
    assert train("--epochs", 1, "--out", "b") == 0
    assert "every row" not in capsys.readouterr().err


def test_a_folder_with_the_name_of_a_nervous_system_is_not_taken_for_it(folder, capsys):
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


def test_pictures_are_drawn_where_they_can_be(folder, capsys, monkeypatch):
    assert train("--epochs", 2, "--out", "a") == 0
    shown = capsys.readouterr().out
    for name in ("curves.png", "activations.png"):
        assert f"a/{name}" in shown
        assert (folder / "a" / name).read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(run_module, "learning_curves", lambda *_: require("a_package_nobody_has", "plot"))
    assert train("--epochs", 2, "--out", "b") == 0
    assert "no pictures: this needs the package" in capsys.readouterr().out


def test_regression_predicts_in_the_targets_own_units(folder, capsys):
    rows = np.random.default_rng(0).normal(size=(200, 2))
    np.savez("t.npz", x=rows, y=5000 + 100 * rows.sum(1))
    options = ("--epochs", 40, "--batch-size", 16, "--out", "r", "--device", "cpu")
    assert run("train", "mlp:2-16-1", "--data", "t.npz", "--direct", "--activation", "tanh", *options) == 0
    assert "r2" in capsys.readouterr().out
    assert run("predict", "r", "t.npz") == 0
    said = [float(row["y"]) for row in csv.DictReader(capsys.readouterr().out.splitlines())]
    assert np.abs(np.array(said) - 5000 - 100 * rows.sum(1)).mean() < 30
    assert run("evaluate", "r", "--data", "t.npz", "--json") == 0
    measures = json.loads(capsys.readouterr().out)
    assert measures["r2"] > 0.9
    assert measures["rmse"] >= measures["mae"] > 0


BAD = "a,b,way\n1,2,up\n3,four,down\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["er:30:0.2:0", "--data", "bad.csv", "--target", "way"], "row 2, column 'b' holds 'four'"),
        (["er:30:0.2:0", "--data", "gap.csv", "--target", "way"], "row 2, column 'b' is empty"),
        (["er:30:0.2:0", "--data", "t.csv", "--target", "weight"], "no column 'weight'"),
        (["er:30:0.2:0", "--data", "t.csv"], "which column of t.csv"),
        (["er:30:0.2:0", "--data", "evil.npz"], "pickles, which could run code"),
        (["er:30:0.2:0"], "a run needs a graph and --data"),
        (["mlp:3-5-1", "--data", "t.csv", "--target", "way", "--direct"], "2 classes, but the graph has 1 outputs"),
        (["mlp:4-5-2", "--data", "t.csv", "--target", "way", "--direct"], "3 features, but the graph has 4 inputs"),
        (["er:30", "--data", "wine"], "er:N:P"),
        (["nowhere.graphml", "--data", "wine"], "nowhere.graphml"),
        (["er:30:0.2:0", "--data", "wine", "--dropout", "1"], "dropout=1"),
        (["er:30:0.2:0", "--data", "wine", "--activation", "tangens"], "tangens"),
        (["er:30:0.2:0", "--data", "wine", "--device", "cuda:9"], "no such card"),
        (["net.safetensors", "--data", "wine", "--dropout", "0.1"], "--dropout has no effect here: net.safetensors"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(folder, capsys, words, said):
    (folder / "bad.csv").write_text(BAD)
    (folder / "gap.csv").write_text(BAD.replace("four", ""))
    np.savez("evil.npz", x=np.eye(3), y=np.array([{}, 1, 2], object))
    fw.save(fw.FourWard(fw.generate.chain(3)), folder / "net.safetensors")
    before = sorted(folder.iterdir())
    assert run("train", *words, "--out", "x") == 2
    err = capsys.readouterr().err
    assert said in " ".join(err.split())
    assert "Traceback" not in err
    assert sorted(folder.iterdir()) == before


def test_bad_checkpoints(folder, capsys):
    assert train("--epochs", 1, "--out", "a") == 0
    whole = (folder / "a" / "best.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    (folder / "less.csv").write_text("a,way\n1,up\n2,up\n")
    (folder / "other.csv").write_text("a,b,c,way\n1,2,3,sideways\n")
    cases = {
        ("evaluate", "cut.safetensors"): "cut short",
        ("predict", "cut.safetensors", "t.csv"): "cut short",
        ("evaluate", "nothing"): "there is no file nothing",
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
        ("evaluate", "a", "--data", "other.csv"): "these are none: 'sideways'",
        ("evaluate", "a", "--data", "wine"): "wine has 13 features, but the model learned from 3",
    }
    for words, said in cases.items():
        assert run(*words) == 2
        assert said in capsys.readouterr().err, words
    assert train("--epochs", 1, "--out", "a") == 2
    assert (folder / "a" / "best.safetensors").read_bytes() == whole


@pytest.fixture
def ctrl_c():
    """Ctrl-C as at a terminal; a shell has programs that it runs in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_saves_and_says_how_to_go_on(folder, capsys, monkeypatch):
    monkeypatch.setattr(_callbacks.Progress, "after_epoch", lambda self, loop: signal.raise_signal(signal.SIGINT))
    assert train("--epochs", 6, "--out", "a b") == 130
    assert "saved. Go on with: fourward train --out 'a b' --resume" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert run("train", "--out", "a b", "--resume", "--device", "cpu", "--json") == 0
    assert json.loads(capsys.readouterr().out)["epochs"] == 6


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_stops_at_once(folder, capsys, monkeypatch):
    def impatient(self, loop):
        if loop.epoch == impatient.epoch:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(_callbacks.Progress, "after_epoch", impatient)
    impatient.epoch = 1
    assert train("--epochs", 6, "--out", "a") == 130, "before anything was saved"
    assert not (folder / "a" / "last.safetensors").exists()
    impatient.epoch = 3
    assert train("--epochs", 6, "--out", "a") == 130
    assert "What was saved before is whole. Go on with: fourward train --out a --resume" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is handler
    impatient.epoch = None
    assert run("train", "--out", "a", "--resume", "--device", "cpu") == 0


def test_a_full_disk_is_a_failure(folder, capsys, monkeypatch):
    def full(path, *_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(_checkpoint, "save", full)
    assert train("--epochs", 6, "--out", "a") == 1
    assert capsys.readouterr().err.endswith("best.safetensors: No space left on device\n")


def test_names_in_square_brackets_are_shown_as_they_are(folder, capsys):
    text = (folder / "t.csv").read_text().replace("way", "[/way]").replace("up", "[/up]").replace("down", "[red]")
    (folder / "b.csv").write_text(text)
    words = ("--data", "b.csv", "--target", "[/way]", "--epochs", 1, "--out", "[/a]")
    assert run("train", "er:30:0.2:0", "--device", "cpu", *words) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("[/way]", "[/up]", "[red]", "[/a]"))
    assert run("evaluate", "[/a]") == 0
    assert "[/up]" in capsys.readouterr().out


def test_weights_of_a_graph_file_are_not_looked_at(folder, capsys):
    (folder / "g.csv").write_text("source,target,weight\na,b,nan\nb,c,heavy\n")
    words = ("--data", "t.csv", "--target", "way", "--epochs", 1, "--out", "a", "--device", "cpu")
    assert run("train", "g.csv", *words) == 0, capsys.readouterr().err
    assert run("evaluate", "a", "--graph", "g.csv") == 0

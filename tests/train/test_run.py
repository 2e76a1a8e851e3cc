"""Runs in a folder: what they keep, how they stop and go on, and what a crash leaves."""

import csv
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import fourward as fw
from fourward import _serialization
from fourward.errors import DataError, FileError, OptionError, TrainingError
from fourward.train import _checkpoint, _run
from fourward.train._evaluate import judge
from fourward.train._metrics import measure
from fourward.train._model import Model, Scaling
from fourward.train._options import Options, Setup

GRAPH = "er:30:0.2:0"
COMMAND = [sys.executable, "-m", "fourward._cli.app", "train"]


def dag():
    return fw.generate.erdos_renyi(30, 0.2, seed=0)


def curves(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history.rows()]


def written(out):
    with (out / "history.csv").open() as file:
        return [
            {name: float(value) for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)
        ]


class Asks:
    """Asks to pause once, as a first Ctrl-C does, after so many calls."""

    def __init__(self, calls, number=signal.SIGINT):
        self.left, self.number = calls, number

    def after_steps(self, loop):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)

    def after_epoch(self, loop):
        self.after_steps(loop)

    def paused(self, loop):
        pass


def test_a_folder_has_it_all(tmp_path):
    setup = Setup("wine", options=Options(epochs=12, batch_size=16, patience=12))
    result = _run.start(dag(), setup, tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"best.safetensors", "last.safetensors", "history.csv", "result.json", "tensorboard"}
    assert written(tmp_path / "run") == curves(result.history)
    said = json.loads((tmp_path / "run" / "result.json").read_text())
    assert said["test"] == result.measures == judge(tmp_path / "run")
    assert said["best_epoch"] == int(np.argmin(result.history.held_loss)) + 1
    assert fw.load(tmp_path / "run" / "best.safetensors").dag == dag()
    assert any((tmp_path / "run" / "tensorboard").iterdir())
    with pytest.raises(OptionError, match="already holds a run"):
        _run.start(dag(), setup, tmp_path / "run")
    (tmp_path / "run" / "history.csv").unlink()
    again = _run.resume(tmp_path / "run")
    assert again.measures == result.measures, "nothing was left to learn"
    assert written(tmp_path / "run") == curves(result.history)


@pytest.mark.parametrize(
    ("calls", "schedule", "number"),
    [
        (2, "one-cycle", signal.SIGINT),
        (5, "constant", signal.SIGTERM),
        (8, "cosine", signal.SIGINT),
        (11, "one-cycle", signal.SIGTERM),
    ],
)
def test_a_paused_run_goes_on_as_if_nothing_had_been(tmp_path, calls, schedule, number):
    options = Options(epochs=4, batch_size=12, schedule=schedule, patience=3, seed=3)  # 4 calls an epoch
    setup, network = Setup("digits", options=options), {"dropout": 0.2, "activation": "tanh"}
    handler = signal.getsignal(number)
    with pytest.raises(_run.Interrupted, match=r"fourward train --out .*run --resume") as caught:
        _run.start(dag(), setup, tmp_path / "run", network=network, watchers=[Asks(calls, number)])
    assert caught.value.exit_code == 130
    assert signal.getsignal(number) is handler
    assert len(written(tmp_path / "run")) == calls // 4
    on = _run.resume(tmp_path / "run", graph=dag())
    whole = _run.start(dag(), setup, tmp_path / "whole", network=network)
    assert curves(on.history) == curves(whole.history)
    for name in ("best", "last"):
        ours, theirs = (load_file(tmp_path / folder / f"{name}.safetensors") for folder in ("run", "whole"))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) for key in ours)


class Blows:
    """Makes the next epoch's steps diverge; there is one step an epoch, so that its loss is still good."""

    def after_steps(self, loop):
        pass

    def after_epoch(self, loop):
        if loop.epoch == 3:
            loop.optimiser.param_groups[0]["lr"] = 3e38

    def paused(self, loop):
        pass


@pytest.mark.parametrize("held", [0.0, 0.15])
def test_a_diverging_run_leaves_good_models(tmp_path, held, monkeypatch):
    monkeypatch.setattr(_run.Keeper, "took", property(lambda self: -1.0, lambda self, took: None), raising=False)
    setup = Setup("wine", held=held, options=Options(epochs=8, batch_size=1000, schedule="constant"))
    with pytest.raises(TrainingError, match=r"became (nan|-?inf) in epoch 4"):
        _run.start(dag(), setup, tmp_path, watchers=[Blows()])
    assert len(written(tmp_path)) == 3
    for name in ("best", "last"):
        model, _, _ = _checkpoint.load(tmp_path / f"{name}.safetensors")
        assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_measures_are_finite_or_none():
    scaling = Scaling(np.zeros(1), np.ones(1))
    model = Model(fw.FourWard(fw.generate.layered_mlp([1, 2, 1])), ["x"], ["y"], None, scaling, scaling)
    with torch.no_grad():
        model.leave.bias.fill_(torch.inf)
    said = measure(model, np.zeros((3, 1)), np.arange(3.0)[:, None])
    assert {name: said[name] for name in ("loss", "r2", "mae", "rmse")} == dict.fromkeys(("loss", "r2", "mae", "rmse"))


def test_what_a_checkpoint_says_is_json_for_all_readers(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.random.default_rng(0).normal(size=(40, 2)), y=np.full(40, 2.5))
    setup = Setup(str(tmp_path / "t.npz"), task="regression", options=Options(epochs=3))
    with pytest.raises(_run.Interrupted):
        _run.start(dag(), setup, tmp_path / "run", watchers=[Asks(2)])
    with safe_open(tmp_path / "run" / "last.safetensors", "pt") as file:
        said = json.loads(file.metadata()["fourward"], parse_constant=pytest.fail)
    assert said["state"]["history"]["held_score"] == [None, None]
    assert np.isnan(_run.resume(tmp_path / "run").history.held_score).all()


def test_the_best_model_is_remembered(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=rng.normal(size=(60, 5)), y=rng.integers(0, 2, 60))  # nothing to be learned
    setup = Setup(str(tmp_path / "noise.npz"), options=Options(epochs=30, batch_size=8, schedule="constant"))
    wide = fw.generate.layered_mlp([5, 60, 60, 2])
    with pytest.raises(_run.Interrupted):
        _run.start(wide, setup, tmp_path / "run", watchers=[Asks(20)])
    on = _run.resume(tmp_path / "run")
    whole = _run.start(wide, setup, tmp_path / "whole")
    assert on.history.best_epoch < 19, "or else this proves nothing"
    assert torch.equal(on.model.net.weight, whole.model.net.weight)


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path):
    words = [GRAPH, "--data", "digits", "--epochs", "60", "--batch-size", "32", "--dropout", "0.1", "--device", "cpu"]
    out = tmp_path / "run"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*COMMAND, *words, "--out", out], stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        try:
            while not (out / "history.csv").exists() or len(written(out)) < 3:
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.02)
        finally:
            process.kill()
    assert process.wait() == -signal.SIGKILL
    before = written(out)
    on = _run.resume(out)
    setup = Setup("digits", options=Options(epochs=60, batch_size=32))
    whole = _run.start(dag(), setup, tmp_path / "whole", network={"dropout": 0.1})
    assert 3 <= len(before) < 60
    assert curves(on.history) == curves(whole.history) == written(out)
    assert before == written(out)[: len(before)]


def test_two_processes_learn_what_one_learns(tmp_path):
    words = [GRAPH, "--data", "wine", "--epochs", "4", "--batch-size", "25", "--device", "cpu", "--json"]
    done = subprocess.run(
        [*COMMAND, *words, "--out", tmp_path / "two", "--devices", "2"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    alone = _run.start(dag(), Setup("wine", options=Options(epochs=4, batch_size=25)), tmp_path / "one")
    assert json.loads(done.stdout)["test"]["accuracy"] == alone.measures["accuracy"]
    for ours, theirs in zip(written(tmp_path / "two"), curves(alone.history), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    ours, theirs = (load_file(tmp_path / folder / "last.safetensors") for folder in ("two", "one"))
    for key in theirs:
        torch.testing.assert_close(ours[key], theirs[key], rtol=1e-4, atol=1e-6)


def test_networks_are_trained_on_from_their_weights(tmp_path):
    net = fw.FourWard(fw.generate.layered_mlp([13, 8, 3]), "tanh", "identity", seed=5)
    before = net.weight.detach().clone()
    setup = Setup("wine", held=0, test=0, options=Options(epochs=1, batch_size=1000, learning_rate=1e-6))
    result = _run.start(net, setup, tmp_path / "run", direct=True)
    assert result.measures is None
    assert result.history.held_loss == []
    torch.testing.assert_close(result.model.net.weight, before, rtol=1e-4, atol=1e-4)
    with pytest.raises(OptionError, match="name the data"):
        judge(tmp_path / "run")
    assert judge(tmp_path / "run", "wine")["samples"] == 178


def test_bf16(tmp_path):
    setup = Setup("wine", precision="bf16", options=Options(epochs=8, batch_size=16))
    result = _run.start(dag(), setup, tmp_path / "run")
    assert result.model.net.weight.dtype == torch.float32
    assert result.history.train_loss[-1] < result.history.train_loss[0]
    full = _run.start(dag(), Setup("wine", options=setup.options), tmp_path / "full")
    assert curves(result.history) != curves(full.history), "it does make a difference"
    with pytest.raises(OptionError, match="precision='8'"):
        Setup("wine", precision="8")


@pytest.fixture(scope="module")
def paused(tmp_path_factory):
    """A run that stopped in its second epoch; with its table."""
    folder = tmp_path_factory.mktemp("paused")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3))
    lines = [f"{a},{b},{c},{'up' if a > b else 'down'}" for a, b, c in rows.tolist()]
    (folder / "t.csv").write_text("\n".join(["a,b,c,way", *lines]) + "\n")
    setup = Setup(str(folder / "t.csv"), "way", options=Options(epochs=5, batch_size=8))
    with pytest.raises(_run.Interrupted):
        _run.start(dag(), setup, folder / "run", watchers=[Asks(4)])
    return folder


def test_only_the_same_run_goes_on(paused, tmp_path):
    out = paused / "run"
    with pytest.raises(FileError, match="checkpoint of another graph"):
        _run.resume(out, graph=fw.generate.erdos_renyi(30, 0.2, seed=1))
    changed = tmp_path / "t.csv"
    changed.write_text((paused / "t.csv").read_text().replace("up\n", "down\n", 1))
    with pytest.raises(DataError, match="isn't the data that"):
        _run.resume(out, data=str(changed))
    with pytest.raises(FileError, match="there is no file"):
        _run.resume(tmp_path)
    (tmp_path / "last.safetensors").write_bytes((out / "last.safetensors").read_bytes()[:-9])
    with pytest.raises(FileError, match="cut short"):
        _run.resume(tmp_path)
    (tmp_path / "last.safetensors").write_bytes((out / "best.safetensors").read_bytes())
    with pytest.raises(FileError, match="not the state of its training"):
        _run.resume(tmp_path)
    fw.save(fw.FourWard(dag()), tmp_path / "last.safetensors")
    with pytest.raises(FileError, match="holds a network alone"):
        _run.resume(tmp_path)


def test_a_run_goes_on_from_another_folder(paused, tmp_path, monkeypatch):
    monkeypatch.chdir(paused)
    with pytest.raises(_run.Interrupted):
        _run.start(dag(), Setup("t.csv", "way", options=Options(epochs=2)), tmp_path / "run", watchers=[Asks(1)])
    monkeypatch.chdir(tmp_path)
    assert _run.resume("run").measures == judge("run")
    moved = (paused / "t.csv").rename(paused / "moved.csv")
    try:
        for again in (_run.resume, judge):
            with pytest.raises(DataError, match=r"t\.csv, which was learned from. Say where it is now: --data"):
                again("run")
    finally:
        moved.rename(paused / "t.csv")


def test_a_run_remembers_where_its_data_went(paused, tmp_path, monkeypatch):
    (tmp_path / "moved.csv").write_bytes((paused / "t.csv").read_bytes())
    shutil.copytree(paused / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    _run.resume("run", data="moved.csv")
    _, said, _ = _checkpoint.load("run/last.safetensors")
    assert said["setup"]["data"] == str(tmp_path / "moved.csv")


def test_a_full_disk_leaves_the_old_checkpoints(paused, tmp_path):
    out = paused / "run"
    names = ("best.safetensors", "last.safetensors", "history.csv")
    old = {name: (out / name).read_bytes() for name in names}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
    try:
        with pytest.raises(TrainingError, match=r"\.safetensors: File too large.*whole. Go on with: .* --resume"):
            _run.resume(out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {name: (out / name).read_bytes() for name in names} == old
    assert {path.name for path in out.iterdir()} == {*names, "tensorboard"}


def test_damaged_states_are_named(paused, tmp_path):
    model, setup, state = _checkpoint.load(paused / "run" / "last.safetensors")
    for broken in (state | {"history": {"height": [1]}}, {k: v for k, v in state.items() if k != "step"}):
        _checkpoint.save(tmp_path / "last.safetensors", model, setup, broken)
        with pytest.raises(FileError, match="corrupt"):
            _run.resume(tmp_path, data=str(paused / "t.csv"))


def put(place, key, value):
    place[key] = value


@pytest.mark.parametrize(
    "harm",
    [
        lambda tensors, said: put(tensors, "optimiser.0.exp_avg", torch.zeros(1)),
        lambda tensors, said: put(tensors, "optimiser.1.exp_avg_sq", tensors["optimiser.1.exp_avg_sq"].long()),
        lambda tensors, said: put(tensors, "optimiser.0.step", torch.zeros(2)),
        lambda tensors, said: tensors.pop("optimiser.0.exp_avg"),
        lambda tensors, said: tensors.pop("optimiser.0.step"),
        lambda tensors, said: put(tensors, "network.weight", tensors["network.weight"].to(torch.float8_e4m3fn)),
        lambda tensors, said: put(tensors, "scale.x", torch.zeros_like(tensors["scale.x"])),
        lambda tensors, said: put(tensors, "scale.x", tensors["scale.x"] * torch.nan),
        lambda tensors, said: put(said["model"], "targets", []),
        lambda tensors, said: put(said["state"]["optimiser"][0], "params", [0]),
        lambda tensors, said: put(said["state"]["optimiser"][0], "lr", "fast"),
        lambda tensors, said: put(said["state"], "optimiser", []),
        lambda tensors, said: put(said["state"], "schedule", {"last_epoch": "x"}),
        lambda tensors, said: put(said["state"], "schedule", [1]),
        lambda tensors, said: put(said["state"], "step", 10**6),
        lambda tensors, said: put(said["state"], "step", "x"),
        lambda tensors, said: put(said["state"]["history"], "train_loss", ["x"]),
    ],
)
def test_what_is_damaged_never_reaches_the_optimiser(paused, tmp_path, harm):
    tensors, said = _serialization.read_safetensors(paused / "run" / "last.safetensors")
    harm(tensors, said)
    _serialization.write_safetensors(tmp_path / "last.safetensors", tensors, said)
    with pytest.raises(FileError, match=r"last\.safetensors is corrupt"):
        _run.resume(tmp_path, data=str(paused / "t.csv"))


def test_patience_needs_held_out_rows(tmp_path):
    with pytest.raises(OptionError, match="none are held out"):
        _run.start(dag(), Setup("wine", held=0, options=Options(patience=3)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_is_found_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    asks = Asks(10**9)
    with pytest.raises(OSError, match="file"):
        _run.start(dag(), Setup("wine", options=Options(epochs=1)), tmp_path / "file" / "run", watchers=[asks])
    assert asks.left == 10**9, "nothing was learned"

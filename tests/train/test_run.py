"""Runs: what their folder holds, how they stop and resume, and what a crash leaves."""

import csv
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import fourward as fw
from fourward import _serialization
from fourward.errors import DataError, FileError, OptionError, TrainingError
from fourward.train import (
    Callback,
    Interrupted,
    RunConfig,
    SaveError,
    TrainConfig,
    _callbacks,
    evaluate,
    load_checkpoint,
    resume_run,
    save_checkpoint,
    start_run,
)

GRAPH = "er:30:0.2:0"
COMMAND = [sys.executable, "-m", "fourward", "train"]


def make_dag():
    return fw.generate.erdos_renyi(30, 0.2, seed=0)


def curves(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history.rows()]


def read_history(out):
    with (out / "history.csv").open() as file:
        return [
            {name: float(value) for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)
        ]


class SendSignal(Callback):
    """Sends this process a signal after so many calls, as Ctrl-C does."""

    def __init__(self, calls, number=signal.SIGINT):
        self.calls_left, self.number = calls, number

    def on_steps_end(self, trainer):
        self.calls_left -= 1
        if self.calls_left == 0:
            os.kill(os.getpid(), self.number)

    def on_epoch_end(self, trainer):
        self.on_steps_end(trainer)


def test_the_files_of_a_run(tmp_path):
    config = RunConfig("wine", train=TrainConfig(epochs=12, batch_size=16, patience=12))
    result = start_run(make_dag(), config, tmp_path / "run")
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"best.safetensors", "last.safetensors", "history.csv", "result.json", "tensorboard"}
    assert read_history(tmp_path / "run") == curves(result.history)
    saved = json.loads((tmp_path / "run" / "result.json").read_text())
    assert saved["test"] == result.metrics == evaluate(tmp_path / "run")
    assert saved["best_epoch"] == int(np.argmin(result.history.val_loss)) + 1
    assert fw.load(tmp_path / "run" / "best.safetensors").dag == make_dag()
    assert any((tmp_path / "run" / "tensorboard").iterdir())
    with pytest.raises(OptionError, match="already contains a run"):
        start_run(make_dag(), config, tmp_path / "run")
    (tmp_path / "run" / "history.csv").unlink()
    resumed = resume_run(tmp_path / "run")
    assert resumed.metrics == result.metrics, "it was finished"
    assert read_history(tmp_path / "run") == curves(result.history)


@pytest.mark.parametrize(
    ("calls", "schedule", "number"),
    [
        (2, "one-cycle", signal.SIGINT),
        (5, "constant", signal.SIGTERM),
        (8, "cosine", signal.SIGINT),
        (11, "one-cycle", signal.SIGTERM),
    ],
)
def test_an_interrupted_run_resumes_to_the_same_bits(tmp_path, calls, schedule, number):
    train = TrainConfig(epochs=4, batch_size=12, schedule=schedule, patience=3, seed=3)  # 4 calls an epoch
    config, network = RunConfig("digits", train=train), {"dropout": 0.2, "activation": "tanh"}
    handler = signal.getsignal(number)
    with pytest.raises(
        Interrupted, match=r"and saved. Call fourward.train.resume_run\('.*run'\) to continue"
    ) as caught:
        start_run(make_dag(), config, tmp_path / "run", network=network, callbacks=[SendSignal(calls, number)])
    assert caught.value.exit_code == 130
    assert caught.value.out == tmp_path / "run"
    assert signal.getsignal(number) is handler
    assert len(read_history(tmp_path / "run")) == calls // 4
    resumed = resume_run(tmp_path / "run", graph=make_dag())
    uninterrupted = start_run(make_dag(), config, tmp_path / "uninterrupted", network=network)
    assert curves(resumed.history) == curves(uninterrupted.history)
    for name in ("best", "last"):
        actual, expected = (load_file(tmp_path / f / f"{name}.safetensors") for f in ("run", "uninterrupted"))
        assert actual.keys() == expected.keys()
        assert all(torch.equal(actual[key], expected[key]) for key in actual)


class Diverge(Callback):
    """Makes the steps of the fourth epoch diverge; with one step an epoch, the loss of that step is still finite."""

    def on_epoch_end(self, trainer):
        if trainer.epoch == 3:
            trainer.optimiser.param_groups[0]["lr"] = 3e38


@pytest.mark.parametrize("validation", [0.0, 0.15])
def test_a_diverging_run_leaves_finite_models(tmp_path, validation, monkeypatch):
    always = property(lambda self: -1.0, lambda self, seconds: None)  # saves after every epoch
    monkeypatch.setattr(_callbacks.CheckpointCallback, "seconds", always, raising=False)
    config = RunConfig("wine", validation=validation, train=TrainConfig(epochs=8, batch_size=1000, schedule="constant"))
    with pytest.raises(TrainingError, match=r"became (nan|-?inf) in epoch 4"):
        start_run(make_dag(), config, tmp_path, callbacks=[Diverge()])
    assert len(read_history(tmp_path)) == 3
    for name in ("best", "last"):
        model, _, _ = load_checkpoint(tmp_path / f"{name}.safetensors")
        assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_the_metadata_of_a_checkpoint_is_standard_json(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.random.default_rng(0).normal(size=(40, 2)), y=np.full(40, 2.5))
    config = RunConfig(str(tmp_path / "t.npz"), task="regression", train=TrainConfig(epochs=3))
    with pytest.raises(Interrupted):
        start_run(make_dag(), config, tmp_path / "run", callbacks=[SendSignal(2)])
    with safe_open(tmp_path / "run" / "last.safetensors", "pt") as file:
        metadata = json.loads(file.metadata()["fourward"], parse_constant=pytest.fail)
    assert metadata["state"]["history"]["val_score"] == [None, None]
    assert np.isnan(resume_run(tmp_path / "run").history.val_score).all()


def test_the_best_model_is_remembered(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "noise.npz", x=rng.normal(size=(60, 5)), y=rng.integers(0, 2, 60))  # no pattern
    config = RunConfig(str(tmp_path / "noise.npz"), train=TrainConfig(epochs=30, batch_size=8, schedule="constant"))
    wide = fw.generate.layered_mlp([5, 60, 60, 2])
    with pytest.raises(Interrupted):
        start_run(wide, config, tmp_path / "run", callbacks=[SendSignal(20)])
    resumed = resume_run(tmp_path / "run")
    uninterrupted = start_run(wide, config, tmp_path / "uninterrupted")
    assert resumed.history.best_epoch < 19, "or else this proves nothing"
    assert torch.equal(resumed.model.net.weight, uninterrupted.model.net.weight)


def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    words = [GRAPH, "--data", "digits", "--epochs", "60", "--batch-size", "32", "--dropout", "0.1", "--device", "cpu"]
    out = tmp_path / "run"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [*COMMAND, *words, "--out", out], stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        try:
            while not (out / "history.csv").exists() or len(read_history(out)) < 3:
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.02)
        finally:
            process.kill()
    assert process.wait() == -signal.SIGKILL
    before = read_history(out)
    resumed = resume_run(out)
    config = RunConfig("digits", train=TrainConfig(epochs=60, batch_size=32))
    uninterrupted = start_run(make_dag(), config, tmp_path / "uninterrupted", network={"dropout": 0.1})
    assert 3 <= len(before) < 60
    assert curves(resumed.history) == curves(uninterrupted.history) == read_history(out)
    assert before == read_history(out)[: len(before)]


def test_two_processes_learn_what_one_learns(tmp_path):
    words = [GRAPH, "--data", "wine", "--epochs", "4", "--batch-size", "25", "--device", "cpu", "--json"]
    done = subprocess.run(
        [*COMMAND, *words, "--out", tmp_path / "two", "--devices", "2"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    alone = start_run(make_dag(), RunConfig("wine", train=TrainConfig(epochs=4, batch_size=25)), tmp_path / "one")
    assert json.loads(done.stdout)["test"]["accuracy"] == alone.metrics["accuracy"]
    for actual, expected in zip(read_history(tmp_path / "two"), curves(alone.history), strict=True):
        assert actual == pytest.approx(expected, rel=1e-5)
    actual, expected = (load_file(tmp_path / folder / "last.safetensors") for folder in ("two", "one"))
    for key in expected:
        torch.testing.assert_close(actual[key], expected[key], rtol=1e-4, atol=1e-6)


def test_networks_train_further_from_their_weights(tmp_path):
    net = fw.FourWard(fw.generate.layered_mlp([13, 8, 3]), "tanh", "identity", seed=5)
    before = net.weight.detach().clone()
    config = RunConfig("wine", validation=0, test=0, train=TrainConfig(epochs=1, batch_size=1000, learning_rate=1e-6))
    result = start_run(net, config, tmp_path / "run", adapters=False)
    assert result.metrics is None
    assert result.history.val_loss == []
    torch.testing.assert_close(result.model.net.weight, before, rtol=1e-4, atol=1e-4)
    with pytest.raises(OptionError, match=r"without test rows. Pass data=... to choose the data to evaluate on"):
        evaluate(tmp_path / "run")
    assert evaluate(tmp_path / "run", "wine")["samples"] == 178


def test_bf16(tmp_path):
    config = RunConfig("wine", precision="bf16", train=TrainConfig(epochs=8, batch_size=16))
    result = start_run(make_dag(), config, tmp_path / "run")
    assert result.model.net.weight.dtype == torch.float32
    assert result.history.train_loss[-1] < result.history.train_loss[0]
    full = start_run(make_dag(), RunConfig("wine", train=config.train), tmp_path / "full")
    assert curves(result.history) != curves(full.history), "it does make a difference"
    with pytest.raises(OptionError, match="precision must be one of '32', 'bf16', got '8'"):
        RunConfig("wine", precision="8")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """The folder of a table, and of a run that stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("interrupted")
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3))
    lines = [f"{a},{b},{c},{'up' if a > b else 'down'}" for a, b, c in rows.tolist()]
    (folder / "t.csv").write_text("\n".join(["a,b,c,sign", *lines]) + "\n")
    config = RunConfig(str(folder / "t.csv"), "sign", train=TrainConfig(epochs=5, batch_size=8))
    with pytest.raises(Interrupted):
        start_run(make_dag(), config, folder / "run", callbacks=[SendSignal(4)])
    return folder


def test_graph_data_and_state_are_checked_before_resuming(interrupted, tmp_path):
    out = interrupted / "run"
    with pytest.raises(FileError, match="checkpoint of another graph"):
        resume_run(out, graph=fw.generate.erdos_renyi(30, 0.2, seed=1))
    changed = tmp_path / "t.csv"
    changed.write_text((interrupted / "t.csv").read_text().replace("up\n", "down\n", 1))
    with pytest.raises(DataError, match=r"isn't the data that .* was trained on"):
        resume_run(out, data=str(changed))
    with pytest.raises(FileError, match="file not found"):
        resume_run(tmp_path)
    (tmp_path / "last.safetensors").write_bytes((out / "last.safetensors").read_bytes()[:-9])
    with pytest.raises(FileError, match="truncated"):
        resume_run(tmp_path)
    (tmp_path / "last.safetensors").write_bytes((out / "best.safetensors").read_bytes())
    with pytest.raises(FileError, match="without the state of its training"):
        resume_run(tmp_path)
    fw.save(fw.FourWard(make_dag()), tmp_path / "last.safetensors")
    with pytest.raises(FileError, match="holds a network without the model around it"):
        resume_run(tmp_path)


class RemoveFolder(Callback):
    """Deletes the folder of the run after its first epoch."""

    def __init__(self, out):
        self.out = out

    def on_epoch_end(self, trainer):
        if trainer.epoch == 2:
            shutil.rmtree(self.out)


def test_a_removed_folder_is_one_clear_message(tmp_path):
    out = tmp_path / "run"
    config = RunConfig("wine", train=TrainConfig(epochs=50))
    with pytest.raises(TrainingError, match=r"run, the folder of this run, was removed during training"):
        start_run(make_dag(), config, out, callbacks=[RemoveFolder(out)])
    assert not (out / "last.safetensors").exists()


def test_a_run_leaves_no_thread_and_no_temporary(interrupted, tmp_path):
    before = set(threading.enumerate())
    out = shutil.copytree(interrupted / "run", tmp_path / "run")
    for name in (".last.12345.safetensors", ".best.1.safetensors", ".history.7.csv", ".result.7.json"):
        (out / name).write_bytes(b"of a process that was killed")
    (out / ".notes").write_text("of the user")
    resume_run(out)
    assert {path.name for path in out.iterdir() if path.name.startswith(".")} == {".notes"}
    with pytest.raises(Interrupted):
        start_run(
            make_dag(),
            RunConfig("wine", train=TrainConfig(epochs=3)),
            tmp_path / "other",
            callbacks=[SendSignal(1)],
        )
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["run"].update(config=None),
        lambda m: m["run"]["config"].update(validation="\ud800"),
        lambda m: m["run"]["config"].update(validation=None),
        lambda m: m["run"]["config"].update(test=float("nan")),
        lambda m: m["run"]["config"].update(target=3),
        lambda m: m["run"]["config"].update(drop=[3]),
        lambda m: m["run"]["config"].update(task="\ud800"),
        lambda m: m["run"]["config"]["train"].update(seed=-1),
        lambda m: m["run"]["config"]["train"].update(learning_rate="fast"),
        lambda m: m["run"]["config"]["train"].update(extra=1),
        lambda m: m.update(run=[1]),
        lambda m: m.update(state=[1]),
        lambda m: m["state"].update(step=10**30),
        lambda m: m["state"].update(step=-1),
        lambda m: m["state"].update(optimiser=[{}]),
        lambda m: m["model"].update(classes=[[1], {}]),
        lambda m: m["model"].update(classes=["\ud800", "up"]),
        lambda m: m["model"].update(features=["\ud800", "b", "c"]),
        lambda m: m["model"].update(features=3),
    ],
)
def test_hostile_metadata_is_refused(change, interrupted, tmp_path):
    tensors, metadata = _serialization.read_safetensors(interrupted / "run" / "last.safetensors")
    change(metadata)
    for name in ("last.safetensors", "best.safetensors"):
        save_file(tensors, tmp_path / name, {"fourward": json.dumps(metadata)})
    with pytest.raises(FileError, match=r"last\.safetensors"):
        resume_run(tmp_path)


def test_a_run_resumes_from_another_working_directory(interrupted, tmp_path, monkeypatch):
    monkeypatch.chdir(interrupted)
    with pytest.raises(Interrupted):
        start_run(
            make_dag(),
            RunConfig("t.csv", "sign", train=TrainConfig(epochs=2)),
            tmp_path / "run",
            callbacks=[SendSignal(1)],
        )
    monkeypatch.chdir(tmp_path)
    assert resume_run("run").metrics == evaluate("run")
    moved = (interrupted / "t.csv").rename(interrupted / "moved.csv")
    try:
        for function in (resume_run, evaluate):
            with pytest.raises(DataError, match=r"t\.csv, the data of this run, does not exist. Pass data=... to say"):
                function("run")
    finally:
        moved.rename(interrupted / "t.csv")


def test_a_resumed_run_stores_where_its_data_is_now(interrupted, tmp_path, monkeypatch):
    (tmp_path / "moved.csv").write_bytes((interrupted / "t.csv").read_bytes())
    shutil.copytree(interrupted / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    resume_run("run", data="moved.csv")
    checkpoint = load_checkpoint("run/last.safetensors")
    assert checkpoint.run["config"]["data"] == str(tmp_path / "moved.csv")


def test_a_full_disk_leaves_the_old_checkpoints(interrupted, tmp_path):
    out = interrupted / "run"
    names = ("best.safetensors", "last.safetensors", "history.csv")
    old = {name: (out / name).read_bytes() for name in names}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
    try:
        with pytest.raises(
            SaveError, match=r"\.safetensors: File too large. The last checkpoint is intact. Call .*resume"
        ):
            resume_run(out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {name: (out / name).read_bytes() for name in names} == old
    assert {path.name for path in out.iterdir()} == {*names, "tensorboard"}


def test_corrupt_states_are_named(interrupted, tmp_path):
    model, run, state = load_checkpoint(interrupted / "run" / "last.safetensors")
    for broken in (state | {"history": {"height": [1]}}, {k: v for k, v in state.items() if k != "step"}):
        save_checkpoint(tmp_path / "last.safetensors", model, run, broken)
        with pytest.raises(FileError, match="corrupt"):
            resume_run(tmp_path, data=str(interrupted / "t.csv"))


def put(mapping, key, value):
    mapping[key] = value


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda tensors, metadata: put(tensors, "optimiser.0.exp_avg", torch.zeros(1)),
        lambda tensors, metadata: put(tensors, "optimiser.1.exp_avg_sq", tensors["optimiser.1.exp_avg_sq"].long()),
        lambda tensors, metadata: put(tensors, "optimiser.0.step", torch.zeros(2)),
        lambda tensors, metadata: tensors.pop("optimiser.0.exp_avg"),
        lambda tensors, metadata: tensors.pop("optimiser.0.step"),
        lambda tensors, metadata: put(tensors, "network.weight", tensors["network.weight"].to(torch.float8_e4m3fn)),
        lambda tensors, metadata: put(tensors, "scale.x", torch.zeros_like(tensors["scale.x"])),
        lambda tensors, metadata: put(tensors, "scale.x", tensors["scale.x"] * torch.nan),
        lambda tensors, metadata: put(metadata["model"], "targets", []),
        lambda tensors, metadata: put(metadata["state"]["optimiser"][0], "params", [0]),
        lambda tensors, metadata: put(metadata["state"]["optimiser"][0], "lr", "fast"),
        lambda tensors, metadata: put(metadata["state"], "optimiser", []),
        lambda tensors, metadata: put(metadata["state"], "schedule", {"last_epoch": "x"}),
        lambda tensors, metadata: put(metadata["state"], "schedule", [1]),
        lambda tensors, metadata: put(metadata["state"], "step", 10**6),
        lambda tensors, metadata: put(metadata["state"], "step", "x"),
        lambda tensors, metadata: put(metadata["state"]["history"], "train_loss", ["x"]),
    ],
)
def test_corrupt_values_never_reach_the_optimiser(interrupted, tmp_path, corrupt):
    tensors, metadata = _serialization.read_safetensors(interrupted / "run" / "last.safetensors")
    corrupt(tensors, metadata)
    _serialization.write_safetensors(tmp_path / "last.safetensors", tensors, metadata)
    with pytest.raises(FileError, match=r"last\.safetensors is corrupt"):
        resume_run(tmp_path, data=str(interrupted / "t.csv"))


def test_patience_needs_validation_rows(tmp_path):
    with pytest.raises(OptionError, match=r"patience needs validation rows.*Pass validation=..."):
        start_run(make_dag(), RunConfig("wine", validation=0, train=TrainConfig(patience=3)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_that_cannot_be_written_is_found_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    counter = SendSignal(10**9)
    with pytest.raises(OSError, match="file"):
        start_run(
            make_dag(), RunConfig("wine", train=TrainConfig(epochs=1)), tmp_path / "file" / "run", callbacks=[counter]
        )
    assert counter.calls_left == 10**9, "no step was made"

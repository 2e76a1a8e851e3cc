"""Wiring that changes in fit, in runs and under Lightning."""

import json
import os
import signal
import subprocess
import sys
import time

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import fourward as fw
from fourward.errors import DataError, FileError, OptionError
from fourward.train import (
    Callback,
    Interrupted,
    RewiringCallback,
    RunConfig,
    TrainConfig,
    _callbacks,
    fit,
    read_edits,
    resume_run,
    start_run,
)

DAG = fw.generate.erdos_renyi(30, 0.3, seed=0)


def config(**options):
    return RunConfig("wine", train=TrainConfig(**{"epochs": 8, "batch_size": 16, "seed": 3} | options))


def curves(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history.rows()]


class Interrupt(Callback):
    """Sends this process Ctrl-C after an epoch."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch_end(self, trainer):
        if trainer.epoch == self.epoch:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("rewire", "options"),
    [
        ("set", {"rewire_every": 5}),
        ("rigl", {"rewire_every": 3, "rewire_fraction": 0.2, "rewire_rule": "layered"}),
        ("prune", {"rewire_every": 7, "patience": 8}),
    ],
)
def test_a_run_that_rewires_resumes_to_the_same_bits(tmp_path, rewire, options):
    train, network = config(rewire=rewire, **options), {"dropout": 0.2, "activation": "tanh"}
    with pytest.raises(Interrupted):
        start_run(DAG, train, tmp_path / "run", network=network, callbacks=[Interrupt(3)])
    resumed = resume_run(tmp_path / "run")
    uninterrupted = start_run(DAG, train, tmp_path / "uninterrupted", network=network)
    assert curves(resumed.history) == curves(uninterrupted.history)
    assert sum(resumed.history.replaced) > 0
    for name in ("best", "last", "edits"):
        actual, expected = (load_file(tmp_path / f / f"{name}.safetensors") for f in ("run", "uninterrupted"))
        assert actual.keys() == expected.keys()
        assert all(torch.equal(actual[key], expected[key]) for key in actual)
    edits, last = read_edits(tmp_path / "run"), fw.load(tmp_path / "run" / "last.safetensors").dag
    assert {tuple(pair) for pair in edits.initial.tolist()} == {tuple(pair) for pair in DAG.edges.tolist()}
    change = edits.history.net_change()
    wiring = {tuple(pair) for pair in edits.initial.tolist()} - {tuple(pair) for pair in change.gone.tolist()}
    assert wiring | {tuple(pair) for pair in change.grown.tolist()} == {tuple(pair) for pair in last.edges.tolist()}
    if rewire == "prune":
        assert last.num_edges == DAG.num_edges - int(0.9 * DAG.num_edges)
        assert resumed.history.best_epoch >= 5, "the best model is a pruned one"
        assert resumed.model.net.dag.num_edges == last.num_edges
    else:
        assert last.num_edges == DAG.num_edges


def test_a_killed_run_that_rewires_resumes_to_the_same_bits(tmp_path):
    words = ["er:30:0.3:0", "--data", "digits", "--epochs", "40", "--batch-size", "32", "--device", "cpu"]
    words += ["--rewire", "set", "--rewire-every", "10", "--activation", "tanh", "--out", tmp_path / "run"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "fourward", "train", *words], stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        try:
            while not (tmp_path / "run" / "edits.safetensors").exists():
                assert process.poll() is None, (tmp_path / "log").read_text()
                time.sleep(0.02)
        finally:
            process.kill()
    assert process.wait() == -signal.SIGKILL
    resumed = resume_run(tmp_path / "run", device="cpu")
    train = RunConfig("digits", train=TrainConfig(epochs=40, batch_size=32, rewire="set", rewire_every=10))
    uninterrupted = start_run(DAG, train, tmp_path / "other", network={"activation": "tanh"}, device="cpu")
    assert curves(resumed.history) == curves(uninterrupted.history)
    assert resumed.model.net.dag == uninterrupted.model.net.dag != DAG


def test_the_best_wiring_is_restored_with_its_weights():
    """Also where constraints belong to edges that are gone by the end."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, DAG.num_inputs)), rng.integers(0, 2, 90)
    options = {"scale": rng.uniform(0.5, 2, DAG.num_edges), "sign": rng.choice([-1, 0, 1], DAG.num_edges)}
    net = fw.FourWard(DAG, "tanh", output_activation="identity", seed=0, **options)

    class Remember(Callback):
        def on_epoch_end(self, trainer):
            if trainer.history.epochs_since_best == 0:
                self.graph, self.outputs = net.dag, net(torch.tensor(x).float()).detach()

    remember = Remember()
    history = fit(
        net, x[:60], y[:60], validation=(x[60:], y[60:]), epochs=15, patience=15, batch_size=10, learning_rate=0.05,
        rewire="set", rewire_every=2, callbacks=[remember], schedule="constant",
    )  # fmt: skip
    assert 0 < history.best_epoch < 14, "or else this proves nothing"
    assert net.dag == remember.graph
    assert torch.equal(net(torch.tensor(x).float()), remember.outputs)


def test_two_processes_rewire_alike(tmp_path):
    words = ["er:30:0.3:0", "--data", "wine", "--epochs", "4", "--batch-size", "25", "--device", "cpu", "--json"]
    command = [sys.executable, "-m", "fourward", "train", *words, "--out", tmp_path / "two", "--devices", "2"]
    done = subprocess.run(
        [*command, "--rewire", "rigl", "--rewire-every", "4"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["edges_replaced"] > 0
    train = RunConfig("wine", train=TrainConfig(epochs=4, batch_size=25, rewire="rigl", rewire_every=4))
    alone = start_run(DAG, train, tmp_path / "one", device="cpu")
    assert fw.load(tmp_path / "two").dag == alone.model.net.dag != DAG


def test_progress_counts_replaced_edges():
    seen = []

    class Read(Callback):
        def on_epoch_end(self, trainer):
            seen.append(_callbacks._status(trainer))

    x, y = np.random.default_rng(0).normal(size=(40, DAG.num_inputs)), np.arange(40) % 2
    net = fw.FourWard(DAG, output_activation="identity", seed=0)
    history = fit(net, x, y, epochs=4, batch_size=10, rewire="set", callbacks=[Read()])
    assert seen[-1].endswith(f"replaced {int(sum(history.replaced)):,}")
    assert history.replaced == [int(0.3 * DAG.num_edges)] * 3 + [0]
    assert history.rows()[0]["replaced"] == int(0.3 * DAG.num_edges)


def test_invalid_options(tmp_path):
    for options, words in (
        ({"rewire": "grow"}, "rewire must be one of 'set', 'rigl', 'prune', None"),
        ({"rewire": "set", "rewire_fraction": 0.0}, "rewire_fraction must be a number above 0"),
        ({"rewire": "set", "rewire_every": 0}, "rewire_every must be a positive int"),
        ({"rewire": "set", "rewire_rule": "rows"}, "rewire_rule must be one of"),
        ({"rewire_every": 3}, "rewire_every has no effect where the wiring stays"),
    ):
        with pytest.raises(OptionError, match=words):
            TrainConfig(**options)
    with pytest.raises(OptionError, match="rewire needs a FourWard or a Recurrent in the model"):
        fit(nn.Linear(2, 2), np.zeros((4, 2)), np.arange(4) % 2, rewire="set")
    with pytest.raises(FileError, match=r"without best.safetensors|file not found"):
        read_edits(tmp_path / "nothing")


def test_a_corrupt_history_is_refused(tmp_path):
    start_run(DAG, config(epochs=2, rewire="set"), tmp_path / "run", device="cpu")
    path = tmp_path / "run" / "edits.safetensors"
    tensors = load_file(path)
    from fourward._serialization import write_safetensors

    for name, value in (("initial", torch.zeros(3, dtype=torch.int32)), ("added", torch.full((3, 2), 10**6)),
                        ("steps", torch.tensor([-1]))):  # fmt: skip
        write_safetensors(path, tensors | {name: value}, {"nodes": 30})
        with pytest.raises((FileError, DataError)):
            read_edits(path)
    write_safetensors(path, {k: v for k, v in tensors.items() if k != "removed"}, {"nodes": 30})
    with pytest.raises(FileError, match="corrupt"):
        read_edits(path)


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = fw.FourWard(DAG, "tanh", seed=0)
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, DAG.num_inputs), nn.Linear(DAG.num_outputs, 3)

    def training_step(self, batch):
        return nn.functional.cross_entropy(self.last(self.net(self.first(batch[0]))), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.01)


def lightning_fit(module, callback, epochs, path=None, accumulate=1):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = pl.Trainer(max_epochs=epochs, callbacks=[callback], enable_checkpointing=False,
                         accumulate_grad_batches=accumulate, **quiet)  # fmt: skip
    rng = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.randn(60, 4, generator=rng), torch.randint(0, 3, (60,), generator=rng))
    trainer.fit(module, DataLoader(data, batch_size=10), ckpt_path=path)
    return trainer


@pytest.mark.filterwarnings(
    "ignore::UserWarning:lightning", "ignore:.*does not have many workers", "ignore:.*isinstance.treespec"
)
def test_lightning(tmp_path):
    def make(module, optimizer):
        return fw.sparse.SET(module.net, optimizer, every=4, seed=1)

    module, callback = Classifier(), RewiringCallback(make)
    trainer = lightning_fit(module, callback, 4)
    assert callback.method.edits == 4 * 6 // 4
    assert module.net.dag.num_edges == DAG.num_edges
    assert module.net.dag != DAG
    assert trainer.callback_metrics["edges_replaced"] == int(0.3 * DAG.num_edges)

    part, part_callback = Classifier(), RewiringCallback(make)
    trainer = lightning_fit(part, part_callback, 2)
    trainer.save_checkpoint(tmp_path / "part.ckpt")
    fw.save(part.net, tmp_path / "net.safetensors")
    rest, rest_callback = Classifier(), RewiringCallback(make)
    rest.net = fw.load(tmp_path / "net.safetensors")
    lightning_fit(rest, rest_callback, 4, path=tmp_path / "part.ckpt")
    assert rest.net.dag == module.net.dag
    assert torch.equal(rest.net.weight, module.net.weight)

    accumulated = RewiringCallback(make)
    lightning_fit(Classifier(), accumulated, 4, accumulate=3)
    assert accumulated.method.steps == 8
    with pytest.raises(OptionError, match="expected make to return a SET"):
        lightning_fit(Classifier(), RewiringCallback(lambda module, optimizer: None), 1)

"""fit: what it learns, what it leaves alone, and how batches are drawn."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from fourward import FourWard, generate
from fourward.errors import DataError, OptionError, TrainingError
from fourward.train import Callback, RunConfig, bundled, fit, start_run
from fourward.train._config import TrainConfig
from fourward.train._data import BUNDLED
from fourward.train._devices import Devices
from fourward.train._trainer import StopRequested, Trainer, epoch_order


def small_net(**options):
    dag = generate.rewired_mlp([4, 12, 8, 3], 0.3, seed=0)
    return FourWard(dag, output_activation="identity", seed=0, **options)


def blobs(count=150, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, count)
    return rng.normal(size=(count, 4)) + 3 * np.eye(4)[y], y


def test_a_network_learns_and_the_world_is_left_alone(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    net = small_net(dropout=0.1)
    x, y = blobs()
    history = fit(net, x, y, epochs=30, batch_size=16, validation=blobs(60, 1))
    assert history.train_loss[-1] < 0.2 < history.train_loss[0]
    assert history.val_score[-1] > 0.9
    assert len(history.rows()) == 30
    assert not net.training
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(after[0], state[0])
    assert after[1:] == state[1:]
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_fit_is_the_plain_loop():
    x, y = blobs()
    net, plain = small_net(dtype=torch.float64), small_net(dtype=torch.float64)
    fit(net, x, y, epochs=3, batch_size=32, schedule="constant", learning_rate=0.01, weight_decay=0.1, seed=5)
    optimiser = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    for epoch in range(3):
        for rows in epoch_order(150, 5, epoch).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(plain(torch.tensor(x)[rows]), torch.tensor(y)[rows]).backward()
            optimiser.step()
    torch.testing.assert_close(net.weight, plain.weight, rtol=1e-10, atol=1e-10)


def test_patience_stops_and_restores_the_best_weights():
    x, y = blobs(40)
    validation = blobs(60, 1)[0], np.random.default_rng(3).integers(0, 3, 60)  # labels without a pattern
    net = small_net()
    history = fit(net, x, y, epochs=80, validation=validation, patience=4, learning_rate=0.01)
    assert len(history.train_loss) == history.best_epoch + 5 < 80
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net(torch.tensor(validation[0]).float()), torch.tensor(validation[1])).item()
    assert loss == pytest.approx(min(history.val_loss), rel=1e-5)


def test_regression_scores_with_r2():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = x[:, :3] @ rng.normal(size=(3, 3))
    history = fit(small_net(), x[:200], y[:200], task="regression", validation=(x[200:], y[200:]), epochs=60)
    assert history.val_score[-1] > 0.9
    spread = ((y[200:] - y[200:].mean(0)) ** 2).mean()
    assert history.val_score[-1] == pytest.approx(1 - history.val_loss[-1] / spread, rel=1e-4)


class OneOf(Devices):
    """The devices of one process of several, without the others."""

    def __init__(self, rank, world_size):
        super().__init__("cpu")
        self._rank, self._world_size = rank, world_size

    rank = property(lambda self: self._rank)
    world_size = property(lambda self: self._world_size)


def batches(rank=0, world_size=1, epoch=0):
    samples = torch.zeros(103, 4), torch.zeros(103, dtype=torch.long)
    config = TrainConfig(batch_size=10, seed=3)
    trainer = Trainer(small_net(), "classification", config, samples, devices=OneOf(rank, world_size))
    trainer.history.train_loss += [0.0] * epoch
    return trainer._batches(103, 10, shuffle=True)


def test_processes_share_the_same_batches():
    alone = [rows for rows, _ in batches(epoch=2)]
    assert sorted(torch.cat(alone).tolist()) == list(range(103))
    assert [len(rows) for rows in alone] == [10] * 10 + [3]
    assert not torch.equal(alone[0], batches(epoch=1)[0][0])
    parts = [batches(rank, 4, epoch=2) for rank in range(4)]
    for rows, *shared in zip(alone, *parts, strict=True):
        assert sorted(torch.cat([part for part, _ in shared]).tolist()) == sorted(rows.tolist())
        assert {count for _, count in shared} == {len(rows)}


def test_processes_stop_after_the_same_step():
    class AnotherWasAsked(OneOf):
        def any(self, flag):
            return True

        def sum(self, values):
            return values

    samples = torch.tensor(blobs()[0]).float(), torch.tensor(blobs()[1])
    for devices, step in ((OneOf(0, 1), 5), (AnotherWasAsked(0, 2), 32)):
        trainer = Trainer(small_net(), "classification", TrainConfig(batch_size=2), samples, devices=devices)
        trainer.stop_requested, trainer.step = devices.world_size == 1, step - 1
        with pytest.raises(StopRequested):
            trainer.run()
        assert (trainer.epoch, trainer.step) == (0, step)


def test_callbacks_are_called_every_32_steps_and_after_each_epoch():
    calls = []

    class Record(Callback):
        def on_steps_end(self, trainer):
            calls.append((trainer.epoch, trainer.step))

        def on_epoch_end(self, trainer):
            calls.append((trainer.epoch, len(trainer.history.train_loss)))

    fit(small_net(), *blobs(), epochs=2, batch_size=2, callbacks=[Record()])
    assert calls == [(0, 32), (0, 64), (1, 1), (1, 32), (1, 64), (2, 2)]


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"epochs": 0}, OptionError, "epochs must be a positive int, got 0"),
        ({"learning_rate": -1.0}, OptionError, "learning_rate must be positive and finite, got -1.0"),
        ({"batch_size": 2.5}, OptionError, "batch_size must be a positive int, got 2.5"),
        ({"patience": 3}, OptionError, "patience needs validation samples. Pass validation="),
        ({"validation": 0.2}, OptionError, r"a pair of arrays.*\(x, y\)"),
        ({"validation": (torch.zeros(1, 2),)}, OptionError, r"a pair of arrays.*\(x, y\)"),
        ({"schedule": "steps"}, OptionError, "one-cycle"),
        ({"task": "clustering"}, OptionError, "clustering"),
        ({"device": "gpu7"}, OptionError, "gpu7"),
        ({"y": np.zeros(3, int)}, DataError, "got 150 and 3"),
        ({"y": np.zeros(150)}, DataError, "integer class indices.*task='regression'"),
        ({"y": np.full(150, 3)}, DataError, r"\(B, 4\) classes, got \(64, 3\)"),
        ({"task": "regression"}, DataError, r"\(B, 1\) targets, got \(64, 3\)"),
        ({"learning_rate": 1e30}, TrainingError, r"Try a learning rate below 1e\+30"),
    ],
)
def test_bad_options(changed, error, words):
    x, y = blobs()
    with pytest.raises(error, match=words):
        fit(**{"model": small_net(), "x": x, "y": y, "epochs": 3} | changed)


def test_a_cluster_around_it_changes_nothing(monkeypatch):
    for name, value in {"SLURM_NTASKS": 4, "SLURM_JOB_NAME": "study", "SLURM_PROCID": 1, "SLURM_LOCALID": 1}.items():
        monkeypatch.setenv(name, str(value))
    x, y = blobs()
    assert len(fit(small_net(), x, y, epochs=2).train_loss) == 2


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled_data(name):
    data = bundled(name)
    assert data.x.shape == (len(data.y), len(data.features))
    assert (data.task == "regression") == (name == "diabetes")
    if data.classes is not None:
        assert sorted(set(data.y.tolist())) == list(range(len(data.classes)))


def test_unknown_bundled_data():
    with pytest.raises(DataError, match="digits, breast-cancer, wine, diabetes"):
        bundled("mnist")


def outputs_net(**options):
    return FourWard(generate.rewired_mlp([4, 12, 8, 3], 0.3, seed=0), seed=0, **options)


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "softplus", "square"])
def test_a_warning_where_outputs_cannot_be_logits(activation):
    x, y = blobs(40)
    message = (
        rf"3 of 3 outputs of the network have the activation '{activation}', but logits may be any numbers, so it "
        r"can't learn them\. Create the network with output_activation=\"identity\""
    )
    net = outputs_net(output_activation=activation)
    for model in (net, nn.Sequential(nn.Linear(4, 4), net), nn.Sequential(nn.Sequential(net), nn.Identity())):
        with pytest.warns(UserWarning, match=message) as caught:
            fit(model, x, y, epochs=1)
        assert caught[0].filename == __file__


def test_a_warning_where_outputs_cannot_reach_targets():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)), rng.uniform(0, 2, (40, 3))
    y[0, 2] = -0.1
    with pytest.warns(UserWarning, match="1 of 3 outputs of the network have the activation 'relu', but some targets"):
        fit(outputs_net(), x, y, task="regression", epochs=1)
    with pytest.warns(UserWarning, match="3 of 3 outputs of the network have the activation 'tanh'"):
        fit(outputs_net(output_activation="tanh"), x, y, task="regression", epochs=1)


def test_no_warning_where_outputs_can_learn():
    x, y = blobs(40)
    fit(nn.Sequential(outputs_net(), nn.Linear(3, 3)), x, y, epochs=1)
    fit(outputs_net(output_activation="leaky_relu"), x, y, epochs=1)
    fit(outputs_net(output_activation=torch.relu), x, y, epochs=1)  # a callable's range is unknown
    fit(outputs_net(), x, np.abs(x[:, :3]), task="regression", epochs=1)
    fit(outputs_net(output_activation="tanh"), x, np.tanh(x[:, :3]), task="regression", epochs=1)


def test_a_run_warns_of_a_network_whose_outputs_cannot_be_logits(tmp_path):
    net = FourWard(generate.rewired_mlp([13, 12, 3], 0.3, seed=0), seed=0)
    config = RunConfig("wine", train=TrainConfig(epochs=1))
    with pytest.warns(UserWarning, match="logits may be any numbers"):
        start_run(net, config, tmp_path / "run", adapters=False, device="cpu")
    start_run(net.dag, config, tmp_path / "chosen", adapters=False, device="cpu")
    start_run(net, config, tmp_path / "adapters", device="cpu")

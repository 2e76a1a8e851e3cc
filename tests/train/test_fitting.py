"""fit: what it learns, what it leaves alone, and how it counts."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from fourward import FourWard, generate
from fourward.errors import DataError, OptionError, TrainingError
from fourward.train import bundled, fit
from fourward.train._data import BUNDLED
from fourward.train._sampler import AT_A_TIME, Batches


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
    history = fit(net, x, y, epochs=30, batch_size=16, held=blobs(60, 1))
    assert history.train_loss[-1] < 0.2 < history.train_loss[0]
    assert history.held_score[-1] > 0.9
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
        for chunk in Batches(150, 32, 5, epoch=lambda epoch=epoch: epoch):
            for rows, _ in chunk:
                optimiser.zero_grad()
                nn.functional.cross_entropy(plain(torch.tensor(x)[rows]), torch.tensor(y)[rows]).backward()
                optimiser.step()
    torch.testing.assert_close(net.weight, plain.weight, rtol=1e-10, atol=1e-10)


def test_patience_stops_and_leaves_the_best_weights():
    x, y = blobs(40)
    held = blobs(60, 1)[0], np.random.default_rng(3).integers(0, 3, 60)  # nothing to be learned about these
    net = small_net()
    history = fit(net, x, y, epochs=80, held=held, patience=4, learning_rate=0.01)
    assert len(history.train_loss) == history.best_epoch + 5 < 80
    with torch.no_grad():
        loss = nn.functional.cross_entropy(net(torch.tensor(held[0]).float()), torch.tensor(held[1])).item()
    assert loss == pytest.approx(min(history.held_loss), rel=1e-5)


def test_regression_scores_with_r2():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = x[:, :3] @ rng.normal(size=(3, 3))
    history = fit(small_net(), x[:200], y[:200], task="regression", held=(x[200:], y[200:]), epochs=60)
    assert history.held_score[-1] > 0.9
    spread = ((y[200:] - y[200:].mean(0)) ** 2).mean()
    assert history.held_score[-1] == pytest.approx(1 - history.held_loss[-1] / spread, rel=1e-4)


def test_every_process_takes_its_share_of_the_same_batches():
    alone = [rows for chunk in Batches(103, 10, 3, epoch=lambda: 2) for rows, _ in chunk]
    assert sorted(torch.cat(alone).tolist()) == list(range(103))
    assert [len(rows) for rows in alone] == [10] * 10 + [3]
    shares = [
        [pair for chunk in Batches(103, 10, 3, epoch=lambda: 2, rank=r, world=4) for pair in chunk] for r in range(4)
    ]
    for number, rows in enumerate(alone):
        parts = [share[number] for share in shares]
        assert sorted(torch.cat([part for part, _ in parts]).tolist()) == sorted(rows.tolist())
        assert {count for _, count in parts} == {len(rows)}
    late = list(Batches(1000, 10, 3, first=lambda: 40))
    assert len(late) == len(Batches(1000, 10, 3)), "Lightning counts them once"
    assert sum(map(len, late)) == 60
    assert late[: 40 // AT_A_TIME] == [[]] * (40 // AT_A_TIME)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"epochs": 0}, OptionError, "epochs=0"),
        ({"learning_rate": -1.0}, OptionError, "learning_rate=-1.0"),
        ({"batch_size": 2.5}, OptionError, "batch_size=2.5"),
        ({"patience": 3}, OptionError, "held"),
        ({"held": 0.2}, OptionError, r"held=\(x, y\)"),
        ({"held": (torch.zeros(1, 2),)}, OptionError, r"held=\(x, y\)"),
        ({"schedule": "steps"}, OptionError, "one-cycle"),
        ({"task": "clustering"}, OptionError, "clustering"),
        ({"device": "gpu7"}, OptionError, "gpu7"),
        ({"y": np.zeros(3, int)}, DataError, "150 samples and 3 targets"),
        ({"y": np.zeros(150)}, DataError, "whole numbers.*task='regression'"),
        ({"y": np.full(150, 3)}, DataError, "there are 4 classes"),
        ({"task": "regression"}, DataError, "there are 1 targets"),
        ({"learning_rate": 1e30}, TrainingError, "lower learning rate"),
    ],
)
def test_bad_options_are_named(changed, error, words):
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

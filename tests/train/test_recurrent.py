"""Networks with feedback in training: tables for some steps, sequences with a target each or for each step."""

import numpy as np
import pytest
import torch

from fourward import Digraph, FourWard, FourWardClassifier, FourWardRegressor, Recurrent, generate
from fourward.errors import DataError, OptionError
from fourward.exchange import export
from fourward.train import RunConfig, TrainConfig, evaluate, fit, load_checkpoint, read_data, resume_run, start_run
from fourward.train._evaluate import predict_rows

G = Digraph.from_edges(
    [(u, v) for u in ("x0", "x1", *"abcd") for v in "abcdy" if u != v or u == "a"], inputs=["x0", "x1"], outputs=["y"]
)


def sequences(kind, n=400, steps=4):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, steps, 2))
    total = x[:, :, 0].cumsum(1)
    y = {
        "class of a sequence": total[:, -1] > 0,
        "class of a step": (total > 0).astype(np.int64),
        "number of a sequence": total[:, -1],
        "number of a step": total,
        "numbers of a step": np.stack((total, -total), -1),
    }[kind]
    np.savez("data.npz", x=x, y=y)
    return x, y


@pytest.mark.parametrize(
    "kind",
    ["class of a sequence", "class of a step", "number of a sequence", "number of a step", "numbers of a step"],
)
def test_runs_on_sequences(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, _ = sequences(kind)
    config = RunConfig("data.npz", train=TrainConfig(epochs=20, batch_size=20, learning_rate=0.03))
    network = {"activation": "tanh", "tau": 1.5}
    result = start_run(G, config, "run", network=network, device="cpu")
    score = result.metrics["accuracy"] if kind.startswith("class") else -result.metrics["loss"]
    assert score > (0.8 if kind.startswith("class") else -0.5), "it remembers what a single step doesn't hold"
    assert evaluate("run")["loss"] == pytest.approx(result.metrics["loss"])
    model = load_checkpoint("run").model
    assert model.per_step == ("step" in kind)
    assert isinstance(model.net, Recurrent)
    predicted = model.predict(x)
    assert predicted.shape[:-1] == (x.shape[:2] if "step" in kind else x.shape[:1])
    names, rows = predict_rows("run", "data.npz")
    assert names[:2] == (["row", "step"] if "step" in kind else ["row", *names[1:2]])
    assert len(list(rows)) == predicted[..., 0].size
    resumed = resume_run("run", graph=G, device="cpu")
    assert resumed.metrics["loss"] == pytest.approx(result.metrics["loss"])
    assert not result.constant_output


def test_tables_are_shown_for_some_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ring = Digraph.from_edges([(u, (u + 1) % 24) for u in range(24)] + [(u, (u + 5) % 24) for u in range(24)],
                              inputs=list(range(8)), outputs=list(range(12, 20)))  # fmt: skip
    config = RunConfig("wine", train=TrainConfig(epochs=30, learning_rate=0.03))
    result = start_run(ring, config, "run", network={"activation": "tanh"}, steps=4, device="cpu")
    assert result.metrics["accuracy"] > 0.8
    model = load_checkpoint("run").model
    assert model.steps == 4
    x = read_data("wine").x[:5]
    inputs = model.input_adapter(torch.as_tensor(model.scale_x.apply(x), dtype=torch.float32))
    logits = model.output_adapter(model.net.steps(inputs, 4)).detach()
    np.testing.assert_allclose(model.predict(x), logits.softmax(-1).numpy(), rtol=1e-4, atol=1e-6)
    with pytest.raises(OptionError, match=r"can't be folded.*model.net"):
        model.fold()
    export(model.net, "net.onnx", steps=4)


def test_estimators():
    x = np.random.default_rng(0).normal(size=(200, 3))
    y = (x.sum(1) > 0).astype(int)
    classifier = FourWardClassifier("c-elegans", activation="tanh", steps=3, epochs=4, random_state=0)
    assert classifier.fit(x, y).score(x, y) > 0.8
    assert isinstance(classifier.model_.net, Recurrent)
    assert classifier.model_.net.graph.num_inputs == 83
    regressor = FourWardRegressor(G, activation="tanh", steps=2, epochs=20, random_state=0).fit(x, x.sum(1))
    assert regressor.score(x, x.sum(1)) > 0.5
    assert isinstance(FourWardRegressor(steps=2, epochs=1).fit(x, y).model_.net, Recurrent)
    with pytest.raises(OptionError, match="Pass steps=5"):
        FourWardClassifier(G).fit(x, y)
    with pytest.raises(OptionError, match="steps are for networks with feedback"):
        FourWardClassifier(generate.chain(4), steps=3).fit(x, y)


def test_fit_on_sequences():
    x = torch.randn(60, 5, 2, generator=torch.Generator().manual_seed(0))
    net = Recurrent(G, output_activation="identity", seed=0, batch_first=True)
    model = _Outputs(net)
    history = fit(model, x, x[..., :1].cumsum(1) / 3, task="regression", epochs=15, batch_size=15)
    assert history.train_loss[-1] < 0.6 * history.train_loss[0]


class _Outputs(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)[0]


CONFIG = RunConfig("data.npz", train=TrainConfig(epochs=1))
BAD = {
    "sequences for a Dag": (lambda: start_run(generate.chain(3), CONFIG, "run"), DataError, "Pass a Digraph"),
    "steps for sequences": (lambda: start_run(G, CONFIG, "run", steps=3), OptionError, "their own number of steps"),
    "a table without steps": (lambda: start_run(G, RunConfig("wine"), "run"), OptionError, r"Pass steps=\.\.\."),
    "no steps": (lambda: start_run(G, RunConfig("wine"), "run", steps=0), OptionError, "at least 1, got 0"),
    "steps for a network without": (
        lambda: start_run(FourWard(generate.chain(3)), RunConfig("wine"), "run", steps=2),
        OptionError,
        "networks with feedback",
    ),
    "four dimensions": (lambda: read_data("bad.npz"), DataError, r"\(n, T, features\), got float64 of shape"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sequences("class of a sequence", n=20)
    np.savez("bad.npz", x=np.zeros((4, 3, 2, 1)), y=np.zeros(4))
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()


def test_a_model_of_sequences_refuses_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sequences("class of a sequence", n=40)
    result = start_run(G, CONFIG, "run", device="cpu")
    with pytest.raises(DataError, match=r"expected sequences \(n, T, features\).*got shape \(3, 2\)"):
        result.model.predict(np.zeros((3, 2)))

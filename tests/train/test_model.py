"""Models: folded into one network, from unscaled features to logits or unscaled targets."""

import numpy as np
import pytest
import torch

from fourward import FourWard, generate
from fourward.errors import DataError
from fourward.train import Model, Scaling


def make_model(task, adapters):
    rng = np.random.default_rng(0)
    classes = ["x", "y", "z"] if task == "classification" else None
    dag = generate.layered_mlp([4, 5, 3]) if not adapters else generate.erdos_renyi(20, 0.2, seed=0)
    net = FourWard(dag, "tanh", seed=0, dtype=torch.float64)
    scale_x = Scaling(rng.normal(size=4), rng.uniform(0.5, 2, 4))
    targets = ["t"] if classes else ["u", "v", "w"]
    scale_y = None if classes else Scaling(rng.normal(size=3), rng.uniform(0.5, 2, 3))
    return Model(net, list("abcd"), targets, classes, scale_x, scale_y, adapters=adapters, seed=1)


@pytest.mark.parametrize("adapters", [False, True])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_folded_model_computes_what_the_model_predicts(task, adapters):
    model = make_model(task, adapters)
    x = np.random.default_rng(1).normal(size=(7, 4)) * 3
    out = model.fold()(torch.from_numpy(x)).detach()
    got = out.softmax(-1) if task == "classification" else out
    np.testing.assert_allclose(got.numpy(), model.predict(x), rtol=1e-9, atol=1e-12)
    assert model.fold().dag.num_inputs == 4


def test_features_far_from_0_need_double_precision():
    net = FourWard(generate.erdos_renyi(20, 0.2, seed=0), "tanh", seed=0)
    scale = Scaling(np.array([1e6, 0.0]), np.array([1.0, 1.0]))
    model = Model(net, ["a", "b"], ["t"], None, scale, Scaling(np.array([3.0]), np.array([2.0])), seed=1)
    assert model.max_error(model.fold()) > 1e-3
    assert model.max_error(model.fold(torch.float64)) < 1e-5


def test_without_adapters_the_graph_must_fit():
    scale = Scaling(np.zeros(4), np.ones(4))
    net = FourWard(generate.layered_mlp([5, 3]))
    with pytest.raises(DataError, match=r"expected 4 inputs, got 5.*Pass adapters=True to put linear"):
        Model(net, list("abcd"), ["t"], ["x", "y", "z"], scale, None, adapters=False)


def test_numbers_too_large_to_be_standardised():
    with pytest.raises(DataError, match=r"column 2 holds 3e\+300, too large to be standardised"):
        Scaling.fit(np.array([[1, 1e300], [2, 3e300]]))

"""Models: folded into one network, from unscaled features to logits or unscaled targets."""

import numpy as np
import pytest
import torch

from fourward import FourWard, generate
from fourward.train._model import Model, Scaling


def model_for(task, direct):
    rng = np.random.default_rng(0)
    classes = ["x", "y", "z"] if task == "classification" else None
    dag = generate.layered_mlp([4, 5, 3]) if direct else generate.erdos_renyi(20, 0.2, seed=0)
    net = FourWard(dag, "tanh", seed=0, dtype=torch.float64)
    scale_x = Scaling(rng.normal(size=4), rng.uniform(0.5, 2, 4))
    targets = ["t"] if classes else ["u", "v", "w"]
    scale_y = None if classes else Scaling(rng.normal(size=3), rng.uniform(0.5, 2, 3))
    return Model(net, list("abcd"), targets, classes, scale_x, scale_y, direct=direct, seed=1)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_folded_model_computes_what_the_model_predicts(task, direct):
    model = model_for(task, direct)
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

"""Activations: names, callables and mappings."""

import numpy as np
import pytest
import torch

from fourward import Dag, FourWard
from fourward.errors import ActivationError
from tests.nn.helpers import DAG, batch, methods


def test_modules_as_activations_train():
    prelu = torch.nn.PReLU()
    net = FourWard(DAG, activation=prelu, seed=0)
    assert any(p is prelu.weight for p in net.parameters())
    net(batch()).sum().backward()
    assert prelu.weight.grad.abs() > 0


def test_mapping_takes_precedence_over_output_activation():
    dag = Dag.from_edges([("x", "a"), ("x", "b")])
    net = FourWard(dag, {"default": "relu", "a": "identity"}, "tanh", bias=False, init=-1.0)
    assert net(torch.tensor([2.0])).tolist() == [-2, pytest.approx(np.tanh(-2.0))]
    without_default = FourWard(dag, {"a": "relu"}, "tanh", bias=False, init=-1.0)
    assert without_default(torch.tensor([2.0])).tolist() == [0, pytest.approx(np.tanh(-2.0))]


@methods
@pytest.mark.parametrize(
    "function",
    [torch.nn.Softmax(-1), torch.nn.Softmax(0), torch.nn.LayerNorm(5), lambda z: z.sum(), lambda z: z - z.mean()],
    ids=["softmax", "softmax of columns", "layer norm", "sum", "centred"],
)
def test_activations_must_be_elementwise(cls, function):
    with pytest.raises(ActivationError, match="must act elementwise"):
        cls(DAG, activation=function)


def test_activations_must_keep_the_shape():
    net = FourWard(DAG, activation=lambda z: z if z.numel() < 20 else z[:1])
    with pytest.raises(ActivationError, match="must act elementwise: expected shape"):
        net(batch())


def test_random_activations_are_accepted():
    before = torch.get_rng_state()
    net = FourWard(DAG, activation=torch.nn.RReLU(), seed=0)
    assert torch.equal(torch.get_rng_state(), before)
    assert net(batch()).shape == (5, DAG.num_outputs)


@methods
def test_modules_as_activations_follow_the_dtype(cls):
    net = cls(DAG, activation=torch.nn.PReLU(), dtype=torch.float64, seed=0)
    assert net(batch(dtype=torch.float64)).dtype == torch.float64

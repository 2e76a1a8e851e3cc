"""Initial weights and biases."""

import pytest
import torch

from fourward import Dag, FourWard, generate
from tests.nn.helpers import DAG


def test_kaiming_uniform_is_that_of_linear():
    dag = generate.layered_mlp([400, 300])
    net, linear = FourWard(dag, seed=0), torch.nn.Linear(400, 300)
    for actual, expected in ((net.weight, linear.weight), (net.bias, linear.bias)):
        assert actual.abs().max() <= 400**-0.5
        assert actual.std().item() == pytest.approx(expected.std().item(), rel=0.15)


def test_initialisation_follows_degrees():
    dag = generate.barabasi_albert(400, 5, seed=0)
    fan_in = torch.tensor(dag.in_degree[dag.target])
    fan_sum = fan_in + torch.tensor(dag.out_degree[dag.source])
    scaled = {
        "kaiming_uniform": FourWard(dag, init="kaiming_uniform", seed=0).weight * fan_in.sqrt() * 3**0.5,
        "kaiming_normal": FourWard(dag, init="kaiming_normal", seed=0).weight * (fan_in / 2).sqrt(),
        "xavier_uniform": FourWard(dag, init="xavier_uniform", seed=0).weight * (fan_sum / 6).sqrt() * 3**0.5,
        "xavier_normal": FourWard(dag, init="xavier_normal", seed=0).weight * (fan_sum / 2).sqrt(),
    }
    for name, unit in scaled.items():
        assert unit.std().item() == pytest.approx(1, abs=0.06), name
        assert abs(unit.mean().item()) < 0.06, name
    for name in ("kaiming_normal", "xavier_uniform", "xavier_normal", "zeros", "constant"):
        assert not FourWard(dag, init=name).bias.any(), name


def test_constants_and_callables():
    assert not FourWard(DAG, init="zeros").weight.any()
    assert (FourWard(DAG, init="constant").weight == 1).all()
    assert (FourWard(DAG, init=-0.25).weight == -0.25).all()

    def numbered(dag, weight, bias):
        weight.copy_(torch.arange(dag.num_edges))
        bias.fill_(7)

    net = FourWard(DAG, init=numbered)
    assert net.weight.tolist() == list(range(DAG.num_edges))
    assert (net.bias == 7).all()
    assert net.weight.requires_grad


def test_a_source_neuron_starts_with_bias_zero():
    dag = Dag.from_edges([("x", "o"), ("s", "o")], inputs=["x"])
    net = FourWard(dag, seed=0)
    assert net.bias[dag.neurons.tolist().index(dag.index("s"))] == 0


def test_a_seed_gives_the_same_weights_in_every_dtype():
    single, double = (FourWard(DAG, seed=4, dtype=dtype) for dtype in (torch.float32, torch.float64))
    assert torch.equal(single.weight, double.weight.float())
    assert torch.equal(single.bias, double.bias.float())

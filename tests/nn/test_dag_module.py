"""Errors of FourWard and of the paper's methods for invalid input, weights and options."""

import networkx as nx
import numpy as np
import pytest
import torch

from fourward import FourWard, connectomes
from fourward.errors import ActivationError, FourwardError, GraphError, InitError, InputError, OptionError, WeightError
from tests.nn.helpers import DAG, batch, methods


@methods
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            torch.zeros(3, DAG.num_inputs + 1),
            rf"with {DAG.num_inputs} features.*got shape \(3, {DAG.num_inputs + 1}\)",
        ),
        (torch.zeros(()), r"shape \(\)"),
        (torch.zeros(3, DAG.num_inputs, dtype=torch.int64), "real floating point dtype, got torch.int64"),
        (batch().to_sparse(), r"sparse_coo.*x.to_dense\(\)"),
        (torch.zeros(3, DAG.num_inputs, dtype=torch.bool), "got torch.bool"),
        (torch.zeros(3, DAG.num_inputs, dtype=torch.complex64), "got torch.complex64"),
        (
            torch.zeros(3, DAG.num_inputs, dtype=torch.float64),
            "of dtype torch.float32, as the weights, got torch.float64",
        ),
        (np.zeros((3, DAG.num_inputs), np.float32), r"got ndarray. Try torch.as_tensor\(x, dtype=torch.float32\)"),
        (torch.zeros(3, DAG.num_inputs, device="meta"), "got x on meta"),
    ],
)
def test_invalid_x(cls, x, message):
    net = cls(DAG)
    for call in (net, net.activations):
        with pytest.raises(InputError, match=message):
            call(x)


@methods
def test_invalid_weights(cls):
    net = cls(DAG)
    valid = torch.zeros(DAG.num_edges), torch.zeros(len(DAG.neurons))
    with pytest.raises(WeightError, match=rf"shape \({DAG.num_edges},\).*each edge.*got shape \(3,\)"):
        net.load_edge_weights(torch.zeros(3), valid[1])
    with pytest.raises(WeightError, match=rf"shape \({len(DAG.neurons)},\).*each neuron.*got shape \(1,\)"):
        net.load_edge_weights(valid[0], torch.zeros(1))
    with pytest.raises(WeightError, match=r"expected biases.*got None"):
        net.load_edge_weights(valid[0])
    with pytest.raises(WeightError, match=r"expected bias=None.*got biases"):
        cls(DAG, bias=False).load_edge_weights(*valid)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_x():
    with pytest.raises(InputError, match="nested tensor"):
        FourWard(DAG)(torch.nested.nested_tensor([batch(), batch(size=2)]))


@methods
def test_missing_cuda_device(cls, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match=r"device='cuda:0' is not available: torch finds no CUDA device"):
        cls(DAG, device="cuda:0")


@methods
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"activation": "swish"}, ActivationError, "unknown activation 'swish'.*relu"),
        ({"activation": 3}, ActivationError, "name or a torch callable"),
        ({"activation": torch.nn.ReLU}, ActivationError, r"class ReLU. Pass an instance, ReLU\(\)"),
        ({"activation": {"default": "relu", "nobody": "tanh"}}, GraphError, "'nobody'"),
        (
            {"activation": {DAG.labels[DAG.neurons[0]]: "relu"}},
            ActivationError,
            "no activation for.*'default'",
        ),
        ({"activation": {"default": "relu", DAG.labels[DAG.inputs[0]]: "tanh"}}, ActivationError, "is an input"),
        ({"output_activation": "softmax"}, ActivationError, "'softmax'"),
        ({"init": "lecun"}, InitError, "unknown init 'lecun'.*kaiming_uniform"),
        ({"init": None}, InitError, "got None"),
        ({"dropout": 1.0}, OptionError, r"dropout must be .*got 1.0"),
        ({"dropout": -0.1}, OptionError, "dropout must be .*got -0.1"),
        ({"dropout": "half"}, OptionError, "dropout must be .*got 'half'"),
        ({"seed": -1}, OptionError, "seed must be a non-negative int or None, got -1"),
        ({"seed": "x"}, OptionError, "seed must be .*got 'x'"),
        ({"dtype": torch.int64}, OptionError, "floating point"),
        ({"dtype": torch.complex64}, OptionError, "floating point"),
        ({"dtype": "float32"}, OptionError, "floating point"),
        ({"layering": np.zeros(30)}, OptionError, "layering must be .*got a ndarray"),
        ({"init": float("nan")}, InitError, "init must be .*got nan"),
        ({"init": lambda dag, weight, bias: torch.ones_like(weight)}, InitError, "in place"),
    ],
)
def test_invalid_options(cls, options, error, message):
    with pytest.raises(error, match=message) as caught:
        cls(DAG, **options)
    assert isinstance(caught.value, FourwardError)


@methods
def test_not_a_dag(cls):
    with pytest.raises(GraphError, match="expected a Dag, got a DiGraph"):
        cls(nx.DiGraph([(0, 1)]))
    with pytest.raises(GraphError, match=r"got a Connectome.*\.dag"):
        cls(connectomes.load("c-elegans"))


def test_functional_call_with_invalid_weights():
    net = FourWard(DAG, seed=0)
    for invalid in ({"weight": torch.zeros(DAG.num_edges + 5)}, {"weight": torch.zeros(3)}, {"bias": torch.zeros(1)}):
        with pytest.raises(WeightError, match="shape"):
            torch.func.functional_call(net, invalid, (batch(),))

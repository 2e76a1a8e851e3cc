"""The definition against values worked out by hand."""

import math

import pytest
import torch

from fourward import Dag, FourWard

DIAMOND = Dag.from_edges([("x", "h"), ("y", "h"), ("h", "o"), ("x", "o")], nodes=["x", "y", "h", "o"])


def diamond(**options) -> FourWard:
    net = FourWard(DIAMOND, engine="reference", dtype=torch.float64, seed=0, **options)
    # dag.edges, by target and then by source: x->h, y->h, x->o, h->o
    net.load_edge_weights([2.0, -3.0, 0.5, 4.0], [0.25, -1.0])
    return net


def test_order_of_edges_and_biases():
    assert DIAMOND.edges.tolist() == [[0, 2], [1, 2], [0, 3], [2, 3]]
    assert DIAMOND.neurons.tolist() == [2, 3]


def test_forward_by_hand():
    # h = relu(0.25 + 2*1 - 3*0.5) = 0.75; o = relu(-1 + 0.5*1 + 4*0.75) = 2.5
    # h = relu(0.25 + 2*0 - 3*1) = 0;      o = relu(-1 + 0.5*0 + 4*0)    = 0
    x = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    assert diamond()(x).tolist() == [[2.5], [0.0]]
    assert diamond().activations(x).tolist() == [[1.0, 0.5, 0.75, 2.5], [0.0, 1.0, 0.0, 0.0]]


def test_gradients_by_hand():
    # At x=1, y=0.5 both relus are open: do/dh = 4, do/dx = 0.5 + 4*2 = 8.5, do/dy = 4*(-3) = -12
    x = torch.tensor([[1.0, 0.5]], dtype=torch.float64, requires_grad=True)
    net = diamond()
    net(x).sum().backward()
    assert x.grad.tolist() == [[8.5, -12.0]]
    assert net.weight.grad.tolist() == [4.0 * 1.0, 4.0 * 0.5, 1.0, 0.75]
    assert net.bias.grad.tolist() == [4.0, 1.0]


def test_source_neuron_is_f_of_bias():
    dag = Dag.from_edges([("x", "o"), ("s", "o")], inputs=["x"])
    net = FourWard(dag, activation="sigmoid", engine="reference", dtype=torch.float64, seed=0)
    net.load_edge_weights([2.0, 3.0], [1.0, -0.5])  # edges x->o, s->o; neurons o, s
    s = 1 / (1 + math.exp(0.5))
    want = 1 / (1 + math.exp(-(1.0 + 2.0 * 0.7 + 3.0 * s)))
    assert net(torch.tensor([0.7], dtype=torch.float64)).item() == pytest.approx(want, rel=1e-15)


def test_a_driven_input_adds_its_feature_to_its_sum():
    dag = Dag.from_edges([("a", "b"), ("b", "c")], inputs=["b", "a"])
    net = FourWard(dag, activation="tanh", engine="reference", dtype=torch.float64, seed=0)
    net.load_edge_weights([2.0, -3.0], [0.25, 0.5])
    b = math.tanh(0.25 + 2.0 * 0.3 + 0.7)
    want = [0.3, b, math.tanh(0.5 - 3.0 * b)]
    assert net.activations(torch.tensor([0.7, 0.3], dtype=torch.float64)).tolist() == pytest.approx(want, rel=1e-15)


def test_outputs_keep_their_order_and_inputs_theirs():
    dag = Dag.from_edges([("a", "c"), ("b", "d")], inputs=["b", "a"], outputs=["d", "a", "c"])
    net = FourWard(dag, activation="identity", bias=False, init=1.0, engine="reference")
    assert net(torch.tensor([10.0, 20.0])).tolist() == [10.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("name", "z", "value", "slope"),
    [
        ("identity", -2.0, -2.0, 1.0),
        ("relu", -2.0, 0.0, 0.0),
        ("relu", 3.0, 3.0, 1.0),
        ("leaky_relu", -2.0, -0.02, 0.01),
        ("elu", -1.0, math.exp(-1) - 1, math.exp(-1)),
        ("selu", 1.0, 1.0507009873554805, 1.0507009873554805),
        ("selu", -1.0, 1.7580993408473766 * (math.exp(-1) - 1), 1.7580993408473766 * math.exp(-1)),
        ("gelu", 1.0, 0.5 * (1 + math.erf(math.sqrt(0.5))), 1.0833154705876864),
        ("silu", 1.0, 1 / (1 + math.exp(-1)), 0.9276705118714869),
        ("tanh", 0.5, math.tanh(0.5), 1 - math.tanh(0.5) ** 2),
        ("sigmoid", 0.0, 0.5, 0.25),
        ("softplus", 0.0, math.log(2), 0.5),
        ("softplus", 30.0, 30.0, 1.0),
        ("sin", 1.0, math.sin(1), math.cos(1)),
        ("gaussian", 1.0, math.exp(-1), -2 * math.exp(-1)),
        ("abs", -3.0, 3.0, -1.0),
        ("square", -3.0, 9.0, -6.0),
        ("hardtanh", -1.5, -1.0, 0.0),
        ("hardtanh", 0.4, 0.4, 1.0),
        ("hardtanh", 1.0, 1.0, 0.0),
        ("hat", -0.25, 0.75, 1.0),
        ("hat", 0.25, 0.75, -1.0),
        ("hat", 1.0, 0.0, 0.0),
        ("hat", 3.0, 0.0, 0.0),
    ],
)
def test_activations_by_hand(name, z, value, slope):
    net = FourWard(
        Dag.from_edges([("x", "o")]), activation=name, bias=False, init=1.0, engine="reference", dtype=torch.float64
    )
    x = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    out = net(x)
    out.sum().backward()
    assert out.item() == pytest.approx(value, rel=1e-12, abs=1e-15)
    assert x.grad.item() == pytest.approx(slope, rel=1e-9, abs=1e-12)

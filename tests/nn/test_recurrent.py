"""Recurrent works with what torch does to modules, and says what is wrong with its arguments."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from fourward import Digraph, FourWard, Recurrent
from fourward.errors import (
    ActivationError,
    EngineError,
    FourwardError,
    GraphError,
    InitError,
    InputError,
    OptionError,
    WeightError,
)
from tests.tolerance import assert_near

PAIRS = [("x", "a"), ("x", "b"), ("a", "b"), ("b", "a"), ("b", "b"), ("b", "y"), ("y", "x2"), ("x2", "a")]
G = Digraph.from_edges(PAIRS, inputs=["x", "x2"], outputs=["y", "a"])
X = torch.randn(5, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def network(**options) -> Recurrent:
    return Recurrent(G, **{"seed": 0, "dtype": torch.float64} | options)


def test_shapes():
    net = network(tau=2.0)
    y, h = net(X)
    assert (y.shape, h.shape) == ((5, 3, 2), (3, 5))
    assert net.weight.shape == (8,)
    assert net.bias.shape == (4,), "x has none, since x sets its value; x2 is driven"
    h0 = torch.randn(3, 5, dtype=torch.float64)
    y, h = net(X, h0)
    single, state = net(X[:, 1], h0[1])
    assert_near(single, y[:, 1].detach())
    assert_near(state, h[1].detach())
    first = network(tau=2.0, batch_first=True)
    swapped, state = first(X.transpose(0, 1), h0)
    assert_near(swapped, y.transpose(0, 1).detach())
    assert_near(state, h.detach())
    assert_near(first(X[:, 1], h0[1])[0], y[:, 1].detach())
    assert first.activations(X.transpose(0, 1)).shape == (3, 5, 5)


def test_the_state_of_an_input_is_its_feature():
    net = network(tau=3.0, dynamics="voltage")
    _, h = net(X)
    assert (h[:, G.index("x")] == X[-1, :, 0]).all()
    a = net.activations(X)
    assert (a[:, :, G.index("x")] == X[:, :, 0]).all()
    assert_near(a[-1, :, G.index("b")], h[:, G.index("b")].tanh().detach())


@pytest.mark.parametrize("batch_first", [False, True])
def test_steps_repeat_the_features(batch_first):
    net = network(tau=2.0, batch_first=batch_first)
    repeated = X[:1].expand(4, 3, 2)
    y, _ = network(tau=2.0)(repeated)
    assert_near(net.steps(X[0], 4), y[-1].detach())
    assert_near(net.steps(X[0, 0], 4), y[-1, 0].detach())
    assert_near(net.steps(X[0], 4, checkpoint=2), y[-1].detach())


def test_without_time_constants_voltage_is_rate():
    nets = [network(dynamics=dynamics, activation="sigmoid") for dynamics in ("rate", "voltage")]
    for got, want in zip(nets[0](X), nets[1](X), strict=True):
        assert torch.equal(got, want)
    unit = network(tau=1.0, activation="sigmoid")
    assert_near(unit(X)[0], nets[0](X)[0].detach())


def test_time_constants():
    by_label = network(tau={"b": 4.0, "default": 2.0})
    assert by_label.tau.tolist() == [2.0, 4.0, 2.0, 2.0]
    assert [G.labels[v] for v in G.neurons] == ["a", "b", "y", "x2"]
    assert network(tau=np.array([1, 2, 3, 4])).tau.tolist() == [1, 2, 3, 4]
    assert "tau" in by_label.state_dict()
    assert "tau=fixed" in repr(by_label)
    learned = network(tau=nn.Parameter(torch.full((4,), 2.0)))
    assert learned.tau.dtype == torch.float64
    optimizer = torch.optim.Adam(learned.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        learned(X)[0].pow(2).sum().backward()
        optimizer.step()
    assert (learned.tau != 2).all()
    with torch.no_grad():
        learned.tau.fill_(0.1)
    unit = network(tau=1.0)
    unit.load_edge_weights(learned.weight, learned.bias)
    assert_near(learned(X)[0], unit(X)[0].detach())


def test_citizenship():
    net = network(tau=2.0, activation={"b": "relu", "default": "tanh"})
    y = net(X)[0].detach()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(X)[0], y)
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    other = network(tau=3.0, seed=5, activation={"b": "relu", "default": "tanh"})
    other.load_state_dict(torch.load(buffer))
    assert torch.equal(other(X)[0], y)
    values = {name: value.detach() for name, value in net.named_parameters()}
    assert torch.equal(torch.func.functional_call(other, values, (X,))[0], y)
    assert net.float()(X.float())[0].dtype == torch.float32
    assert network().to(torch.bfloat16)(X.bfloat16())[0].dtype == torch.bfloat16


def test_truncated_backpropagation():
    net, h = network(tau=2.0), None
    for part in X.split(2):
        y, h = net(part, h)
        y.sum().backward()
        h = h.detach()
    assert net.weight.grad.abs().sum() > 0


def test_second_derivatives_and_vmap():
    net = network(activation="tanh", tau=2.0)
    x = X.clone().requires_grad_()
    (grad,) = torch.autograd.grad(net(x)[0].sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.pow(2).sum(), x)
    assert second.abs().sum() > 0
    each = torch.func.vmap(lambda sequence: net(sequence)[0], in_dims=1, out_dims=1)(X)
    assert_near(each, net(X)[0].detach())


def test_autocast():
    net = network(dtype=torch.float32, tau=2.0)
    x = X.float()
    with torch.autocast("cpu", torch.bfloat16):
        y, h = net(x)
    assert (y.dtype, h.dtype) == (torch.bfloat16, torch.float32)
    assert_near(y, net(x)[0].detach())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_compile_and_export():
    net = network(tau=2.0)
    want = [value.detach() for value in net(X)]
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    y, h = compiled(X)
    assert_near(y, want[0])
    assert_near(h, want[1])
    exported = torch.export.export(net, (X,)).module()
    assert_near(exported(X)[0], want[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("tau", [None, 2.0])
def test_jit_trace(tau):
    for g in (G, Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "y")])):
        net = Recurrent(g, tau=tau, seed=0, dtype=torch.float64)
        x = X[..., : g.num_inputs]
        traced = torch.jit.trace(net, (x,), check_trace=False)
        for got, want in zip(traced(x), net(x), strict=True):
            assert_near(got.detach(), want.detach())


def test_dropout_is_the_same_in_all_steps():
    pairs = [("x", "h"), ("h", "h"), ("h", "y"), ("y", "y")]
    g = Digraph.from_edges(pairs, outputs=["y"])
    net = Recurrent(g, "identity", bias=False, init=1.0, dropout=0.5, seed=0)
    a = net.activations(torch.ones(4, 200, 1))[..., g.index("h")]
    dropped = a == 0
    assert 50 < dropped[0].sum() < 150
    assert (dropped == dropped[0]).all()
    assert (net.eval().activations(torch.ones(4, 200, 1))[..., g.index("h")] != 0).all()


def test_engines_are_chosen_in_the_open(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert network(tau=None).engine == "cpu"
    custom = network(activation={"default": torch.atan})
    assert custom.engine == "torch"
    assert "not gpu" in custom.explain()
    with pytest.raises(EngineError, match="engine 'cpu' can't run this network: an activation is a callable"):
        network(activation={"default": torch.atan}, engine="cpu")


def test_a_learned_network_remembers():
    """The output is the feature of two steps before: without feedback, no network can."""
    g = Digraph.from_edges([(u, v) for u in "xabc" for v in "abcy"], outputs=["y"], feedback="all")
    net = Recurrent(g, "tanh", output_activation="identity", seed=0)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    x = torch.randn(12, 64, 1, generator=torch.Generator().manual_seed(0))
    for _ in range(150):
        optimizer.zero_grad()
        loss = (net(x)[0][3:] - 0.5 * x[:-3]).pow(2).mean()
        loss.backward()
        optimizer.step()
    assert loss < 0.02


CALLS = {
    "T=0": (lambda: network()(X[:0]), InputError, "at least one step, got x of shape"),
    "features": (lambda: network()(X[..., :1]), InputError, "2 features in its last dimension"),
    "four dimensions": (lambda: network()(X[None]), InputError, r"\(T, B, 2\) or \(T, 2\).*net.steps"),
    "one dimension": (lambda: network()(X[0, 0]), InputError, "net.steps"),
    "dtype": (lambda: network()(X.float()), InputError, "x of dtype torch.float64"),
    "h0's shape": (lambda: network()(X, torch.zeros(3, 4)), InputError, r"h0 of shape \(3, 5\).*got \(3, 4\)"),
    "h0 of a batch": (lambda: network()(X[:, 0], torch.zeros(1, 5)), InputError, r"h0 of shape \(5,\)"),
    "h0's dtype": (lambda: network()(X, torch.zeros(3, 5)), InputError, "h0 of dtype torch.float64"),
    "h0's type": (lambda: network()(X, [0.0]), InputError, "got list"),
    "checkpoint": (lambda: network()(X, checkpoint=0), OptionError, "at least 1, or None, got 0"),
    "no steps": (lambda: network().steps(X[0], 0), OptionError, "at least 1, got 0"),
    "steps of a sequence": (lambda: network().steps(X, 2), InputError, r"expected x of shape \(B, 2\) without steps"),
    "a Dag": (
        lambda: Recurrent(G.dag),
        GraphError,
        "expected a Digraph, got a Dag.*from_edges.*attribute .graph",
    ),
    "a Digraph": (lambda: FourWard(G), GraphError, "expected a Dag, got a Digraph"),
    "tau below 1": (lambda: network(tau=0.5), OptionError, "at least 1 step, got 0.5 for 'a'.*duration of a step"),
    "tau is NaN": (lambda: network(tau=float("nan")), OptionError, "at least 1 step, got nan"),
    "tau's length": (lambda: network(tau=[1.0, 2.0]), OptionError, r"tau of shape \(4,\).*\(2,\)"),
    "tau's type": (lambda: network(tau="slow"), OptionError, "tau must be a number"),
    "tau is a bool": (lambda: network(tau=True), OptionError, "tau must be a number, .* got True"),
    "tau is complex": (lambda: network(tau=2j), OptionError, "tau must be a number, .* got 2j"),
    "a tau in words": (lambda: network(tau={"a": "slow"}), OptionError, "time constant of 'a', got 'slow'"),
    "a tau of None": (lambda: network(tau={"default": None}), OptionError, "time constant of 'default', got None"),
    "tau of an input": (
        lambda: network(tau={"x": 2.0, "default": 1.0}),
        OptionError,
        "values x sets: 'x'",
    ),
    "tau of some": (lambda: network(tau={"a": 2.0}), OptionError, "no entry for 3 neurons: 'b', 'y', 'x2'"),
    "tau of nobody": (lambda: network(tau={"q": 2.0}), GraphError, "unknown label 'q'"),
    "dynamics": (lambda: network(dynamics="spikes"), OptionError, "'rate' or 'voltage', got 'spikes'"),
    "batch_first": (lambda: network(batch_first=1), OptionError, "True or False"),
    "activation": (lambda: network(activation={"x": "relu", "default": "tanh"}), ActivationError, "'x' is an input"),
    "init": (lambda: network(init="ones"), InitError, "unknown init"),
    "weights": (lambda: network().load_edge_weights(torch.zeros(7), torch.zeros(4)), WeightError, r"shape \(8,\)"),
    "biases": (lambda: network().load_edge_weights(torch.zeros(8), torch.zeros(5)), WeightError, r"shape \(4,\)"),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input(name):
    call, error, message = CALLS[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, FourwardError)

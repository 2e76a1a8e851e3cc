"""Importance by ablation and by gradients, and the experiments it rests on."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import fourward as fw
from fourward.errors import DataError, GraphError, OptionError
from tests.tolerance import assert_near

DAG = fw.generate.erdos_renyi(40, 0.2, seed=3)
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(70, DAG.num_inputs, generator=GENERATOR, dtype=torch.float64)
ACTIVATION = {"default": "tanh", 12: "relu", 20: "sin", 25: "gelu"}


def network(**options):
    return fw.FourWard(DAG, ACTIVATION, seed=0, dtype=torch.float64, **options)


def set_activation(net, x, node, value):
    """The outputs where one node is set, by the definition: every neuron in execution order."""
    weight, functions = net.weight.detach(), dict(zip(DAG.neurons.tolist(), net.neuron_activations(), strict=True))
    named = {"tanh": torch.tanh, "relu": torch.relu, "sin": torch.sin, "gelu": functional.gelu}
    bias = dict(zip(DAG.neurons.tolist(), net.bias.detach(), strict=True))
    a = torch.zeros(len(x), DAG.num_nodes, dtype=x.dtype)
    a[:, DAG.inputs.tolist()] = x
    for v in DAG.order.tolist():
        if v in bias:
            edges = np.flatnonzero(DAG.target == v)
            z = bias[v] + a[:, DAG.source[edges].tolist()] @ weight[edges.tolist()]
            a[:, v] = named[functions[v]](z)
        if v == node:
            a[:, v] = value
    return a[:, DAG.outputs.tolist()]


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_ablation_is_that_of_the_definition(value):
    net = network()
    got, out = fw.importance(net, X, value=value), net(X).detach()
    for v in range(DAG.num_nodes):
        want = (set_activation(net, X, v, value) - out).square().mean().sqrt()
        assert_near(got[v], want)


def test_ablation_in_float32_and_with_a_layering_of_its_own():
    layering = fw.layering.reassign(DAG, fw.layering.longest_path(DAG), seed=0)
    net, want = fw.FourWard(DAG, ACTIVATION, seed=0, layering=layering), fw.importance(network(), X)
    assert net.plan.edge is not None
    net.load_edge_weights(network().weight, network().bias)
    assert_near(fw.importance(net, X), want, torch.float32)


def test_the_increase_of_the_loss():
    net, y = network(), torch.arange(70) % DAG.num_outputs
    got = fw.importance(net, X, y)
    for v in (0, 7, 33):
        want = functional.cross_entropy(set_activation(net, X, v, 0), y) - functional.cross_entropy(net(X), y)
        assert_near(got[v], want.detach())
    target = torch.zeros(70, DAG.num_outputs, dtype=torch.float64)
    got = fw.importance(net, X, target, loss=functional.l1_loss)
    want = functional.l1_loss(set_activation(net, X, 7, 0), target) - functional.l1_loss(net(X), target)
    assert_near(got[7], want.detach())


def test_custom_activations_run_network_by_network():
    net = fw.FourWard(DAG, {**ACTIVATION, "default": lambda z: torch.tanh(z)}, seed=0, dtype=torch.float64)
    assert_near(fw.importance(net, X), fw.importance(network(), X))


@pytest.mark.parametrize("bias", [True, False])
def test_clamped_and_silenced(bias):
    net = network(bias=bias)
    full = network()
    full.load_edge_weights(net.weight, torch.zeros(len(DAG.neurons)) if net.bias is None else net.bias)
    hidden, output, source = 12, int(DAG.outputs[0]), int(DAG.inputs[0])
    for node in (hidden, output, source):
        label = DAG.labels[node]
        assert_near(net.clamped({label: 0.3})(X).detach(), set_activation(full, X, node, 0.3))
        assert torch.equal(net.silenced([label])(X), net.clamped({label: 0.0})(X))
    assert_near(net.silenced([])(X), net(X))
    with pytest.raises(GraphError, match="unknown label"):
        net.silenced(["nobody"])
    with pytest.raises(GraphError, match="must be a list of labels"):
        net.silenced("nobody")
    with pytest.raises(OptionError, match="finite number"):
        net.clamped({12: "high"})
    assert (net.clamped({12: 2.0}).activations(X)[:, 12] == 2).all()


def test_an_input_that_is_an_output_cant_be_clamped():
    net = fw.FourWard(fw.Dag.from_edges([("a", "b")], outputs=["a", "b"]))
    with pytest.raises(GraphError, match="is an output, too"):
        net.silenced(["a"])


def test_probes_have_the_gradients_of_hidden_activations():
    net = network()
    probed, eps = net.probed(), 1e-6
    inputs = torch.cat((X, torch.zeros(70, len(DAG.neurons), dtype=torch.float64)), -1).requires_grad_()
    out = probed(inputs)
    assert_near(out.detach(), net(X).detach())
    out[:, 0].sum().backward()
    a = net.activations(X).detach()
    for k, v in list(enumerate(DAG.neurons.tolist()))[::7]:
        row = X[:1]
        high, low = (set_activation(net, row, v, a[0, v].item() + d)[0, 0] for d in (eps, -eps))
        assert inputs.grad[0, DAG.num_inputs + k].item() == pytest.approx(((high - low) / (2 * eps)).item(), abs=1e-6)


def test_a_linear_network_has_the_same_importance_by_every_method():
    dag = fw.generate.layered_mlp([5, 6, 1])
    net = fw.FourWard(dag, "identity", bias=False, seed=0, dtype=torch.float64)
    x = torch.ones(1, 5, dtype=torch.float64)
    want = fw.importance(net, x)
    assert want.min() > 0
    assert_near(fw.importance(net, x, by="gradient"), want)
    assert_near(fw.importance(net, x, by="integrated_gradients", steps=3), want)


def test_conductance_of_the_inputs_adds_up_to_the_change_of_the_output():
    dag = fw.Dag.from_edges([("a", "h"), ("h", "y")])
    net = fw.FourWard(dag, "tanh", seed=0, dtype=torch.float64)
    x = torch.full((1, 1), 1.5, dtype=torch.float64)
    got = fw.importance(net, x, by="integrated_gradients", steps=2000)
    want = (net(x) - net(torch.zeros_like(x))).abs().item()
    assert got.tolist() == pytest.approx([want] * 3, rel=1e-5), "all flows through each of the three"


def test_edges():
    net, y = network(), torch.arange(70) % DAG.num_outputs
    got = fw.importance(net, X, y, by="gradient", of="edges")
    functional.cross_entropy(net(X), y).backward()
    assert_near(got, (net.weight * net.weight.grad).abs().detach())
    assert fw.importance(net, X, by="gradient", of="edges").shape == (DAG.num_edges,)


def driven_network(activation="tanh", **options):
    """Inputs with incoming edges, one of them an output, too."""
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("s", "c"), ("c", "d"), ("b", "d"), ("d", "e")]
    dag = fw.Dag.from_edges(edges, inputs=["c", "a", "b"], outputs=["e", "b"])
    return fw.FourWard(dag, activation, seed=0, dtype=torch.float64, **options)


@pytest.mark.parametrize("make", [network, driven_network, lambda: driven_network(torch.sin)])
@pytest.mark.parametrize("value", [0.0, 0.7])
def test_ablation_of_edges(make, value):
    net = make()
    x = X if net.dag is DAG else torch.randn(40, 3, generator=GENERATOR, dtype=torch.float64)
    got, out, weight = fw.importance(net, x, of="edges", value=value), net(x).detach(), net.weight.detach().clone()
    assert got.shape == (net.dag.num_edges,)
    y = torch.arange(len(x)) % net.dag.num_outputs
    losses = fw.importance(net, x, y, of="edges", value=value)
    base = functional.cross_entropy(out, y)
    for k in range(net.dag.num_edges):
        changed = weight.clone()
        changed[k] = value
        net.load_edge_weights(changed, net.bias)
        assert_near(got[k], (net(x) - out).square().mean().sqrt().detach())
        assert_near(losses[k], (functional.cross_entropy(net(x), y) - base).detach())


@pytest.mark.parametrize("activation", ["tanh", torch.sin])
def test_driven_inputs(activation):
    net = driven_network(activation)
    dag, x = net.dag, torch.randn(40, 3, generator=GENERATOR, dtype=torch.float64)
    got, out = fw.importance(net, x, value=0.4), net(x).detach()
    assert got.shape == (dag.num_nodes,)
    for label in ("a", "s", "c", "d", "e"):
        want = (net.clamped({label: 0.4})(x) - out).square().mean().sqrt()
        assert_near(got[dag.index(label)], want.detach())
    columns = {"a": 1}
    for label, column in columns.items():
        changed = x.clone()
        changed[:, column] = 0.4
        assert_near(net.clamped({label: 0.4})(x).detach(), net(changed).detach())
    cut = fw.Dag.from_edges([pair for pair in dag.to_networkx().edges if pair[1] != "c"], inputs=["c", "a", "b"],
                            outputs=["e", "b"])  # fmt: skip
    plain = fw.FourWard(cut, activation, dtype=torch.float64)
    pairs = [[dag.index(cut.labels[v]) for v in pair] for pair in cut.edges.tolist()]
    bias = dict(zip(dag.neurons.tolist(), net.bias.detach(), strict=True))
    plain.load_edge_weights(
        net.weight[torch.tensor(dag.find_edges(pairs, by="index"))],
        torch.stack([bias[dag.index(cut.labels[v])] for v in cut.neurons.tolist()]),
    )
    changed = x.clone()
    changed[:, 0] = 0.4
    assert_near(net.clamped({"c": 0.4})(x).detach(), plain(changed).detach())
    with pytest.raises(GraphError, match=r"'b' is an output, too, so x sets it\. Omit it from the outputs"):
        net.silenced(["b"])


def test_gradients_of_driven_inputs():
    net = driven_network("identity", bias=False)
    x = torch.ones(1, 3, dtype=torch.float64)
    want = fw.importance(net, x)
    for by in ("gradient", "integrated_gradients"):
        got = fw.importance(net, x, by=by) * 2**0.5  # means over two outputs, not roots of mean squares
        linear = [net.dag.index(label) for label in ("s", "c", "d", "e")]  # one output depends on these
        assert_near(got[linear], want[linear])
    probed = net.probed()
    probes = torch.zeros(1, len(net.dag.neurons), dtype=torch.float64, requires_grad=True)
    assert_near(probed(torch.cat((x, probes), -1)).detach(), net(x).detach())


def test_constrained_networks_and_training_mode():
    net = network(sign=np.where(np.arange(40) % 2, 1, -1), dropout=0.5).train()
    free = network()
    free.load_edge_weights(net.weight, net.bias)
    for by in ("ablation", "gradient"):
        assert_near(fw.importance(net, X, by=by), fw.importance(free, X, by=by))
    assert net.training


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"by": "magic"}, OptionError, "by must be one of"),
        ({"of": "edges", "by": "integrated_gradients"}, OptionError, "by='ablation' or by='gradient'"),
        ({"of": "layers"}, OptionError, "of must be"),
        ({"steps": 0, "by": "integrated_gradients"}, OptionError, "steps must be"),
        ({"x": torch.ones(3)}, DataError, "expected x of shape"),
        ({"x": torch.ones(0, DAG.num_inputs)}, DataError, "at least one sample"),
        ({"y": [1]}, DataError, "as many targets as samples"),
        ({"y": [DAG.num_outputs] * 70}, DataError, "classes from 0 to"),
        ({"y": torch.ones(70, 2)}, DataError, "targets for each sample"),
    ],
)
def test_what_is_refused(changed, error, message):
    with pytest.raises(error, match=message):
        fw.importance(network(), **{"x": X} | changed)

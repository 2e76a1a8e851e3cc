"""A population equals its members, forward and all gradients, on every engine."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fourward import Dag, FourWard, Population, generate
from fourward.engine._registry import ENGINES
from fourward.plan import verify
from fourward.plan.activations import ACTIVATIONS
from tests.engine.gpu import QUIET
from tests.engine.test_contract import device
from tests.tolerance import assert_near

pytestmark = QUIET
NAMES = tuple(ACTIVATIONS)


@st.composite
def members(draw, most_nodes=12):
    """Graphs of one node to many, some without edges, with any nodes as outputs, and any activations."""
    inputs, outputs = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    networks = []
    for _ in range(draw(st.integers(1, 4))):
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        nodes = draw(st.integers(max(inputs, outputs), most_nodes))
        order = rng.permutation(nodes)
        possible = [(u, v) for j, v in enumerate(order[inputs:].tolist(), inputs) for u in order[:j].tolist()]
        chosen = rng.random(len(possible)) < draw(st.sampled_from([0.0, 0.2, 0.6]))
        edges = np.array(possible).reshape(-1, 2)[chosen]
        dag = Dag.from_arrays(edges, labels=nodes, inputs=order[:inputs], outputs=rng.permutation(nodes)[:outputs])
        names = {label: NAMES[rng.integers(len(NAMES))] for label in dag.neurons.tolist()}
        net = FourWard(dag, {"default": "tanh"} | names, seed=0, dtype=torch.float64, engine="reference")
        net.load_edge_weights(rng.uniform(-1, 1, dag.num_edges), rng.uniform(-1, 1, len(dag.neurons)))
        networks.append(net)
    return networks


def run(networks, engine, x, dtype):
    """Outputs, and the gradients of x, weights and biases of a weighted sum of the outputs."""
    place = device(engine)
    pop = Population(networks, engine=engine, device=place, dtype=dtype)
    x = x.to(place, dtype).clone().requires_grad_()
    y = pop(x)
    (y * factors(y.shape).to(y)).sum().backward()
    grads = (torch.zeros_like(p) if p.grad is None else p.grad for p in (x, pop.weight, pop.bias))
    return [value.detach().cpu() for value in (y, *grads)]


def factors(shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def want(networks, x):
    """The same from each network on its own."""
    own = factors((len(networks), x.shape[-2], networks[0].dag.num_outputs))
    outputs, grads = [], [[], [], []]
    for p, net in enumerate(networks):
        part = (x[p] if x.dim() == 3 else x).clone().requires_grad_()
        y = net(part)
        values = torch.autograd.grad((y * own[p]).sum(), (part, net.weight, net.bias), allow_unused=True)
        outputs.append(y.detach())
        for listed, value, like in zip(grads, values, (part, net.weight, net.bias), strict=True):
            listed.append(torch.zeros_like(like) if value is None else value)
    x_grad = torch.stack(grads[0]) if x.dim() == 3 else torch.stack(grads[0]).sum(0)
    return [torch.stack(outputs), x_grad, torch.cat(grads[1]), torch.cat(grads[2])]


def samples(networks, batch, separate, seed=0):
    shape = (len(networks),) * separate + (batch, networks[0].dag.num_inputs)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_equal(got, truth):
    for ours, theirs in zip(got, truth, strict=True):
        assert_near(ours, theirs.detach())


@pytest.mark.parametrize("engine", [name for name in ENGINES if name != "gpu"])
@given(networks=members(), batch=st.sampled_from([0, 1, 3, 16, 41]), separate=st.booleans(), wide=st.booleans())
@settings(max_examples=25)
def test_every_member_equals_its_own_network(engine, networks, batch, separate, wide):
    x = samples(networks, batch, separate)
    assert_equal(run(networks, engine, x, torch.float64 if wide else torch.float32), want(networks, x))


@given(networks=members(most_nodes=5), separate=st.booleans())
@settings(max_examples=2)
def test_every_member_equals_its_own_network_on_a_gpu(networks, separate):
    x = samples(networks, 3, separate)
    assert_equal(run(networks, "gpu", x, torch.float32), want(networks, x))


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize(("batch", "dtype"), [(1, torch.float32), (41, torch.float64), (300, torch.float32)])
def test_members_have_programs_of_their_own_on_a_gpu(batch, dtype, separate):
    """Several slices of the batch, with inputs that several outputs share and every activation."""
    names = list(ACTIVATIONS)
    networks = [lively(7 + 3 * k, 0.3, k) for k in range(3)]
    dag = networks[0].dag
    mixed = {dag.labels[v]: names[i % len(names)] for i, v in enumerate(dag.neurons.tolist())}
    networks.append(FourWard(dag, mixed, seed=1, dtype=torch.float64, engine="reference"))
    assert "program" in Population(networks, engine="gpu", device=device("gpu")).explain()
    x = samples(networks, batch, separate)
    assert_equal(run(networks, "gpu", x, dtype), want(networks, x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_on_a_gpu(dtype):
    networks = [lively(9, 0.4, k) for k in range(3)]
    x = samples(networks, 9, False).to(dtype).double()
    for net in networks:
        net.load_edge_weights(net.weight.to(dtype).double(), net.bias.to(dtype).double())
    assert_equal(run(networks, "gpu", x, dtype), want(networks, x))


def lively(nodes, p, seed):
    """A network with signals that neither die nor explode."""
    dag = generate.erdos_renyi(nodes, p, seed=seed)
    dag = Dag.from_edges(
        dag.edges, nodes=nodes, inputs=dag.order[:3].tolist(), outputs=dag.order[-2:].tolist(), driven=False
    )
    return FourWard(dag, "tanh", init="xavier_normal", seed=seed, dtype=torch.float64, engine="torch")


@pytest.mark.parametrize("count", [1, 2, 70])
@pytest.mark.parametrize("separate", [False, True])
def test_large_members_many_members_and_many_samples(count, separate):
    """Several chunks of members, and several shares of the batch where there are few members."""
    networks = [lively(12 + 3 * k, 0.2, k) if count > 2 else lively(150, 0.1, k) for k in range(count)]
    x = samples(networks, 300, separate)
    truth = want(networks, x)
    for dtype in (torch.float32, torch.float64):
        assert_equal(run(networks, "cpu", x, dtype), truth)


def test_results_depend_on_no_number_of_threads(two_threads):
    for count in (2, 70):
        networks = [lively(40, 0.2, k) for k in range(count)]
        x = samples(networks, 500, False)
        twice = [run(networks, "cpu", x, torch.float32) for _ in range(2)]
        torch.set_num_threads(1)
        once = run(networks, "cpu", x, torch.float32)
        torch.set_num_threads(2)
        for a, b, c in zip(*twice, once, strict=True):
            assert torch.equal(a, b)
            assert torch.equal(a, c)


@pytest.mark.parametrize("engine", list(ENGINES))
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_stays_in_its_member(engine, separate, bad):
    """In outputs and in the gradients of weights and biases; of x, where members have their own."""
    networks = [lively(25, 0.3, k) for k in range(4)]
    x = samples(networks, 20, separate)
    clean = run(networks, engine, x, torch.float64)
    sick = networks[2]
    sick.load_edge_weights(torch.full_like(sick.weight, bad), sick.bias)
    poisoned = run(networks, engine, x, torch.float64)
    pop = Population(networks)
    edges, neurons = pop.edge_start, pop.neuron_start
    assert not poisoned[0][2].isfinite().all()
    for value, start in ((2, edges), (3, neurons)):
        healthy = torch.cat([torch.arange(start[p], start[p + 1]) for p in (0, 1, 3)])
        assert torch.equal(poisoned[value][healthy], clean[value][healthy])
    assert torch.equal(poisoned[0][[0, 1, 3]], clean[0][[0, 1, 3]])
    if separate:
        assert torch.equal(poisoned[1][[0, 1, 3]], clean[1][[0, 1, 3]])


def test_nan_in_a_sample_stays_in_it():
    networks = [lively(25, 0.3, k) for k in range(3)]
    x = samples(networks, 20, True)
    clean = run(networks, "cpu", x, torch.float64)
    x[1, 7] = math.nan
    poisoned = run(networks, "cpu", x, torch.float64)
    assert torch.equal(poisoned[0][[0, 2]], clean[0][[0, 2]])
    keep = [s for s in range(20) if s != 7]
    assert torch.equal(poisoned[0][1][keep], clean[0][1][keep])
    assert poisoned[0][1][7].isnan().all()


def test_neurons_that_reach_no_output_poison_no_gradient():
    dag = Dag.from_edges([("x", "y"), ("x", "a"), ("a", "b")], outputs=["y"])
    net = FourWard(dag, {"default": "square", "y": "identity"})
    net.load_edge_weights(dag.align(np.array([1, math.inf, 1]), [("x", "y"), ("x", "a"), ("a", "b")]), np.zeros(3))
    pop = Population([net, net])
    x = torch.full((2, 1), 1e30, requires_grad=True)
    pop(x).sum().backward()
    assert x.grad.flatten().tolist() == [2, 2]
    assert pop.bias.grad.count_nonzero() == 2


@given(networks=members())
@example(networks=[FourWard(generate.complete(1)), FourWard(generate.complete(1))])
@settings(max_examples=20)
def test_the_union_is_a_valid_plan(networks):
    plan = Population(networks).plan
    for union in (plan.union, plan.separate_union):
        verify(union)
        union.layering.verify()
        level = union.layering.level
        assert (level[union.dag.source] < level[union.dag.target]).all()
    assert plan.union.dag.num_edges == plan.num_edges


def test_custom_activations_run_on_torch():
    dag = generate.layered_mlp([2, 3, 1])
    pop = Population([dag, dag], torch.tanh, seed=0)
    assert pop.engine == "torch"
    same = Population([pop[0], pop[1]], engine="torch")
    x = torch.randn(5, 2)
    assert_near(pop(x).detach(), same(x).detach())
    tanh = FourWard(dag, "tanh")
    mixed = Population([tanh, pop[1], dag], torch.sin, seed=0)
    assert_near(mixed(x)[:2].detach(), torch.stack((tanh(x), pop[1](x))).detach())
    assert mixed[2].neuron_activations() == [torch.sin] * 4

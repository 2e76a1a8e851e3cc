"""Infinities and NaN: where they are, and where they aren't, in every engine as in the reference.

The campaign of tools/fuzz_values.py, in short, and what it found.
"""

import numpy as np
import pytest
import torch

from fourward import Dag, FourWard, generate, layering
from fourward.plan import build_plan, verify
from fourward.plan._prune import prune
from tests.engine.gpu import QUIET
from tests.engine.test_contract import SUBJECTS, assert_equal_results, device, run
from tools import fuzz_values

pytestmark = QUIET
INF = float("inf")
engines = pytest.mark.parametrize("engine", ["reference", *fuzz_values.ENGINES])
LINKS = [("x", "y"), ("x", "a"), ("a", "b"), ("y", "b"), ("a", "c")]
DEAD_ENDS = Dag.from_edges(LINKS, outputs=["y"])


@pytest.mark.parametrize("engine", fuzz_values.ENGINES)
def test_campaign(engine):
    assert fuzz_values.run_campaign([engine], 0, 60, cases=8 if engine == "gpu" else 150) == 0


def test_the_campaign_can_fail(monkeypatch, capsys):
    monkeypatch.setattr(fuzz_values, "pattern", lambda tensor: tensor.clone())  # NaN doesn't equal itself
    assert fuzz_values.run_campaign(["torch"], 0, 60, cases=4) > 0
    assert "DEFECT --engine torch --case" in capsys.readouterr().out


@engines
@pytest.mark.parametrize("activation", ["square", "gelu"])
def test_neurons_that_reach_no_output_poison_no_gradient(engine, activation):
    net = FourWard(DEAD_ENDS, {"default": activation, "y": "identity"}, engine=engine, device=device(engine))
    net.load_edge_weights(DEAD_ENDS.align(np.array([1, 1, 2, INF, 1e30]), LINKS), np.zeros(4))
    x = torch.full((2, 1), 1e30, device=device(engine), requires_grad=True)
    net(x).sum().backward()
    assert x.grad.flatten().tolist() == [1, 1]
    into_y = [DEAD_ENDS.labels[v] == "y" for v in DEAD_ENDS.target]
    assert (net.weight.grad != 0).tolist() == into_y
    assert net.bias.grad.sum() == 2


@engines
def test_a_flat_activation_stops_an_infinite_gradient(engine):
    dag = Dag.from_edges([("x", "a"), ("a", "y")])
    for name, z in (("relu", -1.0), ("relu", 0.0), ("hardtanh", 2.0), ("hat", 3.0)):
        net = FourWard(dag, {"a": name, "default": "identity"}, engine=engine, device=device(engine))
        net.load_edge_weights([1, 1], [0, 0])
        x = torch.tensor([[z]], device=device(engine), requires_grad=True)
        net(x).backward(torch.full((1, 1), INF, device=device(engine)))
        assert x.grad.item() == 0, (name, z)


def test_every_strategy_of_the_gpu_engine(strategy):
    """Infinite gradients, flat activations and dead ends, with dropout."""
    dag = generate.erdos_renyi(50, 0.1, seed=2)
    dag = Dag.from_edges(dag.edges, nodes=50, outputs=dag.order[[20, 30, 45]].tolist())
    draw = np.random.default_rng(0)
    shapes = (9, dag.num_inputs), (dag.num_edges,), (len(dag.neurons),), (9, 3)
    x, weight, bias, out_grad = (torch.from_numpy(draw.standard_normal(shape)) for shape in shapes)
    x[8, 0], bias[3], out_grad[2, 1] = INF, -INF, INF
    options = {"dag": dag, "activation": {"default": "relu", **dict.fromkeys(dag.neurons[::3].tolist(), "hat")}}
    case = fuzz_values.Case(options | {"dropout": 0.2, "seed": 0}, x, weight, bias, out_grad, all_nodes=False)
    want = fuzz_values.run_case(case, "reference")
    assert all(not tensor.isfinite().all() for tensor in want.values())
    assert fuzz_values.find_mismatch(case, "gpu") is None


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name in fuzz_values.ENGINES])
def test_pruned_networks_compute_alike(subject):
    """With an order of edges of their own, dropout, and more than half of the neurons left out."""
    dag = generate.erdos_renyi(40, 0.15, seed=1)
    dag = Dag.from_edges(dag.edges, nodes=40, outputs=dag.order[[30, 12]].tolist())
    lay = layering.reassign(dag, layering.longest_path(dag), seed=2)
    options = {"layering": lay, "activation": "tanh", "dropout": 0.3}
    want = run("reference", dag, torch.float64, 5, **options)
    assert_equal_results(run(subject, dag, torch.float64, 5, **options), want, torch.float64)


@pytest.mark.parametrize("engine", ["torch", "cpu"])
def test_second_derivatives_of_a_pruned_network(engine):
    dag = generate.erdos_renyi(30, 0.15, seed=1)
    dag = Dag.from_edges(dag.edges, nodes=30, outputs=dag.order[[25, 19]].tolist())
    lay = layering.reassign(dag, layering.longest_path(dag), seed=3)
    net = FourWard(dag, "tanh", layering=lay, engine=engine, seed=0, dtype=torch.float64)
    assert net.plan.edge is not None
    assert torch.autograd.gradgradcheck(net, (torch.randn(2, dag.num_inputs).double().requires_grad_(),))


def test_prune_keeps_what_outputs_need():
    dag = generate.erdos_renyi(60, 0.1, seed=1)
    dag = Dag.from_edges(dag.edges, nodes=60, outputs=dag.order[[40, 25]].tolist())
    lay = layering.reassign(dag, layering.longest_path(dag), seed=2)
    plan = build_plan(dag, lay, np.arange(60) % 3)
    part, edge, neuron = prune(plan)
    verify(part)
    assert part.dag.num_nodes == (plan.reaches_output[dag.num_inputs :]).sum() + dag.num_inputs < 50
    assert np.array_equal(part.nodes[part.dag.edges], dag.edges[edge])
    assert np.array_equal(part.nodes[part.dag.neurons], dag.neurons[neuron])
    assert np.array_equal(part.dropout_node, part.nodes[part.order])
    assert np.array_equal(part.node_code[part.dag.neurons], plan.node_code[dag.neurons[neuron]])
    assert prune(part) is None


def test_explain_tells_what_is_left_out():
    assert "outputs are computed by 2 nodes" in FourWard(DEAD_ENDS, engine="torch").explain()
    assert "are computed by" not in FourWard(generate.chain(3), engine="torch").explain()

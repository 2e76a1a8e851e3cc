import copy
import dataclasses
import pickle

import networkx as nx
import numpy as np
import pytest
import torch

from benchmarks.cases import ZOO, case
from fourward import Dag, generate, layering
from fourward.engine._torch_activations import TABLE_FUNCTIONS, TORCH_FUNCTIONS
from fourward.errors import ActivationError, LayeringError, PlanError
from fourward.plan import build_plan, verify
from fourward.plan.activations import ACTIVATIONS, BY_CODE, VOCABULARY, lookup


def make_plan(dag, seed=None):
    lay = layering.push_sources(dag, layering.longest_path(dag))
    if seed is not None:
        lay = layering.reassign(dag, lay, seed=seed)
    return build_plan(dag, lay, np.random.default_rng(0).integers(0, 3, dag.num_nodes))


@pytest.mark.parametrize("name", ZOO)
def test_plans_are_legal(name):
    for seed in (None, 1):
        plan = make_plan(case(name).dag, seed)
        verify(plan)
    assert make_plan(case(name).dag).edge is None, "the default layering keeps the order of the Dag's edges"


@pytest.mark.parametrize("field", ["order", "position", "level_start", "edge", "source", "neuron", "outputs"])
def test_verify_sees_a_broken_plan(field):
    plan = make_plan(generate.erdos_renyi(30, 0.2, seed=0), seed=1)
    broken = getattr(plan, field).copy()
    broken[[0, -1]] = broken[[-1, 0]]
    with pytest.raises(PlanError):
        verify(dataclasses.replace(plan, **{field: broken}))


def test_frozen_copy_pickle():
    plan = make_plan(generate.erdos_renyi(30, 0.2, seed=0))
    with pytest.raises(ValueError, match="read-only"):
        plan.source[0] = 1
    assert copy.deepcopy(plan) is plan
    twin = pickle.loads(pickle.dumps(plan))
    for field in dataclasses.fields(plan):
        assert np.array_equal(getattr(twin, field.name), getattr(plan, field.name))


def test_plan_needs_its_own_layering():
    with pytest.raises(LayeringError):
        build_plan(generate.chain(3), layering.longest_path(generate.chain(4)), np.zeros(3, int))


def test_views_of_a_plan():
    """Hidden neurons, codes by node, who needs z, and edges by source, as read off the Dag."""
    dag = generate.erdos_renyi(60, 0.2, seed=3)
    lay = layering.reassign(dag, layering.longest_path(dag), seed=1)
    names = ["relu", "gelu", "sin", "tanh"]
    code = np.array([ACTIVATIONS[names[v % 4]].code for v in range(dag.num_nodes)])
    plan = build_plan(dag, lay, code)
    outer = {*dag.inputs.tolist(), *dag.outputs.tolist()}
    assert [v not in outer for v in plan.order.tolist()] == plan.hidden.tolist()
    assert plan.node_code[dag.neurons].tolist() == code[dag.neurons].tolist()
    assert plan.node_code[dag.inputs].tolist() == [0] * dag.num_inputs
    is_input = np.isin(plan.order, dag.inputs)
    assert plan.needs_z.tolist() == (np.isin(plan.order % 4, (1, 2)) & ~is_input).tolist()
    edge, start = plan.edges_by_source()
    pairs = sorted(zip(plan.source.tolist(), plan.target.tolist(), strict=True))
    assert list(zip(plan.source[edge].tolist(), plan.target[edge].tolist(), strict=True)) == pairs
    for q in range(dag.num_nodes):
        assert (plan.source[edge[start[q] : start[q + 1]]] == q).all()
    assert start[-1] == dag.num_edges


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("name", ZOO)
def test_reaches_output_is_what_a_search_finds(name, seed):
    dag = case(name).dag
    some = Dag.from_edges(dag.edges, nodes=range(dag.num_nodes), inputs=dag.inputs, outputs=dag.outputs[::2])
    plan = make_plan(some, seed)
    graph = nx.DiGraph(some.edges.tolist())
    graph.add_nodes_from(range(some.num_nodes))
    want = set(some.outputs.tolist()).union(*(nx.ancestors(graph, v) for v in some.outputs.tolist()))
    assert set(plan.order[plan.reaches_output].tolist()) == want


Z = torch.cat((torch.linspace(-30, 30, 301), torch.tensor([-1e-3, 1e-3, 19.99, 20.01, 100.0, -100.0]))).double()


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_table_agrees_with_torch(name, dtype):
    """Formula and derivative as the table writes them, against torch's own function and its autograd."""
    code = ACTIVATIONS[name].code
    results = []
    for function, kind in ((TABLE_FUNCTIONS[code], dtype), (TORCH_FUNCTIONS[code], torch.float64)):
        z = Z.to(dtype).to(kind).requires_grad_()
        a = function(z)
        (grad,) = torch.autograd.grad(a.sum(), z)
        assert a.dtype == grad.dtype == kind
        results += [a.detach().double(), grad.double()]
    tolerance = {torch.float64: 1e-12, torch.float32: 2e-6}[dtype]
    # softplus switches to z itself beyond 20, where log1p(exp(z)) differs from z by 2e-9
    torch.testing.assert_close(results[0], results[2], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(results[1], results[3], rtol=max(tolerance, 3e-9), atol=tolerance)


def test_codes_are_distinct_and_lookup_lists_names():
    assert len(BY_CODE) == len(ACTIVATIONS)
    assert "where" in VOCABULARY
    with pytest.raises(ActivationError, match=r"unknown activation 'swish'.*relu.*square.*callable"):
        lookup("swish")


def test_the_table_has_what_the_readme_promises():
    names = "relu leaky_relu elu selu gelu silu tanh hardtanh sigmoid softplus identity sin gaussian hat abs square"
    assert set(names.split()) <= set(ACTIVATIONS)

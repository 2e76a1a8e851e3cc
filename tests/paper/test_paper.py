"""The paper's methods follow the paper: the shapes of their products, and masks without leaks."""

import numpy as np
import pytest
import torch

from benchmarks.cases import ZOO, case
from fourward import FourWard, generate, paper

GRAPHS = ["Erdos-Renyi", "complete", "layered MLP", "C. elegans", "source neurons"]


@pytest.mark.parametrize("name", GRAPHS)
def test_masked_gathers_the_predecessors_of_each_layer(name):
    """Algorithm 1: for each layer with neurons, |L_l| rows and |P_l| columns, and one for the bias."""
    dag = case(name).dag
    net = paper.Masked4Ward(dag)
    level = net.layering.level
    neurons = [nodes[np.isin(nodes, dag.neurons)] for nodes in net.layering.layers]
    shapes = []
    for nodes in neurons:
        if len(nodes):
            sources = np.unique(dag.source[np.isin(dag.target, nodes)])
            assert (level[sources] < level[nodes[0]]).all()
            shapes.append((len(nodes), len(sources) + 1))
    assert [tuple(weight.shape) for weight in net.weights] == shapes
    assert sum(mask[:, :-1].sum().item() for mask in net.masks.tensors()) == dag.num_edges


@pytest.mark.parametrize("name", GRAPHS)
def test_deepstruct_skips_pairs_without_edges(name):
    """Algorithm 5: a product for each pair of layers with an edge between them, and for no other."""
    dag = case(name).dag
    net = paper.DeepStruct(dag)
    level = np.where(np.isin(np.arange(dag.num_nodes), dag.inputs), -1, net.layering.level)
    connected = {(level[u], level[v]) for u, v in dag.edges.tolist()}
    assert len(net.weights) == len(connected)
    assert all(mask.any() for mask in net.masks.tensors())


def test_sequential_has_a_vector_for_each_neuron():
    dag = case("source neurons").dag
    net = paper.SequentialBaseline(dag)
    assert sorted(len(weight) - 1 for weight in net.weights) == sorted(dag.in_degree[dag.neurons].tolist())


@pytest.mark.parametrize("cls", [paper.Masked4Ward, paper.DeepStruct])
def test_masked_weights_have_no_effect(cls):
    """Weights where the mask is 0 have no effect and no gradient."""
    dag = case("Erdos-Renyi").dag
    net = cls(dag, seed=0, dtype=torch.float64)
    same = FourWard(dag, seed=1, dtype=torch.float64)
    same.load_edge_weights(*net.edge_weights())
    with torch.no_grad():
        for weight, mask in zip(net.weights, net.masks.tensors(), strict=True):
            weight += (1 - mask) * 1e3
    x = torch.randn(4, dag.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out = net(x)
    torch.testing.assert_close(out, same(x))
    out.sum().backward()
    for weight, mask in zip(net.weights, net.masks.tensors(), strict=True):
        assert not (weight.grad * (1 - mask)).any()


@pytest.mark.parametrize("cls", [paper.Masked4Ward, paper.SequentialBaseline, paper.DeepStruct])
@pytest.mark.parametrize("name", [name for name in ZOO if "2000" not in name])
def test_edge_weights_round_trip(cls, name):
    dag = case(name).dag
    net = cls(dag)
    weight, bias = torch.randn(dag.num_edges), torch.randn(len(dag.neurons))
    net.load_edge_weights(weight, bias)
    assert all(torch.equal(a, b) for a, b in zip(net.edge_weights(), (weight, bias), strict=True))


def test_methods_are_equal_from_the_same_seed():
    dag = generate.erdos_renyi(50, 0.2, seed=0)
    x = torch.ones(3, dag.num_inputs)
    methods = (FourWard, paper.Masked4Ward, paper.SequentialBaseline, paper.DeepStruct)
    first, *rest = (cls(dag, seed=5)(x) for cls in methods)
    for other in rest:
        torch.testing.assert_close(other, first)

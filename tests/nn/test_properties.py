"""Properties of networks on any graph, tested by hypothesis."""

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, FourWard, generate, layering, paper
from tests.tolerance import assert_near

graphs = st.builds(
    lambda n, p, seed: generate.erdos_renyi(n, p, seed=seed),
    st.integers(1, 40),
    st.floats(0.02, 0.7),
    st.integers(0, 10**6),
)
seeds = st.integers(0, 10**6)
F64 = torch.float64


def x_for(dag, seed, batch=3):
    return torch.tensor(np.random.default_rng(seed).standard_normal((batch, dag.num_inputs)))


def pairs(dag):
    return [(dag.labels[u], dag.labels[v]) for u, v in dag.edges.tolist()]


def labels(dag, nodes):
    return [dag.labels[v] for v in nodes]


def transfer(net: FourWard, dag: Dag, rename=lambda label: label) -> FourWard:
    """A network on another Dag with the same weights and biases, by label."""
    twin = FourWard(dag, activation="tanh", dtype=F64, seed=0)
    weight, bias = torch.zeros(dag.num_edges, dtype=F64), torch.zeros(len(dag.neurons), dtype=F64)
    biases = dict(zip(labels(net.dag, net.dag.neurons), net.bias.detach(), strict=True))
    if dag.num_edges:
        renamed = [(rename(u), rename(v)) for u, v in pairs(net.dag)]
        shared = [i for i, pair in enumerate(renamed) if pair in set(pairs(dag))]
        weight[dag.find_edges([renamed[i] for i in shared])] = net.weight.detach()[shared]
    index = {label: i for i, label in enumerate(labels(dag, dag.neurons))}
    for label, value in biases.items():
        if rename(label) in index:
            bias[index[rename(label)]] = value
    twin.load_edge_weights(weight, bias)
    return twin


@given(graphs, seeds)
def test_relabelling_changes_nothing(dag, seed):
    net = FourWard(dag, activation="tanh", dtype=F64, seed=seed)
    order = np.random.default_rng(seed).permutation(dag.num_nodes)
    other = Dag.from_edges(
        [(f"n{u}", f"n{v}") for u, v in np.random.default_rng(seed).permutation(np.array(pairs(dag)).reshape(-1, 2))],
        nodes=[f"n{dag.labels[v]}" for v in order],
        inputs=[f"n{label}" for label in labels(dag, dag.inputs)],
        outputs=[f"n{label}" for label in labels(dag, dag.outputs)],
    )
    twin = transfer(net, other, rename=lambda label: f"n{label}")
    assert_near(twin(x_for(dag, seed)), net(x_for(dag, seed)))


@given(graphs, seeds)
def test_every_layering_gives_the_same_activations(dag, seed):
    first = layering.push_sources(dag, layering.longest_path(dag))
    other = layering.reassign(dag, first, seed=seed)
    for cls in (FourWard, paper.Masked4Ward, paper.DeepStruct):
        nets = [cls(dag, activation="tanh", dtype=F64, seed=1, layering=lay) for lay in (first, other)]
        assert_near(nets[0].activations(x_for(dag, seed)), nets[1].activations(x_for(dag, seed)))


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), seeds)
def test_a_layered_dag_equals_an_mlp(sizes, seed):
    net = FourWard(generate.layered_mlp(sizes), activation="tanh", dtype=F64, seed=seed)
    weights = net.weight.detach().split([a * b for a, b in itertools.pairwise(sizes)])
    biases = net.bias.detach().split(sizes[1:])
    a = x = torch.tensor(np.random.default_rng(seed).standard_normal((4, sizes[0])))
    for weight, bias in zip(weights, biases, strict=True):
        a = torch.tanh(a @ weight.reshape(len(bias), -1).T + bias)
    assert_near(net(x), a)


@given(graphs.filter(lambda dag: dag.num_edges > 0), seeds)
def test_removing_an_edge_equals_zeroing_its_weight(dag, seed):
    net = FourWard(dag, activation="tanh", dtype=F64, seed=seed)
    k = seed % dag.num_edges
    remaining = pairs(dag)
    del remaining[k]
    smaller = Dag.from_edges(
        remaining, nodes=dag.labels, inputs=labels(dag, dag.inputs), outputs=labels(dag, dag.outputs)
    )
    twin = transfer(net, smaller)
    with torch.no_grad():
        net.weight[k] = 0
    assert_near(twin(x_for(dag, seed)), net(x_for(dag, seed)))


@given(graphs, graphs, seeds)
def test_a_union_equals_its_parts(left, right, seed):
    parts = [FourWard(dag, activation="tanh", dtype=F64, seed=seed) for dag in (left, right)]
    named = [[((i, u), (i, v)) for u, v in pairs(dag)] for i, dag in enumerate((left, right))]
    union = Dag.from_edges(
        named[0] + named[1], nodes=[(i, label) for i, dag in enumerate((left, right)) for label in dag.labels]
    )
    net = FourWard(union, activation="tanh", dtype=F64)
    weight, bias = net.weight.detach(), net.bias.detach()
    for i, part in enumerate(parts):
        if named[i]:
            weight[union.find_edges(named[i])] = part.weight.detach()
        neurons = [(i, label) for label in labels(part.dag, part.dag.neurons)]
        index = {label: k for k, label in enumerate(labels(union, union.neurons))}
        if neurons:
            bias[[index[label] for label in neurons]] = part.bias.detach()
    x = [x_for(dag, seed) for dag in (left, right)]
    assert_near(net(torch.cat(x, 1)), torch.cat([part(v) for part, v in zip(parts, x, strict=True)], 1))

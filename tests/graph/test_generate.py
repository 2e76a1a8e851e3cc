import random

import networkx as nx
import numpy as np
import pytest

from fourward import connectomes, generate
from fourward.errors import GraphError, OptionError

SEEDED = {
    "erdos_renyi": lambda seed: generate.erdos_renyi(60, 0.1, seed=seed),
    "watts_strogatz": lambda seed: generate.watts_strogatz(60, 4, 0.3, seed=seed),
    "barabasi_albert": lambda seed: generate.barabasi_albert(60, 3, seed=seed),
    "rewired_mlp": lambda seed: generate.rewired_mlp([5, 10, 5], 0.3, seed=seed),
}


@pytest.mark.parametrize("name", SEEDED)
def test_seeded_and_local(name):
    before = random.getstate(), np.random.get_state()[1].copy()
    make = SEEDED[name]
    assert make(0) == make(0)
    assert make(0) != make(1)
    assert make(None) != make(None)
    assert random.getstate() == before[0]
    assert (np.random.get_state()[1] == before[1]).all()


def test_erdos_renyi_keeps_the_largest_component():
    dag = generate.erdos_renyi(200, 0.008, seed=0)
    graph = dag.to_networkx().to_undirected()
    assert nx.is_connected(graph)
    assert 20 < dag.num_nodes < 200
    assert set(dag.labels) <= set(range(200))


def test_erdos_renyi_has_the_right_density():
    dag = generate.erdos_renyi(1024, 0.2, seed=0)
    pairs = 1024 * 1023 / 2
    assert abs(dag.num_edges - 0.2 * pairs) < 5 * (0.16 * pairs) ** 0.5
    assert generate.erdos_renyi(40, 1.0, seed=3).num_edges == 40 * 39 // 2


def test_direction_is_random():
    dag = generate.erdos_renyi(300, 0.1, seed=1)
    forward = np.count_nonzero(dag.source < dag.target)
    assert abs(forward / dag.num_edges - 0.5) < 0.1


def test_natural_order():
    for dag in (
        generate.barabasi_albert(50, 2, order="natural", seed=0),
        generate.watts_strogatz(50, 4, 0.2, order="natural", seed=0),
    ):
        assert (dag.source < dag.target).all()
    ring = generate.watts_strogatz(20, 4, 0.0, order="natural")
    assert ring.num_edges == 40


def test_watts_strogatz_rewires_a_share():
    ring = set(map(tuple, generate.watts_strogatz(500, 6, 0.0, order="natural").edges.tolist()))
    moved = [
        len(ring - set(map(tuple, generate.watts_strogatz(500, 6, p, order="natural", seed=0).edges.tolist())))
        for p in (0.0, 0.2, 1.0)
    ]
    assert moved[0] == 0
    assert abs(moved[1] - 0.2 * len(ring)) < 5 * (0.16 * len(ring)) ** 0.5
    assert moved[2] > 0.95 * len(ring)


def test_barabasi_albert_degrees():
    dag = generate.barabasi_albert(5000, 3, seed=0)
    degree = dag.in_degree + dag.out_degree
    assert degree.min() >= 1
    assert degree.max() > 20 * np.median(degree), "a scale-free graph has hubs"


def test_layered_mlp():
    dag = generate.layered_mlp([2, 3, 1])
    assert dag.num_edges == 2 * 3 + 3
    assert dag.inputs.tolist() == [0, 1]
    assert dag.outputs.tolist() == [5]
    assert generate.layered_mlp([2, 2]).edges.tolist() == [[0, 2], [1, 2], [0, 3], [1, 3]]


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.7])
def test_rewired_mlp_moves_that_many(fraction):
    sizes = [8, 12, 12, 6]
    mlp, dag = generate.layered_mlp(sizes), generate.rewired_mlp(sizes, fraction, seed=0)
    before, after = (set(map(tuple, d.edges.tolist())) for d in (mlp, dag))
    assert len(after) == len(before)
    assert len(before - after) == round(fraction * len(before))
    assert dag.inputs.tolist() == list(range(8))
    assert dag.outputs.tolist() == list(range(32, 38))
    assert all(u < 32 and v >= 8 and u < v for u, v in after)


def test_rewired_mlp_reaches_every_free_place():
    sizes = [2, 3, 2]
    free = 4 + 3  # inputs to outputs, and among three hidden nodes
    dag = generate.rewired_mlp(sizes, free / 12, seed=0)
    moved = set(map(tuple, dag.edges.tolist())) - set(map(tuple, generate.layered_mlp(sizes).edges.tolist()))
    assert moved == {(0, 5), (0, 6), (1, 5), (1, 6), (2, 3), (2, 4), (3, 4)}
    with pytest.raises(OptionError, match="only 7 free places"):
        generate.rewired_mlp(sizes, 8 / 12)


def test_small_and_regular():
    assert generate.chain(1).num_edges == 0
    assert generate.chain(4).edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert generate.complete(5).num_edges == 10


def test_a_million_edges():
    sizes = [
        generate.erdos_renyi(100_000, 2e-4, seed=0),
        generate.barabasi_albert(100_000, 10, seed=0),
        generate.watts_strogatz(100_000, 20, 0.1, seed=0),
        generate.rewired_mlp([800, 800, 800], 0.2, seed=0),
    ]
    assert all(dag.num_edges > 990_000 for dag in sizes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: generate.erdos_renyi(0, 0.1), "n=0"),
        (lambda: generate.erdos_renyi(10.5, 0.1), "n=10.5"),
        (lambda: generate.erdos_renyi(10, 1.1), "p=1.1"),
        (lambda: generate.erdos_renyi(10, float("nan")), "p=nan"),
        (lambda: generate.watts_strogatz(10, 3, 0.1), "even"),
        (lambda: generate.watts_strogatz(10, 10, 0.1), "under n=10"),
        (lambda: generate.watts_strogatz(10, 4, 0.1, order="left"), "'random' or 'natural'"),
        (lambda: generate.barabasi_albert(3, 3), "n=3 and m=3 came.*more than m nodes"),
        (lambda: generate.layered_mlp([3]), "at least an input and an output"),
        (lambda: generate.layered_mlp([3, 0]), "size=0"),
        (lambda: generate.chain(0), "n=0"),
        (lambda: generate.layered_mlp(5), "sizes=5"),
        (lambda: generate.erdos_renyi(5, "x"), "p='x'"),
        (lambda: generate.erdos_renyi(5, 0.5, seed=-1), "seed=-1"),
        (lambda: generate.complete(-1), "n=-1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(OptionError, match=message):
        call()


def test_c_elegans():
    worm = connectomes.load("c-elegans")
    strength = dict(zip(worm.edges, worm.strength.tolist(), strict=True))
    named = [(worm.dag.labels[u], worm.dag.labels[v]) for u, v in worm.dag.edges.tolist()]
    assert worm.weight.tolist() == [strength[pair] for pair in named]
    assert len(worm.classes) == 302
    assert len(worm.edges) == len(worm.strength) == len(set(worm.edges)) == 3709
    assert "10.1038/s41586-019-1352-7" in worm.citation
    graph = worm.to_networkx()
    assert graph["ALA"]["PVDL"]["strength"] == 75
    assert graph.nodes["ASEL"]["neuron_class"] == "sensory"
    assert graph.has_edge("AVAL", "VA8"), "command interneurons drive motor neurons"
    kept = {(worm.dag.labels[u], worm.dag.labels[v]) for u, v in worm.dag.edges.tolist()}
    assert kept | set(worm.removed) == set(worm.edges)
    assert sum(u == v for u, v in worm.removed) == 38
    assert list(worm.dag.labels) == list(worm.classes)


def test_mushroom_body():
    fly = connectomes.load("mushroom-body")
    assert (len(fly.classes), len(fly.edges)) == (422, 14961)
    assert set(fly.classes.values()) == {"PN", "KC", "MBIN", "MBON"}
    inputs = [label for label, kind in fly.classes.items() if kind == "PN"]
    outputs = [label for label, kind in fly.classes.items() if kind == "MBON"]
    dag = fly.acyclic(inputs=inputs, outputs=outputs).dag
    assert (dag.num_inputs, dag.num_outputs) == (121, 58)


def test_unknown_connectome():
    with pytest.raises(GraphError, match=r"'hydra'.*c-elegans, mushroom-body"):
        connectomes.load("hydra")

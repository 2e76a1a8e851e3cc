"""The data of a page: all of a small graph, part of a large one."""

import base64

import networkx as nx
import numpy as np
import pytest
import torch

from fourward import FourWard, connectomes, generate
from fourward.errors import GraphError, InputError, WeightError
from fourward.layering import longest_path, push_sources, reassign
from fourward.view import _scene as scenes
from fourward.view._scene import build_scene, find_nearest, list_layerings, select_part
from fourward.view._subject import build_subject


def decode(text, dtype):
    return np.frombuffer(base64.b64decode(text), f"<{dtype}")


def build(net_or_dag, samples=None, around=None, **options):
    return build_scene(build_subject(net_or_dag, **options), "title", samples, around)


def test_all_of_a_small_network():
    net = FourWard(generate.erdos_renyi(40, 0.15, seed=0), activation="tanh", seed=0)
    dag, x = net.dag, torch.randn(20, net.dag.num_inputs, generator=torch.Generator().manual_seed(1))
    scene = build(net, x)
    assert scene["shown"] == f"Shown: all {dag.num_nodes} neurons and all {dag.num_edges} edges."
    assert scene["allEdges"]
    assert scene["labels"] == list(map(str, dag.labels))
    np.testing.assert_array_equal(decode(scene["source"], "i4"), dag.source)
    np.testing.assert_array_equal(decode(scene["target"], "i4"), dag.target)
    np.testing.assert_array_equal(decode(scene["weight"], "f4"), net.weight.detach().numpy())
    np.testing.assert_array_equal(decode(scene["bias"], "f4")[dag.neurons], net.bias.detach().numpy())
    assert np.isnan(decode(scene["bias"], "f4")[dag.inputs]).all()
    assert scene["samples"][0]["name"] == "sample 1 of 20"
    assert len(scene["samples"]) == scenes.MAX_SAMPLES
    activations = np.stack([decode(sample["activation"], "f4") for sample in scene["samples"]])
    np.testing.assert_array_equal(activations, net.activations(x[: scenes.MAX_SAMPLES]).detach().numpy())
    first = scene["layerings"][0]
    np.testing.assert_array_equal(decode(first["column"], "i4"), net.layering.level)


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (1, "the one neuron and no edges"),
        (2, "all 2 neurons and the one edge"),
        (1200, "all 1,200 neurons and all 1,199 edges"),
    ],
)
def test_what_is_shown_of_few_and_of_many(nodes, words):
    assert select_part(generate.chain(nodes), None).caption == f"Shown: {words}."


def test_a_custom_layering_comes_first():
    dag = generate.erdos_renyi(40, 0.15, seed=0)
    custom = reassign(dag, push_sources(dag, longest_path(dag)), seed=77)
    assert next(iter(list_layerings(build_subject(FourWard(dag, layering=custom))).items())) == (
        "the network's own",
        custom,
    )
    assert list(list_layerings(build_subject(dag)))[:2] == ["longest path, sources pushed", "longest path"]


def test_equal_layerings_are_listed_once():
    assert list(list_layerings(build_subject(generate.layered_mlp([3, 4, 2])))) == ["longest path, sources pushed"]


def test_the_nearest_neurons_are_a_connected_part(monkeypatch):
    monkeypatch.setattr(scenes, "NEAREST", 60)
    monkeypatch.setattr(scenes, "MAX_NODES", 200)
    worm = connectomes.load("c-elegans").dag
    nodes = find_nearest(worm, worm.index("AVAL"))
    assert len(nodes) == 60
    assert worm.index("AVAL") in nodes
    graph = worm.to_networkx().to_undirected()
    distance = nx.single_source_shortest_path_length(graph, "AVAL")
    reached = {worm.labels[v] for v in nodes}
    farthest = max(distance[label] for label in reached)
    assert all(label in reached for label, steps in distance.items() if steps < farthest)
    assert nx.is_connected(graph.subgraph(reached))
    part = select_part(worm, None, "AVAL")
    np.testing.assert_array_equal(part.nodes, nodes)
    assert (
        f"60 of 302 neurons, those nearest to AVAL, and {len(part.edges)} of 2,407 edges, all between" in part.caption
    )
    assert set(worm.edges[part.edges].ravel()) <= set(nodes)
    assert "which has the most edges" in select_part(worm, None).caption
    with pytest.raises(GraphError, match="unknown label 'NOBODY'"):
        select_part(worm, None, "NOBODY")


def test_too_many_edges_leave_the_strongest(monkeypatch):
    monkeypatch.setattr(scenes, "MAX_EDGES", 100)
    net = FourWard(generate.erdos_renyi(64, 0.2, seed=0), seed=0)
    size = net.weight.detach().abs().numpy()
    part = select_part(net.dag, net.weight.detach().numpy())
    assert len(part.edges) == 100
    assert size[part.edges].min() >= np.delete(size, part.edges).max()
    assert f"100 of {net.dag.num_edges} edges, those with the largest weights" in part.caption
    assert not build(net)["allEdges"]
    assert "picked evenly" in select_part(net.dag, None).caption


@pytest.mark.parametrize("is_weighted", [True, False])
def test_a_hub_keeps_its_edges_however_weak_they_are(monkeypatch, is_weighted):
    monkeypatch.setattr(scenes, "MAX_EDGES", 100)
    dag = generate.erdos_renyi(64, 0.2, seed=0)
    hub = int(np.argmax(dag.in_degree))
    of_hub = np.flatnonzero((dag.source == hub) | (dag.target == hub))
    weight = np.ones(dag.num_edges)
    weight[of_hub] = 1e-9
    part = select_part(dag, weight if is_weighted else None, dag.labels[hub])
    assert len(part.edges) == len(np.unique(part.edges)) == 100
    assert set(of_hub) < set(part.edges)
    assert f"those of {dag.labels[hub]} and others, " in part.caption
    monkeypatch.setattr(scenes, "MAX_EDGES", len(of_hub) - 1)
    assert set(select_part(dag, weight if is_weighted else None, dag.labels[hub]).edges) < set(of_hub)
    monkeypatch.setattr(scenes, "MAX_NODES", 60)
    monkeypatch.setattr(scenes, "NEAREST", 60)
    monkeypatch.setattr(scenes, "MAX_EDGES", 100)
    part = select_part(dag, weight)
    assert len(part.edges) == 100
    assert "which has the most edges, and 100 of" in part.caption


def test_a_part_keeps_true_degrees_layers_and_activations(monkeypatch):
    monkeypatch.setattr(scenes, "NEAREST", 20)
    monkeypatch.setattr(scenes, "MAX_NODES", 20)
    net = FourWard(generate.erdos_renyi(64, 0.2, seed=0), seed=0)
    x = torch.ones(1, net.dag.num_inputs)
    scene = build(net, x)
    nodes = [net.dag.index(int(label)) for label in scene["labels"]]
    np.testing.assert_array_equal(decode(scene["inDegree"], "i4"), net.dag.in_degree[nodes])
    lay = scene["layerings"][0]
    np.testing.assert_array_equal(decode(lay["layers"], "i4")[decode(lay["column"], "i4")], net.layering.level[nodes])
    activation = decode(scene["samples"][0]["activation"], "f4")
    np.testing.assert_array_equal(activation, net.activations(x).detach().numpy()[0, nodes])


def test_a_graph_without_weights():
    dag = generate.chain(4)
    scene = build(dag)
    assert scene["weight"] is scene["bias"] is None
    assert scene["samples"] == []
    np.testing.assert_array_equal(decode(build(dag, weight=[1, -2, 3])["weight"], "f4"), [1, -2, 3])


def test_bad_arrays_are_rejected():
    dag = generate.chain(4)
    with pytest.raises(InputError, match=r"a Dag has no weights\. Pass a FourWard"):
        build(dag, torch.zeros(1, 1))
    with pytest.raises(
        InputError, match=r"expected samples of shape \(samples, 1\), one column per input, got \(1, 2\)"
    ):
        build(FourWard(dag), torch.zeros(1, 2))
    with pytest.raises(WeightError, match=r"expected weight of shape \(3,\), one number per edge, got \(2,\)"):
        build_subject(dag, weight=[1, 2])
    with pytest.raises(WeightError, match="a network has its own weights"):
        build_subject(FourWard(dag), weight=[1, 2, 3])

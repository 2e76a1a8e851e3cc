import numpy as np
import pytest

from fourward import connectomes, orient
from fourward.errors import GraphError


def test_c_elegans():
    worm = connectomes.load("c-elegans")
    strength = dict(zip(worm.edges, worm.strength.tolist(), strict=True))
    named = [(worm.dag.labels[u], worm.dag.labels[v]) for u, v in worm.dag.edges.tolist()]
    assert worm.weight.tolist() == [strength[pair] for pair in named]
    assert len(worm.classes) == 302
    assert len(worm.edges) == len(worm.strength) == len(set(worm.edges)) == 3709
    assert "10.1038/s41586-019-1352-7" in worm.citation
    for graph in (worm.dag, worm.graph):
        assert {worm.classes[graph.labels[v]] for v in graph.inputs} == {"sensory"}
        assert {worm.classes[graph.labels[v]] for v in graph.outputs} == {"motorneuron"}
        assert (graph.num_inputs, graph.num_outputs) == (83, 123)
    graph = worm.to_networkx()
    assert graph["ALA"]["PVDL"]["strength"] == 75
    assert graph.nodes["ASEL"]["neuron_class"] == "sensory"
    assert graph.has_edge("AVAL", "VA8"), "command interneurons drive motor neurons"
    acyclic = {(worm.dag.labels[u], worm.dag.labels[v]) for u, v in worm.dag.edges.tolist()}
    assert acyclic | set(worm.removed) == set(worm.edges)
    assert sum(u == v for u, v in worm.removed) == 38
    assert list(worm.dag.labels) == list(worm.classes)


def test_mushroom_body():
    fly = connectomes.load("mushroom-body")
    assert (len(fly.classes), len(fly.edges)) == (422, 14961)
    assert set(fly.classes.values()) == {"PN", "KC", "MBIN", "MBON"}
    assert {fly.classes[fly.dag.labels[v]] for v in fly.dag.inputs} == {"PN"}
    assert {fly.classes[fly.dag.labels[v]] for v in fly.dag.outputs} == {"MBON"}
    assert (fly.dag.num_inputs, fly.dag.num_outputs) == (121, 58)


@pytest.mark.parametrize("name", connectomes.NAMES)
def test_all_sources_and_sinks(name):
    system = connectomes.load(name)
    dag, removed = system.acyclic(inputs="sources", outputs="sinks")
    assert dag == orient.remove_feedback(system.edges, nodes=list(system.classes)).dag
    assert len(removed) == len(system.edges) - dag.num_edges
    assert set(dag.inputs) == set(np.flatnonzero(dag.in_degree == 0))
    assert set(dag.outputs) == set(np.flatnonzero(dag.out_degree == 0))
    assert system.digraph(inputs="sources", outputs="sinks").dag.driven.tolist() == []
    named = [label for label, kind in system.classes.items() if kind in ("sensory", "PN")]
    assert system.acyclic(inputs=named).dag == system.dag


def test_unknown_connectome():
    with pytest.raises(GraphError, match=r"unknown connectome 'hydra'. Choose from c-elegans, mushroom-body"):
        connectomes.load("hydra")

import pytest

from fourward import connectomes
from fourward.errors import GraphError


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
    acyclic = {(worm.dag.labels[u], worm.dag.labels[v]) for u, v in worm.dag.edges.tolist()}
    assert acyclic | set(worm.removed) == set(worm.edges)
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
    with pytest.raises(GraphError, match=r"unknown connectome 'hydra'. Choose from c-elegans, mushroom-body"):
        connectomes.load("hydra")

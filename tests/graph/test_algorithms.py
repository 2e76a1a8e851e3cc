import networkx as nx
import numpy as np
import pytest

from fourward.graph._algorithms import connected_components


@pytest.mark.parametrize("strong", [False, True])
def test_components_are_those_of_networkx(strong):
    source, target = np.random.default_rng(0).integers(0, 200, (2, 220))
    graph = nx.DiGraph() if strong else nx.Graph()
    graph.add_nodes_from(range(200))
    graph.add_edges_from(zip(source.tolist(), target.tolist(), strict=True))
    expected = np.empty(200, np.int64)
    for k, nodes in enumerate(nx.strongly_connected_components(graph) if strong else nx.connected_components(graph)):
        expected[list(nodes)] = k
    component = connected_components(source, target, 200, strong=strong)
    pairs = set(zip(component.tolist(), expected.tolist(), strict=True))
    assert len(pairs) == expected.max() + 1 == component.max() + 1
    assert strong or np.array_equal(component, expected)

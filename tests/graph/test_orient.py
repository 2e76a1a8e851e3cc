import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, orient
from fourward.errors import GraphError


def undirected(dag: Dag) -> set:
    return {frozenset((dag.labels[u], dag.labels[v])) for u, v in dag.edges.tolist()}


def directed(dag: Dag) -> set:
    return {(dag.labels[u], dag.labels[v]) for u, v in dag.edges.tolist()}


def test_random_order_keeps_labels_and_edges():
    graph = nx.relabel_nodes(nx.gnp_random_graph(30, 0.3, seed=1), lambda v: f"n{v}")
    dag = orient.random_order(graph, seed=0)
    assert list(dag.labels) == list(graph.nodes)
    assert undirected(dag) == {frozenset(edge) for edge in graph.edges}


def test_random_order_is_seeded_and_random():
    graph = nx.gnp_random_graph(30, 0.3, seed=1)
    assert orient.random_order(graph, seed=0) == orient.random_order(graph, seed=0)
    assert orient.random_order(graph, seed=0) != orient.random_order(graph, seed=1)
    rng = np.random.default_rng(5)
    assert orient.random_order(graph, seed=rng) != orient.random_order(graph, seed=rng)


def test_by_order():
    dag = orient.by_order(nx.Graph([("a", "b"), ("b", "c")]), ["c", "a", "b"])
    assert directed(dag) == {("a", "b"), ("c", "b")}


def test_symmetric_matrix_and_pairs():
    matrix = sp.csr_array(nx.to_scipy_sparse_array(nx.path_graph(4)))
    assert directed(orient.by_order(matrix, range(4))) == {(0, 1), (1, 2), (2, 3)}
    assert directed(orient.by_order([(3, 2), (1, 2)], [1, 2, 3])) == {(1, 2), (2, 3)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: orient.by_order(nx.path_graph(3), [0, 1]), "missing: 2"),
        (lambda: orient.by_order(nx.path_graph(3), [0, 1, 2, 3]), "unknown: 3"),
        (lambda: orient.random_order(nx.DiGraph([(0, 1)])), "directions would be lost"),
        (lambda: orient.random_order(sp.coo_array(([1], ([0], [1])), shape=(2, 2))), "expected a symmetric matrix"),
        (lambda: orient.remove_feedback(nx.path_graph(3)), "undirected"),
        (lambda: orient.random_order([(0, 1), (1, 0)]), "duplicate edges"),
        (lambda: orient.random_order(nx.path_graph(3), nodes=3), "already names its nodes"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(GraphError, match=message):
        call()


@given(st.integers(2, 40), st.floats(0.02, 0.5), st.integers(0, 10**6))
def test_remove_feedback_leaves_the_rest_alone(n, p, seed):
    graph = nx.gnp_random_graph(n, p, seed=seed, directed=True)
    dag, removed = orient.remove_feedback(graph)
    assert directed(dag) | set(removed) == set(graph.edges)
    assert not directed(dag) & set(removed)
    component = {v: i for i, part in enumerate(nx.strongly_connected_components(graph)) for v in part}
    assert all(component[u] == component[v] for u, v in removed), "an edge on no cycle was removed"
    inside = sum(component[u] == component[v] for u, v in graph.edges)
    assert len(removed) <= inside / 2, "the heuristic never removes more than half"


def test_remove_feedback_takes_what_it_must():
    assert orient.remove_feedback([("a", "b"), ("b", "c")]).removed == []
    assert orient.remove_feedback([("a", "a"), ("a", "b")]).removed == [("a", "a")]
    two_cycle = orient.remove_feedback([("a", "b"), ("b", "a")])
    assert len(two_cycle.removed) == 1
    ring = [(i, (i + 1) % 500) for i in range(500)]
    assert len(orient.remove_feedback(ring).removed) == 1


def test_remove_feedback_takes_inputs_and_outputs():
    dag = orient.remove_feedback([("a", "b"), ("b", "c"), ("c", "b")], outputs=["b", "c"]).dag
    assert dag.num_outputs == 2

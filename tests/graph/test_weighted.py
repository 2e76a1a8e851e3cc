"""Graphs settle into Dags: directed, rid of feedback and repeats, with their numbers."""

import json

import networkx as nx
import numpy as np
import pytest
import scipy.io

from fourward import Dag, files, generate
from fourward.errors import CycleError, GraphError, OptionError
from fourward.graph import _annotated
from tests.graph.put import put


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("a,b\nb,a\n", CycleError, r"x\.csv: .*directed cycle of 2 edges.*--remove-feedback"),
        ("a,b\n# note\nb,b\n", GraphError, r"'b' -> 'b' \(line 3\).*--remove-feedback"),
        ("a,b\nb,c\na,b\n", GraphError, r"'a' -> 'b' \(line 3\).*--merge"),
    ],
)
def test_edges_that_make_no_dag_are_named(text, error, match, tmp_path):
    with pytest.raises(error, match=match):
        files.read_dag(put(tmp_path, "x.csv", text))


def test_feedback_is_removed_and_reported(tmp_path):
    path = put(tmp_path, "x.csv", "a,b,1\nb,c,2\nc,a,3\nc,c,4\nc,d,5\n")
    got = files.read_dag(path, remove_feedback=True)
    assert got.dag == Dag.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
    assert got.weight.tolist() == [1, 2, 5]
    assert got.removed == (("c", "a"), ("c", "c"))


def test_edges_between_the_same_nodes_are_added_up(tmp_path):
    path = put(tmp_path, "x.csv", "b,c,1\na,b,2\nb,c,4\n")
    got = files.read_dag(path, merge=True)
    assert got.dag == Dag.from_edges([("b", "c"), ("a", "b")])
    assert dict(zip(map(tuple, got.dag.edges.tolist()), got.weight.tolist(), strict=True)) == {(2, 0): 2, (0, 1): 5}
    assert got.merged == 1


@pytest.mark.parametrize("ending", ["graphml", "gexf", "json", "mtx"])
def test_undirected_files_say_so_and_can_be_oriented(ending, tmp_path):
    graph = nx.karate_club_graph()
    path = tmp_path / f"x.{ending}"
    write_undirected(graph, path)
    with pytest.raises(GraphError, match=r"undirected \(34 nodes, 78 edges\).*--orient random --seed 0"):
        files.read_dag(path)
    got = files.read_dag(path, orient="random", seed=3)
    assert (got.dag.num_nodes, got.dag.num_edges) == (34, 78)
    assert got.dag == files.read_dag(path, orient="random", seed=3).dag
    assert got.dag != files.read_dag(path, orient="random", seed=4).dag
    for (u, v), weight in zip(got.dag.edges.tolist(), got.weight.tolist(), strict=True):
        assert weight == graph.edges[int(got.dag.labels[u]), int(got.dag.labels[v])]["weight"]


def write_undirected(graph, path):
    if path.suffix == ".json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="links")))
    elif path.suffix == ".mtx":
        scipy.io.mmwrite(path, nx.to_scipy_sparse_array(graph), symmetry="symmetric")
    else:
        {".graphml": nx.write_graphml, ".gexf": nx.write_gexf}[path.suffix](graph, path)


def test_orienting(tmp_path):
    path = put(tmp_path, "x.csv", "a,b\nb,c\nc,a\nc,c\n")
    with pytest.raises(GraphError, match="itself"):
        files.read_dag(path, orient="random", seed=0)
    got = files.read_dag(path, orient="random", seed=0, remove_feedback=True)
    assert got.dag.num_edges == 3
    assert got.removed == (("c", "c"),)
    with pytest.raises(OptionError, match="either 'random' or None"):
        files.read_dag(path, orient="left")
    directed = tmp_path / "x.graphml"
    files.write(generate.chain(3), directed)
    with pytest.raises(GraphError, match="would lose its directions"):
        files.read_dag(directed, orient="random")


def test_parallel_edges_are_named(tmp_path):
    graph = nx.MultiDiGraph([("a", "b"), ("a", "b")])
    nx.write_graphml(graph, tmp_path / "x.graphml")
    with pytest.raises(GraphError, match=r"'a' -> 'b'.*--merge"):
        files.read_dag(tmp_path / "x.graphml")
    assert files.read_dag(tmp_path / "x.graphml", merge=True).dag.num_edges == 1


def test_a_networkx_graph_carries_its_numbers():
    loaded = _annotated.settle(_annotated.AnnotatedGraph(_annotated.convert.from_pairs([("a", "b"), ("b", "c")])))
    loaded = loaded._replace(weight=np.array([1.0, 2.0]), bias=np.array([0.5, 0.0]), activation=("tanh", None))
    graph = _annotated.to_networkx(loaded)
    assert graph.nodes["b"] == {"bias": 0.5, "activation": "tanh"}
    again = _annotated.settle(_annotated.from_networkx(graph))
    assert again.dag == loaded.dag
    assert again.weight.tolist() == [1, 2]
    assert again.bias.tolist() == [0.5, 0]
    assert again.activation == ("tanh", None)

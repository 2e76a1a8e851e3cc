"""From an AnnotatedGraph to a Dag: orientation, feedback, duplicate edges, and the values that go along."""

import json

import networkx as nx
import numpy as np
import pytest
import scipy.io

from fourward import Dag, files, generate
from fourward.errors import CycleError, GraphError, OptionError
from fourward.graph import AnnotatedDag, _annotated
from tests.graph.write_file import write_file


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("a,b\nb,a\n", CycleError, r"x\.csv: .*directed cycle of 2 edges.*remove_feedback=True"),
        ("a,b\n# note\nb,b\n", GraphError, r"1 self-loop: 'b' -> 'b' \(line 3\).*self_loops='drop'"),
        ("a,b\nb,c\na,b\n", GraphError, r"1 duplicate edge: 'a' -> 'b' \(line 3\).*merge=True"),
    ],
)
def test_errors_name_the_edges(text, error, match, tmp_path):
    with pytest.raises(error, match=match):
        files.read_dag(write_file(tmp_path, "x.csv", text))


def test_feedback_is_removed_and_reported(tmp_path):
    path = write_file(tmp_path, "x.csv", "a,b,1\nb,c,2\nc,a,3\nc,c,4\nc,d,5\n")
    got = files.read_dag(path, remove_feedback=True)
    assert got.dag == Dag.from_edges([("b", "c"), ("c", "a"), ("c", "d")], nodes=["a", "b", "c", "d"])
    assert sorted(got.weight.tolist()) == [2, 3, 5]
    assert (got.removed, got.removed_weight.tolist()) == ((("a", "b"), ("c", "c")), [1, 4]), "the lightest edges"
    fewest = files.read_dag(path, remove_feedback="fewest")
    assert fewest.removed == (("c", "a"), ("c", "c"))


def test_duplicate_edges_are_added_up(tmp_path):
    path = write_file(tmp_path, "x.csv", "b,c,1\na,b,2\nb,c,4\n")
    got = files.read_dag(path, merge=True)
    assert got.dag == Dag.from_edges([("b", "c"), ("a", "b")])
    assert dict(zip(map(tuple, got.dag.edges.tolist()), got.weight.tolist(), strict=True)) == {(2, 0): 2, (0, 1): 5}
    assert got.merged == 1


@pytest.mark.parametrize("suffix", ["graphml", "gexf", "json", "mtx"])
def test_undirected_files_need_an_orientation(suffix, tmp_path):
    graph = nx.karate_club_graph()
    path = tmp_path / f"x.{suffix}"
    write_undirected(graph, path)
    with pytest.raises(GraphError, match=r"undirected one with 34 nodes and 78 edges.*orient='random'"):
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
    path = write_file(tmp_path, "x.csv", "a,b\nb,c\nc,a\nc,c\n")
    with pytest.raises(GraphError, match="1 self-loop"):
        files.read_dag(path, orient="random", seed=0)
    got = files.read_dag(path, orient="random", seed=0, remove_feedback=True)
    assert got.dag.num_edges == 3
    assert got.removed == (("c", "c"),)
    with pytest.raises(OptionError, match="orient must be 'random' or None, got 'left'"):
        files.read_dag(path, orient="left")
    directed = tmp_path / "x.graphml"
    files.write(generate.chain(3), directed)
    with pytest.raises(GraphError, match="would be lost"):
        files.read_dag(directed, orient="random")


def test_parallel_edges_are_named(tmp_path):
    graph = nx.MultiDiGraph([("a", "b"), ("a", "b")])
    nx.write_graphml(graph, tmp_path / "x.graphml")
    with pytest.raises(GraphError, match=r"'a' -> 'b'.*merge=True"):
        files.read_dag(tmp_path / "x.graphml")
    assert files.read_dag(tmp_path / "x.graphml", merge=True).dag.num_edges == 1


def test_a_networkx_graph_keeps_its_values():
    annotated = AnnotatedDag(Dag.from_edges([("a", "b"), ("b", "c")]))
    annotated = annotated._replace(weight=np.array([1.0, 2.0]), bias=np.array([0.5, 0.0]), activation=("tanh", None))
    graph = _annotated.to_networkx(annotated)
    assert graph.nodes["b"] == {"bias": 0.5, "activation": "tanh"}
    twin = _annotated.from_networkx(graph).to_dag()
    assert twin.dag == annotated.dag
    assert twin.weight.tolist() == [1, 2]
    assert twin.bias.tolist() == [0.5, 0]
    assert twin.activation == ("tanh", None)

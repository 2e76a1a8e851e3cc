"""GraphML, GEXF and JSON: invalid files, and node attributes as labels."""

import json

import networkx as nx
import pytest

from fourward import files
from fourward.errors import FileError, FourwardError, GraphError, OptionError, WeightError
from tests.graph.write_file import write_file

BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<graphml><graph edgedefault="directed"><node id="&c;"/></graph></graphml>"""


SPACE = "http://graphml.graphdrawing.org/xmlns"


OUTSIDE = BOMB.replace('<!ENTITY a "ha">', '<!ENTITY a SYSTEM "file:///etc/passwd">')


@pytest.mark.parametrize("suffix", ["graphml", "gexf"])
@pytest.mark.parametrize("text", [BOMB, OUTSIDE, BOMB.split("[")[0] + ">" + BOMB.split("]>")[1]])
def test_entities_and_document_types_are_refused_before_parsing(text, suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(nx, "read_graphml", lambda path: pytest.fail("parsed"))
    with pytest.raises(FileError, match=r"line 2: the file declares a document type"):
        files.read(write_file(tmp_path, f"x.{suffix}", text))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("<graphml><graph>", "line 1: invalid XML"),
        ("plain words", "invalid XML"),
        ("<svg/>", "networkx can't read it as GraphML"),
        (
            f'<graphml xmlns="{SPACE}"><graph edgedefault="directed"><edge source="a"/></graph></graphml>',
            "line 1: an edge has no source",
        ),
        (f'<graphml xmlns="{SPACE}"><graph edgedefault="directed"/></graphml>', "empty"),
    ],
)
def test_invalid_graphml(text, match, tmp_path):
    with pytest.raises(FourwardError, match=match):
        files.read_dag(write_file(tmp_path, "x.graphml", text))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (
            lambda g: g.edges[0, 1].update(weight="much"),
            FileError,
            "weight of edges must be a number, got 'much'.*topology_only=True",
        ),
        (lambda g: g.edges[0, 1].pop("weight"), WeightError, "1 of 2 edges have no weight.*topology_only=True"),
        (lambda g: g.edges[0, 1].update(weight=float("inf")), WeightError, "finite"),
        (lambda g: g.nodes[0].update(bias=1.0), GraphError, "inputs can't have a bias.*these have: '?0'?"),
    ],
)
@pytest.mark.parametrize("suffix", ["json", "graphml"])
def test_invalid_attributes(change, error, match, suffix, tmp_path):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 1.5), (1, 2, 2.5)])
    change(graph)
    path = tmp_path / f"x.{suffix}"
    if suffix == "json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    else:
        nx.write_graphml(graph, path, infer_numeric_types=True)
    with pytest.raises(error, match=match):
        files.read_dag(path)
    topology = files.read_dag(path, topology_only=True)
    assert (topology.dag.num_edges, topology.weight, topology.bias) == (2, None, None)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "line 1: invalid JSON"),
        ("[]", "expected node-link JSON"),
        ("{}", "expected node-link JSON"),
        ('{"nodes": [{"id": [1, {}]}], "edges": []}', "expected node-link JSON"),
        ('{"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 2}]}', "aren't both in 'nodes'"),
        ('{"nodes": [{"id": ' + "1" * 5000 + '}], "edges": []}', "unreadable JSON"),
        ("[" * 100_000, "nested too deeply|invalid JSON"),
        ('{"directed": true, "nodes": [{"id": 1, "fourward_input": "x"}, {"id": 2, "fourward_input": 1}], "edges": []}',
         "unusable attribute"),
    ],
)  # fmt: skip
def test_invalid_json(text, match, tmp_path):
    with pytest.raises(FourwardError, match=match):
        files.read_dag(write_file(tmp_path, "x.json", text))


def named_neurons(path, suffix, names):
    graph = nx.DiGraph([("n0", "n1"), ("n1", "n2")])
    nx.set_node_attributes(graph, names, "name")
    if suffix == "json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    else:
        (nx.write_graphml if suffix == "graphml" else nx.write_gexf)(graph, path)
    return path


def test_positions_of_a_gexf_drawing_are_attributes(tmp_path):
    graph = nx.DiGraph([("a", "b")])
    graph.add_node("a", viz={"position": {"x": 1.5, "y": -2.0, "z": 0.0}, "size": 3.0})
    graph.add_node("b", viz={"position": {"x": 0.5, "y": 4.0, "z": 1.0}}, x=7.0)
    nx.write_gexf(graph, tmp_path / "g.gexf")
    dag = files.read_dag(tmp_path / "g.gexf").dag
    assert dict(dag.attributes) == {"x": (1.5, 7.0), "y": (-2.0, 4.0), "z": (0.0, 1.0)}, "attributes go first"
    files.write(dag, tmp_path / "again.gexf")
    assert files.read_dag(tmp_path / "again.gexf").dag.attributes == dag.attributes


@pytest.mark.parametrize("suffix", ["graphml", "gexf", "json"])
def test_labels_may_be_an_attribute(suffix, tmp_path):
    path = named_neurons(tmp_path / f"x.{suffix}", suffix, {"n0": "n1", "n1": "AVAL", "n2": "β"})
    assert files.read_dag(path, labels="name").dag.labels == ("n1", "AVAL", "β")
    assert files.read_dag(path).dag.labels == ("n0", "n1", "n2")


@pytest.mark.parametrize(
    ("names", "labels", "match"),
    [
        ({"n0": "a", "n1": "a", "n2": "b"}, "name", "labels must be distinct, but 2 nodes have 'a' as 'name'"),
        ({"n0": "a", "n1": "b"}, "name", "'n2' has no text or integer 'name'. Its nodes have name"),
        ({"n0": "a"}, "nom", "'n0' has no text or integer 'nom'. Its nodes have name"),
        ({}, "name", "Its nodes have no attributes at all"),
    ],
)
def test_invalid_label_attributes(names, labels, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read_dag(named_neurons(tmp_path / "x.graphml", "graphml", names), labels=labels)


def test_labels_are_an_option_of_files_with_attributes(tmp_path):
    with pytest.raises(OptionError, match=r"labels= is an option of graphml, gexf, json, but .* is read as csv"):
        files.read_dag(write_file(tmp_path, "x.csv", "a,b\n"), labels="name")

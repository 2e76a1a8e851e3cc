"""GraphML, GEXF and JSON that are none, or hold what a graph can't use."""

import json

import networkx as nx
import pytest

from fourward import files
from fourward.errors import FileError, FourwardError, GraphError, OptionError, WeightError
from tests.graph.put import put

BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<graphml><graph edgedefault="directed"><node id="&c;"/></graph></graphml>"""


SPACE = "http://graphml.graphdrawing.org/xmlns"


OUTSIDE = BOMB.replace('<!ENTITY a "ha">', '<!ENTITY a SYSTEM "file:///etc/passwd">')


@pytest.mark.parametrize("ending", ["graphml", "gexf"])
@pytest.mark.parametrize("text", [BOMB, OUTSIDE, BOMB.split("[")[0] + ">" + BOMB.split("]>")[1]])
def test_entities_and_document_types_are_refused_before_parsing(text, ending, tmp_path, monkeypatch):
    monkeypatch.setattr(nx, "read_graphml", lambda path: pytest.fail("parsed"))
    with pytest.raises(FileError, match=r"line 2: the file declares a document type"):
        files.read(put(tmp_path, f"x.{ending}", text))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("<graphml><graph>", "line 1: this is no XML"),
        ("plain words", "no XML"),
        ("<svg/>", "no GraphML that networkx can read"),
        (
            f'<graphml xmlns="{SPACE}"><graph edgedefault="directed"><edge source="a"/></graph></graphml>',
            "line 1: an edge has no source",
        ),
        (f'<graphml xmlns="{SPACE}"><graph edgedefault="directed"/></graphml>', "empty"),
    ],
)
def test_xml_that_is_no_graph(text, match, tmp_path):
    with pytest.raises(FourwardError, match=match):
        files.read_dag(put(tmp_path, "x.graphml", text))


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda g: g.edges[0, 1].update(weight="much"), FileError, "weight of 'much'"),
        (lambda g: g.edges[0, 1].pop("weight"), WeightError, "1 of 2 edges have no weight"),
        (lambda g: g.edges[0, 1].update(weight=float("inf")), WeightError, "finite"),
        (lambda g: g.nodes[0].update(bias=1.0), GraphError, "1 inputs have a bias"),
    ],
)
@pytest.mark.parametrize("ending", ["json", "graphml"])
def test_attributes_that_are_wrong(change, error, match, ending, tmp_path):
    graph = nx.DiGraph()
    graph.add_weighted_edges_from([(0, 1, 1.5), (1, 2, 2.5)])
    change(graph)
    path = tmp_path / f"x.{ending}"
    if ending == "json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    else:
        nx.write_graphml(graph, path, infer_numeric_types=True)
    with pytest.raises(error, match=match):
        files.read_dag(path)
    bare = files.read_dag(path, bare=True)
    assert (bare.dag.num_edges, bare.weight, bare.bias) == (2, None, None)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("{", "line 1: this is no JSON"),
        ("[]", "node-link JSON has"),
        ("{}", "node-link JSON has"),
        ('{"nodes": [{"id": [1, {}]}], "edges": []}', "node-link JSON has"),
        ('{"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 2}]}', "aren't both nodes"),
        ('{"nodes": [{"id": ' + "1" * 5000 + '}], "edges": []}', "JSON can't be read"),
        ("[" * 100_000, "nested too deep|no JSON"),
        ('{"directed": true, "nodes": [{"id": 1, "fourward_input": "x"}, {"id": 2, "fourward_input": 1}], "edges": []}',
         "can't be used"),
    ],
)  # fmt: skip
def test_json_that_is_no_graph(text, match, tmp_path):
    with pytest.raises(FourwardError, match=match):
        files.read_dag(put(tmp_path, "x.json", text))


def named_neurons(path, ending, names):
    graph = nx.DiGraph([("n0", "n1"), ("n1", "n2")])
    nx.set_node_attributes(graph, names, "name")
    if ending == "json":
        path.write_text(json.dumps(nx.node_link_data(graph, edges="edges")))
    else:
        (nx.write_graphml if ending == "graphml" else nx.write_gexf)(graph, path)
    return path


@pytest.mark.parametrize("ending", ["graphml", "gexf", "json"])
def test_labels_may_be_an_attribute(ending, tmp_path):
    path = named_neurons(tmp_path / f"x.{ending}", ending, {"n0": "n1", "n1": "AVAL", "n2": "β"})
    assert files.read_dag(path, labels="name").dag.labels == ("n1", "AVAL", "β")
    assert files.read_dag(path).dag.labels == ("n0", "n1", "n2")


@pytest.mark.parametrize(
    ("names", "labels", "match"),
    [
        ({"n0": "a", "n1": "a", "n2": "b"}, "name", "2 nodes have 'a' as 'name', but labels must tell nodes apart"),
        ({"n0": "a", "n1": "b"}, "name", "'n2' has no text or whole number as 'name'. Its nodes have name"),
        ({"n0": "a"}, "nom", "'n0' has no text or whole number as 'nom'. Its nodes have name"),
        ({}, "name", "Its nodes have no attributes at all"),
    ],
)
def test_labels_that_are_none(names, labels, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read_dag(named_neurons(tmp_path / "x.graphml", "graphml", names), labels=labels)


def test_labels_are_an_option_of_files_with_attributes(tmp_path):
    with pytest.raises(OptionError, match=r"labels is an option of graphml, gexf, json, but .* is read as csv"):
        files.read_dag(put(tmp_path, "x.csv", "a,b\n"), labels="name")

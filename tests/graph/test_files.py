"""Graph files: what is written is read again, and what is wrong is told, by line where there are lines."""

import contextlib
import gzip
import json
import pickle

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, connectomes, files, generate
from fourward.errors import CycleError, FileError, FourwardError, GraphError, OptionError, WeightError
from fourward.graph import content, weighted

FORMATS = ["graphml", "gexf", "json", "mtx", "npz", "csv", "tsv", "edges"]
WITH_NEURONS = ["graphml", "gexf", "json", "npz"]
PACKED = [f"{name}{gz}" for name in FORMATS for gz in ("", ".gz") if name + gz != "npz.gz"]

DAGS = {
    "random": generate.erdos_renyi(40, 0.15, seed=1),
    "worm": connectomes.load("c-elegans").dag,
    "odd names": Dag.from_edges(
        [("a b", "c"), ('q"x', "c"), ("c", "d,e"), ("1", "c"), ("<&>", "é\t")],
        nodes=["#z", "é\t", "<&>", "d,e", "c", 'q"x', "a b", "1"],
        inputs=["1", "a b", 'q"x'],
        outputs=["c", "d,e"],
    ),
    "odd numbers": Dag.from_edges(
        [(5, 3), (-2, 3), (3, 2**62)], nodes=[2**62, 5, 3, -2, 7], inputs=[-2, 5], outputs=[2**62, 3]
    ),
    "numbers of numpy": Dag.from_edges([(np.int64(4), np.int64(2))], nodes=[np.int64(k) for k in (4, 9, 2)]),
    "no edges": Dag.from_edges([], nodes=[0, 2, 1, 3]),
    "digits as text": Dag.from_edges([("1", "2"), ("2", "03")]),
    "one node": Dag.from_edges([], nodes=1),
}


def put(folder, name, text):
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def assert_same_dag(got, want):
    assert got == want
    assert all(isinstance(a, str) == isinstance(b, str) for a, b in zip(got.labels, want.labels, strict=True))


@pytest.mark.parametrize("ending", PACKED)
@pytest.mark.parametrize("name", DAGS)
def test_what_is_written_is_read_again(name, ending, tmp_path):
    dag, path = DAGS[name], tmp_path / f"graph.{ending}"
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=dag.num_edges), rng.normal(size=len(dag.neurons))
    activation = ["tanh", "relu", None] * len(bias)
    neurons = {"bias": bias, "activation": activation[: len(bias)]} if ending.split(".")[0] in WITH_NEURONS else {}
    files.write(dag, path, weight=weight, **neurons)
    got = files.read_dag(path)
    assert_same_dag(got.dag, dag)
    assert dag.num_edges == 0 or np.array_equal(got.weight, weight)
    if neurons and len(bias):
        assert np.array_equal(got.bias, bias)
        assert list(got.activation) == neurons["activation"]
    files.write(dag, path)
    got = files.read_dag(path)
    assert_same_dag(got.dag, dag)
    assert got.weight is None
    assert got.bias is None
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("ending", FORMATS)
@given(data=st.data())
def test_any_text_is_a_label(ending, data, tmp_path_factory):
    text = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1)
    labels = data.draw(st.lists(text, min_size=2, max_size=6, unique=True))
    ends = st.integers(0, len(labels) - 1)
    pairs = data.draw(st.sets(st.tuples(ends, ends).map(sorted).map(tuple).filter(lambda p: p[0] < p[1])))
    dag = Dag.from_edges([(labels[u], labels[v]) for u, v in pairs], nodes=labels)
    path = tmp_path_factory.mktemp("labels") / f"graph.{ending}"
    files.write(dag, path, weight=np.linspace(-1, 1, dag.num_edges))
    assert_same_dag(files.read_dag(path).dag, dag)


@pytest.mark.parametrize("ending", ["csv", "tsv", "mtx", "edges"])
def test_formats_without_a_place_for_biases_say_so(ending, tmp_path):
    with pytest.raises(FileError, match=r"no place for biases.*graphml"):
        files.write(generate.chain(3), tmp_path / f"x.{ending}", bias=[1, 2])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dag", "change", "error", "text"),
    [
        (Dag.from_edges([("a", 1)]), {}, GraphError, "all text, or all whole numbers"),
        (Dag.from_edges([((0, 1), (1, 2))]), {}, GraphError, "all text, or all whole numbers"),
        (Dag.from_edges([(2**70, 1)]), {}, GraphError, "64 bits"),
        (generate.chain(3), {"weight": [1.0]}, WeightError, "2 were wanted"),
        (generate.chain(3), {"weight": [1.0, float("nan")]}, WeightError, "finite"),
        (Dag.from_edges([("a\x00", "b")]), {"name": "x.graphml"}, GraphError, "XML can't hold"),
        (Dag.from_edges([("a\n", "b")]), {"name": "x.csv"}, GraphError, "line break"),
        (Dag.from_edges([("", "b")]), {"name": "x.csv"}, GraphError, "empty label"),
        (generate.chain(2), {"name": "x.npz.gz"}, FileError, "packed already"),
        (generate.chain(2), {"name": "x.dot"}, FileError, r"\.graphml.*--format"),
        (generate.chain(2), {"format": "dot"}, OptionError, "no graph format 'dot'"),
    ],
)
def test_what_a_file_cant_hold_isnt_written(dag, change, error, text, tmp_path):
    name = change.pop("name", "x.json")
    with pytest.raises(error, match=text):
        files.write(dag, tmp_path / name, **change)
    assert not list(tmp_path.iterdir())


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    files.write(generate.chain(2), path)
    before = path.read_bytes()

    def full(loaded, file):
        file.write(b"{")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(files._FORMATS, "json", files._FORMATS["json"]._replace(write=full))
    with pytest.raises(OSError, match="No space"):
        files.write(generate.chain(9), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("text", "labels", "weight"),
    [
        ("a,b\nb,c\n", ["a", "b", "c"], None),
        ("a,b", ["a", "b"], None),
        ("a;b;2\n", ["a", "b"], [2]),
        ("\ufeffa,b\r\nb,c\r\n", ["a", "b", "c"], None),
        ("source,target\nx,y\n", ["x", "y"], None),
        ("From,To\nx,y\n", ["x", "y"], None),
        ("what,ever\n1,2\n", [1, 2], None),
        ("what,ever,n\nx,y,2\n", ["x", "y"], [2]),
        ("x,y\nu,v\n", ["x", "y", "u", "v"], None),
        ("x,y\nnan,inf\n", ["x", "y", "nan", "inf"], None),
        (b"# caf\xe9\nx,y\n", ["x", "y"], None),
        ("# a comment\n\n9,1\n# another, here\n\n1,3\n", [1, 3, 9], None),
        ("# a comment\nx,y\n#x,z\n", ["x", "y"], None),
        ("1,2\n2,n3\n", ["1", "2", "n3"], None),
        ("01,2\n", ["01", "2"], None),
        ('"1",2\n', ["1", "2"], None),
        ('"a,b",c,1e-3\n', ["a,b", "c"], [1e-3]),
        ("1,2,0.5\n2,3,-1\n", [1, 2, 3], [0.5, -1]),
        ("3,1\n720575940610453042,3\n", [1, 3, 720575940610453042], None),
        ("1,99999999999999999999\n", ["1", "99999999999999999999"], None),
        ("source, target\na, b\nb , c\n", ["a", "b", "c"], None),
        (" a,\tb \r\nb, c d\r\n \r\nc d,e ", ["a", "b", "c d", "e"], None),
        ("1, 2\n2, 3\n", [1, 2, 3], None),
        ("1, 2, .5\n2, n3, 1\n", ["1", "2", "n3"], [0.5, 1]),
        ('a, " b, "" c " , 1\n" b, "" c ",d,2\n', ["a", ' b, " c ', "d"], [1, 2]),
        ('" a",b\n', [" a", "b"], None),
        ("root,1\n1,2\n2,3\n", ["root", "1", "2", "3"], None),
        ("na,nb\n1,2\n", [1, 2], None),
        ("from_id,to_id,2019\n1,2,3\n", [1, 2], [3]),
        ("bodyId_pre,bodyId_post\na,b\n", ["a", "b"], None),
        ("Source,Target,Type,Id,Label,Weight\na,b,Directed,0,,2\n", ["a", "b"], [2]),
        (",source,target,count\n0,10,11,5\n1,11,12,6\n", [10, 11, 12], [5, 6]),
        ("id,pre_root_id,post_root_id\n1,a,b\n", ["a", "b"], None),
        ("weight,from,to\n.5,a,b\n", ["a", "b"], [0.5]),
        ("u_1,v_1\nv_1,w\n", ["u_1", "v_1", "w"], None),
        ("pre A,post A\npost A,b\n", ["pre A", "post A", "b"], None),
    ],
)
def test_edge_lists_as_they_come(text, labels, weight, tmp_path):
    got = files.read(put(tmp_path, "x.csv", text))
    assert list(got.graph.labels) == labels
    assert (got.weight is None) == (weight is None)
    assert weight is None or got.weight.tolist() == weight


@pytest.mark.parametrize(
    ("name", "text", "pairs"),
    [
        ("x.tsv", "a b\tc\n", [("a b", "c")]),
        ("x.txt", "# Nodes: 3\n# From\tTo\n0\t1\n", [(0, 1)]),
        ("x.txt", "0 1\n1 2\n", [(0, 1), (1, 2)]),
        ("x.edgelist", "a,b\n", [("a", "b")]),
    ],
)
def test_endings_and_delimiters(name, text, pairs, tmp_path):
    assert files.read_dag(put(tmp_path, name, text)).dag == Dag.from_edges(pairs)


def test_names_say_which_end_is_which(tmp_path):
    assert files.read_dag(put(tmp_path, "x.csv", "post,pre\na,b\n")).dag == Dag.from_edges([("b", "a")])


def test_columns_of_a_table_with_more(tmp_path):
    path = put(tmp_path, "x.csv", "pre,post,where,count\n7,8,LO,3\n8,9,ME,4\n")
    for columns in (["pre", "post", "count"], [1, 2, 4], ["1", "2", "4"]):
        got = files.read_dag(path, columns=columns)
        assert got.dag == Dag.from_edges([(7, 8), (8, 9)])
        assert got.weight.tolist() == [3, 4]
    assert files.read_dag(path, columns=["post", "pre"]).dag == Dag.from_edges([(8, 7), (9, 8)])
    assert files.read_dag(path, columns=[1, 3], header=False).dag.num_nodes == 6
    with pytest.raises(FileError, match=r"line 2: the weight 'LO'.*--columns"):
        files.read(path)
    with pytest.raises(OptionError, match=r"no column 'from': its columns are pre, post, where, count"):
        files.read(path, columns=["from", "to"])
    with pytest.raises(OptionError, match="two or three"):
        files.read(path, columns=["pre"])
    with pytest.raises(OptionError, match="options of edge lists"):
        files.read(put(tmp_path, "x.json", "{}"), columns=[1, 2])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\nb\n", r"x\.csv, line 2 has 1 columns"),
        ("source,target\na,b,c\n", r"line 2 has 3 columns"),
        ("# top\na,b\n\n# mid\nb,c,d\n", r"line 5 has 3 columns"),
        ("a,b,1\nb,c,x\n", r"line 2: the weight 'x' is no finite number"),
        ("a,b,1\nb,c,inf\n", r"line 2: the weight 'inf' is no finite number"),
        ("1,2,NA\n2,3,.5\n", r"line 1: the weight 'NA' is no finite number"),
        ("a,b,nan\nb,c,1\n", r"line 1: the weight 'nan' is no finite number"),
        ("a,b,1\nb,c,\n", r"line 2: a label or a weight is missing"),
        ("a,b\n,c\n", r"line 2: a label or a weight is missing"),
        ("1,2\n,3\n", r"line 2: a label or a weight is missing"),
        ("", "is empty"),
        ("\n\n", "no edges"),
        ("# only this\n", "no edges"),
        ("source,target\n", "no edges below"),
        (",here,there\n0,1,2\n", r"line 1: the first column has no name"),
        ("alone\n", r"line 1: an edge has a source and a target"),
        ("a,b\rb,c\r", "carriage return"),
        ("a,b\nb,é\n".encode("latin-1"), "no UTF-8"),
        ("a,b\nb,c\n".encode("utf-16"), "UTF-16"),
        (b"\x00" * 2**21, "no edge list"),
        ('# fourward {"nodes": [1]}\n1,2\n', "2, which the list of nodes"),
        ("# fourward {nodes}\n1,2\n", "should be JSON"),
        ('# fourward {"nodes": 5}\n1,2\n', "should list labels"),
    ],
)
def test_edge_lists_that_are_wrong(text, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read(put(tmp_path, "x.csv", text))


def test_a_table_of_two_columns_after_one_of_three(tmp_path):
    """The first line wins, and the line that differs is named, however far down it stands."""
    text = "".join(f"{k},{k + 1},1\n" for k in range(50_000)) + "1,2\n"
    with pytest.raises(FileError, match="line 50001 has 2 columns"):
        files.read(put(tmp_path, "x.csv", text))


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


def test_any_format_can_be_read_bare(tmp_path):
    for ending in FORMATS:
        path, neurons = tmp_path / f"x.{ending}", {"bias": [1, 2]} if ending in WITH_NEURONS else {}
        files.write(generate.chain(3), path, weight=[1, 2], **neurons)
        assert files.read_dag(path, bare=True) == (generate.chain(3), None, None, None, (), 0)
    text = put(tmp_path, "y.csv", "a,b,much\nb,c,little\n")
    assert files.read_dag(text, bare=True).dag.num_edges == 2


def test_parallel_edges_are_named(tmp_path):
    graph = nx.MultiDiGraph([("a", "b"), ("a", "b")])
    nx.write_graphml(graph, tmp_path / "x.graphml")
    with pytest.raises(GraphError, match=r"'a' -> 'b'.*--merge"):
        files.read_dag(tmp_path / "x.graphml")
    assert files.read_dag(tmp_path / "x.graphml", merge=True).dag.num_edges == 1


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


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("1 2 3\n", "doesn't start with %%MatrixMarket"),
        ("%%MatrixMarket matrix array real general\n1 1\n1\n", "coordinate form was wanted"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", "real numbers"),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n", "general or symmetric"),
        ("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 2 1\n", "square"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 99\n1 2 1\n", "too short"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 7 1\n", "Matrix Market"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 nan\n", "line 3: b'n' belongs to no number"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1e999\n", "no number|Matrix Market"),
        ('%%MatrixMarket matrix coordinate pattern general\n%fourward {"nodes": [1]}\n2 2 1\n1 2\n', "lists 1 nodes"),
    ],
)
def test_matrices_that_are_no_graphs(text, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read(put(tmp_path, "x.mtx", text))


class Evil:
    def __reduce__(self):
        return pytest.fail, ("code from a file has run",)


@pytest.mark.parametrize(
    "arrays", [{"edges": np.array([Evil()])}, {"edges": np.zeros((0, 2), int), "x": np.array([Evil()])}]
)
def test_pickles_are_refused(arrays, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(FileError, match="could run code"):
        files.read(tmp_path / "x.npz")
    with pytest.raises(FileError, match="can't be read as npz"):
        files.read(put(tmp_path, "y.npz", pickle.dumps({"edges": 1})))


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"x": np.zeros(3)}, "has the arrays x"),
        ({"edges": np.zeros((3, 2))}, "whole numbers"),
        ({"edges": np.zeros((3, 3), int)}, r"\(E, 2\)"),
        ({"edges": np.array([[0, 5]]), "labels": np.arange(3)}, "nodes 0 to 2"),
        ({"edges": np.array([[0, 1]]), "labels": np.zeros(2)}, "'labels' must be"),
        ({"edges": np.array([[0, 1]]), "labels": np.array(["a", "a"])}, "distinct"),
        ({"edges": np.array([[0, 1]]), "inputs": np.array([9])}, "numbers of nodes"),
        ({"edges": np.array([[0, 1]]), "weight": np.zeros(5)}, "'weight' must hold 1 numbers"),
        ({"edges": np.array([[0, 1]]), "weight": np.array([np.nan])}, "no number"),
        ({"edges": np.array([[0, 1]]), "activation": np.zeros(2)}, "'activation' must hold 2 words"),
        ({"edges": np.array([[0, 1]]), "bias": np.array(["x", "y"])}, "'bias' must hold 2 numbers"),
    ],
)
def test_arrays_that_are_no_graphs(arrays, match, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(FourwardError, match=match):
        files.read_dag(tmp_path / "x.npz")


def test_scipys_own_files(tmp_path):
    matrix = sp.csr_array(np.array([[0, 2.5, 0], [0, 0, 1.5], [0, 0, 0]]))
    sp.save_npz(tmp_path / "x.npz", matrix)
    got = files.read_dag(tmp_path / "x.npz")
    assert got.dag == Dag.from_scipy(matrix)
    assert got.weight.tolist() == [2.5, 1.5]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "mtx", "npz", "graphml", "gexf", "json"])
def test_a_file_larger_than_memory_says_what_it_needs_before_it_starts(ending, tmp_path, monkeypatch):
    path = tmp_path / f"x.{ending}"
    dag = generate.chain(3_000)
    files.write(dag, path)
    assert files.read_dag(path).dag == dag
    monkeypatch.setattr(content._memory, "available", lambda: 20_000)
    with pytest.raises(FileError, match=r"too large for this machine: .*about .*iB of memory, but 19\.5 KiB are free"):
        files.read(path)


def test_the_estimate_of_an_edge_list_is_near(tmp_path, monkeypatch):
    files.write(generate.chain(100_001), tmp_path / "x.csv")
    monkeypatch.setattr(content._memory, "available", lambda: 1000)
    with pytest.raises(FileError) as caught:
        files.read(tmp_path / "x.csv")
    count = int(str(caught.value).split("it has about ")[1].split(" ")[0].replace(",", ""))
    assert abs(count - 100_000) < 2_000


def test_gzip_that_grows_past_memory_is_stopped(tmp_path, monkeypatch):
    """Its first part packs badly, so that the estimate is low; the rest packs well."""
    noise = np.random.default_rng(0).bytes(2**21)
    path = put(tmp_path, "x.csv.gz", gzip.compress(noise) + gzip.compress(b"\0" * 2**27))
    monkeypatch.setattr(content._memory, "available", lambda: 2**24)
    with pytest.raises(FileError, match="unpacks to more than"):
        files.read(path)


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("x.csv.gz", b"a,b\n", "can't be unpacked"),
        ("x.csv.gz", gzip.compress(b"a,b\n" * 1000, mtime=0)[:-9], "cut short"),
        ("x.json.gz", gzip.compress(b"", mtime=0), "holds nothing"),
        ("x.json", b"", "is empty"),
        ("x.json", b"\xff\xfe{\x00", "UTF-16"),
        ("x.json", b"{\n\xe9}", "line 2: these bytes are no UTF-8"),
        ("x", b"a,b", "its ending doesn't say"),
    ],
)
def test_files_that_are_damaged(name, data, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read(put(tmp_path, name, data))


def test_a_file_that_isnt_there(tmp_path):
    for ending in FORMATS:
        with pytest.raises(FileError, match="there is no file"):
            files.read(tmp_path / f"x.{ending}")


def test_a_format_can_be_named(tmp_path):
    path = put(tmp_path, "x.data", "a,b\n")
    assert files.read_dag(path, format="csv").dag.num_edges == 1
    files.write(generate.chain(3), path, format="npz")
    assert files.read_dag(path, format="npz").dag == generate.chain(3)


@pytest.mark.parametrize("ending", FORMATS)
@given(data=st.binary(min_size=1, max_size=200))
def test_random_bytes_never_give_a_traceback(ending, data, tmp_path_factory):
    read_or_refuse(put(tmp_path_factory.mktemp("fuzz"), f"x.{ending}", data))


@pytest.mark.parametrize("ending", FORMATS)
@given(data=st.data())
def test_mutated_files_never_give_a_traceback(ending, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / f"x.{ending}"
    files.write(DAGS["odd numbers"], path, weight=np.array([0.5, -1, 2]))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content) - 1))
        stop = data.draw(st.integers(at, min(at + 8, len(content))))
        content[at:stop] = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"-1", b"9" * 20, b"nan", b'"']))
        )
        if not content:
            return
    read_or_refuse(put(path.parent, path.name, bytes(content)))


def read_or_refuse(path):
    with contextlib.suppress(FourwardError):
        files.read_dag(path, remove_feedback=True, merge=True)


def test_a_networkx_graph_carries_its_numbers():
    loaded = weighted.settle(weighted.Weighted(weighted.convert.from_pairs([("a", "b"), ("b", "c")])))
    loaded = loaded._replace(weight=np.array([1.0, 2.0]), bias=np.array([0.5, 0.0]), activation=("tanh", None))
    graph = weighted.to_networkx(loaded)
    assert graph.nodes["b"] == {"bias": 0.5, "activation": "tanh"}
    again = weighted.settle(weighted.from_networkx(graph))
    assert again.dag == loaded.dag
    assert again.weight.tolist() == [1, 2]
    assert again.bias.tolist() == [0.5, 0]
    assert again.activation == ("tanh", None)

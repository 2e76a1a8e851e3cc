"""Edge lists: what the first line means, and errors with line numbers."""

import pytest

from fourward import Dag, _memory, files, generate
from fourward.errors import FileError, OptionError
from tests.graph.write_file import write_file


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
def test_labels_and_weights_of_edge_lists(text, labels, weight, tmp_path):
    got = files.read(write_file(tmp_path, "x.csv", text))
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
def test_suffixes_and_delimiters(name, text, pairs, tmp_path):
    assert files.read_dag(write_file(tmp_path, name, text)).dag == Dag.from_edges(pairs)


def test_names_tell_source_from_target(tmp_path):
    assert files.read_dag(write_file(tmp_path, "x.csv", "post,pre\na,b\n")).dag == Dag.from_edges([("b", "a")])


@pytest.mark.parametrize("name", ["weight", "syn_count", "Synapses", "synapseCount"])
def test_names_tell_the_column_of_weights(name, tmp_path):
    path = write_file(
        tmp_path, "x.csv", f"pre_root_id,post_root_id,neuropil,{name}\n720575940600000001,7,LO,3\n7,9,ME,4\n"
    )
    assert files.read_dag(path).weight.tolist() == [3, 4]


def test_columns_of_a_wider_table(tmp_path):
    path = write_file(tmp_path, "x.csv", "pre,post,where,area\n7,8,LO,3\n8,9,ME,4\n")
    for columns in (["pre", "post", "area"], [1, 2, 4], ["1", "2", "4"]):
        got = files.read_dag(path, columns=columns)
        assert got.dag == Dag.from_edges([(7, 8), (8, 9)])
        assert got.weight.tolist() == [3, 4]
    assert files.read_dag(path, columns=["post", "pre"]).dag == Dag.from_edges([(8, 7), (9, 8)])
    assert files.read_dag(path, columns=[1, 3], header=False).dag.num_nodes == 6
    with pytest.raises(
        FileError, match=r"line 2: expected a finite weight in column 3, got 'LO'.*columns=\.\.\. to choose"
    ):
        files.read(path)
    with pytest.raises(OptionError, match=r"no column 'from': its columns are pre, post, where, area"):
        files.read(path, columns=["from", "to"])
    with pytest.raises(OptionError, match="columns must be two or three"):
        files.read(path, columns=["pre"])
    with pytest.raises(OptionError, match=r"columns= is an option of csv, tsv, edges, but .*x\.json is read as json"):
        files.read(write_file(tmp_path, "x.json", "{}"), columns=[1, 2])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\nb\n", r"x\.csv, line 2: expected 2 columns separated by ',', got 1"),
        ("source,target\na,b,c\n", r"line 2: expected 2 columns.*got 3"),
        ("# top\na,b\n\n# mid\nb,c,d\n", r"line 5: expected 2 columns.*got 3"),
        ("a,b,1\nb,c,x\n", r"line 2: expected a finite weight in column 3, got 'x'"),
        ("a,b,1\nb,c,inf\n", r"line 2: expected a finite weight in column 3, got 'inf'"),
        ("1,2,NA\n2,3,.5\n", r"line 1: expected a finite weight in column 3, got 'NA'"),
        ("a,b,nan\nb,c,1\n", r"line 1: expected a finite weight in column 3, got 'nan'"),
        ("a,b,1\nb,c,\n", r"line 2: a label or a weight is missing"),
        ("a,b\n,c\n", r"line 2: a label or a weight is missing"),
        ("1,2\n,3\n", r"line 2: a label or a weight is missing"),
        ("", "is empty"),
        ("\n\n", "no edges"),
        ("# only this\n", "no edges"),
        ("source,target\n", "but no edges"),
        (",here,there\n0,1,2\n", r"line 1: the first column has no name.*columns="),
        ("alone\n", r"line 1: expected a source and a target, got 'alone'"),
        ("a,b\rb,c\r", "carriage return"),
        ("a,b\nb,é\n".encode("latin-1"), "expected UTF-8 text"),
        ("a,b\nb,c\n".encode("utf-16"), "UTF-16"),
        (b"\x00" * 2**21, "too many for an edge list"),
        ('# fourward {"nodes": [1]}\n1,2\n', "the label 2, which the list of nodes"),
        ("# fourward {nodes}\n1,2\n", "expected a JSON object"),
        ('# fourward {"nodes": 5}\n1,2\n', "expected lists of labels"),
    ],
)
def test_invalid_edge_lists(text, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read(write_file(tmp_path, "x.csv", text))


def test_a_table_of_two_columns_after_one_of_three(tmp_path):
    """The first line counts, and the error names the line that differs, however late."""
    text = "".join(f"{k},{k + 1},1\n" for k in range(50_000)) + "1,2\n"
    with pytest.raises(FileError, match=r"line 50001: expected 3 columns.*got 2"):
        files.read(write_file(tmp_path, "x.csv", text))


def test_the_estimate_of_an_edge_list_is_near(tmp_path, monkeypatch):
    files.write(generate.chain(100_001), tmp_path / "x.csv")
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    with pytest.raises(FileError) as caught:
        files.read(tmp_path / "x.csv")
    count = int(str(caught.value).split("it has about ")[1].split(" ")[0].replace(",", ""))
    assert abs(count - 100_000) < 2_000

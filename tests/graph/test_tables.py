"""Tables as they come: gaps, duplicates, self-loops, rounded ids, a second table of nodes; pandas, polars, pyarrow."""

import json

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fourward import Dag, Digraph, FourWard, files, generate
from fourward.errors import FileError, GraphError, OptionError, WeightError
from tests.graph.write_file import write_file

IDS = [720575940606852001 + 7 * k for k in range(6)]


def weight_by_pair(got):
    labels = got.dag.labels
    return {(labels[u], labels[v]): w for (u, v), w in zip(got.dag.edges.tolist(), got.weight.tolist(), strict=True)}


def synapses():
    return pd.DataFrame(
        {"pre_id": [IDS[0], IDS[1], IDS[0]], "post_id": [IDS[2], IDS[2], IDS[3]], "syn_count": [3, 5, 9]}
    )


class PolarsSeries:
    """What is used of a column of polars, whose own wheel is too large for the tests."""

    def __init__(self, values):
        self.values = values

    def null_count(self):
        return int(self.values.isna().sum())

    def to_list(self):
        return [None if pd.isna(value) else value for value in self.values.tolist()]

    def to_numpy(self):
        return self.values.to_numpy()


class PolarsFrame:
    """The same of a table."""

    def __init__(self, table):
        self.table = table

    @property
    def columns(self):
        return list(self.table.columns)

    def __len__(self):
        return len(self.table)

    def __getitem__(self, name):
        return PolarsSeries(self.table[name])


class PolarsLazyFrame(PolarsFrame):
    def collect(self):
        return PolarsFrame(self.table)


PolarsFrame.__module__, PolarsLazyFrame.__module__ = "polars.dataframe.frame", "polars.lazyframe.frame"


def to_polars(table):
    return pytest.importorskip("polars").from_pandas(table)


CONVERTERS = {
    "pandas": lambda table: table,
    "pyarrow": pa.Table.from_pandas,
    "as polars": PolarsFrame,
    "polars": to_polars,
}
each_table = pytest.mark.parametrize("convert", CONVERTERS.values(), ids=CONVERTERS)


@each_table
def test_tables_are_taken_where_pairs_are(convert):
    table = convert(synapses())
    want = {(IDS[0], IDS[2]): 3, (IDS[1], IDS[2]): 5, (IDS[0], IDS[3]): 9}
    assert weight_by_pair(files.read_dag(table)) == want
    assert Dag.from_edges(table) == files.read_dag(table).dag
    text = convert(synapses().astype({"pre_id": str, "post_id": str}))
    assert set(Dag.from_edges(text).labels) == {str(i) for i in IDS[:4]}


@each_table
def test_tables_are_taken_wherever_a_graph_takes_pairs(convert):
    dag, table, part = Dag.from_edges(synapses()), convert(synapses()), convert(synapses()[1:])
    assert dag.find_edges(part).tolist() == dag.find_edges([(IDS[1], IDS[2]), (IDS[0], IDS[3])]).tolist()
    assert dag.align([1.0, 2.0, 3.0], table).tolist() == dag.align([1.0, 2.0, 3.0], synapses().iloc[:, :2]).tolist()
    frozen = FourWard(dag, frozen=part).constraints.arrays.frozen
    assert np.flatnonzero(frozen).tolist() == sorted(dag.find_edges(part).tolist())
    graph = Digraph.from_edges(table, feedback=part)
    assert graph.num_feedback == 2
    got = files.read_digraph(table, nodes=convert(pd.DataFrame({"root_id": IDS[:2], "class": ["a", None]})))
    assert got.graph.attributes["class"] == ("a", None, None, None)


@each_table
def test_errors_of_tables_are_short_and_name_what_helps(convert):
    frame = pd.DataFrame({"pre": [1, 2], "post": [2, 1], "weight": [1.0, None]})
    with pytest.raises(GraphError, match=r"row 1: 2, 1, (nan|None)\. Pass missing='skip'"):
        files.read_dag(convert(frame))
    with pytest.raises(GraphError, match=r"files\.read_dag\(table, missing='skip'\) leaves out such rows\.$"):
        Dag.from_edges(convert(frame))
    with pytest.raises(GraphError, match=r"^the table: expected at least one input"):
        files.read_digraph(convert(frame.fillna(1)))


def test_lazy_tables_have_to_be_collected():
    for read in (files.read_dag, Dag.from_edges, lambda t: files.read_dag(synapses(), nodes=t)):
        with pytest.raises(GraphError, match=r"got a PolarsLazyFrame. Pass table\.collect\(\)"):
            read(PolarsLazyFrame(synapses()))


@each_table
def test_unsigned_ids_above_half_of_64_bits_keep_their_values(convert):
    frame = pd.DataFrame({"pre": [2**63 + 5, 7], "post": [2**63 + 6, 2**63 + 5]}, dtype=np.uint64)
    assert Dag.from_edges(convert(frame)).labels == (7, 2**63 + 5, 2**63 + 6)


def test_rows_without_a_value_are_refused_or_skipped(tmp_path):
    path = write_file(tmp_path, "x.csv", "pre,post,weight\n,2,1\n1,2,3\n1,,4\n2,3,\n2,3,NaN\n2,4,6\n")
    with pytest.raises(FileError, match=r"line 2: a label or a weight is missing.*missing='skip'"):
        files.read_dag(path)
    got = files.read_dag(path, missing="skip")
    assert weight_by_pair(got) == {(1, 2): 3, (2, 4): 6}, "labels stay integers"
    assert got.changes.skipped == 4
    frame = pd.DataFrame({"pre": ["a", None, "b"], "post": ["b", "c", "c"], "weight": [1.0, 2.0, np.nan]})
    with pytest.raises(GraphError, match=r"2 rows of the table lack a label or a weight, the first of them row 1"):
        files.read_dag(frame)
    assert weight_by_pair(files.read_dag(frame, missing="skip")) == {("a", "b"): 1}
    nothing = write_file(tmp_path, "y.csv", "pre,post\n1,\n,2\n")
    with pytest.raises(FileError, match="none of the 2 rows"):
        files.read_dag(nothing, missing="skip")


@pytest.mark.parametrize("word", ["NA", "#N/A", "<NA>", "None", "null", "nan"])
def test_words_for_missing_values(word, tmp_path):
    """No word of pandas, R or a spreadsheet becomes a neuron among integers, and no row is taken for a comment."""
    label = write_file(tmp_path, "x.csv", f"pre,post,weight\n1,2,3\n{word},3,2\n3,4,1\n")
    with pytest.raises(FileError, match=r"line 3: a label or a weight is missing.*missing='skip'"):
        files.read_dag(label)
    weight = write_file(tmp_path, "y.csv", f"{word},2,9\n1,2,3\n1,3,{word}\n3,4,1\n")
    for path, skipped in ((label, 1), (weight, 2)):
        got = files.read_dag(path, missing="skip")
        assert weight_by_pair(got) == {(1, 2): 3, (3, 4): 1}
        assert got.changes.skipped == skipped
    frame = pd.DataFrame({"pre": ["1", word, "3"], "post": ["2", "3", "4"], "weight": [3.0, 2.0, 1.0]})
    assert weight_by_pair(files.read_dag(frame, missing="skip")) == {("1", "2"): 3, ("3", "4"): 1}
    wrong = write_file(tmp_path, "z.csv", f"1,2,{word}\n2,3,4\n3,4,five\n")
    with pytest.raises(FileError, match="line 3: expected a finite weight in column 3, got 'five'"):
        files.read_dag(wrong, missing="skip")
    nodes = write_file(tmp_path, "n.csv", f"id,transmitter\n1,GABA\n2,{word}\n")
    assert files.read_dag(label, missing="skip", nodes=nodes).dag.attributes["transmitter"] == (
        "GABA",
        None,
        None,
        None,
    )


def test_names_of_ions_are_labels(tmp_path):
    assert files.read_dag(write_file(tmp_path, "x.csv", "pre,post\nNA,K\nK,Cl\n")).dag.labels == ("NA", "K", "Cl")


def test_lines_are_those_of_the_file_after_skipping(tmp_path):
    path = write_file(tmp_path, "x.csv", "1,2,3\n1,,4\n2,2,6\n")
    with pytest.raises(GraphError, match=r"self-loop: 2 -> 2 \(line 3\)"):
        files.read_dag(path, missing="skip")


@pytest.mark.parametrize(("how", "weight"), [(True, 6), ("sum", 6), ("mean", 2), ("max", 5), ("min", -1), ("first", 2)])
def test_merging(tmp_path, how, weight):
    path = write_file(tmp_path, "x.csv", "a,b,2\na,b,5\nb,c,1\na,b,-1\n")
    got = files.read_dag(path, merge=how)
    assert weight_by_pair(got) == {("a", "b"): weight, ("b", "c"): 1}
    assert (got.merged, got.changes.merged) == (2, 2)


def test_the_least_weight_counts_after_merging(tmp_path):
    path = write_file(tmp_path, "x.csv", "a,b,3\na,b,3\nb,c,4\na,c,-5\nc,c,9\n")
    got = files.read_dag(path, merge=True, min_weight=5, self_loops="drop")
    assert weight_by_pair(got) == {("a", "b"): 6, ("a", "c"): -5}
    assert (got.changes.weak, got.changes.self_loops) == (1, 1)
    with pytest.raises(WeightError, match="min_weight needs weights"):
        files.read_dag(path, topology_only=True, min_weight=5)


@pytest.mark.parametrize("label", ["7.20575940606852e+17", "7.2e17", "720575940606852001.0"])
def test_ids_that_became_floats_are_noticed(tmp_path, label):
    path = write_file(tmp_path, "x.csv", f"pre,post\n{label},{IDS[0]}\n{IDS[1]},{IDS[2]}\n")
    with pytest.raises(FileError, match=r"is a float\. Ids of 16 digits.*dtype=str"):
        files.read_dag(path)
    with pytest.raises(GraphError, match=r"'pre' holds floats such as 7\.2"):
        files.read_dag(pd.DataFrame({"pre": [float(label)], "post": [IDS[0]]}))
    with pytest.raises(GraphError, match="is a float"):
        files.read_dag(pd.DataFrame({"pre": [label], "post": ["x"]}))


def test_small_floats_and_mixed_kinds():
    assert Dag.from_edges(pd.DataFrame({"u": [1.0, 2.0], "v": [3, 4]})).labels == (1, 2, 3, 4)
    with pytest.raises(GraphError, match="got numbers as sources and text as targets"):
        Dag.from_edges(pd.DataFrame({"u": [1, 2], "v": ["a", "b"]}))
    with pytest.raises(OptionError, match="columns must be two or three"):
        files.read_dag(synapses(), columns=["pre_id", "count"])


def test_attributes_from_a_second_table(tmp_path):
    edges = write_file(tmp_path, "x.csv", f"{IDS[0]},{IDS[1]},3\n{IDS[1]},{IDS[2]},4\n")
    nodes = write_file(
        tmp_path, "nodes.csv",
        f"root_id,class,transmitter,x,side\n{IDS[2]},motor,GABA,1.5,left\n{IDS[0]},sensory,,2.5,\n{IDS[5]},other,,0,\n",
    )  # fmt: skip
    got = files.read_dag(edges, nodes=nodes, inputs="class=sensory", outputs="class=motor").dag
    assert dict(got.attributes) == {
        "class": ("sensory", None, "motor"), "transmitter": (None, None, "GABA"), "x": (2.5, None, 1.5),
        "side": (None, None, "left"),
    }  # fmt: skip
    assert [got.labels[v] for v in (*got.inputs, *got.outputs)] == [IDS[0], IDS[2]]
    assert files.read_dag(edges, nodes=pd.read_csv(nodes)).dag.attributes == got.attributes
    text = write_file(tmp_path, "t.csv", f'"{IDS[0]}","{IDS[1]}"\n"{IDS[1]}","{IDS[2]}"\n')
    assert files.read_dag(text, nodes=nodes).dag.attributes == got.attributes, "text or integers"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,class\n9,a\n", "no row of the table of nodes belongs to a node of the graph"),
        ("id,class\n1,a\n1,b\n", "several rows for 1"),
        ("id,class\n7.2e17,a\n1,b\n", "is a float"),
        ("id,bias\n1,3\n", "can't be named 'bias'"),
        ("id,class\n1,a,b\n", "can't be read as a table"),
        ("", "can't be read as a table"),
    ],
)
def test_tables_of_nodes_that_are_refused(tmp_path, text, message):
    edges, nodes = write_file(tmp_path, "x.csv", "1,2\n2,3\n"), write_file(tmp_path, "nodes.csv", text)
    with pytest.raises(FileError, match=message):
        files.read(edges, nodes=nodes)
    with pytest.raises(FileError, match="file not found"):
        files.read(edges, nodes=tmp_path / "none.csv")


def test_inputs_and_outputs_by_list_by_file_and_by_attribute(tmp_path):
    edges = write_file(tmp_path, "x.csv", "1,3\n2,3\n3,4\n5,1\n")
    listed = write_file(tmp_path, "inputs.txt", "2\n1\n\n")
    got = files.read_dag(edges, inputs=listed, outputs=["4"], into_inputs="cut")
    assert [got.dag.labels[v] for v in got.dag.inputs] == [2, 1], "text finds integers, in order"
    assert (got.cut, got.changes.cut) == (((5, 1),), 1)
    got = files.read_dag(edges, inputs=listed, outputs=["4"])
    assert [got.dag.labels[v] for v in got.dag.driven] == [1], "driven by default"
    assert (got.cut, got.changes.cut, got.changes.driven) == ((), 0, 1)
    assert "1 input is driven" in repr(got)
    assert files.read_dag(edges, inputs=listed, into_inputs="drive").dag == files.read_dag(edges, inputs=listed).dag
    with pytest.raises(OptionError, match="into_inputs must be 'drive' or 'cut', got 'keep'"):
        files.read_dag(edges, inputs=listed, into_inputs="keep")
    with pytest.raises(GraphError, match="no attribute 'class'"):
        files.read_dag(edges, inputs="class=sensory")
    with pytest.raises(GraphError, match=r"an attribute and its value, .* or 'sources'"):
        files.read_dag(edges, inputs="sensory")
    text = write_file(tmp_path, "t.csv", '"1","3"\n')
    assert files.read_dag(text, inputs=[1]).dag.labels == ("1", "3")


def test_only_paths(tmp_path):
    edges = write_file(tmp_path, "x.csv", "a,b,1\nb,c,2\nb,dead,3\nlost,c,4\n")
    nodes = pd.DataFrame({"name": list("abc"), "class": ["s", "i", "m"]})
    got = files.read_dag(edges, nodes=nodes, inputs=["a"], outputs=["c"], only="paths")
    assert got.dag == Dag.from_edges([("a", "b"), ("b", "c")])
    assert got.dag.attributes == {"class": ("s", "i", "m")}
    assert got.changes.off_path == 2
    with pytest.raises(GraphError, match="no path leads"):
        files.read_dag(edges, inputs=["a"], outputs=["lost"], only="paths")


@pytest.mark.parametrize("suffix", [".graphml", ".gexf", ".json", ".npz", ".csv", ".mtx"])
def test_files_keep_attributes(tmp_path, suffix):
    dag = generate.chain(4).with_attributes({"class": {0: "é", 2: "b"}, "x": [0.5, 1, 2, 3], "side": list("lrlr")})
    files.write(dag, tmp_path / f"g{suffix}")
    got = files.read_dag(tmp_path / f"g{suffix}").dag
    assert dict(got.attributes) == dict(dag.attributes)
    assert Dag.from_networkx(dag.to_networkx()).attributes == dag.attributes


def test_printing_is_short(tmp_path):
    path = write_file(tmp_path, "x.csv", "".join(f"{k},{(k * 7) % 500},1\n" for k in range(1, 500)))
    got = files.read_dag(path, remove_feedback=True, merge=True)
    assert len(repr(got)) < 600
    assert "feedback edges with" in repr(got)
    assert len(repr(files.read(path))) < 200


ROUNDED = [7.20575940606852e17, 7.20575940606853e17]


def test_ids_that_became_floats_are_noticed_in_every_source(tmp_path):
    for source in ([tuple(ROUNDED)], np.array([ROUNDED]), nx.DiGraph([tuple(ROUNDED)]).edges):
        with pytest.raises(GraphError, match=r"the label 7\.2.* is a float\. Ids of 16 digits"):
            Dag.from_edges(source)
    with pytest.raises(GraphError, match="is a float"):
        Dag.from_networkx(nx.DiGraph([tuple(ROUNDED)]))
    assert Dag.from_edges([(0.5, 1e10), (1e10, 1e300)]).num_edges == 2, "other floats are labels like any other"
    named = nx.DiGraph([tuple(map(str, ROUNDED))])
    nx.write_graphml(named, tmp_path / "g.graphml")
    nx.write_gexf(named, tmp_path / "g.gexf")
    (tmp_path / "g.json").write_text(json.dumps(nx.node_link_data(nx.DiGraph([tuple(ROUNDED)]))))
    for suffix in ("graphml", "gexf", "json"):
        with pytest.raises((FileError, GraphError), match=r"g.*is a float"):
            files.read_dag(tmp_path / f"g.{suffix}")


def test_errors_say_of_which_kind_labels_are():
    integers, text = Dag.from_edges([(1, 2)]), Dag.from_edges([("1", "2")])
    for dag, label, kinds in ((integers, "1", "integers, not text"), (text, 1, "text, not integers")):
        for ask in (
            lambda d, x: d.index(x),
            lambda d, x: FourWard(d).silenced([x]),
            lambda d, x: Dag.from_edges(d.to_networkx().edges, inputs=[x]),
            lambda d, x: d.with_attributes({"class": {x: "a"}}),
        ):
            with pytest.raises(GraphError, match=f"These are {kinds}"):
                ask(dag, label)
    with pytest.raises(GraphError) as error:
        text.index("3")
    assert "These are" not in str(error.value)

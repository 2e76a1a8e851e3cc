"""Graph files: round trips of every format, and errors, with line numbers where there are lines."""

import contextlib
import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, Digraph, _memory, connectomes, files, generate
from fourward.errors import CycleError, FileError, FourwardError, GraphError, OptionError, WeightError
from tests.graph.write_file import write_file

FORMATS = list(files._FORMATS)
WITH_NEURONS = [files.SUFFIXES[suffix] for suffix in files.NETWORK_SUFFIXES]
WITH_GZIP = [f"{name}{gz}" for name in FORMATS for gz in ("", ".gz") if name + gz != "npz.gz"]

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


def assert_same_dag(got, want):
    assert got == want
    assert all(isinstance(a, str) == isinstance(b, str) for a, b in zip(got.labels, want.labels, strict=True))


def test_formats():
    assert {"graphml", "gexf", "json", "mtx", "npz", "csv", "tsv", "edges"} <= set(FORMATS)
    assert {"graphml", "gexf", "json", "npz"} <= set(WITH_NEURONS)
    assert not {"mtx", "csv", "tsv", "edges"} & set(WITH_NEURONS)


@pytest.mark.parametrize("suffix", WITH_GZIP)
@pytest.mark.parametrize("name", DAGS)
def test_round_trip(name, suffix, tmp_path):
    dag, path = DAGS[name], tmp_path / f"graph.{suffix}"
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=dag.num_edges), rng.normal(size=len(dag.neurons))
    activation = ["tanh", "relu", None] * len(bias)
    neurons = {"bias": bias, "activation": activation[: len(bias)]} if suffix.split(".")[0] in WITH_NEURONS else {}
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


@pytest.mark.parametrize("suffix", FORMATS)
@given(data=st.data())
def test_any_text_is_a_label(suffix, data, tmp_path_factory):
    text = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1)
    labels = data.draw(st.lists(text, min_size=2, max_size=6, unique=True))
    ends = st.integers(0, len(labels) - 1)
    pairs = data.draw(st.sets(st.tuples(ends, ends).map(sorted).map(tuple).filter(lambda p: p[0] < p[1])))
    dag = Dag.from_edges([(labels[u], labels[v]) for u, v in pairs], nodes=labels)
    path = tmp_path_factory.mktemp("labels") / f"graph.{suffix}"
    files.write(dag, path, weight=np.linspace(-1, 1, dag.num_edges))
    assert_same_dag(files.read_dag(path).dag, dag)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "mtx", "edges"])
def test_formats_that_cant_store_biases(suffix, tmp_path):
    with pytest.raises(FileError, match=r"can't store biases.*graphml"):
        files.write(generate.chain(3), tmp_path / f"x.{suffix}", bias=[1, 2])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dag", "change", "error", "text"),
    [
        (Dag.from_edges([("a", 1)]), {}, GraphError, "all text or all 64-bit integers"),
        (Dag.from_edges([((0, 1), (1, 2))]), {}, GraphError, "all text or all 64-bit integers"),
        (Dag.from_edges([(2**70, 1)]), {}, GraphError, "64-bit integers"),
        (generate.chain(3), {"weight": [1.0]}, WeightError, r"expected weight of shape \(2,\), got shape \(1,\)"),
        (generate.chain(3), {"weight": [1.0, float("nan")]}, WeightError, "weight contains inf or NaN"),
        (Dag.from_edges([("a\x00", "b")]), {"name": "x.graphml"}, GraphError, "XML doesn't allow"),
        (Dag.from_edges([("a\n", "b")]), {"name": "x.csv"}, GraphError, "line break"),
        (Dag.from_edges([("", "b")]), {"name": "x.csv"}, GraphError, "can't be empty"),
        (generate.chain(2), {"name": "x.npz.gz"}, FileError, "already compressed"),
        (generate.chain(2), {"name": "x.dot"}, FileError, r"\.graphml.*format=\.\.\."),
        (generate.chain(2), {"format": "dot"}, OptionError, "unknown graph format 'dot'"),
    ],
)
def test_what_a_format_cant_store_isnt_written(dag, change, error, text, tmp_path):
    name = change.pop("name", "x.json")
    with pytest.raises(error, match=text):
        files.write(dag, tmp_path / name, **change)
    assert not list(tmp_path.iterdir())


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    files.write(generate.chain(2), path)
    before = path.read_bytes()

    def fill_disk(annotated, file):
        file.write(b"{")
        raise OSError(28, "No space left on device")

    monkeypatch.setitem(files._FORMATS, "json", files._FORMATS["json"]._replace(write=fill_disk))
    with pytest.raises(OSError, match="No space"):
        files.write(generate.chain(9), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_topology_of_any_format(tmp_path):
    for suffix in FORMATS:
        path, neurons = tmp_path / f"x.{suffix}", {"bias": [1, 2]} if suffix in WITH_NEURONS else {}
        files.write(generate.chain(3), path, weight=[1, 2], **neurons)
        assert files.read_dag(path, topology_only=True)[:6] == (generate.chain(3), None, None, None, (), 0)
    text = write_file(tmp_path, "y.csv", "a,b,much\nb,c,little\n")
    assert files.read_dag(text, topology_only=True).dag.num_edges == 2


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "mtx", "npz", "graphml", "gexf", "json"])
def test_a_file_larger_than_memory_is_refused_before_it_is_read(suffix, tmp_path, monkeypatch):
    path = tmp_path / f"x.{suffix}"
    dag = generate.chain(3_000)
    files.write(dag, path)
    assert files.read_dag(path).dag == dag
    monkeypatch.setattr(_memory, "available_memory", lambda: 20_000)
    with pytest.raises(
        FileError, match=r"too large for this machine: .*about .*iB of memory, but 19\.5 KiB are available"
    ):
        files.read(path)


def test_gzip_that_grows_past_memory_is_stopped(tmp_path, monkeypatch):
    """Its first part compresses badly, so that the estimate is low; the rest compresses well."""
    noise = np.random.default_rng(0).bytes(2**21)
    path = write_file(tmp_path, "x.csv.gz", gzip.compress(noise) + gzip.compress(b"\0" * 2**27))
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**24)
    with pytest.raises(FileError, match="decompresses to more than"):
        files.read(path)


@pytest.mark.parametrize(
    ("name", "data", "match"),
    [
        ("x.csv.gz", b"a,b\n", "can't be decompressed"),
        ("x.csv.gz", gzip.compress(b"a,b\n" * 1000, mtime=0)[:-9], "truncated"),
        ("x.json.gz", gzip.compress(b"", mtime=0), "empty once decompressed"),
        ("x.json", b"", "is empty"),
        ("x.json", b"\xff\xfe{\x00", "UTF-16"),
        ("x.json", b"{\n\xe9}", "line 2: expected UTF-8"),
        ("x", b"a,b", "expected a file with one of the suffixes"),
    ],
)
def test_corrupt_files(name, data, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read(write_file(tmp_path, name, data))


def test_a_missing_file(tmp_path):
    for suffix in FORMATS:
        with pytest.raises(FileError, match="file not found"):
            files.read(tmp_path / f"x.{suffix}")


def test_suffixes_may_be_in_upper_case(tmp_path):
    path = tmp_path / "X.CSV.GZ"
    files.write(generate.chain(3), path)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert files.read_dag(path).dag == generate.chain(3)


def test_a_format_can_be_named(tmp_path):
    path = write_file(tmp_path, "x.data", "a,b\n")
    assert files.read_dag(path, format="csv").dag.num_edges == 1
    files.write(generate.chain(3), path, format="npz")
    assert files.read_dag(path, format="npz").dag == generate.chain(3)


@pytest.mark.parametrize("suffix", FORMATS)
@given(data=st.binary(min_size=1, max_size=200))
def test_random_bytes_never_give_a_traceback(suffix, data, tmp_path_factory):
    read_or_refuse(write_file(tmp_path_factory.mktemp("fuzz"), f"x.{suffix}", data))


@pytest.mark.parametrize("suffix", FORMATS)
@given(data=st.data())
def test_mutated_files_never_give_a_traceback(suffix, data, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / f"x.{suffix}"
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
    read_or_refuse(write_file(path.parent, path.name, bytes(content)))


def read_or_refuse(path):
    with contextlib.suppress(FourwardError):
        files.read_dag(path, remove_feedback=True, merge=True)


DIGRAPHS = {
    "worm": connectomes.load("c-elegans").graph,
    "all delayed": Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "b")], outputs=["b"], feedback="all"),
    "listed": Digraph.from_edges(
        [("x", "a"), ("a", "b"), ("b", "a"), ("b", "x")],
        inputs=["x"],
        outputs=["b"],
        feedback=[("x", "a"), ("a", "b"), ("b", "x")],
    ).with_attributes({"class": ["s", "i", "m"]}),
    "none": Digraph.from_edges([(0, 2), (2, 1)]),
    "numbers": Digraph.from_edges([(5, 5), (5, -3), (-3, 5)], nodes=[5, -3], inputs=[5], outputs=[-3]),
    "no edges": Digraph.from_edges([], nodes=["b", "a"]),
}


@pytest.mark.parametrize("suffix", WITH_GZIP)
@pytest.mark.parametrize("name", DIGRAPHS)
def test_round_trip_of_feedback(name, suffix, tmp_path):
    g, path, rng = DIGRAPHS[name], tmp_path / f"graph.{suffix}", np.random.default_rng(0)
    weight, bias = rng.normal(size=g.num_edges), rng.normal(size=len(g.neurons))
    values = {"weight": weight}
    if suffix.split(".")[0] in WITH_NEURONS:
        values |= {"bias": bias, "activation": ["tanh"] * len(bias), "constraints": {"sign": np.sign(weight)}}
    files.write(g, path, **values)
    got = files.read_digraph(path)
    assert_same_dag(got.graph, g)
    assert got.graph.attributes == g.attributes
    assert got.graph.num_feedback == g.num_feedback
    assert g.num_edges == 0 or np.array_equal(got.weight, weight)
    if "bias" in values and g.num_edges:
        assert np.array_equal(got.bias, bias)
        assert set(got.activation) == {"tanh"}
        assert np.array_equal(got.constraints["sign"], np.sign(weight))
    files.write(g, path)
    got = files.read_digraph(path)
    assert_same_dag(got.graph, g)
    assert got.weight is None
    if g.num_edges > g.num_feedback > 0:
        all_delayed = files.read_digraph(path, feedback="all").graph
        assert all_delayed.num_feedback == g.num_edges, "a choice counts more than the file"


def test_feedback_in_files_is_checked(tmp_path):
    path = write_file(tmp_path, "g.csv", '# fourward {"feedback": [["a", "c"]]}\nsource,target\na,b\nb,a\n')
    with pytest.raises(FileError, match=r"g\.csv: .*feedback that isn't an edge: \('a', 'c'\)"):
        files.read(path)
    for broken in ('"some"', "[[1]]", "3", '["ab"]'):
        path = write_file(tmp_path, "g.csv", f'# fourward {{"feedback": {broken}}}\nsource,target\na,b\nb,a\n')
        with pytest.raises(FileError, match=r"g\.csv: expected 'feedback' to be 'all' or a list of pairs"):
            files.read(path)
    edges = np.array([[0, 1], [1, 0]])
    for feedback in (np.array([True]), np.array([0, 1]), np.array(["a", "b"])):
        np.savez(tmp_path / "g.npz", edges=edges, feedback=feedback)
        with pytest.raises(FileError, match="'feedback' must be 2 bools"):
            files.read(tmp_path / "g.npz")
    np.savez(tmp_path / "g.npz", edges=edges, feedback=np.array([False, False]))
    with pytest.raises(CycleError, match=r"g\.npz.*0 -> 1 -> 0.*add one of them to feedback"):
        files.read_digraph(tmp_path / "g.npz", inputs=[0], outputs=[1])

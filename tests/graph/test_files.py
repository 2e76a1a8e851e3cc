"""Graph files: what is written is read again, and what is wrong is told, by line where there are lines."""

import contextlib
import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, connectomes, files, generate
from fourward.errors import FileError, FourwardError, GraphError, OptionError, WeightError
from fourward.graph import _io
from tests.graph.put import put

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


def test_any_format_can_be_read_bare(tmp_path):
    for ending in FORMATS:
        path, neurons = tmp_path / f"x.{ending}", {"bias": [1, 2]} if ending in WITH_NEURONS else {}
        files.write(generate.chain(3), path, weight=[1, 2], **neurons)
        assert files.read_dag(path, bare=True) == (generate.chain(3), None, None, None, (), 0)
    text = put(tmp_path, "y.csv", "a,b,much\nb,c,little\n")
    assert files.read_dag(text, bare=True).dag.num_edges == 2


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "mtx", "npz", "graphml", "gexf", "json"])
def test_a_file_larger_than_memory_says_what_it_needs_before_it_starts(ending, tmp_path, monkeypatch):
    path = tmp_path / f"x.{ending}"
    dag = generate.chain(3_000)
    files.write(dag, path)
    assert files.read_dag(path).dag == dag
    monkeypatch.setattr(_io._memory, "available", lambda: 20_000)
    with pytest.raises(FileError, match=r"too large for this machine: .*about .*iB of memory, but 19\.5 KiB are free"):
        files.read(path)


def test_gzip_that_grows_past_memory_is_stopped(tmp_path, monkeypatch):
    """Its first part packs badly, so that the estimate is low; the rest packs well."""
    noise = np.random.default_rng(0).bytes(2**21)
    path = put(tmp_path, "x.csv.gz", gzip.compress(noise) + gzip.compress(b"\0" * 2**27))
    monkeypatch.setattr(_io._memory, "available", lambda: 2**24)
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


def test_endings_may_be_in_capitals(tmp_path):
    path = tmp_path / "X.CSV.GZ"
    files.write(generate.chain(3), path)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert files.read_dag(path).dag == generate.chain(3)


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
    _io = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(_io) - 1))
        stop = data.draw(st.integers(at, min(at + 8, len(_io))))
        _io[at:stop] = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"-1", b"9" * 20, b"nan", b'"'])))
        if not _io:
            return
    read_or_refuse(put(path.parent, path.name, bytes(_io)))


def read_or_refuse(path):
    with contextlib.suppress(FourwardError):
        files.read_dag(path, remove_feedback=True, merge=True)

"""A graph by one word."""

import re

import numpy as np
import pytest

from fourward import Dag, connectomes, files, generate
from fourward.errors import FileError, GraphError, OptionError
from fourward.graph import _io
from fourward.graph._spec import USAGE, find


@pytest.mark.parametrize(
    ("word", "dag"),
    [
        ("er:40:0.1:3", generate.erdos_renyi(40, 0.1, seed=3)),
        ("er:40:0.1", generate.erdos_renyi(40, 0.1, seed=0)),
        ("ws:30:4:0.2:1", generate.watts_strogatz(30, 4, 0.2, seed=1)),
        ("ba:30:2:1", generate.barabasi_albert(30, 2, seed=1)),
        ("mlp:3-4-2", generate.layered_mlp([3, 4, 2])),
        ("rewired:3-4-2:0.2:5", generate.rewired_mlp([3, 4, 2], 0.2, seed=5)),
        ("chain:4", generate.chain(4)),
        ("complete:4", generate.complete(4)),
    ],
)
def test_families(word, dag):
    assert find(word).dag == dag
    assert any(usage.startswith(word.split(":")[0]) for usage in USAGE)


def test_nervous_systems():
    for name in connectomes.NAMES:
        system, got = connectomes.load(name), find(name)
        assert got.dag == system.dag
        assert list(got.removed) == system.removed
        strength = dict(zip(system.edges, system.strength.tolist(), strict=True))
        labels = got.dag.labels
        assert got.weight.tolist() == [strength[labels[u], labels[v]] for u, v in got.dag.edges.tolist()]


def test_files(tmp_path):
    path = tmp_path / "x.csv"
    files.write(generate.chain(4), path, weight=np.arange(3.0))
    got = find(path, inputs=["0"], outputs=["3", "2"])
    assert got.dag == Dag.from_edges([(0, 1), (1, 2), (2, 3)], outputs=[3, 2])
    assert got.weight.tolist() == [0, 1, 2]
    path.write_text("1,2\n2,x\n")
    assert find(path, outputs=["x", "2"]).dag.outputs.tolist() == [2, 1]
    path.write_text("a,b\nb,a\n")
    assert find(path, remove_feedback=True).removed == (("b", "a"),)
    assert find(path, orient="random", seed=0, merge=True).merged == 1
    with pytest.raises(GraphError, match=r"x\.csv: unknown output labels: '--5'"):
        find(path, remove_feedback=True, outputs=["--5"])


@pytest.mark.parametrize(
    ("word", "match"),
    [
        ("er:40", r"er:N:P\[:SEED\] was wanted"),
        ("er:40:0.1:2:7", "was wanted"),
        ("er:forty:0.1", r"er:N:P\[:SEED\] was wanted, with numbers"),
        ("er:40:1.5", "between 0 and 1"),
        ("er:40:0.1:-1", "seed"),
        ("mlp:3-x", "mlp:SIZES was wanted"),
    ],
)
def test_families_that_are_wrong(word, match):
    with pytest.raises(OptionError, match=match):
        find(word)


@pytest.mark.parametrize("word", ["er:90000:0.9", "ws:99999999:90:0.1", "ba:99999999:90", "mlp:90000-90000"])
def test_families_larger_than_memory_are_refused_before_they_are_made(word, monkeypatch):
    monkeypatch.setattr(_io._memory, "available", lambda: 2**36)
    with pytest.raises(FileError, match=rf"{word} is too large for this machine: it has about [\d,]+ edges"):
        find(word)


def test_the_guess_of_a_familys_edges_is_near(monkeypatch):
    monkeypatch.setattr(_io._memory, "available", lambda: 0)
    for word in (
        "er:200:0.5:0",
        "ws:200:4:0.1",
        "ba:200:3",
        "mlp:20-30-9",
        "rewired:20-30-9:0.1",
        "chain:50",
        "complete:50",
    ):
        with pytest.raises(FileError) as caught:
            find(word)
        guess = int(re.search(r"about ([\d,]+) edges", str(caught.value))[1].replace(",", ""))
        with monkeypatch.context() as free:
            free.setattr(_io._memory, "available", lambda: None)
            assert find(word).dag.num_edges == pytest.approx(guess, rel=0.05)


def test_words_that_mean_nothing(tmp_path):
    for word in (str(tmp_path), "net.safetensors"):
        with pytest.raises(FileError, match=r"a graph was wanted.*fourward export"):
            find(word)
    for word in ("er", "zebrafish", "missing.csv"):
        with pytest.raises(FileError, match=r"no file .*er:N:P.*c-elegans"):
            find(word)
    assert find("c-elegans", bare=True).weight is None
    with pytest.raises(OptionError, match="isn't read from a file"):
        find("c-elegans", header=True)

"""Sizes that a file claims, or unpacks to, are checked before anything of that size is allocated; in every reader."""

import gzip
import io
import json
import tracemalloc
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from fourward import _memory, exchange, files
from fourward.errors import DataError, FileError, FourwardError, OptionError
from fourward.graph._spec import resolve_graph
from fourward.train import read_data

HUGE = 10**12
NODES = [{"idx": k, "bias": 0.0, "agg": "sum", "act": "tanh"} for k in range(2)]


def header(shape, dtype="<f8") -> bytes:
    """An npy file without its data."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": shape})
    return file.getvalue()


def write_npz(path, **members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def sparse_matrix(path):
    sp.save_npz(path, sp.coo_array(([1.0], ([0], [1])), shape=(HUGE, HUGE)))
    return path


def gzip_zeros(path, text: bytes = b" "):
    with gzip.open(path, "wb") as file:
        for _ in range(64):
            file.write(text * 2**20)
    return path


READERS = {
    "matrix": lambda folder: files.read_dag(sparse_matrix(folder / "x.npz")),
    "edges": lambda folder: files.read_dag(write_npz(folder / "x.npz", edges=header((HUGE, 2), "<i8"))),
    "empty text": lambda folder: files.read_dag(write_npz(folder / "x.npz", edges=header((HUGE,), "<U0"))),
    "negative": lambda folder: files.read_dag(write_npz(folder / "x.npz", edges=header((-1, -HUGE), "<i8"))),
    "overflow": lambda folder: files.read_dag(write_npz(folder / "x.npz", edges=header((2**32, 2**32), "<i8"))),
    "table": lambda folder: read_data(write_npz(folder / "x.npz", x=header((HUGE, 2)), y=header((HUGE,)))),
    "json": lambda folder: files.read_dag(gzip_zeros(folder / "x.json.gz")),
    "graphml": lambda folder: files.read_dag(gzip_zeros(folder / "x.graphml.gz")),
    "csv": lambda folder: files.read_dag(gzip_zeros(folder / "x.csv.gz", b"1,2\n")),
    "rows": lambda folder: read_data(gzip_zeros(folder / "x.csv.gz", b"1,2\n"), "1"),
    "neat": lambda folder: exchange.read_neat(gzip_zeros(folder / "x.json.gz")),
    "tensorneat": lambda folder: exchange.read_tensorneat(gzip_zeros(folder / "x.json.gz"), 1, 1),
    "inputs": lambda folder: exchange.from_tensorneat({"nodes": NODES, "conns": []}, HUGE, 1),
    "outputs": lambda folder: exchange.from_tensorneat({"nodes": NODES, "conns": []}, 1, HUGE),
}


@pytest.mark.parametrize("name", READERS)
def test_a_claim_is_refused_before_it_is_allocated(name, tmp_path, monkeypatch):
    monkeypatch.setattr(_memory, "available_memory", lambda: 2**26)
    tracemalloc.start()
    try:
        with pytest.raises((FileError, DataError)):
            READERS[name](tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 2**28
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "json", "json.gz", "graphml", "gexf", "mtx", "npz"])
def test_a_limit_of_the_users(suffix, tmp_path):
    dag = resolve_graph("chain:3000").dag
    path = tmp_path / f"x.{suffix}"
    files.write(dag, path)
    assert files.read_dag(path, max_bytes=2**30).dag == dag
    with pytest.raises(FileError, match=r"larger than the limit of 19\.5 KiB: .* Pass max_bytes=\.\.\. to allow more"):
        files.read_dag(path, max_bytes=20_000)
    for spec in (path, "chain:3000"):
        assert resolve_graph(spec, max_bytes=2**30).dag == dag
        with pytest.raises(FileError, match=r"larger than the limit of 19\.5 KiB"):
            resolve_graph(spec, max_bytes=20_000)


@pytest.mark.parametrize("limit", [0, -1, True, "1", 1.5])
def test_invalid_limits(limit):
    with pytest.raises(OptionError, match="max_bytes must be a positive int"):
        resolve_graph("chain:3", max_bytes=limit)


def test_limits_of_imported_networks(tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"nodes": NODES, "conns": [{"in": 0, "out": 1, "weight": 0.5}]}))
    assert exchange.read_tensorneat(path, 1, 1, max_bytes=2**20).dag.num_edges == 1
    for read in (exchange.read_neat, lambda path, **limit: exchange.read_tensorneat(path, 1, 1, **limit)):
        with pytest.raises(FourwardError, match="larger than the limit"):
            read(path, max_bytes=100)

"""Matrix Market and npz that are none, or hold pickles."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from fourward import Dag, files
from fourward.errors import FileError, FourwardError
from tests.graph.put import put


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
        ({"edges": np.array([[0, 1]]), "labels": np.array(["a", "a"])}, "duplicate labels"),
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

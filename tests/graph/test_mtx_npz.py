"""Matrix Market and npz: invalid files, pickles, and files of scipy."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from fourward import Dag, files
from fourward.errors import FileError, FourwardError
from tests.graph.write_file import write_file


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("1 2 3\n", "starts with %%MatrixMarket"),
        (
            "%%MatrixMarket matrix array real general\n1 1\n1\n",
            "real numbers in coordinate format, got a .* array format",
        ),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", "real numbers"),
        ("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 1\n", "general or symmetric"),
        ("%%MatrixMarket matrix coordinate real general\n2 3 1\n1 2 1\n", "square"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 99\n1 2 1\n", "too short"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 7 1\n", "Matrix Market"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 nan\n", "line 3: expected numbers, got b'n'"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1e999\n", "inf or NaN|Matrix Market"),
        (
            '%%MatrixMarket matrix coordinate pattern general\n%fourward {"nodes": [1]}\n2 2 1\n1 2\n',
            "expected 2 nodes.*got 1",
        ),
    ],
)
def test_invalid_matrices(text, match, tmp_path):
    with pytest.raises(FileError, match=match):
        files.read(write_file(tmp_path, "x.mtx", text))


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
        files.read(write_file(tmp_path, "y.npz", pickle.dumps({"edges": 1})))


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"x": np.zeros(3)}, "got the arrays x"),
        ({"edges": np.zeros((3, 2))}, "array of integers"),
        ({"edges": np.zeros((3, 3), int)}, r"\(E, 2\)"),
        ({"edges": np.array([[0, 5]]), "labels": np.arange(3)}, "from 0 to 2"),
        ({"edges": np.array([[0, 1]]), "labels": np.zeros(2)}, "'labels' must be"),
        ({"edges": np.array([[0, 1]]), "labels": np.array(["a", "a"])}, "duplicate labels"),
        ({"edges": np.array([[0, 1]]), "inputs": np.array([9])}, "node indices from 0 to 1"),
        ({"edges": np.array([[0, 1]]), "weight": np.zeros(5)}, "'weight' must be 1 number, got float64 of shape"),
        ({"edges": np.array([[0, 1]]), "weight": np.array([np.nan])}, "inf or NaN"),
        ({"edges": np.array([[0, 1]]), "activation": np.zeros(2)}, "'activation' must be 2 names"),
        ({"edges": np.array([[0, 1]]), "bias": np.array(["x", "y"])}, "'bias' must be 2 numbers"),
    ],
)
def test_invalid_arrays(arrays, match, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(FourwardError, match=match):
        files.read_dag(tmp_path / "x.npz")


def test_scipys_own_files(tmp_path):
    matrix = sp.csr_array(np.array([[0, 2.5, 0], [0, 0, 1.5], [0, 0, 0]]))
    sp.save_npz(tmp_path / "x.npz", matrix)
    got = files.read_dag(tmp_path / "x.npz")
    assert got.dag == Dag.from_scipy(matrix)
    assert got.weight.tolist() == [2.5, 1.5]


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("indptr", [[0, 10**6, 3], [0, 10**6, 0], [0, -1, 3]], ids=str)
def test_a_crafted_index_pointer_writes_nowhere(form, indptr, tmp_path):
    matrix = sp.csr_array([[0, 1.0], [0, 0]]).asformat(form)
    sp.save_npz(tmp_path / "x.npz", matrix)
    arrays = dict(np.load(tmp_path / "x.npz"))
    arrays |= {"indptr": np.array(indptr), "indices": np.zeros(3, int), "data": np.ones((3, *matrix.data.shape[1:]))}
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(FileError, match=r"indptr|prune"):
        files.read_dag(tmp_path / "x.npz")


def test_complex_weights_are_refused(tmp_path):
    sp.save_npz(tmp_path / "x.npz", sp.coo_array(([1j], ([0], [1])), shape=(2, 2)))
    with pytest.raises(FileError, match="weights must be real numbers, got complex128"):
        files.read_dag(tmp_path / "x.npz")
    assert files.read_dag(tmp_path / "x.npz", topology_only=True).dag.num_edges == 1

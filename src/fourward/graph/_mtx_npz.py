"""Matrix Market and npz: graphs as sparse matrices and plain arrays."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import FileError, FourwardError
from fourward.graph import _convert, _io, _metadata
from fourward.graph._annotated import AnnotatedDag, AnnotatedGraph, FloatArray
from fourward.graph._convert import EdgeList, Labels
from fourward.graph._io import Bytes

_ENTRY_BYTES = 100  # peak memory for each entry on the way to a Dag


def read_mtx(path: Path, bare: bool) -> AnnotatedGraph:
    """A square sparse matrix: an entry at row u, column v is the edge u -> v; pattern matrices have no weights."""
    from scipy.io import mmread

    data = _io.load(path)
    said, start = _mtx_note(path, data)
    whole = _mtx_numbers(path, data, start)
    try:
        field, symmetry = _check_mtx(path, whole)
        matrix = mmread(BytesIO(whole), spmatrix=False)
    except FourwardError:
        raise
    except Exception as error:  # scipy's parser raises many kinds
        raise FileError(f"{path} can't be read as Matrix Market: {error}") from None
    num_nodes = matrix.shape[0]
    labels: Labels = tuple(said["nodes"]) if "nodes" in said else range(num_nodes)
    if len(labels) != num_nodes:
        raise FileError(f"{path} has {num_nodes:,} rows, but its comment lists {len(labels):,} nodes.")
    directed = symmetry == "general"
    kept = slice(None) if directed else matrix.row >= matrix.col
    graph = EdgeList(matrix.row[kept], matrix.col[kept], labels, directed, said.get("inputs"), said.get("outputs"))
    weight = None if bare or field == "pattern" or matrix.nnz == 0 else _finite(path, matrix.data[kept])
    return AnnotatedGraph(graph, weight, stated=not directed)


def write_mtx(loaded: AnnotatedDag, file: BinaryIO) -> None:
    """A general matrix in coordinate form; labels, inputs and outputs that aren't the usual ones in a comment."""
    import scipy.sparse as sp
    from scipy.io import mmwrite

    dag = loaded.dag
    values = np.ones(dag.num_edges) if loaded.weight is None else loaded.weight
    matrix = sp.coo_array((values, (dag.source.copy(), dag.target.copy())), shape=(dag.num_nodes, dag.num_nodes))
    field = "pattern" if loaded.weight is None else "real"
    comment = _metadata.note(dag, all(a == b for a, b in zip(dag.labels, range(dag.num_nodes), strict=True)))
    mmwrite(file, matrix, comment=comment, field=field, symmetry="general")


def read_npz(path: Path, bare: bool) -> AnnotatedGraph:
    """Arrays `edges` (E, 2) and, as there are, labels, inputs, outputs, weight, bias, activation; or a scipy matrix."""
    arrays = _arrays(path)
    if "format" in arrays and "shape" in arrays:
        return _from_scipy(path, bare)
    if "edges" not in arrays:
        raise FileError(
            f"{path} has the arrays {', '.join(arrays) or 'none'}. An npz file of a graph has 'edges' of shape (E, 2) "
            "and, as there are, 'labels', 'inputs', 'outputs', 'weight', 'bias' and 'activation'."
        )
    edges = _whole(path, "edges", arrays["edges"])
    graph = _convert.from_pairs(edges, None if "labels" not in arrays else len(arrays["labels"]))
    labels = _labels(path, arrays["labels"]) if "labels" in arrays else graph.labels
    ends = (_ends(path, key, arrays[key], labels) if key in arrays else None for key in ("inputs", "outputs"))
    counts = {} if bare else {"weight": len(edges), "bias": len(labels), "activation": len(labels)}
    found = {key: _listed(path, key, arrays[key], count) for key, count in counts.items() if key in arrays}
    activation = tuple(str(word) or None for word in found["activation"].tolist()) if "activation" in found else None
    bias = found["bias"].astype(np.float64) if "bias" in found else None
    weight = _finite(path, found["weight"]) if "weight" in found else None
    graph = EdgeList(graph.source, graph.target, labels, True, *ends)
    return AnnotatedGraph(graph, weight, bias, activation, stated=False)


def write_npz(loaded: AnnotatedDag, file: BinaryIO) -> None:
    """Plain arrays, no pickles."""
    dag = loaded.dag
    arrays: dict[str, Any] = {
        "edges": dag.edges,
        "labels": np.array(dag.labels, np.int64 if _convert.is_integer(dag.labels[0]) else None),
        "inputs": dag.inputs,
        "outputs": dag.outputs,
    }
    if loaded.weight is not None:
        arrays["weight"] = loaded.weight
    if loaded.bias is not None:
        arrays["bias"] = np.full(dag.num_nodes, np.nan)
        arrays["bias"][dag.neurons] = loaded.bias
    if loaded.activation is not None:
        words = [""] * dag.num_nodes
        for v, word in zip(dag.neurons.tolist(), loaded.activation, strict=True):
            words[v] = word or ""
        arrays["activation"] = np.array(words)
    np.savez(file, **arrays)


def _mtx_note(path: Path, data: Bytes) -> tuple[dict[str, Any], int]:
    """What our own comment says, and where the comments end."""
    if data[:14].lower() != b"%%matrixmarket":
        raise FileError(f"{path} is no Matrix Market file: it doesn't start with %%MatrixMarket.")
    said: dict[str, Any] = {}
    start = data.find(b"\n") + 1
    while start and data[start : start + 1] == b"%":
        stop = data.find(b"\n", start) + 1
        if data[start + 1 : start + 10] == _metadata.MARK.encode():
            said |= _metadata.parse(path, _io.text(path, data[start + 1 : stop or None]).strip())
        start = stop
    return said, start or len(data)


def _mtx_numbers(path: Path, data: Bytes, start: int) -> bytes:
    """The file with a line end, and numbers alone after the comments: scipy 1.17's parser crashes on others."""
    line = data[:start].count(b"\n") + 1
    stray = re.search(rb"[^0-9+\-.eE \t\r\n]", memoryview(data)[start:])
    if stray is not None:
        line += data[start : start + stray.start()].count(b"\n")
        raise FileError(f"{path}, line {line}: {stray[0]!r} belongs to no number.")
    return data[:] + b"\n"


def _check_mtx(path: Path, data: bytes) -> tuple[str, str]:
    """Field and symmetry, of a matrix that is a graph and fits into memory."""
    from scipy.io import mminfo

    rows, columns, entries, form, field, symmetry = mminfo(BytesIO(data))
    if form != "coordinate" or field == "complex" or symmetry not in ("general", "symmetric"):
        raise FileError(
            f"{path} holds a {symmetry} {field} matrix in {form} form. A general or symmetric matrix of real numbers "
            "in coordinate form was wanted."
        )
    if rows != columns:
        raise FileError(f"{path} has {rows:,} rows and {columns:,} columns, but an adjacency matrix is square.")
    if 4 * entries > len(data):
        raise FileError(f"{path} should hold {entries:,} entries, but is too short for them.")
    _io.check_memory(path, _ENTRY_BYTES * entries + 100 * rows, f"it has {entries:,} entries and {rows:,} rows")
    return str(field), str(symmetry)


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of an npz file, none of them pickled."""
    if not path.is_file():
        raise FileError(f"there is no file {path}.")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
        _io.check_memory(path, 2 * size, f"its arrays take {size:,} bytes")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except FourwardError:
        raise
    except Exception as error:  # zipfile, zlib and numpy raise many kinds
        if "allow_pickle" in str(error):
            raise FileError(
                f"{path} holds Python objects, and reading them could run code. Save plain arrays of numbers and text."
            ) from None
        raise FileError(f"{path} can't be read as npz: {error}") from None


def _from_scipy(path: Path, bare: bool) -> AnnotatedGraph:
    """What scipy.sparse.save_npz wrote."""
    import scipy.sparse as sp

    try:
        matrix = sp.load_npz(path).tocoo()
    except Exception as error:
        raise FileError(f"{path} can't be read as a scipy.sparse matrix: {error}") from None
    weight = None if bare or matrix.dtype == np.bool_ else _finite(path, matrix.data)
    return AnnotatedGraph(_convert.from_scipy(matrix), weight, stated=False)


def _whole(path: Path, name: str, array: Any) -> IntArray:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        raise FileError(f"{path}: {name!r} must be an array of whole numbers, but it is {array.dtype}.")
    return array.astype(np.int64)


def _listed(path: Path, name: str, array: Any, count: int) -> Any:
    if array.shape != (count,) or array.dtype.kind not in ("U" if name == "activation" else "fiu"):
        raise FileError(
            f"{path}: {name!r} must hold {count:,} {'words' if name == 'activation' else 'numbers'}, but it is "
            f"{array.dtype} of shape {array.shape}."
        )
    return array


def _labels(path: Path, array: Any) -> Labels:
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise FileError(f"{path}: 'labels' must be a list of whole numbers or text, but it is {array.dtype}.")
    plain = array.dtype.kind != "U" and np.array_equal(array, np.arange(len(array)))
    return range(len(array)) if plain else tuple(array.tolist())


def _ends(path: Path, name: str, array: Any, labels: Labels) -> list[Any]:
    nodes = _whole(path, name, array).ravel()
    if nodes.size and (nodes.min() < 0 or nodes.max() >= len(labels)):
        raise FileError(f"{path}: {name!r} must hold numbers of nodes, from 0 to {len(labels) - 1:,}.")
    return [labels[v] for v in nodes.tolist()]


def _finite(path: Path, values: Any) -> FloatArray:
    weight: FloatArray = np.asarray(values).astype(np.float64)
    if not np.isfinite(weight).all():
        raise FileError(f"{path}: a weight is infinite or no number.")
    return weight

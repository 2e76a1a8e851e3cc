"""Matrix Market and npz: graphs as sparse matrices and plain arrays."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fourward._arrays import IntArray
from fourward._memory import check_memory
from fourward.errors import FileError, FourwardError, pluralize
from fourward.graph import _convert, _io, _sparse
from fourward.graph._annotated import CONSTRAINTS, AnnotatedDag, AnnotatedDigraph, AnnotatedGraph, FloatArray
from fourward.graph._attributes import NO_ATTRIBUTES, Attributes
from fourward.graph._convert import EdgeList, Labels
from fourward.graph._digraph import Digraph
from fourward.graph._io import Bytes

_ENTRY_BYTES = 100  # peak memory per entry, from the file to a Dag


def read_mtx(path: Path, topology_only: bool) -> AnnotatedGraph:
    """A square sparse matrix: an entry at row u, column v is the edge u -> v; pattern matrices have no weights."""
    from scipy.io import mmread

    data = _io.read_bytes(path)
    metadata, start = _read_mtx_comments(path, data)
    content = _check_mtx_characters(path, data, start)
    try:
        field, symmetry = _check_mtx_header(path, content)
        matrix = mmread(BytesIO(content), spmatrix=False)
    except FourwardError:
        raise
    except Exception as error:  # scipy's parser raises many types of exception
        raise FileError(f"{path} can't be read as Matrix Market: {error}") from None
    num_nodes = matrix.shape[0]
    labels: Labels = tuple(metadata["nodes"]) if "nodes" in metadata else range(num_nodes)
    if len(labels) != num_nodes:
        raise FileError(f"{path}: expected {num_nodes:,} nodes in its comment, one per row, got {len(labels):,} nodes.")
    directed = symmetry == "general"
    edges = slice(None) if directed else matrix.row >= matrix.col
    ends = metadata.get("inputs"), metadata.get("outputs")
    graph = EdgeList(matrix.row[edges], matrix.col[edges], labels, directed, *ends)
    has_weights = not topology_only and field != "pattern" and matrix.nnz > 0
    weight = _finite_weights(path, matrix.data[edges]) if has_weights else None
    attributes = metadata.get("attributes", NO_ATTRIBUTES)
    feedback = _io.mark_feedback(path, graph, metadata)
    return AnnotatedGraph(graph, weight, states_direction=not directed, attributes=attributes, feedback=feedback)


def write_mtx(annotated: AnnotatedDag | AnnotatedDigraph, file: BinaryIO) -> None:
    """A general matrix in coordinate format; labels, inputs and outputs, unless default, in a comment."""
    import scipy.sparse as sp
    from scipy.io import mmwrite

    graph, weight = annotated[0], annotated.weight
    values = np.ones(graph.num_edges) if weight is None else weight
    matrix = sp.coo_array(
        (values, (graph.source.copy(), graph.target.copy())), shape=(graph.num_nodes, graph.num_nodes)
    )
    field = "pattern" if weight is None else "real"
    default_order = all(a == b for a, b in zip(graph.labels, range(graph.num_nodes), strict=True))
    mmwrite(file, matrix, comment=_io.format_metadata(graph, default_order), field=field, symmetry="general")


def read_npz(path: Path, topology_only: bool) -> AnnotatedGraph:
    """An array `edges` (E, 2) and, optionally, labels, inputs, outputs, feedback, weight, bias; or a scipy matrix."""
    arrays = _io.read_npz(path)
    if "format" in arrays and "shape" in arrays:
        _check_scipy_shape(path, arrays)
        return _read_scipy(path, topology_only)
    if "edges" not in arrays:
        raise FileError(
            f"{path}: expected an array 'edges' of shape (E, 2) and, optionally, 'labels', 'inputs', 'outputs', "
            f"'weight', 'bias' and 'activation', got the arrays {', '.join(arrays) or 'none'}."
        )
    edges = _as_integers(path, "edges", arrays["edges"])
    check_memory(path, _ENTRY_BYTES * len(edges), f"it has {len(edges):,} edges")
    graph = _convert.from_pairs(edges, None if "labels" not in arrays else len(arrays["labels"]))
    labels = _as_labels(path, arrays["labels"]) if "labels" in arrays else graph.labels
    ends = (_as_node_labels(path, key, arrays[key], labels) if key in arrays else None for key in ("inputs", "outputs"))
    counts = {} if topology_only else {"weight": len(edges), "bias": len(labels), "activation": len(labels)}
    counts |= {} if topology_only else dict.fromkeys(CONSTRAINTS, len(edges))
    values = {key: _check_vector(path, key, arrays[key], count) for key, count in counts.items() if key in arrays}
    activation = tuple(str(name) or None for name in values["activation"].tolist()) if "activation" in values else None
    bias = values["bias"].astype(np.float64) if "bias" in values else None
    weight = _finite_weights(path, values["weight"]) if "weight" in values else None
    graph = EdgeList(graph.source, graph.target, labels, True, *ends)
    constraints = {name: _finite_weights(path, values[name]) for name in CONSTRAINTS if name in values}
    feedback = _check_vector(path, "feedback", arrays["feedback"], len(edges)) if "feedback" in arrays else None
    return AnnotatedGraph(
        graph, weight, bias, activation, states_direction=False, attributes=_read_attributes(path, arrays, labels),
        constraints=constraints, feedback=feedback,
    )  # fmt: skip


def _read_attributes(path: Path, arrays: dict[str, Any], labels: Labels) -> Attributes:
    """Attributes of nodes, which an array of JSON text holds."""
    if "attributes" not in arrays:
        return NO_ATTRIBUTES
    try:
        attributes = json.loads(str(arrays["attributes"]))
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: 'attributes' must be a JSON object: {error}.") from None
    return _io.parse_attributes(path, attributes, labels)


def write_npz(annotated: AnnotatedDag | AnnotatedDigraph, file: BinaryIO) -> None:
    """Plain arrays, no pickles."""
    graph = annotated[0]
    arrays: dict[str, Any] = {
        "edges": graph.edges,
        "labels": np.array(graph.labels, np.int64 if _convert.is_integer(graph.labels[0]) else None),
        "inputs": graph.inputs,
        "outputs": graph.outputs,
    }
    if isinstance(graph, Digraph):
        arrays["feedback"] = np.arange(graph.num_edges) >= graph.dag.num_edges
    if annotated.weight is not None:
        arrays["weight"] = annotated.weight
    if annotated.bias is not None:
        arrays["bias"] = np.full(graph.num_nodes, np.nan)
        arrays["bias"][graph.neurons] = annotated.bias
    if annotated.activation is not None:
        names = [""] * graph.num_nodes
        for v, name in zip(graph.neurons.tolist(), annotated.activation, strict=True):
            names[v] = name or ""
        arrays["activation"] = np.array(names)
    if graph.attributes:
        arrays["attributes"] = np.array(json.dumps({name: list(values) for name, values in graph.attributes.items()}))
    arrays |= annotated.constraints
    np.savez(file, **arrays)


def _read_mtx_comments(path: Path, data: Bytes) -> tuple[dict[str, Any], int]:
    """Metadata of our comment line, and the offset at which the comments end."""
    if data[:14].lower() != b"%%matrixmarket":
        raise FileError(f"{path}: expected a Matrix Market file, which starts with %%MatrixMarket.")
    metadata: dict[str, Any] = {}
    start = data.find(b"\n") + 1
    while start and data[start : start + 1] == b"%":
        stop = data.find(b"\n", start) + 1
        if data[start + 1 : start + 10] == _io.COMMENT_PREFIX.encode():
            metadata |= _io.parse_metadata(path, _io.decode_text(path, data[start + 1 : stop or None]).strip())
        start = stop
    return metadata, start or len(data)


def _check_mtx_characters(path: Path, data: Bytes, start: int) -> bytes:
    """The file with a final line feed; raises unless numbers alone follow the comments.

    scipy 1.17's parser crashes the process on other characters.
    """
    stray = re.search(rb"[^0-9+\-.eE \t\r\n]", memoryview(data)[start:])
    if stray is not None:
        line = data[: start + stray.start()].count(b"\n") + 1
        raise FileError(f"{path}, line {line}: expected numbers, got {stray[0]!r}.")
    return data[:] + b"\n"


def _check_mtx_header(path: Path, data: bytes) -> tuple[str, str]:
    """Field and symmetry of a matrix that is a graph and fits into memory."""
    from scipy.io import mminfo

    rows, columns, entries, form, field, symmetry = mminfo(BytesIO(data))
    if form != "coordinate" or field == "complex" or symmetry not in ("general", "symmetric"):
        raise FileError(
            f"{path}: expected a general or symmetric matrix of real numbers in coordinate format, got a {symmetry} "
            f"{field} matrix in {form} format."
        )
    if rows != columns:
        raise FileError(f"{path}: expected a square adjacency matrix, got {rows:,} rows and {columns:,} columns.")
    if 4 * entries > len(data):
        raise FileError(f"{path} is too short for the {entries:,} entries that its header states.")
    check_memory(path, _ENTRY_BYTES * entries + 100 * rows, f"it has {entries:,} entries and {rows:,} rows")
    return str(field), str(symmetry)


def _check_scipy_shape(path: Path, arrays: dict[str, Any]) -> None:
    """Raise for a shape that isn't that of a graph, or of one that doesn't fit into memory, however few its entries."""
    shape = _as_integers(path, "shape", arrays["shape"])
    if shape.shape != (2,) or shape[0] != shape[1] or shape[0] < 0:
        raise FileError(f"{path}: expected a square adjacency matrix, got shape {shape.tolist()}.")
    rows, entries = int(shape[0]), arrays["data"].size if "data" in arrays else 0
    check_memory(path, _ENTRY_BYTES * entries + 100 * rows, f"it has {entries:,} entries and {rows:,} rows")


def _read_scipy(path: Path, topology_only: bool) -> AnnotatedGraph:
    """A file of scipy.sparse.save_npz."""
    import scipy.sparse as sp

    try:
        matrix = _sparse.to_coordinates(sp.load_npz(path))
    except Exception as error:  # scipy raises many types of exception
        raise FileError(f"{path} can't be read as a scipy.sparse matrix: {error}") from None
    weight = None if topology_only or matrix.dtype == np.bool_ else _finite_weights(path, matrix.data)
    return AnnotatedGraph(_convert.from_scipy(matrix), weight, states_direction=False)


def _as_integers(path: Path, name: str, array: Any) -> IntArray:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        raise FileError(f"{path}: {name!r} must be an array of integers, got {array.dtype}.")
    return array.astype(np.int64)


def _check_vector(path: Path, name: str, array: Any, count: int) -> Any:
    kinds, kind = {"activation": ("U", "name"), "feedback": ("b", "bool")}.get(name, ("fiu", "number"))
    if array.shape != (count,) or array.dtype.kind not in kinds:
        expected = pluralize(count, kind)
        raise FileError(f"{path}: {name!r} must be {expected}, got {array.dtype} of shape {array.shape}.")
    return array


def _as_labels(path: Path, array: Any) -> Labels:
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise FileError(f"{path}: 'labels' must be a vector of integers or text, got {array.dtype}.")
    is_range = array.dtype.kind != "U" and np.array_equal(array, np.arange(len(array)))
    return range(len(array)) if is_range else tuple(array.tolist())


def _as_node_labels(path: Path, name: str, array: Any, labels: Labels) -> list[Any]:
    nodes = _as_integers(path, name, array).ravel()
    if nodes.size and (nodes.min() < 0 or nodes.max() >= len(labels)):
        raise FileError(f"{path}: {name!r} must be node indices from 0 to {len(labels) - 1:,}.")
    return [labels[v] for v in nodes.tolist()]


def _finite_weights(path: Path, values: Any) -> FloatArray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu":
        raise FileError(f"{path}: weights must be real numbers, got {array.dtype}.")
    weight: FloatArray = array.astype(np.float64)
    if not np.isfinite(weight).all():
        raise FileError(f"{path}: weights contain inf or NaN.")
    return weight

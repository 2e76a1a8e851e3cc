"""Graph files: GraphML, GEXF, edge lists, Matrix Market, npz, node-link JSON; plain or gzip."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fourward._files import replacing
from fourward._memory import limit_memory
from fourward.errors import FileError, FourwardError, GraphError, OptionError, Repair, WeightError, summarize
from fourward.graph import _convert, _edgelist, _mtx_npz, _xml_json
from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph, AnnotatedGraph, FloatArray, Orient
from fourward.graph._dag import Dag, LabelChoice
from fourward.graph._digraph import Feedback
from fourward.graph.orient import Seed

__all__ = [
    "NETWORK_SUFFIXES",
    "SUFFIXES",
    "AnnotatedDag",
    "AnnotatedDigraph",
    "AnnotatedGraph",
    "infer_format",
    "read",
    "read_dag",
    "read_digraph",
    "write",
]


class _Format(NamedTuple):
    """A row of the table of formats. Suffixes, options, exporters and messages follow from it."""

    read: Callable[..., AnnotatedGraph]  #: called with a path, topology_only and `options`
    write: Callable[[AnnotatedDag, BinaryIO], None]
    stores_neurons: bool = False  #: whether files can store biases and activations, and so a network
    options: tuple[str, ...] = ()  #: keywords that `read` takes for this format alone


def _edge_list(kind: str, separator: str) -> _Format:
    def write(annotated: AnnotatedDag, file: BinaryIO) -> None:
        _edgelist.write(annotated, file, separator)

    return _Format(partial(_edgelist.read, kind=kind), write, options=("header", "columns"))


_FORMATS = {
    "graphml": _Format(_xml_json.read_graphml, _xml_json.write_graphml, stores_neurons=True, options=("labels",)),
    "gexf": _Format(_xml_json.read_gexf, _xml_json.write_gexf, stores_neurons=True, options=("labels",)),
    "json": _Format(_xml_json.read_json, _xml_json.write_json, stores_neurons=True, options=("labels",)),
    "mtx": _Format(_mtx_npz.read_mtx, _mtx_npz.write_mtx),
    "npz": _Format(_mtx_npz.read_npz, _mtx_npz.write_npz, stores_neurons=True),
    "csv": _edge_list("csv", ","),
    "tsv": _edge_list("tsv", "\t"),
    "edges": _edge_list("edges", " "),
}
#: The format of each file suffix; all but npz may be followed by .gz.
SUFFIXES: Mapping[str, str] = {f".{name}": name for name in _FORMATS} | {
    ".edgelist": "edges",
    ".txt": "edges",
    ".tab": "tsv",
}
#: Suffixes of files that can hold a network: weights, biases and activations.
NETWORK_SUFFIXES = tuple(suffix for suffix, name in SUFFIXES.items() if _FORMATS[name].stores_neurons)


def infer_format(path: str | Path, format: str | None = None) -> str:
    """`format` if it is a known one, else that of the file's suffix."""
    if format is not None:
        if format not in _FORMATS:
            raise OptionError(f"unknown graph format {format!r}. Choose from {', '.join(_FORMATS)}.")
        return format
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() != ".gz"]
    if not suffixes or suffixes[-1] not in SUFFIXES:
        raise FileError(
            f"expected a file with one of the suffixes {', '.join(SUFFIXES)}, got {path}.",
            Repair("format", ..., f"name one of {', '.join(_FORMATS)}"),
        )
    return SUFFIXES[suffixes[-1]]


def read(
    path: str | Path,
    *,
    format: str | None = None,
    header: bool | None = None,
    columns: Sequence[str | int] | None = None,
    labels: str | None = None,
    topology_only: bool = False,
    max_bytes: int | None = None,
) -> AnnotatedGraph:
    """Read a graph file as it is: cyclic or not, directed or not, with or without weights.

    Edge lists have one edge per line: source, target and, if there is a third column, weight. Lines that start with
    `#` are comments. The first line is a header if it has names for the columns of sources and targets, such as source
    and target, from and to, or pre_id and post_id, in any position; the weight is then in the column named weight or,
    for example, syn_count, else in the next one. It is also a header if some column has no number there but one in the
    next line. Labels are integers if all of them are and those of the first edge have neither quotes nor leading zeros;
    else they are text. Their order is that of `Dag.from_edges`.

    Args:
        path: The file; .gz is decompressed.
        format: Its format; default: that of its suffix, see `SUFFIXES`.
        header: For edge lists: whether there is a header; default: see above.
        columns: For edge lists: the columns of source, target and, optionally, weight, by name or by number from 1.
        labels: For GraphML, GEXF and JSON: the node attribute to use as label, such as "name"; default: the id.
        topology_only: Read the graph without weights, biases and activations.
        max_bytes: Refuse a graph that would take more memory than this, by an estimate from the file's size and from
            what it claims to hold. One that would take more than is available is always refused.
    """
    kind = infer_format(path, format)
    options = {"header": header, "columns": columns, "labels": labels}
    for name, value in options.items():
        if value is not None and name not in _FORMATS[kind].options:
            formats = ", ".join(other for other, row in _FORMATS.items() if name in row.options)
            raise OptionError(f"{name}= is an option of {formats}, but {path} is read as {kind}.")
    with limit_memory(max_bytes):
        own = {name: options[name] for name in _FORMATS[kind].options}
        return _FORMATS[kind].read(Path(path), topology_only=topology_only, **own)


def read_dag(
    path: str | Path,
    *,
    orient: Orient = None,
    seed: Seed = None,
    remove_feedback: bool = False,
    merge: bool = False,
    inputs: LabelChoice = None,
    outputs: LabelChoice = None,
    **options: Any,
) -> AnnotatedDag:
    """Read a graph file as a Dag, with its weights, biases and activations.

    Args:
        path: The file.
        orient: "random" directs an undirected graph, or an edge list in arbitrary directions, along a random order of
            its nodes.
        seed: Seed of that order.
        remove_feedback: Remove a small set of edges that makes a cyclic graph acyclic, self-loops included.
        merge: Add up the weights of duplicate edges, which are an error otherwise.
        inputs: Labels of the inputs, in order; default: those in the file, else all sources.
        outputs: Labels of the outputs, in order; default: those in the file, else all sinks.
        options: As in `read`.
    """
    annotated = read(path, **options)
    try:
        return annotated.to_dag(
            orient=orient,
            seed=seed,
            remove_feedback=remove_feedback,
            merge=merge,
            inputs=inputs,
            outputs=outputs,
        )
    except FourwardError as error:
        error.prepend(str(path))
        raise


def read_digraph(
    path: str | Path,
    *,
    orient: Orient = None,
    seed: Seed = None,
    merge: bool = False,
    inputs: LabelChoice = None,
    outputs: LabelChoice = None,
    feedback: Feedback = "fewest",
    **options: Any,
) -> AnnotatedDigraph:
    """Read a graph file as a Digraph, cycles and self-loops included, with its weights, biases and activations.

    Args:
        path: The file.
        orient: As in `read_dag`.
        seed: As in `read_dag`.
        merge: As in `read_dag`.
        inputs: Labels of the inputs, in order; default: those in the file, else all nodes without incoming edges.
        outputs: Labels of the outputs, in order; default: those in the file, else all nodes without outgoing edges.
        feedback: As in `fourward.Digraph.from_edges`; "fewest" keeps heavy edges of a file with weights.
        options: As in `read`.
    """
    annotated = read(path, **options)
    try:
        return annotated.to_digraph(
            orient=orient, seed=seed, merge=merge, inputs=inputs, outputs=outputs, feedback=feedback
        )
    except FourwardError as error:
        error.prepend(str(path))
        raise


def write(
    dag: Dag,
    path: str | Path,
    *,
    weight: Any = None,
    bias: Any = None,
    activation: Sequence[str | None] | None = None,
    format: str | None = None,
) -> None:
    """Write a Dag, with values of its edges and neurons, so that `read_dag` returns the same.

    The write is atomic. Labels must be integers or text.

    Args:
        dag: The graph.
        path: The file; .gz compresses it.
        weight: (E,) in the order of dag.edges.
        bias: (N-I,) in the order of dag.neurons; edge lists and matrices can't store it.
        activation: (N-I,) names, likewise.
        format: Its format; default: that of its suffix.
    """
    kind, path = infer_format(path, format), Path(path)
    _check_labels(dag)
    if not _FORMATS[kind].stores_neurons and (bias is not None or activation is not None):
        raise FileError(f"{kind} files can't store biases and activations. Write {', '.join(NETWORK_SUFFIXES)}.")
    if kind == "npz" and path.suffix.lower() == ".gz":
        raise FileError(f"{path}: npz files are already compressed. Omit .gz.")
    annotated = AnnotatedDag(
        dag,
        _as_finite_vector(weight, dag.num_edges, "weight"),
        _as_finite_vector(bias, len(dag.neurons), "bias"),
        None if activation is None else tuple(activation),
    )
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with replacing(path) as temporary, opener(temporary, "wb") as file:
        _FORMATS[kind].write(annotated, file)


def _check_labels(dag: Dag) -> None:
    text = isinstance(dag.labels[0], str)
    other = [x for x in dag.labels if not (isinstance(x, str) if text else _convert.is_integer(x))]
    if not other and not text:
        other = [x for x in dag.labels if not -(2**63) <= x < 2**63]  # type: ignore[operator]
    if other:
        raise GraphError(
            f"labels in a file must be all text or all 64-bit integers, got {summarize(dag.labels[:1])} beside "
            f"{summarize(other)}. Make a Dag with other labels, for example Dag.from_arrays(dag.edges)."
        )


def _as_finite_vector(values: Any, count: int, name: str) -> FloatArray | None:
    if values is None:
        return None
    if hasattr(values, "detach"):  # a torch tensor, in a package that doesn't import torch
        values = values.detach().double().cpu().numpy()
    array: FloatArray = np.asarray(values, np.float64)
    if array.shape != (count,):
        raise WeightError(f"expected {name} of shape ({count},), got shape {array.shape}.")
    if not np.isfinite(array).all():
        raise WeightError(f"{name} contains inf or NaN; files store finite numbers.")
    return array

"""Graph files: GraphML, GEXF, edge lists, Matrix Market, npz, node-link JSON; plain or gzip."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np

from fourward._files import replacing
from fourward._memory import limit_memory
from fourward.errors import FileError, FourwardError, GraphError, OptionError, Repair, WeightError, summarize
from fourward.graph import _convert, _edgelist, _io, _mtx_npz, _tables, _xml_json
from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph, AnnotatedGraph, FloatArray, Orient, annotate
from fourward.graph._choose import NodeChoice
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph, Feedback
from fourward.graph._node_table import read_node_table
from fourward.graph._to_dag import IntoInputs, Merge, Only, RemoveFeedback, SelfLoops
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


Missing = Literal["skip"] | None


class _Format(NamedTuple):
    """A row of the table of formats. Suffixes, options, exporters and messages follow from it."""

    read: Callable[..., AnnotatedGraph]  #: called with a path, topology_only and `options`
    write: Callable[[AnnotatedDag | AnnotatedDigraph, BinaryIO], None]
    stores_neurons: bool = False  #: whether files can store biases and activations, and so a network
    options: tuple[str, ...] = ()  #: keywords that `read` takes for this format alone


def _edge_list(kind: str, separator: str) -> _Format:
    def write(annotated: AnnotatedDag | AnnotatedDigraph, file: BinaryIO) -> None:
        _edgelist.write(annotated, file, separator)

    return _Format(partial(_edgelist.read, kind=kind), write, options=("header", "columns", "missing"))


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
    path: str | Path | Any,
    *,
    format: str | None = None,
    header: bool | None = None,
    columns: Sequence[str | int] | None = None,
    labels: str | None = None,
    missing: Missing = None,
    nodes: Any = None,
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
        path: The file; .gz is decompressed. Or a table of pandas, polars or pyarrow, whose columns are those of an edge
            list.
        format: Its format; default: that of its suffix, see `SUFFIXES`.
        header: For edge lists: whether there is a header; default: see above.
        columns: For edge lists: the columns of source, target and, optionally, weight, by name or by number from 1.
        labels: For GraphML, GEXF and JSON: the node attribute to use as label, such as "name"; default: the id.
        missing: For edge lists and tables: "skip" omits rows that lack a label or a weight (empty, NA, #N/A, <NA>,
            NaN, null, None, infinite) and counts them; by default they are an error.
        nodes: A second table, with a row for each neuron: a .csv, .tsv or .parquet file or a table as above. Its
            columns become attributes of the nodes, besides those of the graph file.
        topology_only: Read the graph without weights, biases and activations.
        max_bytes: Refuse a graph that would take more memory than this, by an estimate from the file's size and from
            what it claims to hold. One that would take more than is available is always refused.
    """
    if missing not in ("skip", None):
        raise OptionError(f"missing must be 'skip' or None, got {missing!r}.")
    options = {"header": header, "columns": columns, "labels": labels, "missing": missing}
    with limit_memory(max_bytes):
        if _tables.is_table(path):
            _check_options("a table", options, ("columns", "missing"))
            annotated = _read_table(path, columns, missing == "skip", topology_only)
        else:
            kind = infer_format(path, format)
            _check_options(f"{path} is read as {kind}", options, _FORMATS[kind].options)
            own = {name: options[name] for name in _FORMATS[kind].options}
            annotated = _FORMATS[kind].read(Path(path), topology_only=topology_only, **own)
            with _io.name_file(Path(path)):
                _tables.check_float_ids(label for label in annotated.graph.labels if isinstance(label, str))
        if nodes is None:
            return annotated
        attributes = read_node_table(nodes, annotated.graph.labels)
        return annotated._replace(attributes={**annotated.attributes, **attributes})


def _check_options(description: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    for name, value in options.items():
        if value is not None and name not in known:
            formats = ", ".join(kind for kind, row in _FORMATS.items() if name in row.options)
            raise OptionError(f"{name}= is an option of {formats}, but {description}.")


def _read_table(table: Any, columns: Sequence[str | int] | None, skip: bool, topology_only: bool) -> AnnotatedGraph:
    if topology_only and columns is None:
        columns = [k + 1 for k in _tables.select_columns(_tables.column_names(table), None)[:2]]
    (source, target, *weight), rows = _tables.read_columns(table, columns, skip)
    graph = _convert.from_pairs(_tables.to_pairs(source, target))
    skipped = len(_tables.column_values(table, 0)) - len(rows)
    return AnnotatedGraph(
        graph,
        weight[0] if weight and not topology_only else None,
        states_direction=False,
        locate_edge=lambda k: f"row {rows[k]}",
        skipped=skipped,
    )


def read_dag(
    path: str | Path | Any,
    *,
    orient: Orient = None,
    seed: Seed = None,
    remove_feedback: RemoveFeedback = False,
    merge: Merge = False,
    self_loops: SelfLoops = None,
    min_weight: float | None = None,
    inputs: NodeChoice = None,
    outputs: NodeChoice = None,
    into_inputs: IntoInputs = "drive",
    only: Only = None,
    **options: Any,
) -> AnnotatedDag:
    """Read a graph file as a Dag, with its weights, biases, activations and attributes of nodes.

    The steps are done in the order of the options below, and `.changes` of the result counts what each did.

    Args:
        path: The file or table, as in `read`.
        orient: "random" directs an undirected graph, or an edge list in arbitrary directions, along a random order of
            its nodes.
        seed: Seed of that order.
        remove_feedback: Remove edges that make a cyclic graph acyclic, self-loops included: light ones, such that every
            neuron that the inputs reached is still reached. "fewest" counts edges alone, as
            `fourward.orient.remove_feedback` does.
        merge: Merge duplicate edges, which are an error otherwise: True or "sum" adds up their weights; "mean", "max",
            "min" and "first" do what they say.
        self_loops: "drop" removes edges from a neuron to itself, which are an error otherwise.
        min_weight: Drop edges whose weight, after merging, is smaller in absolute value.
        inputs: Labels of the inputs, in order; or an attribute and its value, as in "class=sensory" or
            "class=sensory|ascending"; or the Path of a file with one label per line; or "sources". Default: those in
            the file, else all sources.
        outputs: The outputs, likewise, or "sinks". Default: those in the file, else all sinks.
        into_inputs: What becomes of edges into inputs: with "drive" they stay, and such an input is a neuron to whose
            sum x adds its feature; "cut" removes them.
        only: "paths" drops neurons that are on no path from an input to an output.
        options: As in `read`.
    """
    annotated = read(path, **options)
    try:
        return annotated.to_dag(
            orient=orient,
            seed=seed,
            remove_feedback=remove_feedback,
            merge=merge,
            self_loops=self_loops,
            min_weight=min_weight,
            inputs=inputs,
            outputs=outputs,
            into_inputs=into_inputs,
            only=only,
        )
    except FourwardError as error:
        error.prepend("the table" if _tables.is_table(path) else str(path))
        raise


def read_digraph(
    path: str | Path | Any,
    *,
    orient: Orient = None,
    seed: Seed = None,
    merge: Merge = False,
    self_loops: SelfLoops = None,
    min_weight: float | None = None,
    inputs: NodeChoice = None,
    outputs: NodeChoice = None,
    into_inputs: IntoInputs = "drive",
    feedback: Feedback | None = None,
    **options: Any,
) -> AnnotatedDigraph:
    """Read a graph file as a Digraph, cycles and self-loops included, with its weights, biases and activations.

    Args:
        path: The file or table, as in `read`.
        orient: As in `read_dag`.
        seed: As in `read_dag`.
        merge: As in `read_dag`.
        self_loops: As in `read_dag`; by default a neuron may feed itself in the next step.
        min_weight: As in `read_dag`.
        inputs: As in `read_dag`; default: those in the file, else all nodes without incoming edges.
        outputs: As in `read_dag`; default: those in the file, else all nodes without outgoing edges.
        into_inputs: As in `read_dag`.
        feedback: As in `fourward.Digraph.from_edges`; "fewest" keeps heavy edges of a file with weights. Default: that
            of the file if `write` stored a Digraph, else "fewest".
        options: As in `read`.
    """
    annotated = read(path, **options)
    try:
        return annotated.to_digraph(
            orient=orient,
            seed=seed,
            merge=merge,
            self_loops=self_loops,
            min_weight=min_weight,
            inputs=inputs,
            outputs=outputs,
            into_inputs=into_inputs,
            feedback=feedback,
        )
    except FourwardError as error:
        error.prepend("the table" if _tables.is_table(path) else str(path))
        raise


def write(
    graph: Dag | Digraph,
    path: str | Path,
    *,
    weight: Any = None,
    bias: Any = None,
    activation: Sequence[str | None] | None = None,
    constraints: Mapping[str, Any] | None = None,
    format: str | None = None,
) -> None:
    """Write a Dag or a Digraph, with values of its edges and neurons; `read_dag` or `read_digraph` returns the same.

    The write is atomic. Labels must be integers or text.

    Args:
        graph: The graph; edges of a Digraph that are feedback are stored as such.
        path: The file; .gz compresses it.
        weight: (E,) in the order of graph.edges.
        bias: One for each neuron, in the order of graph.neurons; edge lists and matrices can't store it.
        activation: Names, likewise.
        constraints: "sign", "frozen", "tied" and "scale" of a network, (E,) numbers each, likewise.
        format: Its format; default: that of its suffix.
    """
    kind, path = infer_format(path, format), Path(path)
    _check_labels(graph)
    if not _FORMATS[kind].stores_neurons:
        values = {"biases": bias, "activations": activation, "constraints": constraints}
        if lost := [name for name, value in values.items() if value is not None and len(value)]:
            raise FileError(f"{kind} files can't store {' and '.join(lost)}. Write {', '.join(NETWORK_SUFFIXES)}.")
    if kind == "npz" and path.suffix.lower() == ".gz":
        raise FileError(f"{path}: npz files are already compressed. Omit .gz.")
    annotated = annotate(
        graph,
        _as_finite_vector(weight, graph.num_edges, "weight"),
        _as_finite_vector(bias, len(graph.neurons), "bias"),
        None if activation is None else tuple(activation),
        constraints={k: _as_finite_vector(v, graph.num_edges, k) for k, v in (constraints or {}).items()},
    )
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with replacing(path) as temporary, opener(temporary, "wb") as file:
        _FORMATS[kind].write(annotated, file)


def _check_labels(graph: Dag | Digraph) -> None:
    text = isinstance(graph.labels[0], str)
    other = [x for x in graph.labels if not (isinstance(x, str) if text else _convert.is_integer(x))]
    if not other and not text:
        other = [x for x in graph.labels if not -(2**63) <= x < 2**63]  # type: ignore[operator]
    if other:
        raise GraphError(
            f"labels in a file must be all text or all 64-bit integers, got {summarize(graph.labels[:1])} beside "
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

"""Graph files: GraphML, GEXF, edge lists, Matrix Market, npz, node-link JSON; plain or gzip."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fourward._files import replacing
from fourward.errors import FileError, FourwardError, GraphError, OptionError, WeightError, summarize
from fourward.graph import _convert, _edgelist, _mtx_npz, _xml_json
from fourward.graph._annotated import AnnotatedDag, AnnotatedGraph, FloatArray, Orient, settle
from fourward.graph._dag import Dag, LabelChoice
from fourward.graph.orient import Seed

__all__ = ["ENDINGS", "AnnotatedDag", "AnnotatedGraph", "format_of", "read", "read_dag", "write"]


class _Format(NamedTuple):
    read: Callable[..., AnnotatedGraph]
    write: Callable[[AnnotatedDag, BinaryIO], None]
    keeps_neurons: bool  # has a place for biases and activations


_FORMATS = {
    "graphml": _Format(_xml_json.read_graphml, _xml_json.write_graphml, True),
    "gexf": _Format(_xml_json.read_gexf, _xml_json.write_gexf, True),
    "json": _Format(_xml_json.read_json, _xml_json.write_json, True),
    "mtx": _Format(_mtx_npz.read_mtx, _mtx_npz.write_mtx, False),
    "npz": _Format(_mtx_npz.read_npz, _mtx_npz.write_npz, True),
    "csv": _Format(_edgelist.read, lambda loaded, file: _edgelist.write(loaded, file, ","), False),
    "tsv": _Format(_edgelist.read, lambda loaded, file: _edgelist.write(loaded, file, "\t"), False),
    "edges": _Format(_edgelist.read, lambda loaded, file: _edgelist.write(loaded, file, " "), False),
}
#: The format that each ending means; all but npz may be followed by .gz.
ENDINGS: Mapping[str, str] = {f".{name}": name for name in _FORMATS} | {
    ".edgelist": "edges",
    ".txt": "edges",
    ".tab": "tsv",
}
_EDGE_LISTS = ("csv", "tsv", "edges")
_ATTRIBUTED = ("graphml", "gexf", "json")  # nodes have attributes


def format_of(path: str | Path, format: str | None = None) -> str:
    """The format that was asked for, or else the one of the file's ending."""
    if format is not None:
        if format not in _FORMATS:
            raise OptionError(f"there is no graph format {format!r}. Known are {', '.join(_FORMATS)}.")
        return format
    endings = [ending.lower() for ending in Path(path).suffixes if ending.lower() != ".gz"]
    if not endings or endings[-1] not in ENDINGS:
        raise FileError(
            f"{path}: its ending doesn't say which format it has. Known are {', '.join(ENDINGS)}; format=, on the "
            f"command line --format, or --to for a file to write, names one of {', '.join(_FORMATS)}."
        )
    return ENDINGS[endings[-1]]


def read(
    path: str | Path,
    *,
    format: str | None = None,
    header: bool | None = None,
    columns: Sequence[str | int] | None = None,
    labels: str | None = None,
    bare: bool = False,
) -> AnnotatedGraph:
    """A graph file as it is: cyclic, undirected, with weights or without.

    Edge lists have an edge a line: source, target and, if there is a third column, weight. Lines that start with
    `#` are comments. The first line is a header if it has known names for the columns of sources and targets, such
    as source and target, from and to, or pre_id and post_id, wherever these stand; the weight is then in the column
    of that name, or one such as syn_count, or else in the next. It is a header, too, if some column has no number
    there and one in the next line. Labels are integers if all of them are whole numbers and those of the first edge
    have neither quotes nor leading zeros; else they are text. They stand in the order of `Dag.from_edges`.

    Args:
        path: The file; .gz is unpacked.
        format: Its format, if its ending doesn't say: see `ENDINGS`.
        header: Of an edge list: whether it has a header; default: see above.
        columns: Of an edge list: the columns of source, target and, if wanted, weight, by name or by number from 1.
        labels: Of GraphML, GEXF and JSON: the attribute of nodes to take as labels, such as "name"; default: their ids.
        bare: Read the graph alone, whatever is said of weights, biases and activations.
    """
    kind = format_of(path, format)
    if labels is not None and kind not in _ATTRIBUTED:
        raise OptionError(f"labels is an option of {', '.join(_ATTRIBUTED)}, but {path} is read as {kind}.")
    if kind in _EDGE_LISTS:
        return _edgelist.read(Path(path), kind, header, columns, bare)
    if header is not None or columns is not None:
        raise OptionError(f"header and columns are options of edge lists, but {path} is read as {kind}.")
    return _FORMATS[kind].read(Path(path), bare, *([labels] if kind in _ATTRIBUTED else []))


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
    """A graph file as a Dag, with its weights, biases and activations, and what was removed on the way.

    Args:
        path: The file.
        orient: "random" directs an undirected graph, or an edge list whose directions mean nothing, along a random
            order of its nodes.
        seed: Of that order.
        remove_feedback: Remove a small set of edges that makes a cyclic graph acyclic, self loops among them.
        merge: Add up the weights of edges between the same nodes, which are refused otherwise.
        inputs: Labels of the inputs, in order; default: what the file says, else all sources.
        outputs: Labels of the outputs, in order; default: what the file says, else all sinks.
        options: As in `read`.
    """
    given = read(path, **options)
    try:
        return settle(
            given,
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


def write(
    dag: Dag,
    path: str | Path,
    *,
    weight: Any = None,
    bias: Any = None,
    activation: Sequence[str | None] | None = None,
    format: str | None = None,
) -> None:
    """Write a Dag, and what is known of its edges and neurons, so that `read_dag` gives the same.

    The file appears whole or not at all. Labels must be whole numbers or text.

    Args:
        dag: The graph.
        path: The file; .gz packs it.
        weight: (E,) in the order of dag.edges.
        bias: (N-I,) in the order of dag.neurons; edge lists and matrices have no place for it.
        activation: (N-I,) names, likewise.
        format: Its format, if the ending doesn't say.
    """
    kind, path = format_of(path, format), Path(path)
    _check_labels(dag)
    if not _FORMATS[kind].keeps_neurons and (bias is not None or activation is not None):
        raise FileError(f"{kind} files have no place for biases and activations. Write graphml, gexf, json or npz.")
    if kind == "npz" and path.suffix.lower() == ".gz":
        raise FileError(f"{path}: npz files are packed already. Leave .gz away.")
    loaded = AnnotatedDag(
        dag,
        _checked(weight, dag.num_edges, "weights"),
        _checked(bias, len(dag.neurons), "biases"),
        None if activation is None else tuple(activation),
    )
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with replacing(path) as temporary, opener(temporary, "wb") as file:
        _FORMATS[kind].write(loaded, file)


def _check_labels(dag: Dag) -> None:
    first = type(dag.labels[0]) if isinstance(dag.labels[0], str) else int
    other = [x for x in dag.labels if not (isinstance(x, str) if first is str else _convert.is_integer(x))]
    if other or (first is int and max(map(abs, dag.labels)) >= 2**63):  # type: ignore[arg-type]
        raise GraphError(
            f"in a file labels are all text, or all whole numbers of 64 bits, but among these are {summarize(other)}. "
            "Make the Dag with such labels, for example from dag.edges."
        )


def _checked(values: Any, count: int, name: str) -> FloatArray | None:
    if values is None:
        return None
    if hasattr(values, "detach"):  # a torch tensor, in a room that doesn't know torch
        values = values.detach().double().cpu().numpy()
    array: FloatArray = np.asarray(values, np.float64)
    if array.shape != (count,):
        raise WeightError(f"{name} have shape {array.shape}, but {count:,} were wanted.")
    if not np.isfinite(array).all():
        raise WeightError(f"some {name} are infinite or no numbers, and a file keeps finite ones.")
    return array

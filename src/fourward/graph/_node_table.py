"""Attributes of nodes from a second table: a row per neuron, with its class, type, transmitter, position and so on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fourward._memory import check_memory
from fourward.errors import FileError, GraphError, require, summarize
from fourward.graph import _io, _tables
from fourward.graph._attributes import Attributes, as_attributes
from fourward.graph._convert import Labels


def read_node_table(table: Any, labels: Labels) -> Attributes:
    """The attributes of these nodes: every column but the one that holds labels.

    That is the column, named like an id or a label or the first one, that has the most of the graph's labels. Rows of
    other nodes are ignored; nodes without a row have no attributes.

    Args:
        table: A .csv, .tsv or .parquet file, or a table of pandas, polars or pyarrow.
        labels: The labels of the nodes.
    """
    if _tables.is_table(table):
        _tables.check_in_memory(table)
        return _read(table, labels)
    path = Path(table)
    with _io.name_file(path):
        return _read(_load(path), labels)


def _load(path: Path) -> Any:
    _io.check_exists(path)
    require("pyarrow", "files")
    import pyarrow as pa
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    size = path.stat().st_size
    check_memory(path, 10 * size, f"it has {size:,} bytes")
    suffix = next((suffix for suffix in reversed(path.suffixes) if suffix.lower() != ".gz"), "").lower()
    if suffix not in (".csv", ".tsv", ".tab", ".txt", ".parquet"):
        raise FileError(f"expected a table of nodes as .csv, .tsv or .parquet, got {path}.")
    try:
        if suffix == ".parquet":
            return pq.read_table(path)
        names = pc.open_csv(path, parse_options=(options := _parse_options(suffix))).schema.names
        ids = {names[k]: pa.string() for k in _find_label_columns(names)}
        return pc.read_csv(
            path,
            parse_options=options,
            convert_options=pc.ConvertOptions(column_types=ids, null_values=_tables.MISSING, strings_can_be_null=True),
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeDecodeError) as error:
        raise FileError(f"{path} can't be read as a table: {error}") from None


def _parse_options(suffix: str) -> Any:
    import pyarrow.csv as pc

    return pc.ParseOptions(delimiter="," if suffix == ".csv" else "\t")


def _find_label_columns(names: list[str]) -> list[int]:
    """The columns that may hold labels."""
    named = [
        k for k, name in enumerate(names) if (words := _tables.split_words(name)) and words <= _tables.FILLER_WORDS
    ]
    return list(dict.fromkeys((*named, 0)))


def _read(table: Any, labels: Labels) -> Attributes:
    names = _tables.column_names(table)
    if len(set(names)) != len(names):
        raise GraphError(f"expected columns of different names, got {names}.")
    index = {str(label): node for node, label in enumerate(labels)}
    rows = {k: _look_up(_tables.column_values(table, k), names[k], index) for k in _find_label_columns(names)}
    best = max(rows, key=lambda k: int((rows[k] >= 0).sum()))
    node = rows[best]
    if not (node >= 0).any():
        _raise_unknown(names, _tables.column_values(table, best).tolist(), best, labels)
    repeated = [labels[v] for v, count in Counter(node[node >= 0].tolist()).items() if count > 1]
    if repeated:
        raise GraphError(f"the table of nodes has several rows for {summarize(repeated)}. Keep one row per node.")
    values = {name: _tables.column_values(table, k).tolist() for k, name in enumerate(names) if k != best}
    columns: dict[str, list[Any]] = {name: [None] * len(labels) for name in values}
    for row in np.flatnonzero(node >= 0).tolist():
        for name, column in columns.items():
            value = values[name][row]
            column[node[row]] = value if value is None or isinstance(value, str | bool | int | float) else str(value)
    return as_attributes(columns, labels)


def _look_up(column: np.ndarray[Any, Any], name: str, index: dict[str, int]) -> np.ndarray[Any, Any]:
    """(rows,) the node of each label, -1 for a label that the graph lacks."""
    missing = _tables.find_missing(column)
    known = _tables.as_label_column(column[~missing], name)
    nodes = np.full(len(column), -1, np.int64)
    nodes[~missing] = [index.get(str(label), -1) for label in known.tolist()]
    return nodes


def _raise_unknown(names: list[str], column: list[Any], k: int, labels: Labels) -> None:
    raise GraphError(
        f"no row of the table of nodes belongs to a node of the graph: its column {names[k]!r} has, for example, "
        f"{summarize(column[:3])}, and labels of the graph are {summarize(labels[:3])}."
    )

"""Edge lists as text: one edge per line, parsed by pyarrow."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._memory import check_memory
from fourward.errors import FileError, GraphError, OptionError, Repair, require
from fourward.graph import _convert, _io, _tables
from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph, AnnotatedGraph
from fourward.graph._attributes import NO_ATTRIBUTES
from fourward.graph._convert import EdgeList, Labels
from fourward.graph._io import Bytes

_DELIMITERS = {"csv": ",;\t", "tsv": "\t", "edges": "\t,; "}
_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_MISSING_NUMBER = re.compile(
    rf"\s*([+-]?(nan|inf(inity)?)|{'|'.join(map(re.escape, filter(None, _tables.MISSING)))})\s*", re.IGNORECASE
)
_COMMENT = rb"#(?!N/?A[,;\t \"])"  # a spreadsheet's #N/A is a missing value
_MAX_LINE = 2**20  # bytes of a line that isn't a comment
_COLUMNS = Repair("columns", ..., "choose source, target and, optionally, weight, by name or by number from 1")
#: Peak bytes of memory per row, from the file to a Dag, measured on 10^7 rows; text labels add their length.
_ROW_BYTES = 100


class _Row(NamedTuple):
    line: int
    start: int  # offset in the file
    cells: list[str]
    quoted: bool  # the first cell is in quotes


class _Layout(NamedTuple):
    """How to parse the file, as detected from its first lines."""

    first: _Row  # the first edge
    delimiter: str
    columns: tuple[int, ...]  # indices of the sources, the targets and, if there is one, the weights
    metadata: dict[str, Any]  # metadata of our comment line
    skip: bool = False  # omit rows that lack a label or a weight


def read(
    path: Path,
    kind: str,
    header: bool | None,
    columns: Sequence[str | int] | None,
    topology_only: bool,
    missing: str | None = None,
) -> AnnotatedGraph:
    """The edges of a text file; `fourward.files.read` describes the rules."""
    require("pyarrow", "files")
    data = _io.read_bytes(path)
    try:
        layout = _detect_layout(path, data, kind, header, columns)
        if isinstance(layout, dict):
            attributes = layout.get("attributes", NO_ATTRIBUTES)
            graph = _edgeless_graph(layout)
            feedback = _io.mark_feedback(path, graph, layout)
            return AnnotatedGraph(graph, states_direction=False, attributes=attributes, feedback=feedback)
        layout = layout._replace(columns=layout.columns[:2]) if topology_only else layout
        layout = layout._replace(skip=missing == "skip")
        _check_memory(path, data, layout)
        source, target, weight, rows, skipped = _parse(path, data, layout)
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: {_io.describe_encoding(data) if isinstance(error, ValueError) else error}") from None
    graph = _make_edge_list(path, source, target, layout.metadata)
    return AnnotatedGraph(
        graph,
        weight,
        states_direction=False,
        locate_edge=lambda k: f"line {_find_line(data, layout, k if rows is None else int(rows[k]))}",
        skipped=skipped,
        attributes=layout.metadata.get("attributes", NO_ATTRIBUTES),
        feedback=_io.mark_feedback(path, graph, layout.metadata),
    )


def write(annotated: AnnotatedDag | AnnotatedDigraph, file: BinaryIO, delimiter: str) -> None:
    """Sources, targets and, if there are any, weights; text labels in quotes, integers without."""
    require("pyarrow", "files")
    import pyarrow as pa
    import pyarrow.csv as pc

    graph = annotated[0]
    broken = [label for label in graph.labels if isinstance(label, str) and re.search(r"[\r\n]", label)]
    if broken:
        raise GraphError(f"labels in an edge list can't contain a line break, got {broken[0]!r}. Write JSON or npz.")
    if "" in graph.labels:
        raise GraphError("labels in an edge list can't be empty, got ''. Write JSON or npz.")
    integers = _convert.is_integer(graph.labels[0])
    comment = _io.format_metadata(graph, _is_default_order(graph.labels, graph.source, graph.target, integers))
    if comment:
        file.write(f"# {comment}\n".encode())
    labels = pa.array(np.array(graph.labels, np.int64) if integers else list(graph.labels))
    table = {"source": labels.take(pa.array(graph.source)), "target": labels.take(pa.array(graph.target))}
    if annotated.weight is not None:
        table["weight"] = pa.array(annotated.weight)
    pc.write_csv(pa.table(table), file, pc.WriteOptions(delimiter=delimiter, quoting_style="needed"))


def _detect_layout(
    path: Path, data: Bytes, kind: str, header: bool | None, columns: Sequence[str | int] | None
) -> _Layout | dict[str, Any]:
    """Delimiter, header and columns, from the first two rows; or the metadata of a file without edges."""
    metadata, start, line = _read_comments(path, data)
    first = next((text for _, _, text in _lines(data, start, line) if text), b"").decode()
    if "\r" in first:
        raise FileError(f"{path}: lines must end in a line feed, got carriage returns alone. Save it with line feeds.")
    delimiter = next((mark for mark in _DELIMITERS[kind] if mark in first), _DELIMITERS[kind][0])
    top, below = islice((*islice(_rows(data, start, line, delimiter), 2), None, None), 2)
    if top is None:
        raise FileError(f"{path} has comments but no edges.")
    if header or (header is None and _is_header(top, below)):
        indices = _select_columns(path, top, top.cells, columns)
        if below is None and metadata.get("nodes"):
            return metadata
        if below is None:
            raise FileError(f"{path} has a header, {first!r}, but no edges.")
        if len(below.cells) != len(top.cells):
            raise _width_error(path, below, len(top.cells), delimiter)
        return _Layout(below, delimiter, indices, metadata)
    return _Layout(top, delimiter, _select_columns(path, top, [], columns), metadata)


def _read_comments(path: Path, data: Bytes) -> tuple[dict[str, Any], int, int]:
    """Metadata of our comment line, and offset and number of the first line after the comments at the top."""
    metadata: dict[str, Any] = {}
    offset = len(_BOM) if data[:3] == _BOM else 0
    for line, start, text in _lines(data, offset, 1):
        if text and not re.match(_COMMENT, text):
            return metadata, start, line
        metadata |= _io.parse_metadata(path, text[1:].decode(errors="replace").strip())
    raise FileError(f"{path} has no edges.")


def _lines(data: Bytes, start: int, line: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line."""
    while start < len(data):
        stop = data.find(b"\n", start)
        stop = len(data) if stop < 0 else stop + 1
        if stop - start > _MAX_LINE and data[start : start + 1] != b"#":
            raise FileError(f"line {line} has {stop - start:,} characters, too many for an edge list.")
        yield line, start, data[start:stop].rstrip(b"\r\n")
        start, line = stop, line + 1


def _rows(data: Bytes, start: int, line: int, delimiter: str) -> Iterator[_Row]:
    for number, offset, text in _lines(data, start, line):
        row = b"" if re.match(_COMMENT, text) else _strip_cells(text, delimiter)
        if row:
            yield _Row(number, offset, next(csv.reader([row.decode()], delimiter=delimiter)), row.startswith(b'"'))


def _strip_cells(text: Any, delimiter: str) -> Any:
    """Bytes without spaces and tabs around cells; those within quotes stay."""
    if delimiter == " ":
        return text
    space = "[ ]" if delimiter == "\t" else r"[ \t]"
    start, stop = rf"(?<![^{delimiter}\r\n])", rf"(?![^{delimiter}\r\n])"
    quoted = rf'{start}{space}*("(?:[^"\r\n]|"")*+"){space}*'
    pattern = rf"{quoted}|{start}{space}+|(?<!{space}){space}++{stop}".encode()
    return re.sub(pattern, lambda match: match[1] or b"", text)


def _has_outer_spaces(data: Bytes, start: int, delimiter: str) -> bool:
    """Whether some cell may start or end with a space or tab: a search that is much faster than `_strip_cells`."""
    spaces = {"\t": b" ", " ": b""}.get(delimiter, b" \t")
    ends = (*delimiter.encode(), *b"\r\n")
    pairs = [bytes(pair) for space in spaces for end in ends for pair in ((space, end), (end, space))]
    outer = data[start] in spaces or data[len(data) - 1] in spaces
    return outer or any(data.find(pair, start) >= 0 for pair in pairs)


def _is_header(top: _Row, below: _Row | None) -> bool:
    """Whether the first row has known names, or no number in a column that has one in the row below."""
    if _tables.find_named_ends(top.cells) is not None:
        return True
    pairs = zip(top.cells, below.cells if below is not None else [], strict=False)
    numeric = [_is_number(upper, k) for k, (upper, lower) in enumerate(pairs) if _is_number(lower, k)]
    return bool(numeric) and not any(numeric)


def _is_number(cell: str, column: int) -> bool:
    """Whether a cell is a number, or, after the first two columns, a word for a missing or infinite one."""
    return bool(_NUMBER.fullmatch(cell) or (column >= 2 and _MISSING_NUMBER.fullmatch(cell)))


def _select_columns(path: Path, top: _Row, names: list[str], columns: Sequence[str | int] | None) -> tuple[int, ...]:
    """Indices of sources, targets and weights: those requested, else those of known names, else the first three."""
    width = len(top.cells)
    if columns is None:
        return _default_columns(path, top, names)
    if len(columns) not in (2, 3) or len(set(columns)) != len(columns):
        raise OptionError(f"columns must be two or three of source, target and weight, got {list(columns)}.")
    return tuple(_find_column(path, column, names, width) for column in columns)


def _default_columns(path: Path, top: _Row, names: list[str]) -> tuple[int, ...]:
    width = len(top.cells)
    if width < 2:
        raise FileError(f"{path}, line {top.line}: expected a source and a target, got {top.cells[0]!r}.")
    ends = _tables.find_named_ends(names)
    if ends is None and "" in names[:1]:
        raise FileError(
            f"{path}, line {top.line}: the first column has no name, which suggests row numbers, and no other column "
            "is named as source or target.",
            _COLUMNS,
        )
    ends = ends or (0, 1)
    weight = _tables.find_weight(names, ends)
    return (*ends, weight) if weight < width else ends


def _find_column(path: Path, column: str | int, names: list[str], width: int) -> int:
    if column in names:
        return names.index(str(column))
    if str(column).isdecimal() and 1 <= int(column) <= width:
        return int(column) - 1
    available = f"its columns are {', '.join(names)}" if names else "it has no header"
    raise OptionError(f"{path} has no column {column!r}: {available}. Pass names, or numbers from 1 to {width}.")


def _check_memory(path: Path, data: Bytes, layout: _Layout) -> None:
    start = layout.first.start
    sample = data[start : start + _MAX_LINE]
    rows = (len(data) - start) / len(sample) * max(sample.count(b"\n"), 1)
    required = rows * _ROW_BYTES + (0 if _has_integer_labels(layout) else len(data) - start)
    check_memory(path, required, f"it has about {rows:,.0f} edges")


def _has_integer_labels(layout: _Layout) -> bool:
    """Whether the labels of the first edge are integers, without quotes and leading zeros."""
    cells = [layout.first.cells[c] for c in layout.columns[:2]]
    known = [cell for cell in cells if cell not in _tables.MISSING]
    return not layout.first.quoted and all(re.fullmatch(r"-?(0|[1-9]\d*)", cell) for cell in known)


def _parse(path: Path, data: Bytes, layout: _Layout) -> tuple[Any, Any, Any, IntArray | None, int]:
    """Sources, targets and weights, as pyarrow columns; labels are integers if all of them are, else text.

    With `skip` also which rows are complete, and the number of the others.
    """
    import pyarrow as pa

    start = layout.first.start
    body: Any = memoryview(data)[start:]
    if data.find(b"\n#", start) >= 0:
        body = re.sub(rb"(?m)^" + _COMMENT + rb"[^\r\n]*", b"", body)
    if _has_outer_spaces(data, start, layout.delimiter):
        body = _strip_cells(body, layout.delimiter)
    columns = None
    for label_type in (pa.int64(), pa.string())[not _has_integer_labels(layout) :]:
        try:
            columns = _read_columns(body, layout, label_type)
            break
        except pa.ArrowInvalid as error:
            failure = str(error)
    if columns is None:
        raise _parse_error(path, data, layout, failure)
    rows, skipped = None, 0
    if layout.skip:
        columns, rows, skipped = _complete_rows(path, columns)
    lacking = _lacking(layout)
    if any(column.null_count for column in columns) or (label_type == pa.string() and _has(columns[:2], lacking)):
        raise _parse_error(path, data, layout, "a cell is empty")
    weight = columns[2].to_numpy() if len(columns) == 3 else None
    if weight is not None and not np.isfinite(weight).all():
        raise _parse_error(path, data, layout, "a weight isn't finite")
    return columns[0], columns[1], weight, rows, skipped


def _complete_rows(path: Path, columns: list[Any]) -> tuple[list[Any], IntArray, int]:
    """The rows with a value in every column, their numbers, and the number of the other rows."""
    import pyarrow.compute as pc

    complete = np.ones(len(columns[0]), np.bool_)
    for column in columns:
        complete &= pc.is_valid(column).to_numpy()
    if len(columns) == 3:
        complete &= np.isfinite(columns[2].fill_null(0).to_numpy())
    rows = np.flatnonzero(complete)
    if not len(rows):
        raise FileError(f"{path}: none of the {len(complete):,} rows has a source, a target and a weight.")
    return [column.filter(complete) for column in columns], rows, len(complete) - len(rows)


def _read_columns(body: Any, layout: _Layout, label_type: Any) -> list[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    names = [str(k) for k in range(len(layout.first.cells))]
    types = dict(zip((names[c] for c in layout.columns), (label_type, label_type, pa.float64()), strict=False))
    table = pc.read_csv(
        pa.BufferReader(pa.py_buffer(body)),
        pc.ReadOptions(column_names=names),
        pc.ParseOptions(delimiter=layout.delimiter),
        pc.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=_tables.MISSING if layout.skip else [""],
            strings_can_be_null=layout.skip,
        ),
    )
    return [table.column(k) for k in range(len(types))]


def _lacking(layout: _Layout) -> tuple[str, ...]:
    """Cells that no label may be: where others are integers, a word for a missing one isn't a neuron's name."""
    return _tables.MISSING if layout.skip or _has_integer_labels(layout) else ("",)


def _has(columns: list[Any], words: tuple[str, ...]) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    return any(pc.any(pc.is_in(column, value_set=pa.array(words))).as_py() for column in columns)


def _parse_error(path: Path, data: Bytes, layout: _Layout, failure: str) -> FileError:
    """An error for the first wrong line, which is searched for line by line."""
    width, lacking = len(layout.first.cells), _lacking(layout)
    for row in _rows(data, layout.first.start, layout.first.line, layout.delimiter):
        line, cells = row.line, row.cells
        if len(cells) != width:
            return _width_error(path, row, width, layout.delimiter)
        missing = any(cells[c] in lacking for c in layout.columns[:2]) or not all(cells[c] for c in layout.columns)
        if layout.skip and (missing or cells[layout.columns[-1]] in lacking):
            continue
        if missing:
            return FileError(
                f"{path}, line {line}: a label or a weight is missing: {layout.delimiter.join(cells)!r}.",
                _tables.SKIP_MISSING,
            )
        if len(layout.columns) == 3 and not _is_finite(cells[layout.columns[2]]):
            column = layout.columns[2]
            return FileError(
                f"{path}, line {line}: expected a finite weight in column {column + 1}, got {cells[column]!r}.",
                *([_tables.SKIP_MISSING] if _MISSING_NUMBER.fullmatch(cells[column]) else []),
                _COLUMNS,
            )
    return FileError(f"{path} can't be parsed as an edge list: {failure}.")


def _width_error(path: Path, row: _Row, expected: int, delimiter: str) -> FileError:
    separator = {"\t": "tabs", " ": "single spaces"}.get(delimiter, repr(delimiter))
    return FileError(
        f"{path}, line {row.line}: expected {expected} columns separated by {separator}, got {len(row.cells)}."
    )


def _is_finite(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def _find_line(data: Bytes, layout: _Layout, k: int) -> int:
    """Number of the line of edge k."""
    return next(islice(_rows(data, layout.first.start, layout.first.line, layout.delimiter), k, None)).line


def _make_edge_list(path: Path, source: Any, target: Any, metadata: dict[str, Any]) -> EdgeList:
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = pa.chunked_array(source.chunks + target.chunks).dictionary_encode()  # all chunks share one dictionary
    flat = np.concatenate([chunk.indices.to_numpy() for chunk in codes.chunks])
    ends, names = (flat[: len(source)], flat[len(source) :]), codes.chunk(0).dictionary
    if names.type == pa.string():
        with _io.name_file(path):
            _tables.check_float_ids(names.filter(pc.match_substring_regex(names, _tables.FLOAT_ID)).to_pylist())
    if "nodes" in metadata:
        node, labels = _look_up_nodes(names.to_pylist(), metadata["nodes"])
    else:
        integers = names.type == pa.int64()
        order = np.argsort(names.to_numpy() if integers else _first_appearance(*ends, len(names)))
        node = np.empty(len(names), np.int32)
        node[order] = np.arange(len(names))
        labels = _compact_labels(names.take(pa.array(order)).to_pylist())
    return EdgeList(node[ends[0]], node[ends[1]], labels, True, metadata.get("inputs"), metadata.get("outputs"))


def _edgeless_graph(metadata: dict[str, Any]) -> EdgeList:
    empty = np.empty(0, np.int64)
    labels = _compact_labels(metadata["nodes"])
    return EdgeList(empty, empty, labels, True, metadata.get("inputs"), metadata.get("outputs"))


def _look_up_nodes(names: list[Any], nodes: list[Any]) -> tuple[IntArray, Labels]:
    """Node index of each name, in the list of nodes of our comment line; and the labels."""
    index = {label: k for k, label in enumerate(nodes)}
    missing = [name for name in names if name not in index]
    if missing:
        raise FileError(f"an edge has the label {missing[0]!r}, which the list of nodes at the top of the file lacks.")
    return np.array([index[name] for name in names], np.int32), tuple(nodes)


def _compact_labels(labels: list[Any]) -> Labels:
    """A range if the labels are 0 to N-1, which takes no memory."""
    return range(len(labels)) if labels == list(range(len(labels))) else tuple(labels)


def _first_appearance(source: IntArray, target: IntArray, num_nodes: int) -> IntArray:
    """(N,) index of each node's first appearance in source[0], target[0], source[1], ...; 2 E without edges."""
    seen = np.full((2, num_nodes), 2 * len(source), np.int64)
    descending = np.arange(len(source))[::-1]
    seen[0, source[::-1]] = 2 * descending  # if an entry is assigned several times, the last stays
    seen[1, target[::-1]] = 2 * descending + 1
    first: IntArray = seen.min(0)
    return first


def _is_default_order(labels: Any, source: IntArray, target: IntArray, integers: bool) -> bool:
    """Whether reading the edges alone gives the labels in this order."""
    first = _first_appearance(source, target, len(labels))
    order = np.array(labels, np.int64) if integers else first
    return bool((first < 2 * len(source)).all() and (np.diff(order) > 0).all())

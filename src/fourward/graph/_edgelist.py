"""Edge lists: one edge a line, millions of lines a second."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import FileError, GraphError, OptionError, require
from fourward.graph import _convert, _io, _metadata
from fourward.graph._annotated import AnnotatedDag, AnnotatedGraph
from fourward.graph._convert import EdgeList, Labels
from fourward.graph._io import Bytes

#: Names by which the columns of sources and of targets are known.
SOURCES = {"source", "from", "pre", "presynaptic", "src", "sender", "u"}
TARGETS = {"target", "to", "post", "postsynaptic", "dst", "receiver", "v"}
#: Words that may stand beside these, as in pre_root_id and bodyId_post.
_BESIDE = {"body", "cell", "id", "label", "name", "neuron", "node", "pt", "root"}
#: Words of which the name of the column of weights is made, as in syn_count.
WEIGHTS = {"count", "counts", "strength", "syn", "synapse", "synapses", "weight", "weights"}
_DELIMITERS = {"csv": ",;\t", "tsv": "\t", "edges": "\t,; "}
_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")
_MISSING = re.compile(r"\s*[+-]?(nan?|n/a|inf(inity)?)\s*", re.IGNORECASE)
_LONGEST = 2**20  # bytes of a line with an edge
#: Peak bytes of memory for each row, from the file to a Dag, measured on 10^7 rows; text labels add what they are long.
_ROW_BYTES = 100


class _Row(NamedTuple):
    line: int
    start: int  # offset in the file
    cells: list[str]
    quoted: bool  # the first cell stands in quotes


class _Layout(NamedTuple):
    """What the first lines of a file tell."""

    first: _Row  # the first edge
    delimiter: str
    columns: tuple[int, ...]  # of the sources, the targets and, where there is one, the weights
    said: dict[str, Any]  # by our own comment line


def read(path: Path, kind: str, header: bool | None, columns: Sequence[str | int] | None, bare: bool) -> AnnotatedGraph:
    """The edges of a text file; `fourward.files.read` has the rules."""
    require("pyarrow", "files")
    data = _io.load(path)
    try:
        layout = _look(path, data, kind, header, columns)
        if isinstance(layout, dict):
            return AnnotatedGraph(_edgeless(layout), stated=False)
        layout = layout._replace(columns=layout.columns[:2]) if bare else layout
        _check_memory(path, data, layout)
        source, target, weight = _parse(path, data, layout)
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: {_io.not_text(data) if isinstance(error, ValueError) else error}") from None
    return AnnotatedGraph(
        _graph(source, target, layout.said),
        weight,
        stated=False,
        where=lambda k: f"line {_line_of(data, layout, k)}",
    )


def write(loaded: AnnotatedDag, file: BinaryIO, delimiter: str) -> None:
    """Sources, targets and, where there are any, weights; text labels in quotes, whole numbers without."""
    require("pyarrow", "files")
    import pyarrow as pa
    import pyarrow.csv as pc

    dag = loaded.dag
    wrong = [label for label in dag.labels if isinstance(label, str) and re.search(r"[\r\n]", label)]
    if wrong:
        raise GraphError(f"an edge list has a line for each edge, but this label has a line break: {wrong[0]!r}.")
    if "" in dag.labels:
        raise GraphError("an edge list can't hold an empty label, and one of these is ''. Write JSON or npz.")
    integers = _convert.is_integer(dag.labels[0])
    comment = _metadata.note(dag, _is_usual_order(dag.labels, dag.source, dag.target, integers))
    if comment:
        file.write(f"# {comment}\n".encode())
    labels = pa.array(np.array(dag.labels, np.int64) if integers else list(dag.labels))
    table = {"source": labels.take(pa.array(dag.source)), "target": labels.take(pa.array(dag.target))}
    if loaded.weight is not None:
        table["weight"] = pa.array(loaded.weight)
    pc.write_csv(pa.table(table), file, pc.WriteOptions(delimiter=delimiter, quoting_style="needed"))


def _look(
    path: Path, data: Bytes, kind: str, header: bool | None, columns: Sequence[str | int] | None
) -> _Layout | dict[str, Any]:
    """The delimiter, the header and the columns, from the first two rows; or our own comment, if it stands alone."""
    said, start, line = _comments(path, data)
    first = next((text for _, _, text in _lines(data, start, line) if text), b"").decode()
    if "\r" in first:
        raise FileError(f"{path}: lines end in a carriage return alone. Save the file with line feeds.")
    delimiter = next((mark for mark in _DELIMITERS[kind] if mark in first), _DELIMITERS[kind][0])
    top, below = islice((*islice(_rows(data, start, line, delimiter), 2), None, None), 2)
    if top is None:
        raise FileError(f"{path} holds comments and no edges.")
    if header or (header is None and _is_header(top, below)):
        chosen = _columns(path, top, top.cells, columns)
        if below is None and said.get("nodes"):
            return said
        if below is None:
            raise FileError(f"{path} has a header, {first!r}, and no edges below it.")
        if len(below.cells) != len(top.cells):
            raise _wrong_width(path, below, len(top.cells), delimiter)
        return _Layout(below, delimiter, chosen, said)
    return _Layout(top, delimiter, _columns(path, top, [], columns), said)


def _comments(path: Path, data: Bytes) -> tuple[dict[str, Any], int, int]:
    """What our own comment says, and offset and line of what follows the comments at the top."""
    said: dict[str, Any] = {}
    at = len(_BOM) if data[:3] == _BOM else 0
    for line, start, text in _lines(data, at, 1):
        if text and not text.startswith(b"#"):
            return said, start, line
        said |= _metadata.parse(path, text[1:].decode(errors="replace").strip())
    raise FileError(f"{path} holds no edges.")


def _lines(data: Bytes, start: int, line: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and bytes of each line."""
    while start < len(data):
        stop = data.find(b"\n", start)
        stop = len(data) if stop < 0 else stop + 1
        if stop - start > _LONGEST and data[start : start + 1] != b"#":
            raise FileError(f"line {line} has {stop - start:,} characters: this is no edge list.")
        yield line, start, data[start:stop].rstrip(b"\r\n")
        start, line = stop, line + 1


def _rows(data: Bytes, start: int, line: int, delimiter: str) -> Iterator[_Row]:
    for number, offset, text in _lines(data, start, line):
        tight = b"" if text.startswith(b"#") else _tight(text, delimiter)
        if tight:
            yield _Row(number, offset, next(csv.reader([tight.decode()], delimiter=delimiter)), tight.startswith(b'"'))


def _tight(text: Any, delimiter: str) -> Any:
    """Bytes without the blanks around cells; those within quotes stay."""
    if delimiter == " ":
        return text
    blank = "[ ]" if delimiter == "\t" else r"[ \t]"
    start, stop = rf"(?<![^{delimiter}\r\n])", rf"(?![^{delimiter}\r\n])"
    quoted = rf'{start}{blank}*("(?:[^"\r\n]|"")*+"){blank}*'
    pattern = rf"{quoted}|{start}{blank}+|(?<!{blank}){blank}++{stop}".encode()
    return re.sub(pattern, lambda found: found[1] or b"", text)


def _has_blanks(data: Bytes, start: int, delimiter: str) -> bool:
    """Whether a cell may start or end with a blank; much faster than to look for each."""
    blanks = {"\t": b" ", " ": b""}.get(delimiter, b" \t")
    ends = (*delimiter.encode(), *b"\r\n")
    pairs = [bytes(pair) for blank in blanks for end in ends for pair in ((blank, end), (end, blank))]
    outer = data[start] in blanks or data[len(data) - 1] in blanks
    return outer or any(data.find(pair, start) >= 0 for pair in pairs)


def _is_header(top: _Row, below: _Row | None) -> bool:
    """Known names of sources and targets, or no number on top of any column that has one below, and one has."""
    if _named_ends(top.cells) is not None:
        return True
    pairs = zip(top.cells, below.cells if below is not None else [], strict=False)
    numeric = [_is_number(high, k) for k, (high, low) in enumerate(pairs) if _is_number(low, k)]
    return bool(numeric) and not any(numeric)


def _named_ends(cells: list[str]) -> tuple[int, int] | None:
    """The first column that is named as one of sources, and the first of targets."""
    words = [_words(cell) - _BESIDE for cell in cells]
    ends = [[k for k, one in enumerate(words) if len(one) == 1 and one <= known] for known in (SOURCES, TARGETS)]
    return (ends[0][0], ends[1][0]) if all(ends) else None


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\d+|[A-Z]?[a-z]+|[A-Z]+", name)}


def _is_number(cell: str, column: int) -> bool:
    """Whether a cell holds a number, or, after the labels, a word for one that is missing or infinite."""
    return bool(_NUMBER.fullmatch(cell) or (column >= 2 and _MISSING.fullmatch(cell)))


def _columns(path: Path, top: _Row, names: list[str], wanted: Sequence[str | int] | None) -> tuple[int, ...]:
    """Places of sources, targets and weights: those asked for, or known by name, or else the first three."""
    width = len(top.cells)
    if wanted is None:
        if width < 2:
            raise FileError(
                f"{path}, line {top.line}: an edge has a source and a target, but this line is {top.cells[0]!r}."
            )
        ends = _named_ends(names)
        if ends is None and "" in names[:1]:
            raise FileError(
                f"{path}, line {top.line}: the first column has no name, as if it counted the rows. columns=, on the "
                "command line --columns, says which columns are source, target and, if wanted, weight."
            )
        ends = ends or (0, 1)
        known = [k for k, name in enumerate(names) if k not in ends and _words(name) and _words(name) <= WEIGHTS]
        weight = next(iter(known), max(ends) + 1)
        return (*ends, weight) if weight < width else ends
    if len(wanted) not in (2, 3) or len(set(wanted)) != len(wanted):
        raise OptionError(f"columns={list(wanted)} came, but two or three were wanted: source, target and weight.")
    return tuple(_column(path, one, names, width) for one in wanted)


def _column(path: Path, wanted: str | int, names: list[str], width: int) -> int:
    if wanted in names:
        return names.index(str(wanted))
    if str(wanted).isdecimal() and 1 <= int(wanted) <= width:
        return int(wanted) - 1
    known = f"its columns are {', '.join(names)}" if names else "it has no header"
    raise OptionError(f"{path} has no column {wanted!r}: {known}. Give names, or numbers from 1 to {width}.")


def _check_memory(path: Path, data: Bytes, layout: _Layout) -> None:
    start = layout.first.start
    sample = data[start : start + _LONGEST]
    rows = (len(data) - start) / len(sample) * max(sample.count(b"\n"), 1)
    need = rows * _ROW_BYTES + (0 if _are_integers(layout) else len(data) - start)
    _io.check_memory(path, need, f"it has about {rows:,.0f} edges")


def _are_integers(layout: _Layout) -> bool:
    """Whether the labels of the first edge are whole numbers, without quotes and leading zeros."""
    cells = (layout.first.cells[c] for c in layout.columns[:2])
    return not layout.first.quoted and all(re.fullmatch(r"-?(0|[1-9]\d*)", cell) for cell in cells)


def _parse(path: Path, data: Bytes, layout: _Layout) -> tuple[Any, Any, Any]:
    """Sources, targets and weights, as columns; labels are integers if all of them are."""
    import pyarrow as pa

    start = layout.first.start
    body: Any = memoryview(data)[start:]
    if data.find(b"\n#", start) >= 0:
        body = re.sub(rb"(?m)^#[^\r\n]*", b"", body)
    if _has_blanks(data, start, layout.delimiter):
        body = _tight(body, layout.delimiter)
    columns = None
    for label in (pa.int64(), pa.string())[not _are_integers(layout) :]:
        try:
            columns = _columns_of_type(body, layout, label)
            break
        except pa.ArrowInvalid as error:
            failure = str(error)
    if columns is None:
        raise _explained(path, data, layout, failure)
    if any(column.null_count for column in columns) or (label == pa.string() and _has_empty(columns[:2])):
        raise _explained(path, data, layout, "a cell is empty")
    weight = columns[2].to_numpy() if len(columns) == 3 else None
    if weight is not None and not np.isfinite(weight).all():
        raise _explained(path, data, layout, "a weight isn't finite")
    return columns[0], columns[1], weight


def _columns_of_type(body: Any, layout: _Layout, label: Any) -> list[Any]:
    import pyarrow as pa
    import pyarrow.csv as pc

    names = [str(k) for k in range(len(layout.first.cells))]
    types = dict(zip((names[c] for c in layout.columns), (label, label, pa.float64()), strict=False))
    table = pc.read_csv(
        pa.BufferReader(pa.py_buffer(body)),
        pc.ReadOptions(column_names=names),
        pc.ParseOptions(delimiter=layout.delimiter),
        pc.ConvertOptions(column_types=types, include_columns=list(types), null_values=[""]),
    )
    return [table.column(k) for k in range(len(types))]


def _has_empty(columns: list[Any]) -> bool:
    import pyarrow.compute as pc

    return any(pc.any(pc.equal(column, "")).as_py() for column in columns)


def _explained(path: Path, data: Bytes, layout: _Layout, failure: str) -> FileError:
    """The first line that is wrong, found by reading line by line."""
    wanted = len(layout.first.cells)
    for row in _rows(data, layout.first.start, layout.first.line, layout.delimiter):
        line, cells = row.line, row.cells
        if len(cells) != wanted:
            return _wrong_width(path, row, wanted, layout.delimiter)
        if not all(cells[c] for c in layout.columns):
            return FileError(f"{path}, line {line}: a label or a weight is missing: {layout.delimiter.join(cells)!r}.")
        if len(layout.columns) == 3 and not _is_finite(cells[layout.columns[2]]):
            return FileError(
                f"{path}, line {line}: the weight {cells[layout.columns[2]]!r} is no finite number. Column "
                f"{layout.columns[2] + 1} is read as weight; columns=, on the command line --columns, takes others: "
                "source,target or source,target,weight, by name or by number."
            )
    return FileError(f"{path} can't be read: {failure}.")


def _wrong_width(path: Path, row: _Row, wanted: int, delimiter: str) -> FileError:
    mark = {"\t": "tabs", " ": "single spaces"}.get(delimiter, repr(delimiter))
    return FileError(
        f"{path}, line {row.line} has {len(row.cells)} columns, set apart by {mark}, but {wanted} were wanted."
    )


def _is_finite(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def _line_of(data: Bytes, layout: _Layout, k: int) -> int:
    return next(islice(_rows(data, layout.first.start, layout.first.line, layout.delimiter), k, None)).line


def _graph(source: Any, target: Any, said: dict[str, Any]) -> EdgeList:
    import pyarrow as pa

    codes = pa.chunked_array(source.chunks + target.chunks).dictionary_encode()  # all chunks share one dictionary
    flat = np.concatenate([chunk.indices.to_numpy() for chunk in codes.chunks])
    ends, names = (flat[: len(source)], flat[len(source) :]), codes.chunk(0).dictionary
    if "nodes" in said:
        number, labels = _as_listed(names.to_pylist(), said["nodes"])
    else:
        integers = names.type == pa.int64()
        order = np.argsort(names.to_numpy() if integers else _first_seen(*ends, len(names)))
        number = np.empty(len(names), np.int32)
        number[order] = np.arange(len(names))
        labels = _shortest(names.take(pa.array(order)).to_pylist())
    return EdgeList(number[ends[0]], number[ends[1]], labels, True, said.get("inputs"), said.get("outputs"))


def _edgeless(said: dict[str, Any]) -> EdgeList:
    none = np.empty(0, np.int64)
    return EdgeList(none, none, _shortest(said["nodes"]), True, said.get("inputs"), said.get("outputs"))


def _as_listed(names: list[Any], nodes: list[Any]) -> tuple[IntArray, Labels]:
    """The node of each name, where our own comment lists the nodes; and the labels."""
    place = {label: k for k, label in enumerate(nodes)}
    missing = [name for name in names if name not in place]
    if missing:
        raise FileError(f"an edge names {missing[0]!r}, which the list of nodes at the top of the file doesn't hold.")
    return np.array([place[name] for name in names], np.int32), tuple(nodes)


def _shortest(labels: list[Any]) -> Labels:
    """Labels that are 0 to N-1 take no memory."""
    return range(len(labels)) if labels == list(range(len(labels))) else tuple(labels)


def _first_seen(source: IntArray, target: IntArray, num_nodes: int) -> IntArray:
    """(N,) where each node comes first when edges are read one after another; 2 E for one without edges."""
    seen = np.full((2, num_nodes), 2 * len(source), np.int64)
    later = np.arange(len(source))[::-1]
    seen[0, source[::-1]] = 2 * later  # of several values for one place, the last stays
    seen[1, target[::-1]] = 2 * later + 1
    first: IntArray = seen.min(0)
    return first


def _is_usual_order(labels: Any, source: IntArray, target: IntArray, integers: bool) -> bool:
    """Whether reading the edges alone gives the labels in this order."""
    seen = _first_seen(source, target, len(labels))
    order = np.array(labels, np.int64) if integers else seen
    return bool((seen < 2 * len(source)).all() and (np.diff(order) > 0).all())

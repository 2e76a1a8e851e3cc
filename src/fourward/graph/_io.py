"""What the readers of all formats share: bytes of a file, plain or gzip; arrays of npz files; our comment line."""

from __future__ import annotations

import gzip
import json
import math
import mmap
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from fourward._arrays import BoolArray
from fourward._memory import check_memory, format_bytes
from fourward.errors import FileError, FourwardError, GraphError, summarize
from fourward.graph import _convert
from fourward.graph._attributes import Attributes, as_attributes
from fourward.graph._convert import EdgeList, Labels
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph

Bytes = bytes | mmap.mmap

#: Start of a comment line that continues with JSON: the order of nodes, inputs and outputs, and feedback, for formats
#: without fields for it.
COMMENT_PREFIX = "fourward "
#: Bytes of memory per byte of XML or JSON; measured with 10^5 edges: 21 for GraphML, 16 for GEXF, 12 for JSON.
PARSE_GROWTH = 20
_CHUNK = 2**24


def read_bytes(path: Path, growth: float = 1) -> Bytes:
    """A file mapped into memory, or decompressed if its suffix is .gz.

    Args:
        path: The file.
        growth: Bytes of memory that the reader takes per byte; checked before anything is read or decompressed.
    """
    check_exists(path)
    if path.stat().st_size == 0:
        raise FileError(f"{path} is empty.")
    if path.suffix.lower() == ".gz":
        return _decompress(path, growth)
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    check_memory(path, growth * len(data) if growth > 1 else 0, f"it has {len(data):,} bytes")
    return data


def check_exists(path: Path) -> None:
    """Raise FileError unless there is such a file."""
    if not path.is_file():
        raise FileError(f"file not found: {path}.")


def read_npz(path: Path, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Arrays of an npz file by name, none of them pickled.

    The headers of all arrays are read first: NumPy allocates what a header claims before it looks for the data.

    Args:
        path: The file.
        names: The arrays to read; default: all.
    """
    check_exists(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {m.filename[:-4]: m for m in archive.infolist() if m.filename.endswith(".npy")}
            if not members.keys() >= set(names or ()):
                raise FileError(f"expected arrays {summarize(names or ())} in {path}, got {summarize(members)}.")
            chosen = {name: m for name, m in members.items() if names is None or name in names}
            size = sum(_array_size(path, archive, name, member) for name, member in chosen.items())
            check_memory(path, 2 * size, f"its arrays take {size:,} bytes")
            return {name: _read_array(path, archive, name, member) for name, member in chosen.items()}
    except FourwardError:
        raise
    except Exception as error:  # zipfile raises many types of exception
        raise FileError(f"{path} can't be read as npz: it is not an npz file, or it is truncated ({error}).") from None


def _array_size(path: Path, archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> int:
    """Bytes of an array, as its header claims; raises if the archive has fewer."""
    with _corrupt_array_errors(path, name), archive.open(member) as file:
        version = npy.read_magic(file)
        shape, _, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
        if dtype.hasobject:
            raise FileError(
                f"{path}: the array {name!r} holds Python objects. These are pickled, and pickles, which could run "
                "code, are never loaded: save arrays of numbers or text."
            )
        size = math.prod(shape) * max(dtype.itemsize, 1)
        if min(shape, default=0) < 0 or size > member.file_size:
            raise ValueError(f"its header claims shape {shape} and {dtype}, but it has {member.file_size:,} bytes")
        return size


def _read_array(path: Path, archive: zipfile.ZipFile, name: str, member: zipfile.ZipInfo) -> Any:
    with _corrupt_array_errors(path, name), archive.open(member) as file:
        return npy.read_array(file, allow_pickle=False)


@contextmanager
def _corrupt_array_errors(path: Path, name: str) -> Iterator[None]:
    try:
        yield
    except FourwardError:
        raise
    except Exception as error:  # zipfile, zlib, and NumPy's parser of headers raise many types of exception
        raise FileError(f"{path}: the array {name!r} is corrupt: {error}.") from None


@contextmanager
def name_file(path: Path) -> Iterator[None]:
    """Turn graph errors in the block into errors of this file."""
    try:
        yield
    except GraphError as error:
        raise FileError(f"{path}: {error.args[0]}", *error.repairs) from None


def decode_text(path: Path, data: Bytes) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return data[:].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileError(f"{path}, line {line}: {describe_encoding(data)}") from None


def describe_encoding(data: Bytes) -> str:
    """What is wrong with bytes that aren't UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "expected UTF-8, got UTF-16. Save the file as UTF-8."
    return "expected UTF-8 text, got other bytes. Save the file as UTF-8; if it isn't text, name its format."


def _decompress(path: Path, growth: float) -> bytes:
    size = path.stat().st_size
    buffer = BytesIO()
    try:
        with path.open("rb") as file:
            sample = file.read(2**20)
        expected = len(zlib.decompressobj(31).decompress(sample, 2**26)) / len(sample) * size
        check_memory(path, growth * expected, f"it decompresses to about {format_bytes(expected)}")
        with gzip.open(path) as stream:
            while part := stream.read(_CHUNK):
                buffer.write(part)
                check_memory(path, growth * buffer.tell(), f"it decompresses to more than {buffer.tell():,} bytes")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path} can't be decompressed as gzip: {error}. It may be truncated.") from None
    if not buffer.tell():
        raise FileError(f"{path} is empty once decompressed.")
    return buffer.getvalue()


def format_metadata(graph: Dag | Digraph, default_order: bool) -> str:
    """A comment with what the list of edges doesn't imply: order of nodes, ends, feedback, attributes; or "".

    Args:
        graph: The graph.
        default_order: Whether readers of the format put the nodes into this order by themselves.
    """
    metadata: dict[str, Any] = {} if default_order and not graph.attributes else {"nodes": list(graph.labels)}
    for name, nodes, is_default in (
        ("inputs", graph.inputs, graph.in_degree == 0),
        ("outputs", graph.outputs, graph.out_degree == 0),
    ):
        if not np.array_equal(nodes, np.flatnonzero(is_default)):
            metadata[name] = [graph.labels[v] for v in nodes.tolist()]
    if isinstance(graph, Digraph):
        pairs = [[graph.labels[u], graph.labels[v]] for u, v in graph.feedback.tolist()]
        metadata["feedback"] = "all" if pairs and len(pairs) == graph.num_edges else pairs
    if graph.attributes:
        metadata["attributes"] = {name: list(values) for name, values in graph.attributes.items()}
    return COMMENT_PREFIX + json.dumps(metadata, default=int) if metadata else ""


def parse_metadata(path: Path, comment: str) -> dict[str, Any]:
    """Lists "nodes", "inputs", "outputs" and "feedback", and "attributes" of nodes; {} if it isn't our comment."""
    if not comment.startswith(COMMENT_PREFIX):
        return {}
    try:
        metadata = json.loads(comment[len(COMMENT_PREFIX) :])
        lists = [metadata.get(name, []) for name in ("nodes", "inputs", "outputs")]
    except (ValueError, AttributeError, RecursionError):
        raise FileError(f"{path}: expected a JSON object after the comment {COMMENT_PREFIX!r}.") from None
    for labels in lists:
        if not isinstance(labels, list) or not all(isinstance(x, str) or _convert.is_integer(x) for x in labels):
            raise FileError(
                f"{path}: expected lists of labels after the comment {COMMENT_PREFIX!r}, got {labels!r:.60}."
            )
    feedback = metadata.get("feedback", [])
    if feedback != "all" and not (isinstance(feedback, list) and all(map(_is_pair, feedback))):
        raise FileError(f"{path}: expected 'feedback' to be 'all' or a list of pairs of labels, got {feedback!r:.60}.")
    if "attributes" in metadata:
        metadata["attributes"] = parse_attributes(path, metadata["attributes"], metadata.get("nodes", []))
    return dict(metadata)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and all(isinstance(x, str) or _convert.is_integer(x) for x in value)
    )


def mark_feedback(path: Path, graph: EdgeList, metadata: Mapping[str, Any]) -> BoolArray | None:
    """(E,) True for the feedback edges that our comment line lists; None if it doesn't say."""
    feedback = metadata.get("feedback")
    if feedback is None or feedback == "all":
        return None if feedback is None else np.ones(len(graph.source), np.bool_)
    listed, labels = set(map(tuple, feedback)), graph.labels
    pairs = [(labels[u], labels[v]) for u, v in zip(graph.source.tolist(), graph.target.tolist(), strict=True)]
    if unknown := listed.difference(pairs):
        raise FileError(f"{path}: the comment at its top lists feedback that isn't an edge: {summarize(unknown)}.")
    return np.array([pair in listed for pair in pairs], np.bool_)


def parse_attributes(path: Path, attributes: Any, labels: Labels) -> Attributes:
    """Attributes of nodes from a file, checked."""
    try:
        with name_file(path):
            return as_attributes(attributes, labels)
    except TypeError as error:
        raise FileError(f"{path}: unusable attributes of nodes: {error}.") from None

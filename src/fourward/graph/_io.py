"""What the readers of all formats share: bytes of a file, plain or gzip; memory checks; our comment line."""

from __future__ import annotations

import gzip
import json
import mmap
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from fourward import _memory
from fourward._memory import format_bytes
from fourward.errors import FileError
from fourward.graph import _convert
from fourward.graph._dag import Dag

Bytes = bytes | mmap.mmap

#: Start of a comment line that continues with JSON: the order of nodes, inputs and outputs, for formats without
#: fields for it.
COMMENT_PREFIX = "fourward "
_CHUNK = 2**24


def read_bytes(path: Path) -> Bytes:
    """A file mapped into memory, or decompressed if its suffix is .gz."""
    if not path.is_file():
        raise FileError(f"file not found: {path}.")
    if path.stat().st_size == 0:
        raise FileError(f"{path} is empty.")
    if path.suffix.lower() == ".gz":
        return _decompress(path)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def check_memory(name: str | Path, required: float, reason: str) -> None:
    """Raise, before any work, if it would take more memory than is available."""
    available = _memory.available_memory()
    if available is not None and required > available:
        raise FileError(
            f"{name} is too large for this machine: {reason}, which takes about {format_bytes(required)} of memory, "
            f"but {format_bytes(available)} are available. Use a machine with more memory, or a smaller graph."
        )


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


def _decompress(path: Path) -> bytes:
    size = path.stat().st_size
    parts: list[bytes] = []
    try:
        with path.open("rb") as file:
            sample = file.read(2**20)
        ratio = len(zlib.decompressobj(31).decompress(sample, 2**26)) / len(sample)
        check_memory(path, ratio * size, f"it decompresses to about {format_bytes(ratio * size)}")
        available = _memory.available_memory()
        with gzip.open(path) as stream:
            while part := stream.read(_CHUNK):
                parts.append(part)
                if available is not None and len(parts) * _CHUNK > available:
                    raise FileError(f"{path} decompresses to more than the available {format_bytes(available)}.")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path} can't be decompressed as gzip: {error}. It may be truncated.") from None
    if not any(parts):
        raise FileError(f"{path} is empty once decompressed.")
    return b"".join(parts)


def format_metadata(dag: Dag, default_order: bool) -> str:
    """A comment with the order of nodes, inputs and outputs, as far as the list of edges doesn't imply it, or "".

    Args:
        dag: The graph.
        default_order: Whether readers of the format put the nodes into this order by themselves.
    """
    metadata: dict[str, Any] = {} if default_order else {"nodes": list(dag.labels)}
    for name, nodes, is_default in (
        ("inputs", dag.inputs, dag.in_degree == 0),
        ("outputs", dag.outputs, dag.out_degree == 0),
    ):
        if not np.array_equal(nodes, np.flatnonzero(is_default)):
            metadata[name] = [dag.labels[v] for v in nodes.tolist()]
    return COMMENT_PREFIX + json.dumps(metadata, default=int) if metadata else ""


def parse_metadata(path: Path, comment: str) -> dict[str, Any]:
    """Lists "nodes", "inputs" and "outputs", as far as a comment has them; {} for a comment that isn't ours."""
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
    return dict(metadata)

"""The bytes of a file, plain or gzip, and refusals that spare memory."""

from __future__ import annotations

import gzip
import mmap
import zlib
from pathlib import Path

from fourward import _memory
from fourward.errors import FileError

Bytes = bytes | mmap.mmap

_CHUNK = 2**24


def load(path: Path) -> Bytes:
    """A file mapped into memory, or unpacked if it ends in .gz."""
    if not path.is_file():
        raise FileError(f"there is no file {path}.")
    if path.stat().st_size == 0:
        raise FileError(f"{path} is empty.")
    if path.suffix.lower() == ".gz":
        return _unpack(path)
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def check_memory(path: str | Path, need: float, why: str) -> None:
    """Refuse work that would need more memory than there is, before it starts."""
    free = _memory.available()
    if free is not None and need > free:
        raise FileError(
            f"{path} is too large for this machine: {why}, which would take about "
            f"{_memory.format_bytes(need)} of memory, but {_memory.format_bytes(free)} are free. "
            "Take a machine with more memory, or a smaller graph."
        )


def text(path: Path, data: Bytes) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return data[:].decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise FileError(f"{path}, line {line}: {not_text(data)}") from None


def not_text(data: Bytes) -> str:
    """Words for bytes that aren't UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "the file is UTF-16. Save it as UTF-8."
    return "these bytes are no UTF-8 text. Save the file as UTF-8; if it isn't a text file, name its format."


def _unpack(path: Path) -> bytes:
    size = path.stat().st_size
    parts: list[bytes] = []
    try:
        with path.open("rb") as file:
            first = file.read(2**20)
        ratio = len(zlib.decompressobj(31).decompress(first, 2**26)) / len(first)
        check_memory(path, ratio * size, f"it unpacks to about {_memory.format_bytes(ratio * size)}")
        free = _memory.available()
        with gzip.open(path) as stream:
            while part := stream.read(_CHUNK):
                parts.append(part)
                if free is not None and len(parts) * _CHUNK > free:
                    raise FileError(
                        f"{path} unpacks to more than the {_memory.format_bytes(free)} of memory that are free."
                    )
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path} ends in .gz, but it can't be unpacked: {error}. It may be cut short.") from None
    if not any(parts):
        raise FileError(f"{path} holds nothing.")
    return b"".join(parts)

"""A file to read, from its text or its bytes."""

from pathlib import Path


def write_file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path

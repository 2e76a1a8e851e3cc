"""Whether a results file is whole, told without changing it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from tempfile import TemporaryDirectory

_TABLES = ("facts", "protocols", "runs")


def check(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError if pages are damaged or tables are missing."""
    found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    if found != ["ok"]:
        raise sqlite3.DatabaseError("; ".join(found[:3]))
    for table in _TABLES:
        connection.execute(f"SELECT 1 FROM {table} LIMIT 0")


def check_copy(path: Path) -> None:
    """The same, for a file that a killed process may have left with a `-wal`; without one there is nothing to do.

    On a copy, since SQLite writes the `-wal` into the file when a connection closes, damaged or not. Where the files
    change meanwhile, a process is writing, and the copy says nothing; but then that process's connection stays open,
    and SQLite doesn't do so.
    """
    wal = path.with_name(f"{path.name}-wal")
    before = _stamps(path, wal)
    if before is None:
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        try:
            shutil.copyfile(path, copy)
            shutil.copyfile(wal, copy.with_name(wal.name))
            _check_file(copy)
        except (sqlite3.DatabaseError, FileNotFoundError):
            if _stamps(path, wal) == before:
                raise


def _check_file(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        check(connection)
    finally:
        connection.close()


def _stamps(*paths: Path) -> list[tuple[int, int]] | None:
    """Size and time of last change of each; None if one isn't there."""
    try:
        return [(found.st_size, found.st_mtime_ns) for found in (path.stat() for path in paths)]
    except FileNotFoundError:
        return None

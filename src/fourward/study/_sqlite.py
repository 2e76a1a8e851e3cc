"""The file behind a `Store`: made, locked, checked and opened; and SQLite's errors as StudyError."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from fourward._files import replacing
from fourward.errors import StudyError

DONE, CUT_OFF, FAILED = "done", "cut off", "failed"
#: What SQLite keeps in the first hundred bytes of a file, at these offsets: the application, and the schema's version.
_MAGIC, _VERSION_OFFSET, _APPLICATION_OFFSET = b"SQLite format 3\0", 60, 68
_APPLICATION, VERSION = int.from_bytes(b"4wrd", "big"), 1
_SCHEMA = f"""
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE facts (id TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;  -- environments
CREATE TABLE protocols (experiment TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    experiment TEXT NOT NULL,
    identity TEXT NOT NULL,  -- the key, the same text for the same parameters
    facts TEXT NOT NULL REFERENCES facts (id),
    key TEXT NOT NULL,
    "values" TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('{DONE}', '{CUT_OFF}', '{FAILED}')),
    note TEXT NOT NULL,
    seconds REAL NOT NULL,
    "when" TEXT NOT NULL,
    UNIQUE (experiment, identity, facts)
);
"""
_TABLES = ("facts", "protocols", "runs")
_UNCHANGED = "The file was not changed."
_ELSEWHERE = "Choose another folder or file for new results."


def create_file(path: Path) -> None:
    """Make an empty results file, which appears complete or not at all."""
    try:
        with replacing(path) as temporary, translate_errors(path):
            connection = sqlite3.connect(temporary)
            try:
                connection.executescript(_SCHEMA)
            finally:
                connection.close()
    except OSError as error:
        _raise_unwritable(path, error)


def open_file(path: Path, *, writing: bool) -> sqlite3.Connection:
    """Connect to an intact results file of this version; nothing is written before that has been checked."""
    _check_header(path)
    if writing and not os.access(path, os.W_OK):
        _raise_unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    with translate_errors(path):
        try:
            _check_copy(path)
        except OSError as error:
            raise StudyError(f"can't copy {path} to check its integrity: {error}.") from error
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30)
        try:
            _check_integrity(connection)
            if writing:  # commits take a fifth of the time that a rollback journal needs, and readers never wait
                connection.execute("PRAGMA journal_mode = WAL")
            else:
                connection.execute("PRAGMA query_only = 1")
        except BaseException:
            connection.close()
            raise
    return connection


def acquire_lock(path: Path) -> sqlite3.Connection:
    """The exclusive right to write, which ends with the process however it ends: a locked, empty SQLite file.

    The lock file is beside the results. A lock on the results themselves would block readers, or end with every row.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _raise_unwritable(path, error)
    lock = None
    try:
        lock = sqlite3.connect(lock_path(path), timeout=0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        if lock is not None:
            lock.close()
        if not isinstance(error, sqlite3.OperationalError):
            raise StudyError(f"{lock_path(path)} is not a lock file of fourward: {error}. Remove it.") from error
        if "locked" not in str(error):
            _raise_unwritable(path, error)
        raise StudyError(
            f"another process is writing to {path}. Wait for it to finish, stop it, or choose another folder."
        ) from None
    return lock


def lock_path(path: Path) -> Path:
    """The lock file of a results file."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as StudyError, with the file's name and what to do."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise StudyError(f"can't store text in {path} that is not valid Unicode: {error}.") from error
    except sqlite3.Error as error:
        message = str(error)
        if "full" in message or "disk I/O" in message:
            failure = StudyError(
                f"{path} can't grow: {message}. All earlier runs are safe in it: free some space and start the same "
                "study again."
            )
            failure.exit_code = 1
            raise failure from error
        if "readonly" in message or "unable to open" in message:
            _raise_unwritable(path, error)
        if "locked" in message:
            raise StudyError(f"{path} is locked by another program. Close it there and try again.") from error
        raise_corrupt(path, message, error)


def raise_corrupt(path: Path, reason: object, cause: Exception) -> NoReturn:
    """Raise StudyError for a file that can't be used."""
    raise StudyError(f"{path} is corrupt: {reason}. {_UNCHANGED} {_ELSEWHERE}") from cause


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        packed = path.with_name(f"{path.name}.xz")
        advice = f"Unpack {packed} (xz -dk)." if packed.exists() else "Run an experiment to create it."
        raise StudyError(f"results file {path} not found. {advice}") from None
    except OSError as error:
        raise StudyError(f"can't read {path}: {error.strerror}.") from error
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise StudyError(f"{path} is not a results file, or it is corrupt. {_UNCHANGED} {_ELSEWHERE}")
    application, version = (
        int.from_bytes(head[offset : offset + 4], "big") for offset in (_APPLICATION_OFFSET, _VERSION_OFFSET)
    )
    if application != _APPLICATION:
        raise StudyError(f"{path} is an SQLite file of another application. {_UNCHANGED} {_ELSEWHERE}")
    if version != VERSION:
        age = "an older" if version < VERSION else "a newer"
        raise StudyError(
            f"{path} was written by {age} version of fourward: expected schema version {VERSION}, got {version}. "
            f"{_UNCHANGED} Read it with that version of fourward. {_ELSEWHERE}"
        )


def _raise_unwritable(path: Path, error: Exception) -> NoReturn:
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    raise StudyError(f"can't write {path}: {reason}. Choose a writable folder on a disk with free space.") from error


def _check_integrity(connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError if pages are corrupt or tables are missing."""
    messages = [text for (text,) in connection.execute("PRAGMA integrity_check")]
    if messages != ["ok"]:
        raise sqlite3.DatabaseError("; ".join(messages[:3]))
    for table in _TABLES:
        connection.execute(f"SELECT 1 FROM {table} LIMIT 0")


def _check_copy(path: Path) -> None:
    """Check the integrity of a file that a killed process left with a `-wal`; without one there is nothing to do.

    On a copy, since SQLite writes the `-wal` into the file when a connection closes, corrupt or not. If the files
    change meanwhile, a process is writing, and the copy proves nothing; but then that process's connection stays open,
    and SQLite doesn't merge the `-wal`.
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
        _check_integrity(connection)
    finally:
        connection.close()


def _stamps(*paths: Path) -> list[tuple[int, int]] | None:
    """Size and modification time of each; None if one doesn't exist."""
    try:
        return [(stat.st_size, stat.st_mtime_ns) for stat in (path.stat() for path in paths)]
    except FileNotFoundError:
        return None

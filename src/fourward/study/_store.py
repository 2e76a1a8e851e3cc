"""The results file: one row a run, safe on disk as soon as the run ends."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from fourward._files import replacing
from fourward.errors import OptionError, StudyError, require
from fourward.study import _integrity
from fourward.study._environment import facts as facts_here

Scalar = str | int | float | bool | None
DONE, CUT_OFF, FAILED = "done", "cut off", "failed"
FILE = "results.sqlite"  #: its name by custom
FORMATS = ("csv", "parquet")
#: What SQLite keeps in the first hundred bytes of a file, at these places: whose it is, and the version of its tables.
_MAGIC, _VERSION_AT, _OWNER_AT = b"SQLite format 3\0", 60, 68
_OWNER, VERSION = int.from_bytes(b"4wrd", "big"), 1
_TABLES = f"""
PRAGMA application_id = {_OWNER};
PRAGMA user_version = {VERSION};
CREATE TABLE facts (id TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID;
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


@dataclass(frozen=True)
class Row:
    """A run, as it was stored."""

    experiment: str
    key: dict[str, Scalar]  #: its parameters
    values: dict[str, Any]  #: what was found
    status: str  #: "done", "cut off" (values hold what was seen until then) or "failed"
    note: str  #: why it was cut off or failed
    seconds: float  #: what the run took
    when: str  #: when it ended, UTC
    facts: dict[str, Any]  #: machine, versions and commit; `facts["id"]` tells them apart


class Store:
    """A results file. One process at a time writes to it; any number may read meanwhile.

    A run is known by its experiment, its key and the facts: machine, versions, commit (`study.facts`). The commit
    is the last one that changed the package, so that what else you commit between two runs parts no rows; rows of
    another machine, version or commit stay in the file beside the new ones, and are never mixed with them unasked.

    Every row is committed on its own: a process that is killed loses the run it was at and nothing else. While it is
    written, and after a kill until it is next opened, a `-wal` file beside it belongs to it. Closed, it is one file.

    Args:
        path: The file, `results.sqlite` by custom.
        create: Make the file if there is none, and write to it. False opens one that is there, for reading only.
        facts: What runs belong to; default: this machine and this code.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.sqlite") as store:
    ...     store.add("times", {"size": 64, "seed": 0}, {"mean": 0.5})
    ...     store.has("times", {"seed": 0, "size": 64}), store.rows("times")[0].values
    (True, {'mean': 0.5})
    """

    def __init__(self, path: Path | str, *, create: bool = True, facts: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self._given_facts = facts
        self._lock: sqlite3.Connection | None = None
        if create:
            self._lock = _hold(self.path)
        try:
            if create and not self.path.exists():
                _make(self.path)
            self._connection = _open(self.path, writing=create)
        except BaseException:
            self._release()
            raise

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What runs that are added now belong to, with its `id`."""
        found = dict(facts_here() if self._given_facts is None else self._given_facts)
        found.pop("id", None)
        return {"id": hashlib.sha256(_text(found).encode()).hexdigest()[:16], **found}

    def add(
        self,
        experiment: str,
        key: Mapping[str, Scalar],
        values: Mapping[str, Any],
        *,
        status: str = DONE,
        note: str = "",
        seconds: float = 0.0,
    ) -> None:
        """Write a run down, for good. It takes the place of one of the same key that failed or was cut off."""
        self._check_writing()
        if status not in (DONE, CUT_OFF, FAILED):
            raise OptionError(f"status={status!r} came, but it is one of {DONE!r}, {CUT_OFF!r} and {FAILED!r}.")
        when = datetime.now(UTC).isoformat(timespec="seconds")
        row = (experiment, _identity(key), self.facts["id"], _text(key), _text(values), status, note, seconds, when)
        text = _text({name: value for name, value in self.facts.items() if name != "id"})
        with _named(self.path), self._connection as connection:
            connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (self.facts["id"], text))
            done = connection.execute(
                """INSERT INTO runs (experiment, identity, facts, key, "values", status, note, seconds, "when")
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET key = excluded.key, "values" = excluded."values", status = excluded.status,
                    note = excluded.note, seconds = excluded.seconds, "when" = excluded."when"
                WHERE status != ?""",
                (*row, DONE),
            )
            if not done.rowcount:
                raise StudyError(f"{self.path} has this run of {experiment} already: {_text(key)}.")

    def has(self, experiment: str, key: Mapping[str, Scalar], *, cut_off: bool = True) -> bool:
        """Whether this run needn't be run again here and with this code: it is done, or it was cut off.

        Args:
            experiment: Its name.
            key: Its parameters.
            cut_off: False wants runs that were cut off to be run again, say with more time.
        """
        wanted = (DONE, CUT_OFF) if cut_off else (DONE, DONE)
        with _named(self.path):
            found = self._connection.execute(
                "SELECT 1 FROM runs WHERE experiment = ? AND identity = ? AND facts = ? AND status IN (?, ?)",
                (experiment, _identity(key), self.facts["id"], *wanted),
            ).fetchone()
        return found is not None

    def rows(self, experiment: str | None = None, *, all_facts: bool = False) -> list[Row]:
        """The runs, in the order in which they ended.

        Args:
            experiment: Of this one only.
            all_facts: Also those of other machines, versions and commits; each row says which in `facts`.
        """
        conditions = {"runs.experiment": experiment, "runs.facts": None if all_facts else self.facts["id"]}
        wanted = {name: value for name, value in conditions.items() if value is not None}
        where = " AND ".join(["TRUE", *(f"{name} = ?" for name in wanted)])
        with _named(self.path):
            known = dict(self._connection.execute("SELECT id, text FROM facts").fetchall())
            found = self._connection.execute(
                f"""SELECT experiment, key, "values", status, note, seconds, "when", facts
                FROM runs WHERE {where} ORDER BY number""",
                tuple(wanted.values()),
            ).fetchall()
        with _readable(self.path):
            facts = {name: {"id": name, **_mapping(text)} for name, text in known.items()}
            return [
                Row(name, _mapping(key), _mapping(values), status, note, seconds, when, facts[facts_id])
                for name, key, values, status, note, seconds, when, facts_id in found
            ]

    def set_protocol(self, experiment: str, protocol: Mapping[str, Any]) -> None:
        """Note what was asked for last, so that `status` can tell how much of it is done."""
        self._check_writing()
        with _named(self.path), self._connection as connection:
            connection.execute("INSERT OR REPLACE INTO protocols VALUES (?, ?)", (experiment, _text(protocol)))

    def protocols(self) -> dict[str, dict[str, Any]]:
        """What was asked for last, by experiment."""
        with _named(self.path):
            found = self._connection.execute("SELECT experiment, text FROM protocols").fetchall()
        with _readable(self.path):
            return {experiment: _mapping(text) for experiment, text in found}

    def to_frame(self, experiment: str, *, all_facts: bool = False) -> Any:
        """A pandas table: a column for each parameter and each value, `status`, `note`, `seconds`, `when`, `facts`."""
        pandas = require("pandas", "study")
        return pandas.DataFrame(_records(self.rows(experiment, all_facts=all_facts)))

    def export(self, folder: Path | str, format: Literal["csv", "parquet"] = "csv") -> list[Path]:
        """Write a table for each experiment, all rows of it, and one with the facts that they name.

        Args:
            folder: Where to; each file is replaced as a whole.
            format: "csv" or "parquet".
        """
        if format not in FORMATS:
            raise OptionError(f"format={format!r} came, but it is one of {', '.join(FORMATS)}.")
        tables: dict[str, list[dict[str, Any]]] = {}
        facts: dict[str, dict[str, Any]] = {}
        for row in self.rows(all_facts=True):
            tables.setdefault(row.experiment, []).extend(_records([row]))
            facts[row.facts["id"]] = _flat(row.facts)
        for name in tables:
            if not re.fullmatch(r"[\w-]+", name) or name.lower() == "facts":
                raise StudyError(
                    f"{self.path} has an experiment {name!r}, which can't name a table: that takes letters, digits, "
                    "- and _, and is not facts. Nothing was written."
                )
        tables["facts"] = list(facts.values())
        pandas = require("pandas", "study")
        paths = []
        for name, records in tables.items():
            paths.append(Path(folder) / f"{name}.{format}")
            table = pandas.DataFrame(records)
            with replacing(paths[-1]) as temporary:
                table.to_csv(temporary, index=False) if format == "csv" else table.to_parquet(temporary)
        return paths

    def close(self) -> None:
        """Let go of the file; closing twice is fine."""
        with suppress(sqlite3.Error):  # closed already, or someone reads: then it stays as it is, as safe
            if self._lock is not None:
                self._connection.execute("PRAGMA journal_mode = DELETE")
        self._connection.close()
        self._release()

    def _check_writing(self) -> None:
        if self._lock is None:
            raise StudyError(f"{self.path} was opened for reading. Open it with Store(path) to add runs.")

    def _release(self) -> None:
        if self._lock is not None:
            with suppress(OSError):  # where open files can't be removed, an empty one stays
                _lock_path(self.path).unlink()
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _make(path: Path) -> None:
    """An empty results file, whole from the moment it is there."""
    try:
        with replacing(path) as temporary, _named(path):
            connection = sqlite3.connect(temporary)
            try:
                connection.executescript(_TABLES)
            finally:
                connection.close()
    except OSError as error:
        _unwritable(path, error)


def _open(path: Path, *, writing: bool) -> sqlite3.Connection:
    """A connection to a results file of this version that is whole; nothing is written before that is known."""
    _check_header(path)
    if writing and not os.access(path, os.W_OK):
        _unwritable(path, PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    with _named(path):
        try:
            _integrity.check_copy(path)
        except OSError as error:
            raise StudyError(f"{path} can't be copied to look whether it is whole: {error}.") from error
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=30)
        try:
            _integrity.check(connection)
            if writing:  # commits take a fifth of the time that a rollback journal needs, and readers never wait
                connection.execute("PRAGMA journal_mode = WAL")
            else:
                connection.execute("PRAGMA query_only = 1")
        except BaseException:
            connection.close()
            raise
    return connection


def _check_header(path: Path) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(100)
    except FileNotFoundError:
        raise StudyError(f"there is no results file {path}. `fourward study times`, say, makes one.") from None
    except OSError as error:
        raise StudyError(f"{path} can't be read: {error.strerror}.") from error
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise StudyError(f"{path} is no results file: it is damaged, or something else. It was left as it is. {_ELSE}")
    owner, version = (int.from_bytes(head[at : at + 4], "big") for at in (_OWNER_AT, _VERSION_AT))
    if owner != _OWNER:
        raise StudyError(f"{path} is an SQLite file, but none of fourward's. It was left as it is. {_ELSE}")
    if version != VERSION:
        age = "an older" if version < VERSION else "a newer"
        raise StudyError(
            f"{path} was written by {age} version of fourward: its tables have version {version}, this fourward reads "
            f"{VERSION}. It was left as it is. Read it with that version, or: {_ELSE}"
        )


_ELSE = "Choose another folder or file for new results."


def _hold(path: Path) -> sqlite3.Connection:
    """The right to write, which ends with the process however it ends: a locked, empty SQLite file beside the results.

    Not a lock on the results themselves: those would keep readers out, or end with every row.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _unwritable(path, error)
    lock = None
    try:
        lock = sqlite3.connect(_lock_path(path), timeout=0, isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        if lock is not None:
            lock.close()
        if not isinstance(error, sqlite3.OperationalError):
            raise StudyError(f"{_lock_path(path)} is no lock of fourward's: {error}. Remove it.") from error
        if "locked" not in str(error):
            _unwritable(path, error)
        raise StudyError(
            f"another process is writing to {path}. Wait until it is done, end it, or choose another folder."
        ) from None
    return lock


def _lock_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def _unwritable(path: Path, error: Exception) -> NoReturn:
    reason = (error.strerror if isinstance(error, OSError) else None) or error
    raise StudyError(
        f"{path} can't be written: {reason}. Choose a folder that you may write to, on a disk with room."
    ) from error


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """SQLite's errors, with the file's name and what to do."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise StudyError(f"text came that can't be stored in {path}: {error}.") from error
    except sqlite3.Error as error:
        said = str(error)
        if "full" in said or "disk I/O" in said:
            failure = StudyError(
                f"{path} can't grow: {said}. All runs before this one are safe in it: make room, and give the same "
                "command again."
            )
            failure.exit_code = 1
            raise failure from error
        if "readonly" in said or "unable to open" in said:
            _unwritable(path, error)
        if "locked" in said:
            raise StudyError(f"{path} is held by another program. Close it there, and try again.") from error
        raise StudyError(f"{path} is damaged: {said}. It was left as it is. {_ELSE}") from error


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Errors of what a row holds, with the file's name and what to do."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise StudyError(f"{path} is damaged: a row holds {error}. It was left as it is. {_ELSE}") from error


def _mapping(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{text[:40]!r}, which is no mapping")
    return found


def _text(found: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(found), default=_plain)
    except (TypeError, ValueError) as error:
        raise StudyError(f"what a run found can't be stored as JSON: {error}.") from error


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy and torch as Python has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def _identity(key: Mapping[str, Scalar]) -> str:
    """The same text for the same parameters: in order of their names, and 1.0 as 1."""
    plain: dict[str, Scalar] = {}
    for name, value in key.items():
        value = _plain(value) if hasattr(value, "tolist") else value
        if not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
            raise StudyError(f"{name}={value!r} came as a parameter of a run, but it must be text, a number or None.")
        plain[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return json.dumps(plain, sort_keys=True)


def _records(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {**row.key, **_flat(row.values), "status": row.status, "note": row.note}
        | {"seconds": row.seconds, "when": row.when, "facts": row.facts["id"]}
        for row in rows
    ]


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists and mappings as JSON text, which every table format holds."""
    return {name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in values.items()}

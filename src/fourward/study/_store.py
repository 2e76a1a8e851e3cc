"""The results file: one row a run, safe on disk as soon as the run ends."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from fourward._files import replacing
from fourward.errors import OptionError, StudyError, require, summarize
from fourward.study import _sqlite
from fourward.study._environment import describe_environment
from fourward.study._sqlite import CUT_OFF, DONE, FAILED, translate_errors

__all__ = ["CUT_OFF", "DONE", "FAILED", "FILE", "FORMATS", "Row", "Scalar", "Store"]

Scalar = str | int | float | bool | None
FILE = "results.sqlite"  #: usual name of a results file
FORMATS = ("csv", "parquet")
ENVIRONMENTS = "environments"  #: the exported table of machines and versions


@dataclass(frozen=True)
class Row:
    """A stored run."""

    experiment: str
    key: dict[str, Scalar]  #: its parameters
    values: dict[str, Any]  #: its results
    status: str  #: "done", "cut off" (values hold what was measured until then) or "failed"
    note: str  #: why it was cut off or failed
    seconds: float  #: seconds that the run took
    when: str  #: when it ended, UTC
    environment: dict[str, Any]  #: machine, versions and commit, with a unique "id"


class Store:
    """A results file. One process at a time writes to it; any number may read meanwhile.

    A run is identified by its experiment, its key and its environment: machine, versions, commit. The commit is the
    last one that changed the package, so that other commits between two runs don't split the rows; rows of another
    machine, version or commit stay in the file beside the new ones, and are mixed with them only on request.

    Every row is committed on its own: a process that is killed loses the run in progress and nothing else. While it is
    written, and after a kill until it is next opened, a `-wal` file beside it belongs to it. Closed, it is one file.

    Args:
        path: The file, `results.sqlite` by convention.
        create: Create the file if it doesn't exist, and write to it. False opens an existing file for reading only.
        environment: What runs belong to; default: this machine and this code.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.sqlite") as store:
    ...     store.add("times", {"size": 64, "seed": 0}, {"mean": 0.5})
    ...     store.has("times", {"seed": 0, "size": 64}), store.rows("times")[0].values
    (True, {'mean': 0.5})
    """

    def __init__(self, path: Path | str, *, create: bool = True, environment: Mapping[str, Any] | None = None) -> None:
        self.path = Path(path)
        self._environment = environment
        self._lock: sqlite3.Connection | None = None
        if create:
            self._lock = _sqlite.acquire_lock(self.path)
        try:
            if create and not self.path.exists():
                _sqlite.create_file(self.path)
            self._connection = _sqlite.open_file(self.path, writing=create)
        except BaseException:
            self._release()
            raise

    @cached_property
    def environment(self) -> dict[str, Any]:
        """The environment of runs that are added now, with its "id"."""
        described = dict(describe_environment() if self._environment is None else self._environment)
        described.pop("id", None)
        return {"id": hashlib.sha256(_to_json(described).encode()).hexdigest()[:16], **described}

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
        """Commit a run. It replaces one of the same key that failed or was cut off."""
        self._check_writing()
        if status not in (DONE, CUT_OFF, FAILED):
            raise OptionError(f"status must be {DONE!r}, {CUT_OFF!r} or {FAILED!r}, got {status!r}.")
        when, environment = datetime.now(UTC).isoformat(timespec="seconds"), self.environment["id"]
        row = (experiment, _identity(key), environment, _to_json(key), _to_json(values), status, note, seconds, when)
        text = _to_json({name: value for name, value in self.environment.items() if name != "id"})
        with translate_errors(self.path), self._connection as connection:
            connection.execute("INSERT OR IGNORE INTO facts VALUES (?, ?)", (environment, text))
            inserted = connection.execute(
                """INSERT INTO runs (experiment, identity, facts, key, "values", status, note, seconds, "when")
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET key = excluded.key, "values" = excluded."values", status = excluded.status,
                    note = excluded.note, seconds = excluded.seconds, "when" = excluded."when"
                WHERE status != ?""",
                (*row, DONE),
            )
            if not inserted.rowcount:
                raise StudyError(f"{self.path} already has this run of {experiment}: {_to_json(key)}.")

    def has(self, experiment: str, key: Mapping[str, Scalar], *, cut_off: bool = True) -> bool:
        """Whether this run needn't be repeated in this environment: it is done, or it was cut off.

        Args:
            experiment: Its name.
            key: Its parameters.
            cut_off: False repeats runs that were cut off, say with more time.
        """
        statuses = (DONE, CUT_OFF) if cut_off else (DONE, DONE)
        with translate_errors(self.path):
            match = self._connection.execute(
                "SELECT 1 FROM runs WHERE experiment = ? AND identity = ? AND facts = ? AND status IN (?, ?)",
                (experiment, _identity(key), self.environment["id"], *statuses),
            ).fetchone()
        return match is not None

    def rows(self, experiment: str | None = None, *, all_environments: bool = False) -> list[Row]:
        """The runs, in the order in which they ended.

        Args:
            experiment: Only runs of this one.
            all_environments: Also runs of other machines, versions and commits.
        """
        columns = {"experiment": experiment, "facts": None if all_environments else self.environment["id"]}
        conditions = {name: value for name, value in columns.items() if value is not None}
        where = " AND ".join(["TRUE", *(f"{name} = ?" for name in conditions)])
        with translate_errors(self.path):
            texts = dict(self._connection.execute("SELECT id, text FROM facts").fetchall())
            records = self._connection.execute(
                f"""SELECT experiment, key, "values", status, note, seconds, "when", facts
                FROM runs WHERE {where} ORDER BY number""",
                tuple(conditions.values()),
            ).fetchall()
        with _corrupt_text_errors(self.path):
            environments = {id_: {"id": id_, **_from_json(text)} for id_, text in texts.items()}
            return [
                Row(name, _from_json(key), _from_json(values), status, note, seconds, when, environments[id_])
                for name, key, values, status, note, seconds, when, id_ in records
            ]

    def set_protocol(self, experiment: str, protocol: Mapping[str, Any]) -> None:
        """Store the protocol that was requested last, by which `status` tells how much of it is done."""
        self._check_writing()
        with translate_errors(self.path), self._connection as connection:
            connection.execute("INSERT OR REPLACE INTO protocols VALUES (?, ?)", (experiment, _to_json(protocol)))

    def protocols(self) -> dict[str, dict[str, Any]]:
        """The protocols that were requested last, by experiment."""
        with translate_errors(self.path):
            records = self._connection.execute("SELECT experiment, text FROM protocols").fetchall()
        with _corrupt_text_errors(self.path):
            return {experiment: _from_json(text) for experiment, text in records}

    def to_frame(self, experiment: str, *, all_environments: bool = False) -> Any:
        """A pandas DataFrame: a column for each parameter and value, and the other fields of `Row`."""
        pandas = require("pandas", "study")
        return pandas.DataFrame(_records(self.rows(experiment, all_environments=all_environments)))

    def export(self, folder: Path | str, format: Literal["csv", "parquet"] = "csv") -> list[Path]:
        """Write a table for each experiment with all its rows, and one of the environments that they name.

        Args:
            folder: Where to; each file is replaced atomically.
            format: "csv" or "parquet".
        """
        if format not in FORMATS:
            raise OptionError(f"format must be one of {summarize(FORMATS)}, got {format!r}.")
        tables: dict[str, list[dict[str, Any]]] = {}
        environments: dict[str, dict[str, Any]] = {}
        for row in self.rows(all_environments=True):
            tables.setdefault(row.experiment, []).extend(_records([row]))
            environments[row.environment["id"]] = _flatten(row.environment)
        for name in tables:
            if not re.fullmatch(r"[\w-]+", name) or name.lower() == ENVIRONMENTS:
                raise StudyError(
                    f"experiment {name!r} of {self.path} can't name a table: expected letters, digits, - and _, and "
                    f"a name other than {ENVIRONMENTS!r}. Nothing was written."
                )
        tables[ENVIRONMENTS] = list(environments.values())
        pandas = require("pandas", "study")
        paths = []
        for name, records in tables.items():
            paths.append(Path(folder) / f"{name}.{format}")
            table = pandas.DataFrame(records)
            with replacing(paths[-1]) as temporary:
                table.to_csv(temporary, index=False) if format == "csv" else table.to_parquet(temporary)
        return paths

    def close(self) -> None:
        """Release the file; closing twice is fine."""
        with suppress(
            sqlite3.Error
        ):  # already closed, or another process is reading: then it stays in WAL mode, which is as safe
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
                _sqlite.lock_path(self.path).unlink()
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _corrupt_text_errors(path: Path) -> Iterator[None]:
    """Raise errors of what a row contains as StudyError, with the file's name and what to do."""
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        _sqlite.raise_corrupt(path, f"a row contains {error}", error)


def _from_json(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(f"{text[:40]!r}, which is not a mapping")
    return value


def _to_json(values: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(values), default=_to_python)
    except (TypeError, ValueError) as error:
        raise StudyError(f"results of a run can't be stored as JSON: {error}.") from error


def _to_python(value: Any) -> Any:
    """Scalars and arrays of numpy and torch as Python numbers and lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{value!r} is a {type(value).__name__}")


def _identity(key: Mapping[str, Scalar]) -> str:
    """The same text for the same parameters: in order of their names, and 1.0 as 1."""
    normalized: dict[str, Scalar] = {}
    for name, value in key.items():
        value = _to_python(value) if hasattr(value, "tolist") else value
        if not isinstance(value, str | int | float | None) or (isinstance(value, float) and not math.isfinite(value)):
            raise StudyError(f"parameters of a run must be str, int, finite float or None, got {name}={value!r}.")
        normalized[name] = int(value) if isinstance(value, float) and value.is_integer() else value
    return json.dumps(normalized, sort_keys=True)


def _records(rows: list[Row]) -> list[dict[str, Any]]:
    return [
        {**row.key, **_flatten(row.values), "status": row.status, "note": row.note}
        | {"seconds": row.seconds, "when": row.when, "environment": row.environment["id"]}
        for row in rows
    ]


def _flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """Lists and mappings as JSON text, which every table format can hold."""
    return {name: json.dumps(v) if isinstance(v, list | dict) else v for name, v in values.items()}

"""CSV and TSV tables; errors name the first bad cell."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fourward._memory import check_memory
from fourward.errors import DataError, FileError, Repair, require, summarize
from fourward.graph import _io

Array = np.ndarray[Any, np.dtype[Any]]
Frame = Any  # a pandas.DataFrame

#: Suffixes of tables and the separators of their cells; each may be followed by .gz.
SEPARATORS = {".csv": ",", ".tsv": "\t"}
_CELL_BYTES = 24  # peak memory per number, from the file to an array


def load_table(path: str | Path) -> Frame:
    """Read a table whose first line names the columns. Only an empty cell is a missing value, not "NA" or "nan"."""
    path = Path(path)
    *_, suffix = ["", *(part.lower() for part in path.suffixes if part.lower() != ".gz")]
    if suffix not in SEPARATORS:
        raise DataError(
            f"unknown data {path}. Choose from digits, breast-cancer, wine, diabetes, or a file that ends in "
            f"{', '.join(SEPARATORS)} or .npz."
        )
    if not path.is_file():
        raise DataError(f"file not found: {path}.")
    pandas = require("pandas", "train")
    source = _check_size(path, SEPARATORS[suffix])
    options = {"keep_default_na": False, "na_values": [""], "low_memory": False, "index_col": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            _check_header(
                path, pandas.read_csv(source(), sep=SEPARATORS[suffix], header=None, nrows=1, dtype=str, **options)
            )
            frame = pandas.read_csv(source(), sep=SEPARATORS[suffix], **options)
    except DataError:
        raise
    except UnicodeDecodeError:
        raise DataError(
            f"{path} is not UTF-8 text. Save it as UTF-8; spreadsheet programs call this 'CSV UTF-8'."
        ) from None
    except (ValueError, EOFError, OSError, pandas.errors.ParserWarning) as error:
        raise DataError(f"{path} can't be parsed as a table: {str(error).strip()}") from None
    frame.columns = [str(name) for name in frame.columns]
    if len(frame) == 0:
        raise DataError(f"{path} has no rows below its first line.")
    return frame


def _check_size(path: Path, separator: str) -> Callable[[], Path | BytesIO]:
    """Check that a table fits into memory; returns what gives pandas the file, or what it decompresses to."""
    try:
        data = _io.read_bytes(path)
        sample = data[: 2**20]
        cells = (sample.count(separator.encode()) + sample.count(b"\n")) / len(sample) * len(data)
        check_memory(path, len(data) + _CELL_BYTES * cells, f"it has about {cells:,.0f} cells")
    except FileError as error:
        raise DataError(str(error)) from None
    return (lambda: BytesIO(data)) if isinstance(data, bytes) else (lambda: path)


def _check_header(path: Path, line: Frame) -> None:
    names = line.iloc[0].dropna().tolist()
    duplicates = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if duplicates:
        raise DataError(f"{path} has duplicate columns {duplicates[0]!r}. Rename or remove one.")
    separators = {";": "semicolons", "\t": "tabs", ",": "commas"}
    used = next((word for mark, word in separators.items() if len(names) == 1 and mark in names[0]), None)
    if used is not None:
        raise DataError(
            f"expected cells separated by commas in .csv and by tabs in .tsv, got {used} in {path}. Save it that way, "
            "with decimal points."
        )


def check_columns(frame: Frame, names: Sequence[str], path: str | Path) -> None:
    """Raise DataError for columns that the table doesn't have."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        columns = "columns" if len(missing) > 1 else "column"
        raise DataError(
            f"{path} has no {columns} {summarize(missing)}. Its columns are {summarize(frame.columns, 20)}."
        )


def check_named(names: Sequence[str], path: str | Path) -> None:
    """Raise DataError for columns without a name, most of which are row numbers."""
    unnamed = [name for name in names if re.fullmatch(r"Unnamed: \d+", name)]  # what pandas calls them
    if unnamed:
        raise DataError(
            f"{path}: column {int(unnamed[0].split()[1]) + 1} has no name. Name it if it is a feature.",
            Repair("drop", [unnamed[0]], "drop it if it is empty or a row number"),
        )


def to_numbers(frame: Frame, names: Sequence[str], path: str | Path, *, required: bool = False) -> Array:
    """(rows, names) float64. The error for a cell that isn't a finite number suggests `drop` unless `required`."""
    check_columns(frame, names, path)
    pandas = require("pandas", "train")
    values = np.empty((len(frame), len(names)))
    for k, name in enumerate(names):
        values[:, k] = pandas.to_numeric(frame[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, k = bad[0].tolist()
        count = f" (the first of {len(bad):,} such cells)" if len(bad) > 1 else ""
        advice = "; the model needs the column" if required else ""
        repairs = [] if required else [Repair("drop", [names[k]], "drop the column")]
        raise DataError(
            f"{_describe_cell(frame, row, names[k], path)}, expected a finite number{count}. "
            f"Correct or remove the row{advice}.",
            *repairs,
        )
    return values


def read_target(frame: Frame, name: str, path: str | Path, task: str | None) -> Array:
    """(rows,) numbers, booleans or text. Raises DataError for an empty cell, and for stray text among numbers."""
    column = frame[name]
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing):
        raise DataError(f"{_describe_cell(frame, int(missing[0]), name, path)}, but every row needs a target.")
    if task == "regression":
        return to_numbers(frame, [name], path, required=True)[:, 0]
    if column.dtype.kind in "iufb":
        return np.asarray(column.to_numpy())
    if task is None:
        _check_stray_text(frame, name, path)
    return np.array([str(v) for v in column])


def _check_stray_text(frame: Frame, name: str, path: str | Path) -> None:
    strays = np.flatnonzero(require("pandas", "train").to_numeric(frame[name], errors="coerce").isna().to_numpy())
    if 2 * len(strays) < len(frame):
        raise DataError(
            f"{_describe_cell(frame, int(strays[0]), name, path)}, but most targets are numbers. Correct the cell.",
            Repair("task", "classification", "treat all of them as classes"),
        )


def _describe_cell(frame: Frame, row: int, name: str, path: str | Path) -> str:
    value = frame[name].iloc[row]
    missing = isinstance(value, float) and np.isnan(value)
    return f"{path}, row {row + 1}, column {name!r} " + ("is empty" if missing else f"holds {str(value)!r}")

"""Tables as CSV or TSV files, whose first bad cell is named."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fourward.errors import DataError, require, summarize

Array = np.ndarray[Any, np.dtype[Any]]
Frame = Any  # a pandas.DataFrame

#: Endings of tables and what stands between two cells; each may be followed by .gz.
SEPARATORS = {".csv": ",", ".tsv": "\t"}


def load(path: str | Path) -> Frame:
    """A table whose first line names the columns. Only an empty cell is a missing value; nothing else means one."""
    path = Path(path)
    *_, ending = ["", *(one.lower() for one in path.suffixes if one.lower() != ".gz")]
    if ending not in SEPARATORS:
        raise DataError(
            f"{path} is no data that fourward knows: digits, breast-cancer, wine, diabetes, or a file that ends in "
            f"{', '.join(SEPARATORS)} or .npz."
        )
    if not path.is_file():
        raise DataError(f"there is no file {path}.")
    pandas = require("pandas", "train")
    options = {"keep_default_na": False, "na_values": [""], "low_memory": False, "index_col": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)
            _check_header(
                path, pandas.read_csv(path, sep=SEPARATORS[ending], header=None, nrows=1, dtype=str, **options)
            )
            frame = pandas.read_csv(path, sep=SEPARATORS[ending], **options)
    except DataError:
        raise
    except UnicodeDecodeError:
        raise DataError(f"{path} is no UTF-8 text. Save it as UTF-8; spreadsheets call this 'CSV UTF-8'.") from None
    except (ValueError, EOFError, OSError, pandas.errors.ParserWarning) as error:
        raise DataError(f"{path} can't be read as a table: {str(error).strip()}") from None
    frame.columns = [str(name) for name in frame.columns]
    if len(frame) == 0:
        raise DataError(f"{path} has no rows below its first line.")
    return frame


def _check_header(path: Path, line: Frame) -> None:
    names = line.iloc[0].dropna().tolist()
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise DataError(f"{path} has more than one column {twice[0]!r}. Rename one, or leave it out of the table.")
    marks = {";": "semicolons", "\t": "tabs", ",": "commas"}
    found = next((word for mark, word in marks.items() if len(names) == 1 and mark in names[0]), None)
    if found is not None:
        raise DataError(
            f"{path} has {found} between its cells, but commas were wanted in .csv, and tabs in .tsv. Save it so, with "
            "points in its decimals."
        )


def check_columns(frame: Frame, names: Sequence[str], path: str | Path) -> None:
    """Say which columns aren't there."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        many = "columns" if len(missing) > 1 else "column"
        raise DataError(f"{path} has no {many} {summarize(missing)}. Its columns are {summarize(frame.columns, 20)}.")


def check_named(names: Sequence[str], path: str | Path) -> None:
    """Refuse columns without a name, of which most count the rows."""
    unnamed = [name for name in names if re.fullmatch(r"Unnamed: \d+", name)]  # pandas' word for them
    if unnamed:
        raise DataError(
            f"{path}: column {int(unnamed[0].split()[1]) + 1} has no name. If it counts the rows or is empty, leave it "
            f"out (--drop {unnamed[0]!r}); else give it a name."
        )


def numbers(frame: Frame, names: Sequence[str], path: str | Path, *, needed: bool = False) -> Array:
    """(rows, names) float64; the first cell that holds no finite number is named. A model may need these columns."""
    check_columns(frame, names, path)
    pandas = require("pandas", "train")
    values = np.empty((len(frame), len(names)))
    for k, name in enumerate(names):
        values[:, k] = pandas.to_numeric(frame[name], errors="coerce").to_numpy(np.float64, na_value=np.nan)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, k = bad[0].tolist()
        count = f" ({len(bad):,} cells hold none)" if len(bad) > 1 else ""
        column = "; the model needs the column" if needed else f", or leave the column out (--drop {names[k]!r})"
        raise DataError(
            f"{_cell(frame, row, names[k], path)}, but a finite number was wanted{count}. Repair or remove the row"
            f"{column}."
        )
    return values


def target(frame: Frame, name: str, path: str | Path, task: str | None) -> Array:
    """(rows,) numbers, true or false, or text; the first empty cell is named, and a stray text among numbers."""
    column = frame[name]
    missing = np.flatnonzero(column.isna().to_numpy())
    if len(missing):
        raise DataError(f"{_cell(frame, int(missing[0]), name, path)}, but every row needs a target.")
    if task == "regression":
        return numbers(frame, [name], path)[:, 0]
    if column.dtype.kind in "iufb":
        return np.asarray(column.to_numpy())
    if task is None:
        _check_text(frame, name, path)
    return np.array([str(v) for v in column])


def _check_text(frame: Frame, name: str, path: str | Path) -> None:
    strays = np.flatnonzero(require("pandas", "train").to_numeric(frame[name], errors="coerce").isna().to_numpy())
    if 2 * len(strays) < len(frame):
        raise DataError(
            f"{_cell(frame, int(strays[0]), name, path)}, but most targets are numbers. Repair the cell; or say that "
            "they are all classes (--task classification)."
        )


def _cell(frame: Frame, row: int, name: str, path: str | Path) -> str:
    value = frame[name].iloc[row]
    missing = isinstance(value, float) and np.isnan(value)
    return f"{path}, row {row + 1}, column {name!r} " + ("is empty" if missing else f"holds {str(value)!r}")

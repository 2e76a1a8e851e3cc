"""Tables of pandas, polars and pyarrow as graphs, none of which is imported; and ids that were turned into floats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from fourward.errors import GraphError, OptionError, Repair, pluralize

#: Names of the columns of sources and of targets, in lower case.
SOURCE_NAMES = {"source", "from", "pre", "presynaptic", "src", "sender", "u"}
TARGET_NAMES = {"target", "to", "post", "postsynaptic", "dst", "receiver", "v"}
#: Other words that such a name may contain, as in pre_root_id and bodyId_post.
FILLER_WORDS = {"body", "cell", "id", "label", "name", "neuron", "node", "pt", "root"}
#: Words that make up the name of the column of weights, as in syn_count.
WEIGHT_WORDS = {"count", "counts", "strength", "syn", "synapse", "synapses", "weight", "weights"}
SKIP_MISSING = Repair("missing", "skip", "leave out rows that lack a value")
#: Cells that stand for a missing value: what pandas, R, databases and spreadsheets write.
MISSING = ("", "NA", "N/A", "#N/A", "#NA", "<NA>", "NaN", "nan", "null", "NULL", "None", "n/a")
#: Text of a number that was an integer of 16 digits or more before something made a float of it.
FLOAT_ID = r"^[+-]?(\d(\.\d+)?[eE]\+?(1[5-9]|[2-9]\d)|\d{16,}\.\d*)$"


def is_table(value: Any) -> bool:
    """Whether it is a table of pandas, polars or pyarrow."""
    module = type(value).__module__.partition(".")[0]
    names = ("columns", "column_names")
    return module in ("pandas", "polars", "pyarrow") and any(hasattr(type(value), name) for name in names)


def check_in_memory(table: Any) -> None:
    """Raise for a lazy table of polars, which has no values yet."""
    if hasattr(table, "collect"):
        raise GraphError(f"expected a table with its values, got a {type(table).__name__}. Pass table.collect().")


def column_names(table: Any) -> list[str]:
    """The names of the columns."""
    return [str(name) for name in getattr(table, "column_names", None) or table.columns]


def column_values(table: Any, k: int) -> np.ndarray[Any, Any]:
    """The values of column k; missing ones are None or NaN."""
    if hasattr(table, "iloc"):
        series = table.iloc[:, k]
        is_nullable = hasattr(series.dtype, "na_value") and series.isna().any()
        return np.asarray(series.astype(object).where(series.notna(), None) if is_nullable else series)
    column = table[column_names(table)[k]]
    count = column.null_count  # a number in pyarrow, a method in polars
    if count() if callable(count) else count:
        return np.array(column.to_pylist() if hasattr(column, "to_pylist") else column.to_list(), object)
    return np.asarray(column.to_numpy())


def split_words(name: str) -> set[str]:
    """The words of a column's name: "pre_root_id" and "bodyId_post" have three each."""
    return {word.lower() for word in re.findall(r"\d+|[A-Z]?[a-z]+|[A-Z]+", name)}


def find_named_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """Indices of the first column with a name for sources and of the first with one for targets."""
    words = [split_words(name) - FILLER_WORDS for name in names]
    sources, targets = (
        [k for k, rest in enumerate(words) if len(rest) == 1 and rest <= ends] for ends in (SOURCE_NAMES, TARGET_NAMES)
    )
    return (sources[0], targets[0]) if sources and targets else None


def find_weight(names: Sequence[str], ends: tuple[int, int]) -> int:
    """The index of the first column with a name for weights, else of the one after sources and targets."""
    words = [split_words(name) for name in names]
    weights = (k for k, present in enumerate(words) if k not in ends and present and present <= WEIGHT_WORDS)
    return next(weights, max(ends) + 1)


def select_columns(names: Sequence[str], columns: Sequence[str | int] | None) -> tuple[int, ...]:
    """Indices of sources, targets and, if there is one, weights of a table."""
    if columns is None:
        if len(names) < 2:
            raise GraphError(f"expected a table with a source and a target, got the columns {list(names)}.")
        ends = find_named_ends(names) or (0, 1)
        weight = find_weight(names, ends)
        return (*ends, weight) if weight < len(names) else ends
    chosen = [names.index(str(c)) if c in names else int(c) - 1 if str(c).isdecimal() else -1 for c in columns]
    if len(columns) not in (2, 3) or not all(0 <= k < len(names) for k in chosen) or len(set(chosen)) != len(chosen):
        raise OptionError(
            f"columns must be two or three of source, target and weight, by name or by number from 1, got "
            f"{list(columns)}. The columns are {', '.join(names)}."
        )
    return tuple(chosen)


def read_columns(
    table: Any, columns: Sequence[str | int] | None, skip: bool
) -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Sources, targets and, if there is one, weights of a table's complete rows; and the numbers of these rows."""
    check_in_memory(table)
    names = column_names(table)
    indices = select_columns(names, columns)
    values = [column_values(table, k) for k in indices]
    missing = np.zeros(len(values[0]), np.bool_)
    for column in values:
        missing |= find_missing(column, MISSING if skip else ("",))
    if missing.any() and not skip:
        row = int(np.flatnonzero(missing)[0])
        cells = (repr(column[row : row + 1].tolist()[0]) for column in values)
        raise GraphError(
            f"{pluralize(int(missing.sum()), 'row')} of the table lack{'s' * int(missing.sum() == 1)} a label or a "
            f"weight, the first of them row {row}: {', '.join(cells)}.",
            SKIP_MISSING,
        )
    rows = np.flatnonzero(~missing)
    labels = [as_label_column(column[rows], names[k]) for column, k in zip(values[:2], indices, strict=False)]
    return [*labels, *(_as_weights(column[rows], names[indices[2]]) for column in values[2:])], rows


def find_missing(values: np.ndarray[Any, Any], words: tuple[str, ...] = ("",)) -> Any:
    """Which values are None, NaN, or such text."""
    if values.dtype.kind == "f":
        return ~np.isfinite(values)
    if values.dtype.kind in "biu":
        return np.zeros(len(values), np.bool_)
    return np.array(
        [value is None or value != value or (isinstance(value, str) and value in words) for value in values.tolist()],
        np.bool_,
    )


def as_label_column(values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Labels of a column: integers that it holds as floats are integers again, unless they were rounded."""
    if values.dtype.kind == "O" and len(values) and all(isinstance(value, int | float) for value in values.tolist()):
        values = np.array(values.tolist())
    if values.dtype.kind != "f":
        check_float_ids(value for value in values.tolist() if isinstance(value, str))
        return values
    large = values[np.abs(values) >= 2**53]
    if len(large):
        raise GraphError(f"the column {name!r} holds floats such as {large[0].item()!r}. {FLOAT_ADVICE}")
    integers = values.astype(np.int64)
    return integers if np.array_equal(integers, values) else values


FLOAT_ADVICE = (
    "Ids of 16 digits and more that a spreadsheet or pandas took for floats are rounded, so that different neurons "
    "have become one, or new ones were made. Read the column as text where the ids are still complete, as in "
    "pandas.read_csv(path, dtype=str), and write the table again."
)


def check_float_ids(labels: Any) -> None:
    """Raise if text labels are ids that something turned into floats."""
    pattern = re.compile(FLOAT_ID)
    rounded = next((label for label in labels if label[:1] in "+-0123456789" and pattern.match(label)), None)
    if rounded is not None:
        raise GraphError(f"the label {rounded!r} is a float. {FLOAT_ADVICE}")


def check_float_labels(labels: Any) -> None:
    """Raise if labels are floats in the range of ids that no float holds exactly."""
    floats = (float(label) for label in labels if isinstance(label, float | np.floating))
    rounded = next((label for label in floats if 2**53 <= abs(label) < 2**64), None)
    if rounded is not None:
        raise GraphError(f"the label {rounded!r} is a float. {FLOAT_ADVICE}")


def _as_weights(values: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    try:
        weights = values.astype(np.float64)
    except (TypeError, ValueError):
        raise GraphError(
            f"expected numbers in the column of weights, {name!r}, got {values.dtype}.",
            Repair("columns", ..., "choose source, target and, optionally, weight, by name or by number from 1"),
        ) from None
    return weights


def to_pairs(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Any:
    """Pairs of labels from two columns: an (E, 2) array of integers, or a list."""
    if source.dtype.kind in "iu" and target.dtype.kind in "iu":
        large = [column.dtype == np.uint64 and len(column) and column.max() >= 2**63 for column in (source, target)]
        if not any(large):
            return np.column_stack((source.astype(np.int64), target.astype(np.int64)))
        if source.min() >= 0 and target.min() >= 0:
            return np.column_stack((source.astype(np.uint64), target.astype(np.uint64)))
    kinds = [{type(label) for label in column.tolist()} for column in (source, target)]
    if str in kinds[0] | kinds[1] and kinds[0] | kinds[1] != {str}:
        texts = ["text" if kind == {str} else "numbers" if str not in kind else "text and numbers" for kind in kinds]
        raise GraphError(
            f"expected labels of one kind, got {texts[0]} as sources and {texts[1]} as targets. Read both columns as "
            "text."
        )
    return list(zip(source.tolist(), target.tolist(), strict=True))

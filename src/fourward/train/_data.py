"""Training data: scikit-learn's bundled tables, CSV files and npz files as arrays with named columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fourward._memory import check_memory
from fourward.errors import DataError, FileError, OptionError, Repair, pluralize, require, summarize
from fourward.graph import _io
from fourward.graph._validation import check_text
from fourward.train import _csv

Task = Literal["classification", "regression"]
Array = np.ndarray[Any, np.dtype[Any]]

#: Names of scikit-learn's bundled data, and the functions that load them.
BUNDLED = {
    "digits": "load_digits",
    "breast-cancer": "load_breast_cancer",
    "wine": "load_wine",
    "diabetes": "load_diabetes",
}
#: Integers with at most this many distinct values are classes, else targets of a regression.
MAX_CLASSES = 20
_VALUE_BYTES = 16  # peak memory per value of x, while it is converted to float64


@dataclass(frozen=True, eq=False)
class Data:
    """Samples with their targets, in the units of the table."""

    x: Array  #: (n, features) float64, or sequences (n, T, features)
    y: Array  #: (n,) class indices in classification; (n, targets) float64 in regression; (n, T, ...) for each step
    features: Sequence[str]  #: name of each column of x
    targets: Sequence[str]  #: name of each target; a single one in classification
    classes: Sequence[Any] | None  #: the class of each class index; None in regression

    @property
    def task(self) -> Task:
        """Classification if there are classes, else regression."""
        return "regression" if self.classes is None else "classification"

    @property
    def are_sequences(self) -> bool:
        """Whether x holds sequences."""
        return self.x.ndim == 3

    @property
    def per_step(self) -> bool:
        """Whether there is a target for each step of the sequences."""
        return self.y.ndim == (2 if self.classes is not None else 3)

    @property
    def digest(self) -> str:
        """Hash of the values."""
        hash_ = blake2b(digest_size=16)
        for array in (self.x, self.y):
            hash_.update(np.ascontiguousarray(array).data)
        return hash_.hexdigest()


def read_data(
    source: str | Path,
    target: str | None = None,
    *,
    task: Task | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
) -> Data:
    """Read bundled data by name, or a CSV, TSV or npz file.

    The target is a class if it is text, a boolean, or an integer with at most 20 distinct values, else a number for
    regression.

    Args:
        source: "digits", "breast-cancer", "wine", "diabetes"; a table whose first line names its columns; or an
            npz file with `x` (n, features) and `y` (n,) or, in regression, (n, targets). Sequences are
            (n, T, features); their y may have a target for each step, (n, T) or (n, T, targets).
        target: The target column of a table.
        task: Overrides the rule above.
        drop: Columns of a table to leave out.
        features: Columns of a table to use, in this order; default: all but the target.
        classes: The classes that a model knows; another class in the target is an error.
    """
    if drop and not is_table(source):
        raise OptionError(f"drop applies to the columns of a .csv or .tsv table, got {source}.")
    if str(source) in BUNDLED:
        data = bundled(str(source))
        if task not in (None, data.task):
            raise OptionError(f"{source} is a {data.task}, got task={task!r}.")
        _check_fixed_target(source, target, data.targets[0])
    elif Path(source).suffix.lower() == ".npz":
        _check_fixed_target(source, target, "y")
        arrays = read_arrays(source, ("x", "y"))
        names = [f"x{k}" for k in range(arrays["x"].shape[-1])]
        data = _make_data(arrays["x"], arrays["y"], names, "y", task, classes, str(source))
    else:
        data = _read_table(source, target, task, drop, features, classes)
    return data if features is None else _match_model(data, features, classes, str(source))


def is_table(source: str | Path) -> bool:
    """Whether the source is a file with named columns."""
    return str(source) not in BUNDLED and Path(source).suffix.lower() != ".npz"


def bundled(name: str) -> Data:
    """Data of scikit-learn: "digits", "breast-cancer" and "wine" for classification, "diabetes" for regression."""
    if name not in BUNDLED:
        raise DataError(f"unknown bundled data {name!r}. Choose from {', '.join(BUNDLED)}.")
    raw = getattr(require("sklearn.datasets", "train"), BUNDLED[name])()
    x = np.asarray(raw.data, np.float64)
    features = [str(word) for word in raw.feature_names]
    if name == "diabetes":
        return Data(x, np.asarray(raw.target, np.float64)[:, None], features, ["progression"], None)
    classes = [str(word) for word in raw.target_names]
    return Data(x, np.asarray(raw.target, np.int64), features, ["class"], classes)


def read_arrays(source: str | Path, names: Sequence[str]) -> dict[str, Array]:
    """Read arrays of an npz file; x is checked to be (n, features) or (n, T, features) finite numbers."""
    try:
        arrays = _io.read_npz(Path(source), names)
    except FileError as error:
        raise DataError(str(error)) from None
    x = arrays["x"]
    if x.ndim not in (2, 3) or x.dtype.kind not in "iufb" or 0 in x.shape:
        raise DataError(
            f"{source}: expected x as numbers of shape (n, features), or sequences of shape (n, T, features), got "
            f"{x.dtype} of shape {x.shape}."
        )
    check_memory(source, _VALUE_BYTES * x.size, f"x has {x.size:,} values")
    arrays["x"] = x.astype(np.float64)
    _check_finite(arrays["x"], f"{source}: x")
    return arrays


def read_features(source: str | Path, features: Sequence[str]) -> Array:
    """(n, features) of bundled data or a file; a target is ignored."""
    if str(source) in BUNDLED:
        x = bundled(str(source)).x
    elif Path(source).suffix.lower() == ".npz":
        x = read_arrays(source, ["x"])["x"]
    else:
        return _csv.to_numbers(_csv.load_table(source), features, source, required=True)
    _check_width(x.shape[-1], features, source)
    return x


def split(y: Array, validation: float, test: float, seed: int) -> tuple[Array, Array, Array]:
    """Split rows at random into train, validation and test, stratified by class or target.

    The rows are sorted by target, in random order among equals, and drawn at even distances. A class that would have
    no row in train keeps all of its rows there.

    Args:
        y: (n,) class indices, or (n, targets); the first target stratifies.
        validation: Fraction of the rows.
        test: Fraction of the rows.
        seed: Seed of the random order.
    """
    if not (0 <= validation < 1 and 0 <= test < 1 and validation + test < 1):
        raise OptionError(
            f"validation and test must be fractions in [0, 1) that leave rows to train on, got {validation} and {test}."
        )
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    order = order[np.argsort(y.reshape(len(y), -1)[order, 0], kind="stable")]
    drawn = _draw_evenly(len(order), validation + test, rng.random())
    train, rest = order[~drawn], order[drawn]
    if y.ndim == 1:
        is_unseen = np.isin(y[rest], y[train], invert=True)
        train, rest = np.concatenate((train, rest[is_unseen])), rest[~is_unseen]
    tested = _draw_evenly(len(rest), test / (validation + test) if test else 0.0, rng.random())
    return np.sort(train), np.sort(rest[~tested]), np.sort(rest[tested])


def _draw_evenly(count: int, fraction: float, phase: float) -> Array:
    """(count,) True for a fraction of all, at even distances."""
    steps = np.floor(np.arange(count + 1) * fraction + phase)
    drawn: Array = np.diff(steps) > 0
    return drawn


def _read_table(
    source: str | Path,
    target: str | None,
    task: Task | None,
    drop: Sequence[str],
    features: Sequence[str] | None,
    classes: Sequence[Any] | None,
) -> Data:
    frame = _csv.load_table(source)
    if target is None:
        raise OptionError(
            f"{source} needs a target. Its columns are {summarize(frame.columns)}.",
            Repair("target", ..., "choose one of them"),
        )
    _csv.check_columns(frame, [target, *drop], source)
    required = features is not None  # a model needs them
    if features is None:
        features = [name for name in frame.columns if name != target and name not in drop]
        _csv.check_named(features, source)
    if not features:
        raise DataError(f"{source} has no columns besides the target {target!r}.")
    x = _csv.to_numbers(frame, features, source, required=required)
    raw = _csv.read_target(frame, target, source, task)
    return _make_data(x, raw, features, target, task, classes, f"{source}, column {target!r}")


def _make_data(
    x: Array,
    raw: Array,
    features: Sequence[str],
    target: str,
    task: Task | None,
    classes: Sequence[Any] | None,
    where: str,
) -> Data:
    """Data for a task, which is inferred from the target's values if it is None."""
    if raw.ndim == 2 and raw.shape[1] == 1 and x.ndim == 2:
        raw = raw[:, 0]
    per_step = x.ndim == 3 and raw.shape[:2] == x.shape[:2] and raw.ndim in (2, 3)
    if per_step:
        raw = raw[..., 0] if raw.ndim == 3 and raw.shape[2] == 1 else raw
        flat = _make_data(
            x.reshape(-1, x.shape[2]), raw.reshape(-1, *raw.shape[2:]), features, target, task, classes, where
        )
        return replace(flat, x=x, y=flat.y.reshape(*x.shape[:2], *flat.y.shape[1:]))
    if len(raw) != len(x) or raw.ndim > 2 or raw.dtype.kind not in "iufbU":
        raise DataError(
            f"{where}: expected a target, number or text, for each of {pluralize(len(x), 'sample')}, "
            f"got {raw.dtype} of shape {raw.shape}."
        )
    if raw.dtype.kind == "f":
        _check_finite(raw, where)
    for value in np.unique(raw).tolist() if raw.dtype.kind == "U" else ():
        check_text(value, f"{where}: targets")
    if task is None:
        task = "classification" if _are_classes(raw) else "regression"
    if task == "regression":
        if raw.dtype.kind not in "iufb":
            raise DataError(f"{where}: regression needs numbers as targets, got text.")
        y = raw.astype(np.float64).reshape(len(raw), -1)
        names = [target] if y.shape[1] == 1 else [f"{target}{k}" for k in range(y.shape[1])]
        return Data(x, y, features, names, None)
    if raw.ndim == 2:
        raise DataError(f"{where}: expected one class per sample, y of shape (n,), got {raw.shape}.")
    indices, classes = _index_classes(raw, classes, where)
    return Data(x, indices, features, [target], classes)


def _are_classes(raw: Array) -> bool:
    if raw.ndim == 2:
        return False
    if raw.dtype.kind in "bU":
        return True
    return bool((raw == np.floor(raw)).all()) and len(np.unique(raw)) <= MAX_CLASSES


def _index_classes(raw: Array, classes: Sequence[Any] | None, where: str) -> tuple[Array, Sequence[Any]]:
    """(n,) class indices, and the classes."""
    values, indices = np.unique(raw, return_inverse=True)
    names = [int(c) if isinstance(c, float) and c.is_integer() else c for c in values.tolist()]
    if classes is None:
        if len(names) < 2:
            raise DataError(f"{where}: expected at least two classes, got only {names[0]!r}.")
        return indices.astype(np.int64), names
    index = {str(c): k for k, c in enumerate(classes)}  # a class may be text in one file and a number in another
    unknown = [c for c in names if str(c) not in index]
    if unknown:
        raise DataError(f"{where}: unknown classes {summarize(unknown)}. The model knows {summarize(classes)}.")
    return np.array([index[str(c)] for c in names])[indices], classes


def _match_model(data: Data, features: Sequence[str], classes: Sequence[Any] | None, where: str) -> Data:
    """Data with the features of a model, after a check; arrays have no names, so their number counts."""
    _check_width(len(data.features), features, where)
    if (data.classes is None) != (classes is None):
        task = "regression" if classes is None else "classification"
        raise DataError(f"{where} is a {data.task}, but the model was trained on a {task}.")
    if classes is not None and list(data.classes or ()) != list(classes):
        raise DataError(
            f"{where} has the classes {summarize(data.classes or ())}, but the model knows {summarize(classes)}."
        )
    return replace(data, features=features)


def _check_width(width: int, features: Sequence[str], where: str | Path) -> None:
    if width != len(features):
        raise DataError(f"{where} has {width:,} features, but the model was trained on {len(features):,}.")


def _check_fixed_target(source: str | Path, target: str | None, fixed: str) -> None:
    if target not in (None, fixed):
        raise OptionError(f"the target of {source} is {fixed!r}, got target={target!r}. Omit it.")


def _check_finite(values: Array, where: str) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        index = tuple(bad[0].tolist())
        raise DataError(f"{where}: expected finite numbers, got {values[index]} at index {list(index)}.")

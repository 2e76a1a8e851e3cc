"""Data to learn from: scikit-learn's bundled tables, CSV files, arrays; all become arrays with names."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile, is_zipfile

import numpy as np

from fourward.errors import DataError, OptionError, require, summarize
from fourward.train import _csv

Task = Literal["classification", "regression"]
Array = np.ndarray[Any, np.dtype[Any]]

#: scikit-learn's bundled data by the names that `bundled` knows.
BUNDLED = {
    "digits": "load_digits",
    "breast-cancer": "load_breast_cancer",
    "wine": "load_wine",
    "diabetes": "load_diabetes",
}
#: Whole numbers are classes if there are at most so many different ones, else targets of a regression.
MOST_CLASSES = 20


@dataclass(frozen=True, eq=False)
class Data:
    """Samples with their targets, unscaled."""

    x: Array  #: (n, features) float64
    y: Array  #: (n,) class numbers in classification; (n, targets) float64 in regression
    features: Sequence[str]  #: name of each column of x
    targets: Sequence[str]  #: name of each target; one in classification
    classes: Sequence[Any] | None  #: what each class number stands for; None in regression

    @property
    def task(self) -> Task:
        """What is to be learned."""
        return "regression" if self.classes is None else "classification"

    @property
    def digest(self) -> str:
        """A fingerprint of the values."""
        digest = blake2b(digest_size=16)
        for array in (self.x, self.y):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def read(
    source: str | Path,
    target: str | None = None,
    *,
    task: Task | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
) -> Data:
    """Data by the name of a bundled one, or from a CSV, TSV or npz file.

    A target is a class if it is text, true or false, or a whole number of which at most 20 different ones come;
    else it is a number to be regressed on.

    Args:
        source: "digits", "breast-cancer", "wine", "diabetes"; a table whose first line names its columns; or an
            npz with `x` (n, features) and `y` (n,) or, in regression, (n, targets).
        target: The column of a table that is to be learned.
        task: Overrules the above.
        drop: Columns of a table to leave out.
        features: Columns of a table that are wanted, in this order; default: all but the target.
        classes: What the classes are, if a model already knows; a target that is none of them is refused.
    """
    if drop and not is_table(source):
        raise OptionError(f"columns of a table can be left out, but {source} is none.")
    if str(source) in BUNDLED:
        data = bundled(str(source))
        if task not in (None, data.task):
            raise OptionError(f"{source} is a {data.task}, but task={task!r} came.")
        _check_own_target(source, target, data.targets[0])
    elif Path(source).suffix.lower() == ".npz":
        _check_own_target(source, target, "y")
        arrays = read_arrays(source, ("x", "y"))
        names = [f"x{k}" for k in range(arrays["x"].shape[1])]
        data = _settled(arrays["x"], arrays["y"], names, "y", task, classes, str(source))
    else:
        data = _from_table(source, target, task, drop, features, classes)
    return data if features is None else _matched(data, features, classes, str(source))


def is_table(source: str | Path) -> bool:
    """Whether it is a file with named columns."""
    return str(source) not in BUNDLED and Path(source).suffix.lower() != ".npz"


def bundled(name: str) -> Data:
    """Data that comes with scikit-learn: "digits", "breast-cancer" and "wine" have classes, "diabetes" a number."""
    if name not in BUNDLED:
        raise DataError(f"there is no bundled data {name!r}. Bundled are {', '.join(BUNDLED)}.")
    raw = getattr(require("sklearn.datasets", "train"), BUNDLED[name])()
    x = np.asarray(raw.data, np.float64)
    features = [str(word) for word in raw.feature_names]
    if name == "diabetes":
        return Data(x, np.asarray(raw.target, np.float64)[:, None], features, ["progression"], None)
    classes = [str(word) for word in raw.target_names]
    return Data(x, np.asarray(raw.target, np.int64), features, ["class"], classes)


def read_arrays(source: str | Path, names: Sequence[str]) -> dict[str, Array]:
    """Arrays of an npz file; x is checked to be a table of finite numbers."""
    if not Path(source).is_file():
        raise DataError(f"there is no file {source}.")
    if not is_zipfile(source):
        raise DataError(f"{source} is no npz file, or it was cut short.")
    with np.load(source, allow_pickle=False) as file:
        missing = [name for name in names if name not in file.files]
        if missing:
            raise DataError(f"{source} has no array {missing[0]!r}, but {summarize(file.files)}. Wanted are x and y.")
        arrays = {name: _array(source, file, name) for name in names}
    x = arrays["x"]
    if x.ndim != 2 or x.dtype.kind not in "iufb" or 0 in x.shape:
        raise DataError(f"{source}: x has shape {x.shape} of {x.dtype}, but numbers (samples, features) were wanted.")
    arrays["x"] = x.astype(np.float64)
    _check_finite(arrays["x"], f"{source}: x")
    return arrays


def _array(source: str | Path, file: Any, name: str) -> Array:
    try:
        return np.asarray(file[name])
    except (ValueError, OSError, EOFError, BadZipFile, zlib.error) as error:
        if "pickle" in str(error):
            raise DataError(
                f"{source} holds Python objects as {name!r}. These are pickles, which could run code, and are never "
                "loaded: save arrays of numbers or text."
            ) from None
        raise DataError(f"{source}: the array {name!r} is damaged: {error}") from None


def read_features(source: str | Path, features: Sequence[str]) -> Array:
    """(n, features) of bundled data or a file whose target, if it has one, isn't looked at."""
    if str(source) in BUNDLED:
        x = bundled(str(source)).x
    elif Path(source).suffix.lower() == ".npz":
        x = read_arrays(source, ["x"])["x"]
    else:
        return _csv.numbers(_csv.load(source), features, source, needed=True)
    _check_width(x.shape[1], features, source)
    return x


def split(y: Array, held: float, test: float, seed: int) -> tuple[Array, Array, Array]:
    """Rows to learn from, to hold out and to test on, each with the classes or targets in like shares.

    The rows are sorted by target, in random order among equals, and dealt out at even distances. A class that
    would have no row to learn from keeps all of its rows there.
    """
    if not (0 <= held < 1 and 0 <= test < 1 and held + test < 1):
        raise OptionError(f"shares of {held} held out and {test} to test on came, but some must be left to learn from.")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    order = order[np.argsort(y.reshape(len(y), -1)[order, 0], kind="stable")]
    out = _dealt(len(order), held + test, rng.random())
    learn, rest = order[~out], order[out]
    if y.ndim == 1:
        lost = np.isin(y[rest], y[learn], invert=True)
        learn, rest = np.concatenate((learn, rest[lost])), rest[~lost]
    tested = _dealt(len(rest), test / (held + test) if test else 0.0, rng.random())
    return np.sort(learn), np.sort(rest[~tested]), np.sort(rest[tested])


def _dealt(count: int, share: float, phase: float) -> Array:
    """(count,) True at even distances, for a share of all."""
    steps = np.floor(np.arange(count + 1) * share + phase)
    dealt: Array = np.diff(steps) > 0
    return dealt


def _from_table(
    source: str | Path,
    target: str | None,
    task: Task | None,
    drop: Sequence[str],
    features: Sequence[str] | None,
    classes: Sequence[Any] | None,
) -> Data:
    frame = _csv.load(source)
    if target is None:
        raise OptionError(
            f"which column of {source} is to be learned? Name one as the target: {summarize(frame.columns)}."
        )
    _csv.check_columns(frame, [target, *drop], source)
    known = features is not None  # by a model
    if features is None:
        features = [name for name in frame.columns if name != target and name not in drop]
        _csv.check_named(features, source)
    if not features:
        raise DataError(f"{source} has no columns beside the target {target!r}: there is nothing to learn from.")
    x = _csv.numbers(frame, features, source, needed=known)
    raw = _csv.target(frame, target, source, task)
    return _settled(x, raw, features, target, task, classes, f"{source}, column {target!r}")


def _settled(
    x: Array,
    raw: Array,
    features: Sequence[str],
    target: str,
    task: Task | None,
    classes: Sequence[Any] | None,
    where: str,
) -> Data:
    """Data of a target whose task is given, or follows from its values."""
    if raw.ndim == 2 and raw.shape[1] == 1:
        raw = raw[:, 0]
    if len(raw) != len(x) or raw.ndim > 2 or raw.dtype.kind not in "iufbU":
        raise DataError(
            f"{where}: y has shape {raw.shape} of {raw.dtype}, but there are {len(x):,} samples: one target for each "
            "was wanted, a number or text."
        )
    if raw.dtype.kind == "f":
        _check_finite(raw, where)
    if task is None:
        task = "classification" if _are_classes(raw) else "regression"
    if task == "regression":
        if raw.dtype.kind not in "iufb":
            raise DataError(f"{where}: the target is text, and a regression needs numbers.")
        y = raw.astype(np.float64).reshape(len(raw), -1)
        names = [target] if y.shape[1] == 1 else [f"{target}{k}" for k in range(y.shape[1])]
        return Data(x, y, features, names, None)
    if raw.ndim == 2:
        raise DataError(f"{where}: y has shape {raw.shape}, but a sample has one class: (n,) was wanted.")
    numbers, known = _numbered(raw, classes, where)
    return Data(x, numbers, features, [target], known)


def _are_classes(raw: Array) -> bool:
    if raw.ndim == 2:
        return False
    if raw.dtype.kind in "bU":
        return True
    return bool((raw == np.floor(raw)).all()) and len(np.unique(raw)) <= MOST_CLASSES


def _numbered(raw: Array, classes: Sequence[Any] | None, where: str) -> tuple[Array, Sequence[Any]]:
    """Class numbers, and what they stand for."""
    found, numbers = np.unique(raw, return_inverse=True)
    named = [int(c) if isinstance(c, float) and c.is_integer() else c for c in found.tolist()]
    if classes is None:
        if len(named) < 2:
            raise DataError(f"{where}: all samples are of one class, {named[0]!r}. There is nothing to learn.")
        return numbers.astype(np.int64), named
    places = {str(c): k for k, c in enumerate(classes)}  # the same words may be text here and numbers there
    unknown = [c for c in named if str(c) not in places]
    if unknown:
        raise DataError(
            f"{where}: the model knows the classes {summarize(classes)}, and these are none: {summarize(unknown)}."
        )
    return np.array([places[str(c)] for c in named])[numbers], classes


def _matched(data: Data, features: Sequence[str], classes: Sequence[Any] | None, where: str) -> Data:
    """Data whose features are those that a model knows; arrays have no names and go by their count."""
    _check_width(len(data.features), features, where)
    if (data.classes is None) != (classes is None):
        raise DataError(f"{where} is a {data.task}, and that isn't what the model learned.")
    if classes is not None and list(data.classes or ()) != list(classes):
        raise DataError(
            f"{where} has the classes {summarize(data.classes or ())}, but the model knows {summarize(classes)}."
        )
    return replace(data, features=features)


def _check_width(came: int, features: Sequence[str], where: str | Path) -> None:
    if came != len(features):
        raise DataError(f"{where} has {came:,} features, but the model learned from {len(features):,}.")


def _check_own_target(source: str | Path, target: str | None, own: str) -> None:
    if target not in (None, own):
        raise OptionError(f"{source} brings its own target, {own!r}, but target={target!r} came. Leave it away.")


def _check_finite(values: Array, where: str) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise DataError(f"{where}: {values[place]} stands at {list(place)}, but finite numbers were wanted.")

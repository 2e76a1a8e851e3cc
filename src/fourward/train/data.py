"""Tables to learn from, as arrays with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fourward.errors import DataError, require

Task = Literal["classification", "regression"]
Array = np.ndarray[Any, np.dtype[Any]]

#: scikit-learn's bundled data by the names that `bundled` knows.
BUNDLED = {"digits": "load_digits", "breast-cancer": "load_breast_cancer", "wine": "load_wine"}
BUNDLED |= {"diabetes": "load_diabetes"}


@dataclass(frozen=True, eq=False)
class Data:
    """Samples with their targets; x is raw, y holds class numbers or the targets themselves."""

    x: Array  #: (n, features) float64
    y: Array  #: (n,) class numbers in classification; (n, targets) float64 in regression
    features: Sequence[str]  #: name of each column of x
    targets: Sequence[str]  #: name of each target; one in classification
    classes: Sequence[Any] | None  #: what each class number stands for; None in regression

    @property
    def task(self) -> Task:
        """What is to be learned."""
        return "regression" if self.classes is None else "classification"


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

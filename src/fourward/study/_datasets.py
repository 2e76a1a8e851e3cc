"""The data sets that topologies are trained on: bundled data, and generated classes of increasing difficulty."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward.errors import OptionError, require, summarize
from fourward.train._data import Array, bundled
from fourward.train._model import Scaling

VALIDATION_FRACTION = 0.25  #: fraction of the samples
NUM_SAMPLES = 1200  #: samples of generated data

#: Separation of the classes, and clusters of each: from nearly separable to strongly mixed.
_DIFFICULTY = {"classes-1": (2.0, 1), "classes-2": (1.5, 2), "classes-3": (1.0, 2), "classes-4": (0.7, 3)}


class Split(NamedTuple):
    """Standardised samples for training and for validation."""

    x: Tensor
    y: Tensor
    validation_x: Tensor
    validation_y: Tensor
    classes: int


def load_split(name: str, seed: int) -> Split:
    """Draw the samples of a data set, split them, and standardise all by the training samples."""
    if name not in DATASETS:
        raise OptionError(f"unknown data set {name!r}. Choose from {summarize(DATASETS, len(DATASETS))}.")
    train_test_split = require("sklearn.model_selection", "train").train_test_split
    x, y = DATASETS[name](seed)
    x, validation_x, y, validation_y = train_test_split(
        x, y, test_size=VALIDATION_FRACTION, stratify=y, random_state=seed
    )
    scaling = Scaling.fit(x)
    scaled, validation = (torch.tensor(scaling.apply(part), dtype=torch.float32) for part in (x, validation_x))
    return Split(scaled, torch.tensor(y), validation, torch.tensor(validation_y), int(y.max()) + 1)


def _bundled(name: str) -> Callable[[int], tuple[Array, Array]]:
    def read(seed: int) -> tuple[Array, Array]:
        data = bundled(name)
        return data.x, data.y

    return read


def _classes(name: str) -> Callable[[int], tuple[Array, Array]]:
    separation, clusters = _DIFFICULTY[name]

    def draw(seed: int) -> tuple[Array, Array]:
        x, y = require("sklearn.datasets", "train").make_classification(
            NUM_SAMPLES, n_features=20, n_informative=10, n_redundant=4, n_classes=4, n_clusters_per_class=clusters,
            class_sep=separation, flip_y=0.0, random_state=seed,
        )  # fmt: skip
        return x, y.astype(np.int64)

    return draw


def _moons(seed: int) -> tuple[Array, Array]:
    x, y = require("sklearn.datasets", "train").make_moons(NUM_SAMPLES, noise=0.25, random_state=seed)
    return x, y.astype(np.int64)


#: From a seed to samples and their class indices; bundled data ignores the seed.
DATASETS: dict[str, Callable[[int], tuple[Array, Array]]] = {
    **{name: _bundled(name) for name in ("digits", "breast-cancer", "wine")},
    "moons": _moons,
    **{name: _classes(name) for name in _DIFFICULTY},
}

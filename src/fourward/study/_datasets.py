"""What the topologies learn: bundled data, and generated classes of rising difficulty."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward.errors import OptionError, require
from fourward.train._data import Array, bundled
from fourward.train._model import Scaling

HELD = 0.25  #: share of the samples that is held out
SAMPLES = 1200  #: that are generated

#: How far apart the classes lie, and in how many clusters each; from nearly apart to deeply mixed.
_DIFFICULTY = {"classes-1": (2.0, 1), "classes-2": (1.5, 2), "classes-3": (1.0, 2), "classes-4": (0.7, 3)}


class Split(NamedTuple):
    """Standardised samples to learn from, and others that are held out."""

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor
    classes: int


def split(task: str, seed: int) -> Split:
    """Draw the samples of a task, part them, and standardise all by those to learn from."""
    if task not in PROBLEMS:
        raise OptionError(f"there is no data {task!r}. Choose from {', '.join(PROBLEMS)}.")
    parting = require("sklearn.model_selection", "train").train_test_split
    x, y = PROBLEMS[task](seed)
    x, held_x, y, held_y = parting(x, y, test_size=HELD, stratify=y, random_state=seed)
    scaling = Scaling.fit(x)
    new, held = (torch.tensor(scaling.apply(part), dtype=torch.float32) for part in (x, held_x))
    return Split(new, torch.tensor(y), held, torch.tensor(held_y), int(y.max()) + 1)


def _bundled(name: str) -> Callable[[int], tuple[Array, Array]]:
    def read(seed: int) -> tuple[Array, Array]:
        data = bundled(name)
        return data.x, data.y

    return read


def _classes(name: str) -> Callable[[int], tuple[Array, Array]]:
    apart, clusters = _DIFFICULTY[name]

    def draw(seed: int) -> tuple[Array, Array]:
        x, y = require("sklearn.datasets", "train").make_classification(
            SAMPLES, n_features=20, n_informative=10, n_redundant=4, n_classes=4, n_clusters_per_class=clusters,
            class_sep=apart, flip_y=0.0, random_state=seed,
        )  # fmt: skip
        return x, y.astype(np.int64)

    return draw


def _moons(seed: int) -> tuple[Array, Array]:
    x, y = require("sklearn.datasets", "train").make_moons(SAMPLES, noise=0.25, random_state=seed)
    return x, y.astype(np.int64)


#: From a seed to samples and their class numbers; the seed means nothing to bundled data.
PROBLEMS: dict[str, Callable[[int], tuple[Array, Array]]] = {
    **{name: _bundled(name) for name in ("digits", "breast-cancer", "wine")},
    "moons": _moons,
    **{name: _classes(name) for name in _DIFFICULTY},
}

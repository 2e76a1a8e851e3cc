"""How good a model is on some rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward.errors import require
from fourward.train._data import Array
from fourward.train._model import Model


def measure(model: Model, x: Array, y: Array) -> dict[str, Any]:
    """Accuracy, loss and each class's precision and recall; or R2 and errors in the targets' own units.

    What isn't finite, such as the R2 of a constant target, is None.
    """
    said = model.predict(x)
    if model.classes is None:
        return {"task": "regression", "samples": len(x)} | _of_numbers(model, said, y)
    return {"task": "classification", "samples": len(x)} | _of_classes(model, said, y)


def _of_classes(model: Model, share: Array, y: Array) -> dict[str, Any]:
    metrics = require("sklearn.metrics", "train")
    assert model.classes is not None
    guess = share.argmax(1)
    numbers = np.arange(len(model.classes))
    by_class = metrics.precision_recall_fscore_support(y, guess, labels=numbers, zero_division=0.0)
    return {
        "accuracy": float(np.mean(guess == y)),
        "loss": _finite(-np.log(np.maximum(share[np.arange(len(y)), y], np.finfo(np.float64).tiny)).mean()),
        "classes": {
            str(name): {"precision": float(p), "recall": float(r), "f1": float(f), "samples": int(n)}
            for name, p, r, f, n in zip(model.classes, *by_class, strict=True)
        },
    }


def _of_numbers(model: Model, said: Array, y: Array) -> dict[str, Any]:
    assert model.scale_y is not None
    error = said - y
    spread = np.square(y - y.mean(0)).mean(0)
    square = np.square(error).mean(0)
    by_target = {
        name: {
            "r2": _finite(1 - square[k] / spread[k]) if spread[k] > 0 else None,
            "mae": _finite(np.abs(error[:, k]).mean()),
            "rmse": _finite(np.sqrt(square[k])),
        }
        for k, name in enumerate(model.targets)
    }
    loss = _finite((square / np.square(model.scale_y.deviation)).mean())  # as in training, of scaled targets
    if len(by_target) == 1:
        return {"loss": loss} | next(iter(by_target.values()))
    return {"loss": loss, "targets": by_target}


def _finite(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None

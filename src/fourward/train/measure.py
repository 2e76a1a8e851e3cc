"""How good a model is on some rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward.errors import require
from fourward.train.data import Array
from fourward.train.model import Model


def measure(model: Model, x: Array, y: Array) -> dict[str, Any]:
    """Accuracy, loss and each class's precision and recall; or R2 and errors in the targets' own units."""
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
        "loss": float(-np.log(np.maximum(share[np.arange(len(y)), y], np.finfo(np.float64).tiny)).mean()),
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
            "r2": float(1 - square[k] / spread[k]) if spread[k] > 0 else None,
            "mae": float(np.abs(error[:, k]).mean()),
            "rmse": float(np.sqrt(square[k])),
        }
        for k, name in enumerate(model.targets)
    }
    loss = float((square / np.square(model.scale_y.deviation)).mean())  # as in training, of scaled targets
    if len(by_target) == 1:
        return {"loss": loss} | next(iter(by_target.values()))
    return {"loss": loss, "targets": by_target}

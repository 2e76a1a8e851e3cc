"""Metrics of a model on some samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from fourward.errors import require
from fourward.train._data import Array
from fourward.train._model import Model


def compute_metrics(model: Model, x: Array, y: Array) -> dict[str, Any]:
    """Accuracy, loss, and precision and recall of each class; or R2 and errors in the targets' units.

    A metric that isn't finite, such as the R2 of a constant target, is None.
    """
    predicted = model.predict(x)
    if model.per_step:  # the metrics are those of all steps
        predicted, y = predicted.reshape(-1, predicted.shape[-1]), y.reshape(-1, *y.shape[2:])
    if model.classes is None:
        return {"task": "regression", "samples": len(x)} | _regression_metrics(model, predicted, y)
    return {"task": "classification", "samples": len(x)} | _classification_metrics(model, predicted, y)


def _classification_metrics(model: Model, probabilities: Array, y: Array) -> dict[str, Any]:
    metrics = require("sklearn.metrics", "train")
    assert model.classes is not None
    predicted = probabilities.argmax(1)
    labels = np.arange(len(model.classes))
    by_class = metrics.precision_recall_fscore_support(y, predicted, labels=labels, zero_division=0.0)
    correct = np.maximum(probabilities[np.arange(len(y)), y], np.finfo(np.float64).tiny)
    return {
        "accuracy": float(np.mean(predicted == y)),
        "loss": _finite_or_none(-np.log(correct).mean()),
        "classes": {
            str(name): {"precision": float(p), "recall": float(r), "f1": float(f), "samples": int(n)}
            for name, p, r, f, n in zip(model.classes, *by_class, strict=True)
        },
    }


def _regression_metrics(model: Model, predicted: Array, y: Array) -> dict[str, Any]:
    assert model.scale_y is not None
    error = predicted - y
    variance = np.square(y - y.mean(0)).mean(0)
    mse = np.square(error).mean(0)
    by_target = {
        name: {
            "r2": _finite_or_none(1 - mse[k] / variance[k]) if variance[k] > 0 else None,
            "mae": _finite_or_none(np.abs(error[:, k]).mean()),
            "rmse": _finite_or_none(np.sqrt(mse[k])),
        }
        for k, name in enumerate(model.targets)
    }
    loss = _finite_or_none((mse / np.square(model.scale_y.std)).mean())  # for standardised targets, as in training
    if len(by_target) == 1:
        return {"loss": loss} | next(iter(by_target.values()))
    return {"loss": loss, "targets": by_target}


def _finite_or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None

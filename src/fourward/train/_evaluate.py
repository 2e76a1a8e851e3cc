"""Metrics and predictions of trained models on new data."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fourward._serialization import corrupt_file_errors
from fourward.errors import DataError, OptionError, Repair
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.train import _checkpoint
from fourward.train._config import RunConfig
from fourward.train._data import Array, Data, is_table, read_data, read_features, split
from fourward.train._metrics import compute_metrics
from fourward.train._model import Model

_CHOOSE_DATA = Repair("data", ..., "choose the data to evaluate on")


def evaluate(
    path: str | Path,
    data: str | None = None,
    target: str | None = None,
    *,
    graph: Dag | Digraph | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Metrics of a trained model: accuracy, loss and metrics of each class, or R2 and errors in the target's units.

    Args:
        path: A checkpoint, or the folder of a run for its best one.
        data: As in `read_data`; default: the test rows of the run.
        target: The column of a table; default: the one it was trained on.
        graph: If not None, an error is raised unless the checkpoint has this graph.
        device: Where to run it.
    """
    model, x, y = load_evaluation(path, data, target, graph=graph, device=device)
    return compute_metrics(model, x, y)


def load_evaluation(
    path: str | Path,
    data: str | None = None,
    target: str | None = None,
    *,
    graph: Dag | Digraph | None = None,
    device: str = "cpu",
) -> tuple[Model, Array, Array]:
    """A trained model, and the features and targets to evaluate it on; arguments as in `evaluate`."""
    model, run, _ = _checkpoint.load_checkpoint(path, device=device)
    if graph is not None:
        _checkpoint.check_graph(path, model, graph)
    if data is not None:
        samples = _read(model, data, target)
        return model, samples.x, samples.y
    if run is None:
        raise OptionError(f"{path} doesn't know which data it was tested on.", _CHOOSE_DATA)
    with corrupt_file_errors(path):
        config, digest = RunConfig.from_json(run["config"]), run["digest"]
    samples = _read(model, config.find_data(), target)
    if samples.digest != digest:
        raise DataError(f"{config.data} has changed since {path} was trained on it.", _CHOOSE_DATA)
    _, _, rows = split(samples.y, config.validation, config.test, config.train.seed)
    if len(rows) == 0:
        raise OptionError(f"{path} was trained without test rows.", _CHOOSE_DATA)
    return model, samples.x[rows], samples.y[rows]


def predict_rows(path: str | Path, data: str, *, device: str = "cpu") -> tuple[list[str], Iterator[list[Any]]]:
    """Column names and rows: the class and the probability of each class, or the targets."""
    model, _, _ = _checkpoint.load_checkpoint(path, device=device)
    predicted = model.predict(read_features(data, model.features))
    index, first = _number_rows(predicted)
    flat = predicted.reshape(-1, predicted.shape[-1])
    if model.classes is None:
        return [*first, *model.targets], ([*k, *values] for k, values in zip(index, flat.tolist(), strict=True))
    classes = model.classes
    names = [*first, model.targets[0], *(f"p({name})" for name in classes)]
    rows = zip(index, flat.argmax(1).tolist(), flat.tolist(), strict=True)
    return names, ([*k, classes[best], *values] for k, best, values in rows)


def _number_rows(predicted: Array) -> tuple[list[tuple[int, ...]], list[str]]:
    """The numbers of each row, and of its steps if there are predictions for them; the names of these columns."""
    shape = predicted.shape[:-1]
    numbers = np.indices(shape).reshape(len(shape), -1).T + 1
    return [tuple(row) for row in numbers.tolist()], ["row", "step"][: len(shape)]


def write_rows(names: list[str], rows: Iterator[list[Any]], file: TextIO) -> None:
    """Write a table as CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _read(model: Model, data: str, target: str | None) -> Data:
    if target is None and is_table(data):
        target = model.targets[0]
    samples = read_data(data, target, task=model.task, features=model.features, classes=model.classes)
    if len(samples.targets) != len(model.targets):
        raise DataError(
            f"expected {data} with {len(model.targets)} targets as in training, got {len(samples.targets)}."
        )
    return samples

"""Trained models on other data: their measures, their predictions."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from fourward._serialization import Metadata, corrupt_file_errors
from fourward.errors import DataError, OptionError
from fourward.graph._spec import find
from fourward.train import _checkpoint
from fourward.train._data import Data, is_table, read, read_features, split
from fourward.train._metrics import measure
from fourward.train._model import Model
from fourward.train._options import Setup


def judge(
    path: str | Path,
    data: str | None = None,
    target: str | None = None,
    *,
    graph: str | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """The measures of a model on data, as `fourward.train._metrics.measure` has them.

    Args:
        path: A checkpoint, or the folder of a run for its best one.
        data: As in `fourward.train._data.read`; default: the rows that the run tested on.
        target: The column of a table; default: as in training.
        graph: A graph, as in `fourward.graph._spec.find`, that the checkpoint has to be of.
        device: Where to run it.
    """
    model, said = _open(path, device)
    if graph is not None:
        _checkpoint.check_graph(path, model, find(graph, bare=True).dag)
    if data is not None:
        found = _read(model, data, target)
        return measure(model, found.x, found.y)
    if said is None:
        raise OptionError(f"{path} doesn't say what it was tested on: name the data.")
    with corrupt_file_errors(path):
        setup, digest = Setup.from_json(said["setup"]), said["digest"]
    found = _read(model, setup.place(), target)
    if found.digest != digest:
        raise DataError(f"{setup.data} isn't what it was when {path} learned from it: name the data to measure on.")
    _, _, rows = split(found.y, setup.held, setup.test, setup.options.seed)
    if len(rows) == 0:
        raise OptionError(f"no rows were left to test {path} on: name the data to measure on.")
    return measure(model, found.x[rows], found.y[rows])


def predictions(path: str | Path, data: str, *, device: str = "cpu") -> tuple[list[str], Iterator[list[Any]]]:
    """Names of columns and rows: the class and the probability of each class, or the targets."""
    model, _ = _open(path, device)
    said = model.predict(read_features(data, model.features))
    if model.classes is None:
        return ["row", *model.targets], ([k, *values] for k, values in enumerate(said.tolist(), 1))
    classes = model.classes
    names = ["row", model.targets[0], *(f"p({name})" for name in classes)]
    best = said.argmax(1).tolist()
    return names, ([k, classes[b], *values] for k, (b, values) in enumerate(zip(best, said.tolist(), strict=True), 1))


def write_rows(names: list[str], rows: Iterator[list[Any]], file: TextIO) -> None:
    """As CSV."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _open(path: str | Path, device: str) -> tuple[Model, Metadata | None]:
    path = Path(path)
    model, said, _ = _checkpoint.load(path, device=device)
    return model, said


def _read(model: Model, data: str, target: str | None) -> Data:
    if target is None and is_table(data):
        target = model.targets[0]
    found = read(data, target, task=model.task, features=model.features, classes=model.classes)
    if len(found.targets) != len(model.targets):
        raise DataError(f"{data} has {len(found.targets)} targets, but the model learned {len(model.targets)}.")
    return found

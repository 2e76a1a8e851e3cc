"""What `fourward draw` and `fourward view` show: a word becomes a network, or a graph with its numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from fourward import _serialization
from fourward._cli.options import Reading, network_file, report_changes
from fourward.errors import InputError
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard
from fourward.train import _checkpoint
from fourward.train._data import read_features
from fourward.view._subject import describe


class Shown(NamedTuple):
    """A network or a graph, and numbers of the graph's edges."""

    thing: FourWard | Dag
    weight: Any
    title: str


def open_shown(word: str, reading: Reading, title: str | None) -> Shown:
    """The network of a checkpoint or of a run's best one, or the graph that a word stands for."""
    path = network_file(word)
    if path is None:
        found = reading.find(word)
        report_changes(found)
        return Shown(found.dag, found.weight, title or f"{word}: {describe(found.dag)}")
    reading.refuse(f"{word} is a network that has its own")
    net = _serialization.load(path)
    return Shown(net, None, title or f"{word}: {describe(net.dag)}")


def read_samples(word: str, table: str) -> Any:
    """(S, num_inputs) the rows of a table as the inputs of a network see them, through the adaptors of its model.

    A network without a model takes the columns that are named as its inputs.
    """
    path = network_file(word)
    if path is None:
        raise InputError(f"samples came, but {word} is a graph, which has no weights. Give a saved network.")
    if "model" in _serialization.read(path)[1]:
        model, _, _ = _checkpoint.load(path)
        scaled = model.scale_x.apply(read_features(table, model.features))
        with torch.no_grad():
            return model.enter(torch.as_tensor(scaled).to(model.net.weight))
    dag = _serialization.load(path).dag
    return read_features(table, [str(dag.labels[v]) for v in dag.inputs.tolist()])


def label_of(shown: Shown, text: str) -> Any:
    """The label that is written like this."""
    dag = shown.thing if isinstance(shown.thing, Dag) else shown.thing.dag
    return next((label for label in dag.labels if str(label) == text), text)

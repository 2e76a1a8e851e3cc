"""What `fourward draw` and `fourward view` show: a saved network, or a graph with its weights."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from fourward import _serialization
from fourward._cli.options import GraphOptions, network_path
from fourward._cli.output import report_changes
from fourward.errors import DataError, InputError, OptionError
from fourward.graph._base import BaseGraph
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.graph._node_table import read_node_table
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.train import _checkpoint
from fourward.train._data import read_features
from fourward.view._subject import describe


class Drawable(NamedTuple):
    """A network, or a graph and the weights of its edges."""

    net_or_dag: FourWard | Recurrent | Dag | Digraph
    weight: Any  #: (E,) or None; a network has its own
    title: str
    only: Literal["paths"] | None = None  #: neurons to show of a network; graphs are read without the others

    @property
    def graph(self) -> BaseGraph:
        """The graph."""
        return self.net_or_dag if isinstance(self.net_or_dag, Dag | Digraph) else self.net_or_dag.graph


def load_drawable(spec: str, graph_options: GraphOptions, title: str | None, recurrent: bool = False) -> Drawable:
    """Load a network (from a checkpoint, or the best one of a run) or a graph, with its feedback if `recurrent`."""
    path = network_path(spec)
    if path is None and recurrent:
        annotated = graph_options.load_digraph(spec)
        report_changes(annotated)
        return Drawable(annotated.graph, annotated.weight, title or f"{spec}: {describe(annotated.graph)}")
    if recurrent:
        raise OptionError(f"--recurrent has no effect here: {spec} is a network, which has its own graph. Omit it.")
    if path is None:
        loaded = graph_options.load(spec)
        report_changes(loaded)
        return Drawable(loaded.dag, loaded.weight, title or f"{spec}: {describe(loaded.dag)}")
    graph_options.check_unset(f"{spec} is a network, which has its own graph", used="only")
    net = _serialization.load_network(path)
    return Drawable(
        net, None, title or f"{spec}: {describe(net.graph)}", None if graph_options.only is None else "paths"
    )


def read_changes(spec: str, changes: bool) -> dict[str, Any]:
    """The option --changes as keywords of the pictures: the edges at the start of a run."""
    if not changes:
        return {}
    from fourward._files import EDITS
    from fourward.train import read_edits

    folder = Path(spec) if Path(spec).is_dir() else Path(spec).parent
    if network_path(spec) is None or not (folder / EDITS).exists():
        raise OptionError(
            f"--changes needs the folder of a run whose wiring changed, but {folder} has no {EDITS}. Train with "
            "--rewire, or omit it."
        )
    return {"before": read_edits(folder).initial}


def read_samples(spec: str, table: str) -> Any:
    """(S, num_inputs) the rows of a table as a network's inputs receive them.

    A checkpoint of a model scales the features and applies its input layer; a network alone takes the columns named
    like its inputs.
    """
    path = network_path(spec)
    if path is None:
        raise InputError(f"--samples needs a network, but {spec} is a graph without weights. Pass a saved network.")
    if "model" in _serialization.read_safetensors(path)[1]:
        model, _, _ = _checkpoint.load_checkpoint(path)
        scaled = model.scale_x.apply(read_features(table, model.features))
        with torch.no_grad():
            return model.input_adapter(torch.as_tensor(scaled).to(model.net.weight))
    graph = _serialization.load_network(path).graph
    return read_features(table, [str(graph.labels[v]) for v in graph.inputs.tolist()])


def parse_label(graph: BaseGraph, text: str) -> Hashable:
    """The label that reads like `text`; `text` itself if there is none."""
    return next((label for label in graph.labels if str(label) == text), text)


def read_colour(dag: BaseGraph, text: str | None) -> dict[str, Any]:
    """The option --colour as keywords of the pictures: an attribute, or a table of neurons and numbers."""
    if text is None or not text.lower().endswith(".csv"):
        return {"colour": text}
    attributes = read_node_table(text, dag.labels)
    name = next((name for name, values in attributes.items() if any(isinstance(v, int | float) for v in values)), None)
    if name is None:
        raise DataError(f"{text} has no column of numbers to colour neurons by.")
    return {"colour": attributes[name], "colour_label": name}

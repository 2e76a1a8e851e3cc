"""`fourward evaluate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fourward._cli.options import JsonOption, RunArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(evaluate)


def evaluate(
    checkpoint: RunArgument,
    data: Annotated[
        str | None, typer.Option(help="Data as in `fourward train`, all of its rows. Default: the run's test rows.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target column of a table. Default: as in training.")] = None,
    graph: Annotated[
        str | None, typer.Option(help="Raise an error unless the checkpoint was trained on this graph.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or a single GPU such as cuda:1.")] = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Evaluate a trained model: accuracy, loss and metrics of each class, or R2 and errors in the target's units.

    Example: `fourward evaluate worm --data digits`
    """
    from rich.console import Console

    from fourward._cli.output import print_metrics
    from fourward.graph._spec import resolve_graph
    from fourward.train import evaluate

    dag = None if graph is None else resolve_graph(graph, topology_only=True).dag
    metrics = evaluate(checkpoint, data, target, graph=dag, device=device)
    if as_json:
        print(json.dumps(metrics, allow_nan=False))
    else:
        print_metrics(Console(markup=False, highlight=False, soft_wrap=True), metrics)

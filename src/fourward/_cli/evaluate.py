"""`fourward evaluate`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fourward._cli.options import RunArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(evaluate)


def evaluate(
    checkpoint: RunArgument,
    data: Annotated[
        str | None, typer.Option(help="As in train, all of its rows; default: the rows that the run tested on.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The column of a table; default: as in training.")] = None,
    graph: Annotated[str | None, typer.Option(help="Check that it is a checkpoint of this graph.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or one card such as cuda:1.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a trained model: accuracy, loss and each class, or R2 and errors in the target's own units.

    Example: `fourward evaluate worm --data digits`
    """
    from rich.console import Console

    from fourward._cli.output import print_metrics
    from fourward.train._evaluate import judge

    measures = judge(checkpoint, data, target, graph=graph, device=device)
    if as_json:
        print(json.dumps(measures, allow_nan=False))
    else:
        print_metrics(Console(markup=False, highlight=False, soft_wrap=True), measures)

"""`fourward predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from fourward._cli.options import RunArgument


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(predict)


def predict(
    checkpoint: RunArgument,
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A .csv or .tsv with the columns of training, or an .npz with x.")
    ],
    out: Annotated[Path | None, typer.Option(help="The CSV file to write; default: to the terminal.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or one card such as cuda:1.")] = "cpu",
) -> None:
    """Predict each row of a table: the class and the probability of every class, or the targets.

    Columns are found by name, and others aren't looked at.

    Example: `fourward predict worm new.csv --out predictions.csv`
    """
    from fourward._files import replacing
    from fourward.train._evaluate import predictions, write_rows

    names, rows = predictions(checkpoint, data, device=device)
    if out is None:
        write_rows(names, rows, sys.stdout)
        return
    with replacing(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        write_rows(names, rows, file)
    print(out)

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
        str,
        typer.Argument(
            metavar="DATA", help="A .csv or .tsv file with the feature columns of training, or an .npz file with x."
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="CSV file to write. Default: standard output.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or a single GPU such as cuda:1.")] = "cpu",
) -> None:
    """Predict each row of a table: the class and the probability of every class, or the targets.

    Columns are matched by name; others are ignored.

    Example: `fourward predict worm new.csv --out predictions.csv`
    """
    from fourward._files import replacing
    from fourward.train._evaluate import predict_rows, write_rows

    names, rows = predict_rows(checkpoint, data, device=device)
    if out is None:
        write_rows(names, rows, sys.stdout)
        return
    with replacing(out) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        write_rows(names, rows, file)
    print(out)

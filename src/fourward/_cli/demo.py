"""`fourward demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(min=1, help="Training epochs.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the weights, the split and the batches.")] = 0,
) -> None:
    """Train the nervous system of a worm to read digits, and time it against the paper's method.

    Example: `fourward demo --epochs 20`
    """
    from fourward.demo import run

    run(out, epochs, seed)

"""`fourward draw`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fourward._cli.options import Reading, ThingWord, reads_graph


class Kind(StrEnum):
    """How to draw."""

    AUTO = "auto"
    LINES = "lines"
    DENSITY = "density"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(draw)


@reads_graph
def draw(
    word: ThingWord,
    out: Annotated[Path, typer.Option(help="The picture to write: .png, .svg or .pdf.")] = Path("picture.png"),
    kind: Annotated[
        Kind, typer.Option(help="lines for nodes and edges, density for counts from layer to layer.")
    ] = Kind.AUTO,
    title: Annotated[str | None, typer.Option(help="Default: the name of the graph and what it is made of.")] = None,
    *,
    reading: Reading,
) -> None:
    """Draw a network or a graph by layers, with its weights, degrees and widths beside it.

    Example: `fourward draw c-elegans --out worm.svg`
    """
    import warnings

    from fourward._cli.subject import open_shown
    from fourward.view._draw import draw as draw_picture

    shown = open_shown(word, reading, title)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        draw_picture(shown.thing, out, title=shown.title, weight=shown.weight, kind=kind.value)
    for one in told:
        print(f"fourward: {one.message}", file=sys.stderr)
    print(out)

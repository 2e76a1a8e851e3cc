"""`fourward draw`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fourward._cli.options import (
    ChangesOption,
    ColourOption,
    GraphOptions,
    GraphOrNetworkArgument,
    RecurrentOption,
    TitleOption,
    takes_graph_options,
)


class Kind(StrEnum):
    """What to draw."""

    AUTO = "auto"
    LINES = "lines"
    DENSITY = "density"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(draw)


@takes_graph_options
def draw(
    spec: GraphOrNetworkArgument,
    out: Annotated[Path, typer.Option(help="File to write: .png, .svg or .pdf.")] = Path("picture.png"),
    kind: Annotated[
        Kind,
        typer.Option(
            help="lines draws every node and edge, density the number of edges between layers; auto chooses lines "
            "for graphs that are small enough."
        ),
    ] = Kind.AUTO,
    title: TitleOption = None,
    colour: ColourOption = None,
    recurrent: RecurrentOption = False,
    changes: ChangesOption = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Draw a network or a graph layer by layer, with histograms of its weights, degrees and layers.

    Example: `fourward draw c-elegans --out worm.svg`
    """
    import warnings

    from fourward import draw as draw_picture
    from fourward._cli.drawable import load_drawable, read_changes, read_colour

    drawable = load_drawable(spec, graph_options, title, recurrent)
    options = {"only": drawable.only} | read_colour(drawable.graph, colour) | read_changes(spec, changes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        draw_picture(
            drawable.net_or_dag, out, title=drawable.title, weight=drawable.weight, kind=kind.value, **options
        )  # fmt: skip
    for warning in caught:
        print(f"fourward: {warning.message}", file=sys.stderr)
    print(out)

"""`fourward view`."""

from __future__ import annotations

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


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(view)


@takes_graph_options
def view(
    spec: GraphOrNetworkArgument,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("page.html"),
    no_open: Annotated[
        bool, typer.Option("--no-open", help="Write the page without opening it in the browser.")
    ] = False,
    samples: Annotated[
        str | None,
        typer.Option(help="A .csv, .tsv or .npz file; the page steps through the forward pass of its first rows."),
    ] = None,
    around: Annotated[
        str | None,
        typer.Option(
            help="Label of the neuron around which to show part of a large graph, with all its edges. Default: the one "
            "with the most edges, for a graph of more neurons than a page shows."
        ),
    ] = None,
    title: TitleOption = None,
    colour: ColourOption = None,
    recurrent: RecurrentOption = False,
    changes: ChangesOption = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Explore a network in the browser: one self-contained HTML file that makes no requests.

    Example: `fourward view c-elegans --out worm.html`
    """
    import webbrowser

    from fourward import view as make_page
    from fourward._cli.drawable import load_drawable, parse_label, read_changes, read_colour, read_samples

    drawable = load_drawable(spec, graph_options, title, recurrent)
    rows = None if samples is None else read_samples(spec, samples)
    centre = None if around is None else parse_label(drawable.graph, around)
    page = make_page(
        drawable.net_or_dag,
        title=drawable.title,
        weight=drawable.weight,
        samples=rows,
        around=centre,
        only=drawable.only,
        **read_colour(drawable.graph, colour),
        **read_changes(spec, changes),
    )
    page.save(out)
    print(f"{out}\n{page.shown}")
    if not no_open and not webbrowser.open(out.resolve().as_uri()):
        print("No browser found: open the file yourself.")

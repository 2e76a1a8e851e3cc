"""`fourward view`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourward._cli.options import Reading, ThingWord, reads_graph


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(view)


@reads_graph
def view(
    word: ThingWord,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("page.html"),
    no_open: Annotated[bool, typer.Option("--no-open", help="Write the page, and don't open it.")] = False,
    samples: Annotated[
        str | None, typer.Option(help="A .csv, .tsv or .npz whose first rows the forward pass is shown for.")
    ] = None,
    around: Annotated[str | None, typer.Option(help="The neuron round which to show part of a large graph.")] = None,
    title: Annotated[str | None, typer.Option(help="Default: the name of the graph and what it is made of.")] = None,
    *,
    reading: Reading,
) -> None:
    """Look into a network in the browser: one HTML file, which needs no other and sends nothing.

    Example: `fourward view c-elegans --out worm.html`
    """
    import webbrowser

    from fourward._cli.subject import label_of, open_shown, read_samples
    from fourward.view._page import view as make_page

    shown = open_shown(word, reading, title)
    rows = None if samples is None else read_samples(word, samples)
    centre = None if around is None else label_of(shown, around)
    page = make_page(shown.thing, title=shown.title, weight=shown.weight, samples=rows, around=centre)
    page.save(out)
    print(f"{out}\n{page.shown}")
    if not no_open and not webbrowser.open(out.resolve().as_uri()):
        print("No browser was found to open it.")

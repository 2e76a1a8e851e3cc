"""`fourward bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fourward._cli.options import JsonOption, Reading, print_json, reads_graph, report_changes, warn_if_busy
from fourward.errors import pluralize

if TYPE_CHECKING:
    from fourward.study._bench import Place


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


@reads_graph
def bench(
    word: Annotated[str, typer.Argument(metavar="GRAPH", help="As in `fourward graph`.")] = "er:512:0.2:0",
    batch: Annotated[int, typer.Option(min=1, help="Samples of a batch.")] = 64,
    methods: Annotated[
        str, typer.Option(help="Who races: fourward, 4ward, sequential, deepstruct, mlp.")
    ] = "fourward,4ward,mlp",
    batches: Annotated[int, typer.Option(min=1, help="Batches that are counted.")] = 50,
    seconds: Annotated[float, typer.Option(min=0.1, help="After which a method is cut off.")] = 10.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="Of torch and of our kernels.")] = None,
    as_json: JsonOption = False,
    *,
    reading: Reading,
) -> None:
    """Time a graph on this machine: ours, the paper's methods, and an MLP of four layers with as many weights.

    All take turns in one process; medians of a batch are told, of forward passes and of training steps with Adam.

    Example: `fourward bench c-elegans --batch 256`
    """
    import torch

    from fourward.study._bench import race

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = reading.find(word, bare=True)
    report_changes(loaded)
    dag = loaded.dag
    warn_if_busy()
    places = race(dag, batch, names=methods.split(","), device=device, batches=batches, limit=seconds)
    about = {"graph": word, "nodes": dag.num_nodes, "edges": dag.num_edges, "batch": batch, "device": device}
    about |= {"threads": torch.get_num_threads(), "torch": torch.__version__}
    if as_json:
        print_json(about | {"methods": [place._asdict() for place in places]})
        return
    with_threads = pluralize(torch.get_num_threads(), "thread")
    print(f"{word}: {dag!r}, batches of {batch}, {device}, {with_threads}, torch {torch.__version__}")
    for place in places:
        print(_line(place, places[0]))


def _line(place: Place, first: Place) -> str:
    cells = []
    for name, own, other in (("forward", place.forward, first.forward), ("step", place.step, first.step)):
        time = "-" if own is None else f"{1e3 * own:.3f} ms"
        ratio = f"({own / other:.2f}x)" if own is not None and other is not None and place is not first else ""
        cells.append(f"{name} {time:>12} {ratio:>9}")
    return f"  {place.name:<12} {'  '.join(cells)}  {place.note}".rstrip()

"""`fourward bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fourward._cli.options import GraphOptions, JsonOption, takes_graph_options
from fourward._cli.output import print_json, report_changes, warn_if_busy
from fourward.errors import pluralize

if TYPE_CHECKING:
    from fourward.study._bench import MethodTiming


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(bench)


@takes_graph_options
def bench(
    word: Annotated[str, typer.Argument(metavar="GRAPH", help="A graph as in `fourward graph`.")] = "er:512:0.2:0",
    batch: Annotated[int, typer.Option(min=1, help="Samples per batch.")] = 64,
    methods: Annotated[
        str, typer.Option(help="Methods to compare, comma-separated: fourward, 4ward, sequential, deepstruct, mlp.")
    ] = "fourward,4ward,mlp",
    batches: Annotated[int, typer.Option(min=1, help="Batches to time.")] = 50,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time limit of a method, after which it is cut off.")] = 10.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of torch and of the CPU kernels.")] = None,
    as_json: JsonOption = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Time a graph on this machine: fourward, the paper's methods, and a four-layer MLP with as many weights.

    All alternate in one process. Reports the median time of a batch, for forward passes and for training steps with
    Adam.

    Example: `fourward bench c-elegans --batch 256`
    """
    import torch

    from fourward.study._bench import compare_methods

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = graph_options.load(word, topology_only=True)
    report_changes(loaded)
    dag = loaded.dag
    warn_if_busy()
    timings = compare_methods(dag, batch, methods=methods.split(","), device=device, batches=batches, limit=seconds)
    about = {"graph": word, "nodes": dag.num_nodes, "edges": dag.num_edges, "batch": batch, "device": device}
    about |= {"threads": torch.get_num_threads(), "torch": torch.__version__}
    if as_json:
        print_json(about | {"methods": [timing._asdict() for timing in timings]})
        return
    with_threads = pluralize(torch.get_num_threads(), "thread")
    print(f"{word}: {dag!r}, batches of {batch}, {device}, {with_threads}, torch {torch.__version__}")
    for timing in timings:
        print(_line(timing, timings[0]))


def _line(timing: MethodTiming, first: MethodTiming) -> str:
    cells = []
    for name, seconds, base in (("forward", timing.forward, first.forward), ("step", timing.step, first.step)):
        time = "-" if seconds is None else f"{1e3 * seconds:.3f} ms"
        ratio = f"({seconds / base:.2f}x)" if seconds is not None and base is not None and timing is not first else ""
        cells.append(f"{name} {time:>12} {ratio:>9}")
    return f"  {timing.name:<12} {'  '.join(cells)}  {timing.note}".rstrip()

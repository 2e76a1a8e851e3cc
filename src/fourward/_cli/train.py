"""`fourward train`."""

from __future__ import annotations

import json
import sys
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourward._cli.options import GraphOptions, network_path, takes_graph_options
from fourward._cli.output import report_changes
from fourward.errors import MissingExtraError, OptionError, pluralize, summarize

if TYPE_CHECKING:
    from fourward.graph._dag import Dag
    from fourward.nn._fourward import FourWard
    from fourward.train._run import Result


#: What may be said again of a run that is resumed: which graph and data it has, and where it is to run.
FREE = {"graph", "data", "out", "resume", "device", "devices", "num_nodes", "as_json"}
FREE |= {field.name for field in fields(GraphOptions)} - {"seed"}


class Task(StrEnum):
    """What is to be learned."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class Schedule(StrEnum):
    """How the learning rate goes."""

    ONE_CYCLE = "one-cycle"
    COSINE = "cosine"
    CONSTANT = "constant"


class Precision(StrEnum):
    """Of the activations; weights are always kept in 32 bits."""

    FULL = "32"
    BF16 = "bf16"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(train)


@takes_graph_options
def train(
    context: typer.Context,
    graph: Annotated[
        str | None,
        typer.Argument(
            metavar="GRAPH|NETWORK",
            help="A graph as in `fourward graph`, whose weights aren't looked at; or a .safetensors file or the folder "
            "of a run, to train on from its weights.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="digits, breast-cancer, wine, diabetes, or a .csv, .tsv or .npz file.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, logs and the result.")] = Path("run"),
    target: Annotated[str | None, typer.Option(help="The column of a table that is to be learned.")] = None,
    task: Annotated[
        Task | None,
        typer.Option(
            metavar="TASK",
            help="classification or regression; default: classes if the target is text or at most 20 different whole "
            "numbers.",
        ),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; may come more than once.")] = None,
    held: Annotated[float, typer.Option(help="Share of the rows that early stopping looks at.")] = 0.15,
    test: Annotated[float, typer.Option(help="Share of the rows that the result is measured on.")] = 0.15,
    direct: Annotated[bool, typer.Option("--direct", help="No linear layers around the network.")] = False,
    activation: Annotated[str, typer.Option(help="Of the neurons: relu, tanh, gelu, ...")] = "relu",
    dropout: Annotated[float, typer.Option(help="Share of hidden neurons to drop in a step.")] = 0.0,
    epochs: Annotated[int, typer.Option(help="Most times that all rows are seen.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Rows of a step, over all devices.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="The highest that the schedule reaches.")] = 1e-2,
    weight_decay: Annotated[float, typer.Option(help="Of AdamW.")] = 1e-2,
    schedule: Annotated[
        Schedule, typer.Option(metavar="NAME", help="Of the learning rate: one-cycle, cosine or constant.")
    ] = Schedule.ONE_CYCLE,
    smoothing: Annotated[float, typer.Option(help="Of the labels, in classification.")] = 0.0,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many epochs without a lower held-out loss.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split, the weights and the order of the rows.")] = 0,
    precision: Annotated[Precision, typer.Option(help="32, or bf16 for activations in 16 bits.")] = Precision.FULL,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or one card such as cuda:1.")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Devices of this machine; torchrun knows better.")] = 1,
    num_nodes: Annotated[int, typer.Option(min=1, help="Machines; torchrun knows better.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Train a graph or a network on a table; keeps the best and the last model, the curves and the result in a folder.

    Features are standardised. Several devices or machines share each batch, so that what is learned doesn't depend on
    their number; start them with --devices and --num-nodes, or with torchrun. After Ctrl-C or a crash, --resume goes
    on from where it was saved.

    Example: `fourward train c-elegans --data digits --epochs 40 --out worm`
    """
    from rich.console import Console

    from fourward.train import _run
    from fourward.train._callbacks import Progress
    from fourward.train._devices import launched, leave, places
    from fourward.train._options import Options, Setup

    where = places(device, *launched(devices, num_nodes))
    found = _graph(graph, graph_options)
    if resume:
        _check_default(
            context, [name for name in context.params if name not in FREE], "a resumed run keeps its options"
        )
        with Progress(Console(stderr=True)) as progress:
            result = _run.resume(out, graph=found, data=data, watchers=[progress], **where)
    else:
        if found is None or data is None:
            raise OptionError("a run needs a graph and --data; or --resume, to go on with the run in --out.")
        network = {"activation": activation, "dropout": dropout}
        if network_path(str(graph)) is not None:
            _check_default(context, list(network), f"{graph} is a network and has its own")
        options = Options(epochs, batch_size, learning_rate, weight_decay, schedule.value, smoothing, patience, seed)
        setup = Setup(
            data, target, None if task is None else task.value, tuple(drop or ()), held, test, precision.value, options
        )
        with Progress(Console(stderr=True)) as progress:
            watchers = [progress]
            result = _run.start(found, setup, out, direct=direct, network=network, watchers=watchers, **where)
    if result is not None:
        _tell(result, as_json)
    leave()


def _graph(word: str | None, graph_options: GraphOptions) -> Dag | FourWard | None:
    if word is None:
        graph_options.check_unset("there is no graph to read")
        return None
    path = network_path(word)
    if path is not None:
        from fourward._serialization import load

        graph_options.check_unset(f"{word} is a network and has a graph")
        return load(path)
    from lightning.pytorch.utilities import rank_zero_only

    loaded = graph_options.load(word, bare=True)
    rank_zero_only(report_changes)(loaded)
    return loaded.dag


def _check_default(context: typer.Context, names: list[str], why: str) -> None:
    """Refuse options that would have no effect."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise OptionError(f"--{name.replace('_', '-')} has no effect here: {why}. Omit it.")


def _tell(result: Result, as_json: bool) -> None:
    from rich.console import Console

    from fourward._cli.output import print_metrics
    from fourward.train._run import draw

    try:
        pictures = f"pictures: {', '.join(map(str, draw(result)))}"
    except MissingExtraError as error:
        pictures = f"no pictures: {error}"
    history, model, rows = result.history, result.model, result.rows
    if result.blind:
        why = "neurons whose sums are negative for all rows give 0 with relu, and learn no more"
        print(f"The network says the same of every row: {why}. Try tanh, or another seed.", file=sys.stderr)
    epochs = len(history.train_loss)
    if as_json:
        best = history.best_epoch + 1
        said = {"out": str(result.out), "epochs": epochs, "best": best, "rows": rows, "test": result.measures}
        print(json.dumps(said, allow_nan=False))
        return
    console = Console(markup=False, highlight=False, soft_wrap=True)
    features, seen = pluralize(len(model.features), "feature"), pluralize(epochs, "epoch")
    console.print(f"{model.task} of {summarize(model.targets)} by {features}; {model.net.dag!r}")
    console.print(f"rows: {rows['learn']:,} to learn from, {rows['held']:,} held out, {rows['test']:,} to test on")
    console.print(f"{seen} in {sum(history.seconds):.1f} s; the best was number {history.best_epoch + 1}")
    if result.measures is not None:
        console.print("on rows it never saw:")
        print_metrics(console, result.measures)
    console.print(f"model: {result.out / 'best.safetensors'}")
    console.print(pictures)

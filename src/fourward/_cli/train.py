"""`fourward train`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward._cli.options import GraphOptions, JsonOption, RecurrentOption, network_path, takes_graph_options
from fourward._cli.output import print_metrics, report_changes
from fourward._files import BEST, EDITS, LAST
from fourward.errors import FourwardError, MissingExtraError, OptionError, pluralize, summarize

if TYPE_CHECKING:
    from fourward.graph._dag import Dag
    from fourward.graph._digraph import Digraph
    from fourward.nn._fourward import FourWard
    from fourward.nn._recurrent import Recurrent
    from fourward.train import RunResult


#: Options that --resume accepts: those that check the graph, find the data, or say where to run.
RESUME_OPTIONS = {"graph", "recurrent", "data", "out", "resume", "device", "devices", "num_nodes", "as_json"}
RESUME_OPTIONS |= {field.name for field in fields(GraphOptions)} - {"seed"}


class Task(StrEnum):
    """What to train for."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class Rewire(StrEnum):
    """How the wiring changes."""

    SET = "set"
    RIGL = "rigl"
    PRUNE = "prune"


class RewireRule(StrEnum):
    """Which edges may grow."""

    LEVELS = "levels"
    LAYERED = "layered"


class Strengths(StrEnum):
    """What the weights of the graph are for."""

    INITIAL = "initial"
    FROZEN = "frozen"
    SCALE = "scale"


class Schedule(StrEnum):
    """Schedule of the learning rate."""

    ONE_CYCLE = "one-cycle"
    COSINE = "cosine"
    CONSTANT = "constant"


class Precision(StrEnum):
    """Precision of the activations; weights are always float32."""

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
            help="A graph as in `fourward graph`, whose weights --strengths may use; or a network, a .safetensors "
            "file or the folder of a run, to train further from its weights.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="digits, breast-cancer, wine, diabetes, or a .csv, .tsv or .npz file.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, logs and the result.")] = Path("run"),
    target: Annotated[str | None, typer.Option(help="Target column of a table.")] = None,
    task: Annotated[
        Task | None,
        typer.Option(
            metavar="TASK",
            help="classification or regression. Default: classification if the target is text, boolean, or integer "
            "with at most 20 distinct values.",
        ),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None,
    validation: Annotated[
        float, typer.Option(help="Fraction of the rows for early stopping and the choice of the best model.")
    ] = 0.15,
    test: Annotated[float, typer.Option(help="Fraction of the rows for the final metrics.")] = 0.15,
    adapters: Annotated[
        bool,
        typer.Option(
            "--adapters/--no-adapters",
            help="Whether linear layers join features to inputs, and outputs to classes or targets.",
        ),
    ] = True,
    recurrent: RecurrentOption = False,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="With --recurrent and a table: the number of steps with the same features. Sequences have theirs.",
        ),
    ] = None,
    activation: Annotated[str, typer.Option(help="Activation of the neurons: relu, tanh, gelu, ...")] = "relu",
    dropout: Annotated[float, typer.Option(help="Probability of dropping a hidden neuron in a step.")] = 0.0,
    sign: Annotated[
        str | None,
        typer.Option(
            metavar="ATTRIBUTE",
            help="Attribute that gives all edges out of a neuron the sign they keep, such as transmitter; with signs "
            "of values that aren't known: transmitter:glutamate=-1,dopamine=0.",
        ),
    ] = None,
    tied: Annotated[
        str | None,
        typer.Option(metavar="ATTRIBUTE", help="Attribute such as type: edges between the same types share a weight."),
    ] = None,
    strengths: Annotated[
        Strengths | None,
        typer.Option(
            metavar="USE",
            help="Use of the graph's weights: initial, scaled by in-degree; frozen, likewise, and never changed; or "
            "scale, what weights are multiplied by. Default: none.",
        ),
    ] = None,
    epochs: Annotated[int, typer.Option(help="Maximum number of passes over the rows.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Rows per step, over all devices.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Maximum of the learning rate schedule.")] = 1e-2,
    weight_decay: Annotated[float, typer.Option(help="Weight decay of AdamW.")] = 1e-2,
    schedule: Annotated[
        Schedule, typer.Option(metavar="NAME", help="Learning rate schedule: one-cycle, cosine or constant.")
    ] = Schedule.ONE_CYCLE,
    label_smoothing: Annotated[float, typer.Option(help="Label smoothing, in classification.")] = 0.0,
    patience: Annotated[
        int | None, typer.Option(help="Stop after this many epochs without a lower validation loss.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split, the weights and the order of the rows.")] = 0,
    rewire: Annotated[
        Rewire | None,
        typer.Option(
            metavar="METHOD",
            help="Change the wiring: set replaces the weakest edges by random ones, rigl by those of the largest "
            "gradients, prune removes them. In the last quarter of the steps it stays. Default: it never changes.",
        ),
    ] = None,
    rewire_fraction: Annotated[
        float | None,
        typer.Option(help="Fraction of the edges that a change replaces (default: 0.3); with prune, that goes (0.9)."),
    ] = None,
    rewire_every: Annotated[
        int | None, typer.Option(min=1, help="Steps between two changes of the wiring. Default: an epoch.")
    ] = None,
    rewire_rule: Annotated[
        RewireRule,
        typer.Option(
            metavar="RULE",
            help="Edges may grow from any level to a higher one (levels), or where the graph has some "
            "between two levels (layered).",
        ),
    ] = RewireRule.LEVELS,
    precision: Annotated[Precision, typer.Option(help="32, or bf16 for activations in bfloat16.")] = Precision.FULL,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or a single GPU such as cuda:1.")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="Number of devices of this machine; ignored under torchrun.")] = 1,
    num_nodes: Annotated[int, typer.Option(min=1, help="Number of machines; ignored under torchrun.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    as_json: JsonOption = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Train a graph or a network on a table; writes the best and the last model, curves and metrics to a folder.

    Features are standardised. Each batch is split over all devices and machines, so the result doesn't depend on their
    number; start them with --devices and --num-nodes, or with torchrun. After Ctrl-C or a crash, --resume continues
    from the last checkpoint.

    Example: `fourward train c-elegans --data digits --epochs 40 --out worm`

    With its feedback: `fourward train c-elegans --recurrent --steps 5 --activation tanh --data digits --out worm`
    """
    from rich.console import Console

    from fourward.train import RunConfig, TrainConfig, resume_run, start_run
    from fourward.train._callbacks import Progress
    from fourward.train._devices import exit_if_distributed

    where: dict[str, Any] = {"device": device, "devices": devices, "num_nodes": num_nodes}
    loaded, weight = _load(graph, graph_options, strengths is not None, recurrent)
    network = {"activation": activation, "dropout": dropout}
    if sign is not None or tied is not None:
        network |= {"sign": parse_signs(sign), "tied": tied}
    with Progress(Console(stderr=True)) as progress, _resume_hint():
        if resume:
            fixed = [name for name in context.params if name not in RESUME_OPTIONS]
            _check_default(context, fixed, "a resumed run keeps its options")
            result = resume_run(out, graph=loaded, data=data, callbacks=[progress], **where)
        else:
            if loaded is None or data is None:
                raise OptionError("pass a graph and --data to start a run, or --resume to continue the run in --out.")
            if (out / LAST).exists():
                raise OptionError(f"{out} already contains a run. Pass --resume to continue it, or another --out.")
            if network_path(str(graph)) is not None:
                _check_default(context, [*network, "strengths"], f"{graph} is a network, which has its own")
            if strengths is not None:
                network |= _use_strengths(strengths, loaded, weight)
            train_config = TrainConfig(
                epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, weight_decay=weight_decay,
                schedule=schedule.value, label_smoothing=label_smoothing, patience=patience, seed=seed,
                rewire=None if rewire is None else rewire.value, rewire_fraction=rewire_fraction,
                rewire_every=rewire_every, rewire_rule=rewire_rule.value,
            )  # fmt: skip
            config = RunConfig(
                data=data, target=target, task=None if task is None else task.value, drop=tuple(drop or ()),
                validation=validation, test=test, precision=precision.value, train=train_config,
            )  # fmt: skip
            where["steps"] = steps
            result = start_run(loaded, config, out, adapters=adapters, network=network, callbacks=[progress], **where)
    if result is not None:
        _report(result, as_json)
    exit_if_distributed()


def parse_signs(text: str | None) -> str | tuple[str, dict[str, int]] | None:
    """The option --sign as FourWard takes it: an attribute, or an attribute and the signs of its values."""
    name, colon, table = (text or "").partition(":")
    if text is None or not colon:
        return text
    try:
        return name, {value: int(number) for value, number in (pair.rsplit("=", 1) for pair in table.split(","))}
    except ValueError:
        raise OptionError(f"expected --sign as ATTRIBUTE or ATTRIBUTE:VALUE=1,VALUE=-1, got {text!r}.") from None


def _use_strengths(use: Strengths, dag: Any, weight: Any) -> dict[str, Any]:
    """Options of the network that use the weights of the graph."""
    import numpy as np

    from fourward.nn import scale_by_in_degree

    if weight is None:
        raise OptionError(f"--strengths {use.value} needs a graph with weights.")
    if use is Strengths.SCALE:
        return {"scale": np.abs(weight)}
    return {"init": scale_by_in_degree(dag, weight)} | ({"frozen": True} if use is Strengths.FROZEN else {})


def _load(
    spec: str | None, graph_options: GraphOptions, with_weights: bool, recurrent: bool
) -> tuple[Dag | Digraph | FourWard | Recurrent | None, Any]:
    """The graph or network, and the weights of the graph if they are used."""
    if spec is None:
        graph_options.check_unset("no graph is read")
        return None, None
    from fourward.train._devices import is_first_process

    path = network_path(spec)
    if recurrent and path is None:
        annotated = graph_options.load_digraph(spec, topology_only=not with_weights)
        if is_first_process():
            report_changes(annotated)
        return annotated.graph, annotated.weight
    if recurrent:
        raise OptionError(f"--recurrent has no effect here: {spec} is a network, which has its own graph. Omit it.")
    if path is not None:
        from fourward._serialization import load_network

        graph_options.check_unset(f"{spec} is a network, which has its own graph")
        return load_network(path), None
    loaded = graph_options.load(spec, topology_only=not with_weights)
    if is_first_process():
        report_changes(loaded)
    return loaded.dag, loaded.weight


def _check_default(context: typer.Context, names: list[str], why: str) -> None:
    """Raise OptionError for options that would have no effect."""
    for name in names:
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            raise OptionError(f"--{name.replace('_', '-')} has no effect here: {why}. Omit it.")


@contextmanager
def _resume_hint() -> Iterator[None]:
    """Word the errors after which a run can be resumed with the command that does so."""
    from fourward.train._run import ResumableError

    try:
        yield
    except ResumableError as error:
        command = f"fourward train --out {shlex.quote(str(error.out))} --resume"
        failure = FourwardError(f"{error.args[0]} Continue with: {command}")
        failure.exit_code = error.exit_code
        raise failure from error


def _report(result: RunResult, as_json: bool) -> None:
    pictures = _draw(result)
    if result.constant_output:
        print(
            "warning: the network's output is the same for every row. With relu, neurons whose sums are negative for "
            "all rows return 0 and no longer train: try --activation tanh, or another --seed.",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps(_as_dict(result), allow_nan=False))
    else:
        _print(result, pictures)


def _draw(result: RunResult) -> str:
    """Draw the learning curves, and the activity of each layer of the best model; the line to print about them."""
    from fourward.view import activation_map, learning_curves

    curves, activations = result.out / "curves.png", result.out / "activations.png"
    try:
        learning_curves(result.out / "history.csv", curves)
        activation_map(result.model.net, result.sample_inputs, activations)
    except MissingExtraError as error:
        return f"no pictures: {error}"
    return f"pictures: {curves}, {activations}"


def _as_dict(result: RunResult) -> dict[str, object]:
    history = result.history
    return {
        "out": str(result.out),
        "epochs": len(history.train_loss),
        "best_epoch": history.best_epoch + 1,
        "rows": result.rows,
        **({"edges_replaced": int(sum(history.replaced))} if history.replaced else {}),
        "test": result.metrics,
    }


def _print(result: RunResult, pictures: str) -> None:
    from rich.console import Console

    history, model, rows = result.history, result.model, result.rows
    console = Console(markup=False, highlight=False, soft_wrap=True)
    features, epochs = pluralize(len(model.features), "feature"), pluralize(len(history.train_loss), "epoch")
    console.print(f"{model.task} of {summarize(model.targets)} from {features}; {model.net.graph!r}")
    if model.adapters:
        console.print("linear adapters join features to inputs, and outputs to classes or targets (see --adapters)")
    console.print(f"rows: {rows['train']:,} train, {rows['validation']:,} validation, {rows['test']:,} test")
    console.print(f"{epochs} in {sum(history.seconds):.1f} s; best epoch: {history.best_epoch + 1}")
    if sum(history.replaced):
        verb = "pruned" if history.pruned else "replaced"
        console.print(f"{pluralize(int(sum(history.replaced)), 'edge')} {verb}: {result.out / EDITS}")
    if result.metrics is not None:
        console.print("metrics on the test rows:")
        print_metrics(console, result.metrics)
    console.print(f"model: {result.out / BEST}")
    console.print(pictures)

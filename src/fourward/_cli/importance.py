"""`fourward importance`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward._cli.options import JsonOption, RunArgument
from fourward._cli.output import print_json
from fourward.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from torch import Tensor

    from fourward.graph._dag import Dag
    from fourward.nn import FourWard


class By(StrEnum):
    """How to measure importance."""

    ABLATION = "ablation"
    GRADIENT = "gradient"
    INTEGRATED_GRADIENTS = "integrated_gradients"


class Of(StrEnum):
    """What to measure the importance of."""

    NEURONS = "neurons"
    EDGES = "edges"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(importance)


def importance(
    checkpoint: RunArgument,
    data: Annotated[
        str | None, typer.Option(help="Data as in `fourward train`, with its target. Default: the run's test rows.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Target column of a table. Default: as in training.")] = None,
    by: Annotated[
        By,
        typer.Option(
            metavar="METHOD",
            help="ablation: the increase of the loss if a neuron is silenced, or an edge cut; gradient, or "
            "integrated_gradients.",
        ),
    ] = By.ABLATION,
    of: Annotated[Of, typer.Option(help="Neurons, or edges, by ablation or gradient.")] = Of.NEURONS,
    rows: Annotated[int, typer.Option(min=1, help="Use at most so many rows.")] = 1000,
    out: Annotated[Path, typer.Option(help="CSV file to write, the most important neurons first.")] = Path(
        "importance.csv"
    ),
    picture: Annotated[
        bool,
        typer.Option(
            "--picture/--no-picture", help="Draw the network, its neurons in these colours, beside the CSV file."
        ),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Compute how much the loss of a trained model depends on each neuron, or each edge.

    Example: `fourward importance worm --data digits --out importance.csv`
    """
    import torch

    from fourward.nn import FourWard
    from fourward.nn import importance as measure
    from fourward.train._evaluate import load_evaluation

    model, x, y = load_evaluation(checkpoint, data, target)
    x, y = x[:rows], y[:rows]
    if not len(x):
        raise DataError("importance needs at least one row, but there are none. Pass --data.")
    net = model.net
    if not isinstance(net, FourWard):
        raise DataError(
            "importance is that of neurons of one pass: expected a network without feedback, got one with feedback."
        )
    with torch.no_grad():
        inputs = model.input_adapter(torch.as_tensor(model.scale_x.apply(x)).to(net.weight))
    if model.scale_y is None:
        targets = torch.as_tensor(y).long()
    else:
        targets = torch.as_tensor(model.scale_y.apply(y)).to(net.weight)

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        predicted: Tensor = model.output_adapter(outputs.to(net.weight))
        if y.is_floating_point():
            return torch.nn.functional.mse_loss(predicted, y)
        return torch.nn.functional.cross_entropy(predicted, y)

    scores = measure(net, inputs, targets, by.value, of=of.value, loss=loss).tolist()
    order = sorted(range(len(scores)), key=lambda k: -scores[k])
    table = _tabulate_neurons(net.dag, scores, order) if of == Of.NEURONS else _tabulate_edges(net, scores, order)
    _write(table, out)
    drawn = _draw(net, scores, out.with_suffix(".png")) if picture and of == Of.NEURONS else None
    _report(table[:11], of, len(scores), out, drawn, len(x), as_json)


def _tabulate_neurons(dag: Dag, scores: list[float], order: list[int]) -> list[tuple[Any, ...]]:
    """A header and a row for each neuron in this order: its name, its score and its attributes."""
    columns = dag.attributes.values()
    rows = [(dag.labels[v], scores[v], *(values[v] for values in columns)) for v in order]
    return [("neuron", "importance", *dag.attributes), *rows]


def _tabulate_edges(net: FourWard, scores: list[float], order: list[int]) -> list[tuple[Any, ...]]:
    labels, edges, weight = net.dag.labels, net.dag.edges.tolist(), net.weight.tolist()
    rows = [(labels[edges[k][0]], labels[edges[k][1]], scores[k], weight[k]) for k in order]
    return [("source", "target", "importance", "weight"), *rows]


def _write(table: list[tuple[Any, ...]], path: Path) -> None:
    import csv

    from fourward._files import replacing

    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(table)


def _draw(net: FourWard, scores: list[float], path: Path) -> Path | None:
    from fourward import draw

    try:
        draw(net, path, colour=scores, colour_label="importance")
    except MissingExtraError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return None
    return path


def _report(
    table: list[tuple[Any, ...]], of: Of, count: int, out: Path, picture: Path | None, rows: int, as_json: bool
) -> None:
    """Print the first rows of a table, below its header."""
    position = table[0].index("importance")
    if as_json:
        names = table[0][: position + 1]
        top = [dict(zip(names, (*map(str, row[:position]), row[position]), strict=True)) for row in table[1:]]
        print_json({"out": str(out), "picture": None if picture is None else str(picture), "rows": rows, "first": top})
        return
    print(f"the {len(table) - 1} most important of {count:,} {of.value}, on {rows:,} rows:")
    shown = [" -> ".join(map(str, row[:position])) for row in table[1:]]
    for name, row in zip(shown, table[1:], strict=True):
        print(f"  {name:<{max(map(len, shown))}}  {row[position]:.4g}")
    print(" ".join(str(path) for path in (out, picture) if path is not None))

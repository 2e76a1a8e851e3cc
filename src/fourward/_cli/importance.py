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


class By(StrEnum):
    """How to measure importance."""

    ABLATION = "ablation"
    GRADIENT = "gradient"
    INTEGRATED_GRADIENTS = "integrated_gradients"


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
            help="ablation: the increase of the loss if a neuron is silenced; gradient, or integrated_gradients.",
        ),
    ] = By.ABLATION,
    rows: Annotated[int, typer.Option(min=1, help="Use at most so many rows.")] = 1000,
    out: Annotated[Path, typer.Option(help="CSV file to write, the most important neurons first.")] = Path(
        "importance.csv"
    ),
    picture: Annotated[
        bool, typer.Option("--picture/--no-picture", help="Draw the network in these colours beside the CSV file.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Compute how much the loss of a trained model depends on each neuron.

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
        raise DataError("expected a network without feedback, got one with feedback, whose neurons can't be ablated.")
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

    scores = measure(net, inputs, targets, by.value, loss=loss).tolist()
    _write(net.dag, scores, out)
    drawn = _draw(net, scores, out.with_suffix(".png")) if picture else None
    _report(net.dag, scores, out, drawn, len(x), as_json)


def _write(dag: Dag, scores: list[float], path: Path) -> None:
    import csv

    from fourward._files import replacing

    columns = list(dag.attributes)
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("neuron", "importance", *columns))
        for v in sorted(range(dag.num_nodes), key=lambda v: -scores[v]):
            writer.writerow((dag.labels[v], scores[v], *(dag.attributes[name][v] for name in columns)))


def _draw(net: Any, scores: list[float], path: Path) -> Path | None:
    from fourward import draw

    try:
        draw(net, path, colour=scores, colour_label="importance")
    except MissingExtraError as error:
        print(f"no picture: {error}", file=sys.stderr)
        return None
    return path


def _report(dag: Dag, scores: list[float], out: Path, picture: Path | None, rows: int, as_json: bool) -> None:
    first = sorted(range(dag.num_nodes), key=lambda v: -scores[v])[:10]
    if as_json:
        top = [{"neuron": str(dag.labels[v]), "importance": scores[v]} for v in first]
        print_json({"out": str(out), "picture": None if picture is None else str(picture), "rows": rows, "first": top})
        return
    print(f"the {len(first)} most important of {dag.num_nodes:,} neurons, on {rows:,} rows:")
    width = max(len(str(dag.labels[v])) for v in first)
    for v in first:
        print(f"  {dag.labels[v]!s:<{width}}  {scores[v]:.4g}")
    print(" ".join(str(path) for path in (out, picture) if path is not None))

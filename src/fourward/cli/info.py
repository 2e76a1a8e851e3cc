"""`fourward info`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fourward.cli.options import (
    ColumnsOption,
    FeedbackOption,
    FormatOption,
    HeaderOption,
    InputsOption,
    JsonOption,
    MergeOption,
    OrientOption,
    OutputsOption,
    Reading,
    SeedOption,
    print_json,
    report_changes,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(info)


def info(
    word: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH|NETWORK", help="A graph as in `fourward graph`, a .safetensors file, or the folder of a run."
        ),
    ],
    batch: Annotated[int, typer.Option(min=1, help="Samples for which memory and operations are told.")] = 64,
    activation: Annotated[str, typer.Option(help="Of the neurons, if a graph was given.")] = "relu",
    orient: OrientOption = None,
    seed: SeedOption = 0,
    remove_feedback: FeedbackOption = False,
    merge: MergeOption = False,
    inputs: InputsOption = None,
    outputs: OutputsOption = None,
    format: FormatOption = None,
    header: HeaderOption = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell the size and depth of a graph, which engine would run it and why, and what a batch costs.

    Example: `fourward info c-elegans --batch 512`
    """
    from fourward.nn.facts import facts
    from fourward.nn.module import FourWard

    removed = 0
    if word.endswith(".safetensors") or Path(word).is_dir():
        from fourward.nn.saved import load
        from fourward.train.checkpoint import BEST

        net = load(Path(word) / BEST if Path(word).is_dir() else word)
    else:
        loaded = Reading(orient, seed, remove_feedback, merge, inputs, outputs, format, header, columns).find(word)
        net, removed = FourWard(loaded.dag, activation, seed=0), len(loaded.removed)
        if not as_json:
            report_changes(loaded)
    found = facts(net, batch) | {"removed": removed}
    if as_json:
        print_json(found)
    else:
        print("\n".join(_lines(word, found)))


def _lines(word: str, found: dict[str, Any]) -> list[str]:
    from fourward._memory import size_text

    cost, degrees = found["cost"], found["degrees"]
    kept = cost["torch_kept_bytes" if found["engine"] in ("torch", "reference") else "kept_bytes"]
    step = cost["forward_operations"] + cost["backward_operations"]
    return [
        f"{word}",
        f"  nodes        {found['nodes']:,}",
        f"  edges        {found['edges']:,}",
        f"  inputs       {found['inputs']:,}",
        f"  outputs      {found['outputs']:,}",
        f"  height       {found['height']:,} layers, the widest of {found['widest_layer']:,} nodes",
        f"  attenuation  {found['attenuation']:.2f} nodes a layer",
        *(
            f"  {kind + '-degree':<13}{d['least']:,} to {d['most']:,}, mean {d['mean']:.2f}"
            for kind, d in degrees.items()
        ),
        *found["why"],
        f"a batch of {found['batch']:,}",
        f"  parameters   {cost['parameters']:,}, {size_text(cost['parameter_bytes'])}",
        f"  indices      {size_text(cost['plan_bytes'])}",
        f"  activations  {size_text(cost['activation_bytes'])}",
        f"  training     keeps {size_text(kept)} for the backward pass",
        f"  operations   {cost['forward_operations']:.3g} forward, {step:.3g} in a training step",
    ]

"""`fourward info`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fourward._cli.options import JsonOption, Reading, ThingWord, network_file, print_json, reads_graph, report_changes
from fourward._memory import format_bytes
from fourward.errors import OptionError, pluralize


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(info)


@reads_graph
def info(
    word: ThingWord,
    batch: Annotated[int, typer.Option(min=1, help="Samples for which memory and operations are told.")] = 64,
    activation: Annotated[str | None, typer.Option(help="Of the neurons, if a graph was given; default: relu.")] = None,
    as_json: JsonOption = False,
    *,
    reading: Reading,
) -> None:
    """Tell the size and depth of a graph, which engine would run it and why, and what a batch costs.

    Example: `fourward info c-elegans --batch 512`
    """
    from fourward.nn._fourward import FourWard
    from fourward.nn._summary import facts

    removed = 0
    path = network_file(word)
    if path is not None:
        from fourward._serialization import load

        reading.refuse(why := f"{word} is a network that has its own")
        if activation is not None:
            raise OptionError(f"--activation was given, but {why}. Leave it away.")
        net = load(path)
    else:
        loaded = reading.find(word)
        net, removed = FourWard(loaded.dag, activation or "relu", seed=0), len(loaded.removed)
        if not as_json:
            report_changes(loaded)
    found = facts(net, batch) | {"removed": removed}
    if as_json:
        print_json(found)
    else:
        print("\n".join(_lines(word, found)))


def _lines(word: str, found: dict[str, Any]) -> list[str]:

    cost, degrees = found["cost"], found["degrees"]
    kept = cost["torch_kept_bytes" if found["engine"] in ("torch", "reference") else "kept_bytes"]
    step = cost["forward_operations"] + cost["backward_operations"]
    return [
        f"{word}",
        f"  nodes        {found['nodes']:,}",
        f"  edges        {found['edges']:,}",
        f"  inputs       {found['inputs']:,}",
        f"  outputs      {found['outputs']:,}",
        f"  height       {pluralize(found['height'], 'layer')}, "
        f"the widest of {pluralize(found['widest_layer'], 'node')}",
        f"  attenuation  {found['attenuation']:.2f} nodes a layer",
        *(
            f"  {kind + '-degree':<13}{d['least']:,} to {d['most']:,}, mean {d['mean']:.2f}"
            for kind, d in degrees.items()
        ),
        *found["why"],
        f"a batch of {found['batch']:,}",
        f"  parameters   {cost['parameters']:,}, {format_bytes(cost['parameter_bytes'])}",
        f"  indices      {format_bytes(cost['plan_bytes'])}",
        f"  activations  {format_bytes(cost['activation_bytes'])}",
        f"  training     keeps {format_bytes(kept)} for the backward pass",
        f"  operations   {_rounded(cost['forward_operations'])} forward, {_rounded(step)} in a training step",
    ]


def _rounded(count: int) -> str:
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:,.1f} {word}"
    return f"{count:,}"

"""`fourward info`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fourward._cli.options import GraphOptions, GraphOrNetworkArgument, JsonOption, network_path, takes_graph_options
from fourward._cli.output import print_json, report_changes
from fourward._memory import format_bytes
from fourward.errors import OptionError, pluralize


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(info)


@takes_graph_options
def info(
    spec: GraphOrNetworkArgument,
    batch: Annotated[int, typer.Option(min=1, help="Batch size to compute memory and operations for.")] = 64,
    activation: Annotated[str | None, typer.Option(help="Activation of the neurons of a graph. Default: relu.")] = None,
    as_json: JsonOption = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Show the size and depth of a graph, which engine would run it and why, and what a batch costs.

    Example: `fourward info c-elegans --batch 512`
    """
    from fourward.nn import summary
    from fourward.nn._fourward import FourWard

    removed = 0
    path = network_path(spec)
    if path is not None:
        from fourward._serialization import load

        graph_options.check_unset(f"{spec} is a network and has a graph")
        if activation is not None:
            raise OptionError(f"--activation has no effect here: {spec} is a network and has activations. Omit it.")
        net = load(path)
    else:
        loaded = graph_options.load(spec)
        net, removed = FourWard(loaded.dag, activation or "relu", seed=0), len(loaded.removed)
        if not as_json:
            report_changes(loaded)
    found = summary(net, batch) | {"removed": removed}
    if as_json:
        print_json(found)
    else:
        print("\n".join(_lines(spec, found)))


def _lines(spec: str, found: dict[str, Any]) -> list[str]:
    cost, degrees = found["cost"], found["degrees"]
    kept = cost["torch_kept_bytes" if found["engine"] in ("torch", "reference") else "kept_bytes"]
    step = cost["forward_operations"] + cost["backward_operations"]
    return [
        spec,
        f"  nodes        {found['nodes']:,}",
        f"  edges        {found['edges']:,}",
        f"  inputs       {found['inputs']:,}",
        f"  outputs      {found['outputs']:,}",
        f"  height       {pluralize(found['height'], 'layer')}, "
        f"the widest of {pluralize(found['widest_layer'], 'node')}",
        f"  attenuation  {found['attenuation']:.2f} nodes a layer",
        *(f"  {kind + '-degree':<13}{d['min']:,} to {d['max']:,}, mean {d['mean']:.2f}" for kind, d in degrees.items()),
        *found["explanation"],
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

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
    report = summary(net, batch) | {"removed": removed}
    if as_json:
        print_json(report)
    else:
        print("\n".join(_format_lines(spec, report)))


def _format_lines(spec: str, report: dict[str, Any]) -> list[str]:
    cost, degrees = report["cost"], report["degrees"]
    saved_bytes = cost["torch_saved_bytes" if report["engine"] in ("torch", "reference") else "saved_bytes"]
    step = cost["forward_flops"] + cost["backward_flops"]
    return [
        spec,
        f"  nodes        {report['nodes']:,}",
        f"  edges        {report['edges']:,}",
        f"  inputs       {report['inputs']:,}",
        f"  outputs      {report['outputs']:,}",
        f"  height       {pluralize(report['height'], 'layer')}, "
        f"the widest of {pluralize(report['widest_layer'], 'node')}",
        f"  attenuation  {report['attenuation']:.2f} nodes per layer",
        *(f"  {kind + '-degree':<13}{d['min']:,} to {d['max']:,}, mean {d['mean']:.2f}" for kind, d in degrees.items()),
        *report["explanation"],
        f"batch of {report['batch']:,}",
        f"  parameters   {cost['parameters']:,}, {format_bytes(cost['parameter_bytes'])}",
        f"  indices      {format_bytes(cost['plan_bytes'])}",
        f"  activations  {format_bytes(cost['activation_bytes'])}",
        f"  training     saves {format_bytes(saved_bytes)} for the backward pass",
        f"  operations   {_format_count(cost['forward_flops'])} forward, {_format_count(step)} in a training step",
    ]


def _format_count(count: int) -> str:
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:,.1f} {word}"
    return f"{count:,}"

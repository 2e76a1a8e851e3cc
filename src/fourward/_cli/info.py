"""`fourward info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward._cli.options import (
    GraphOptions,
    GraphOrNetworkArgument,
    JsonOption,
    RecurrentOption,
    network_path,
    takes_graph_options,
)
from fourward._cli.output import print_json, report_changes
from fourward._memory import format_bytes
from fourward.errors import OptionError, pluralize

if TYPE_CHECKING:
    from fourward.graph._dag import Dag
    from fourward.graph._digraph import Digraph

_EXPLANATION = (
    "engine cpu: compiled kernels that compute the whole network for a slice of the batch, on the CPU",
    "selected because it is the first that supports this network",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(info)


@takes_graph_options
def info(
    spec: GraphOrNetworkArgument,
    batch: Annotated[int, typer.Option(min=1, help="Batch size to compute memory and operations for.")] = 64,
    activation: Annotated[
        str | None, typer.Option(help="Activation of the neurons of a graph. Default: relu, or tanh with --recurrent.")
    ] = None,
    recurrent: RecurrentOption = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of a network with feedback to compute them for. Default: 1.")
    ] = None,
    as_json: JsonOption = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Show the size and depth of a graph, which engine would run it and why, and what a batch costs.

    Example: `fourward info c-elegans --batch 512`
    """
    path = network_path(spec)
    if path is not None:
        graph_options.check_unset(f"{spec} is a network, which has its own graph")
        if activation is not None:
            raise OptionError(
                f"--activation has no effect here: {spec} is a network, which has its own activations. Omit it."
            )
        _check_graph_only(recurrent, spec)
        report = _summarize_network(path, batch, steps) | {"removed": 0}
    elif recurrent:
        annotated = graph_options.load_digraph(spec)
        if not as_json:
            report_changes(annotated)
        report = summarize_digraph(annotated.graph, activation or "tanh", batch, steps) | {
            "removed": 0,
            "changes": annotated.changes.to_json(),
            "attributes": list(annotated.graph.attributes),
        }
    else:
        _check_steps(steps, "a graph's feedback is removed without --recurrent")
        loaded = graph_options.load(spec)
        if not as_json:
            report_changes(loaded)
        report = summarize_graph(loaded.dag, activation or "relu", batch) | {
            "removed": len(loaded.removed),
            "changes": loaded.changes.to_json(),
            "attributes": list(loaded.dag.attributes),
        }
    if as_json:
        print_json(report)
    else:
        print("\n".join(_format_lines(spec, report)))


def _summarize_network(path: Path, batch: int, steps: int | None) -> dict[str, Any]:
    from fourward._serialization import load_network
    from fourward.nn import Recurrent, summary

    net = load_network(path)
    if not isinstance(net, Recurrent):
        _check_steps(steps, f"{path} is a network without feedback")
    return summary(net, batch, steps)


def _check_steps(steps: int | None, reason: str) -> None:
    if steps is not None:
        raise OptionError(f"--steps has no effect here: {reason}. Omit it, or choose a network with feedback.")


def summarize_graph(dag: Dag, activation: str, batch: int) -> dict[str, Any]:
    """What `fourward.nn.summary` returns for a new network over a graph, without torch, whose import takes a second.

    Such a network is in float32, has built-in activations and is on the CPU, so the engine is known: a test compares.
    """
    import numpy as np

    from fourward.layering import longest_path, push_sources
    from fourward.plan import build_driven_plan
    from fourward.plan._summary import summarize
    from fourward.plan.activations import lookup

    code = np.full(dag.num_nodes, lookup(activation).code, np.int32)
    layering = push_sources(dag, longest_path(dag))
    plan, _ = build_driven_plan(dag, layering, code, dag.driven)
    return summarize(dag, layering, plan, batch) | {"engine": "cpu", "explanation": [*_EXPLANATION, str(plan.schedule)]}


def summarize_digraph(graph: Digraph, activation: str, batch: int, steps: int | None = None) -> dict[str, Any]:
    """What `fourward.nn.summary` returns for a new network with feedback."""
    from fourward.nn import Recurrent, summary

    return summary(Recurrent(graph, activation, init="zeros", seed=0), batch, steps)


def _check_graph_only(recurrent: bool, spec: str) -> None:
    if recurrent:
        raise OptionError(f"--recurrent has no effect here: {spec} is a network, which has its own graph. Omit it.")


def _format_lines(spec: str, report: dict[str, Any]) -> list[str]:
    cost, degrees = report["cost"], report["degrees"]
    saved_bytes = cost["torch_saved_bytes" if report["engine"] in ("torch", "reference") else "saved_bytes"]
    step = cost["forward_flops"] + cost["backward_flops"]
    return [
        spec,
        f"  nodes        {report['nodes']:,}",
        f"  edges        {report['edges']:,}" + _format_feedback(report["feedback"]),
        f"  inputs       {report['inputs']:,}",
        f"  outputs      {report['outputs']:,}",
        f"  height       {pluralize(report['height'], 'layer')}, "
        f"the widest of {pluralize(report['widest_layer'], 'node')}",
        f"  attenuation  {report['attenuation']:.2f} nodes per layer",
        *(f"  {kind + '-degree':<13}{d['min']:,} to {d['max']:,}, mean {d['mean']:.2f}" for kind, d in degrees.items()),
        *report["explanation"],
        f"batch of {report['batch']:,}" + (f", {pluralize(report['steps'], 'step')}" if "steps" in report else ""),
        f"  parameters   {cost['parameters']:,}, {format_bytes(cost['parameter_bytes'])}"
        + (f"; weights: {report['constraints']}" if "constraints" in report else ""),
        f"  indices      {format_bytes(cost['plan_bytes'])}",
        f"  activations  {format_bytes(cost['activation_bytes'])}",
        f"  training     saves {format_bytes(saved_bytes)} for the backward pass",
        f"  operations   {_format_count(cost['forward_flops'])} forward, {_format_count(step)} in a training step",
    ]


def _format_feedback(count: int) -> str:
    return f", {count:,} of them feedback, which carry the value of the step before" if count else ""


def _format_count(count: int) -> str:
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if count >= size:
            return f"{count / size:,.1f} {word}"
    return f"{count:,}"

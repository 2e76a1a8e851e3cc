"""`fourward graph`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fourward._cli.options import GraphArgument, GraphOptions, JsonOption, RecurrentOption, takes_graph_options
from fourward._cli.output import print_json, report_changes
from fourward._files import replacing
from fourward.errors import FourwardError, OptionError

if TYPE_CHECKING:
    from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(graph)


@takes_graph_options
def graph(
    spec: GraphArgument,
    out: Annotated[Path, typer.Option(help="File to write. Its suffix sets the format; .gz compresses it.")],
    to: Annotated[str | None, typer.Option(help="Format to write. Default: inferred from --out.")] = None,
    topology_only: Annotated[
        bool, typer.Option("--topology-only", help="Ignore weights, biases and activations: convert the graph alone.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="CSV file to write removed edges to, with weights and why.")
    ] = None,
    recurrent: RecurrentOption = False,
    as_json: JsonOption = False,
    *,
    graph_options: GraphOptions,
) -> None:
    """Generate a graph, or convert one from any format to any other.

    Example: `fourward graph synapses.csv --remove-feedback --out brain.graphml`
    """
    from fourward.graph import files
    from fourward.graph._dag import Dag

    try:
        files.infer_format(out, to)
    except FourwardError as error:  # concerns the output file, whose format is --to
        error.repairs = tuple(replace(repair, option="to") for repair in error.repairs)
        raise
    if recurrent and report is not None:
        raise OptionError("--report lists removed edges, but --recurrent keeps feedback. Omit one of them.")
    load = graph_options.load_digraph if recurrent else graph_options.load
    loaded: AnnotatedDag | AnnotatedDigraph = load(spec, topology_only=topology_only)
    made = loaded[0]
    values = {name: getattr(loaded, name) for name in ("weight", "bias", "activation", "constraints")}
    files.write(made, out, format=to, **values)
    if report is not None:
        with replacing(report) as temporary:
            _write_removed(loaded, temporary)  # type: ignore[arg-type]
    if as_json:
        print_json(
            {
                "out": str(out),
                "nodes": made.num_nodes,
                "edges": made.num_edges,
                "inputs": made.num_inputs,
                "outputs": made.num_outputs,
                **({} if isinstance(made, Dag) else {"feedback": made.num_feedback}),
                "removed": [list(pair) for pair in getattr(loaded, "removed", ())],
                "merged": loaded.merged,
                "changes": loaded.changes.to_json(),
            }
        )
        return
    report_changes(loaded)
    print(f"{out}: {made!r}")


def _write_removed(loaded: AnnotatedDag, path: Path) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("source", "target", "weight", "reason"))
        for pairs, weight, reason in (
            (loaded.cut, loaded.cut_weight, "into input"),
            (loaded.removed, loaded.removed_weight, "feedback"),
        ):
            weights = [""] * len(pairs) if weight is None else weight.tolist()
            writer.writerows((*pair, value, reason) for pair, value in zip(pairs, weights, strict=True))

"""`fourward graph`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fourward._cli.options import GraphWord, JsonOption, Reading, print_json, reads_graph, report_changes
from fourward._files import replacing


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(graph)


@reads_graph
def graph(
    word: GraphWord,
    out: Annotated[Path, typer.Option(help="The file to write; its ending says the format, .gz packs it.")],
    to: Annotated[str | None, typer.Option(help="The format, if the ending doesn't say it.")] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Read the graph alone, without weights, biases and activations.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="Write the removed edges into this CSV file.")] = None,
    as_json: JsonOption = False,
    *,
    reading: Reading,
) -> None:
    """Generate a graph, or convert one from any format to any other.

    Example: `fourward graph synapses.csv --remove-feedback --out brain.graphml`
    """
    from fourward.graph import files

    files.format_of(out, to)
    loaded = reading.find(word, bare=bare)
    numbers = {"weight": loaded.weight, "bias": loaded.bias, "activation": loaded.activation}
    files.write(loaded.dag, out, format=to, **numbers)  # type: ignore[arg-type]
    if report is not None:
        with replacing(report) as temporary:
            _write_pairs(loaded.removed, temporary)
    if as_json:
        removed = [list(pair) for pair in loaded.removed]
        counts = {"nodes": loaded.dag.num_nodes, "edges": loaded.dag.num_edges}
        ends = {"inputs": loaded.dag.num_inputs, "outputs": loaded.dag.num_outputs}
        print_json({"out": str(out), **counts, **ends, "removed": removed, "merged": loaded.merged})
        return
    report_changes(loaded)
    print(f"{out}: {loaded.dag!r}")


def _write_pairs(pairs: tuple[tuple[object, object], ...], path: Path) -> None:
    import csv

    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("source", "target"))
        rows.writerows(pairs)

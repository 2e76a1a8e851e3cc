"""What several commands print: changes to a graph, metrics of a model, JSON."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from fourward.graph._annotated import AnnotatedDag, AnnotatedDigraph


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(value, ensure_ascii=False))


def print_metrics(console: Console, metrics: dict[str, Any]) -> None:
    """Print metrics on one line; those of each class, or of several targets, as a table below it."""
    from rich.table import Table

    scalars = {name: value for name, value in metrics.items() if not isinstance(value, dict | str)}
    console.print(", ".join(f"{name} {_format_number(value)}" for name, value in scalars.items()))
    for kind in ("classes", "targets"):
        if kind in metrics:
            rows = metrics[kind]
            columns = list(next(iter(rows.values())))
            table = Table(kind, *columns, box=None)
            for name, values in rows.items():
                table.add_row(name, *(_format_number(values[column]) for column in columns))
            console.print(table)


def report_changes(loaded: AnnotatedDag | AnnotatedDigraph) -> None:
    """Print to standard error what was changed to make a Dag or a Digraph of the graph."""
    for line in loaded.describe_changes():
        print(line, file=sys.stderr)


def warn_if_busy() -> None:
    """Warn on standard error that timings will be off if other processes keep this machine busy."""
    load, cores = getattr(os, "getloadavg", lambda: [0.0])()[0], os.cpu_count() or 1
    if load > 0.4 * cores:
        text = f"warning: this machine is busy (load {load:.1f} on {cores} cores), so timings will be too long"
        print(text, file=sys.stderr)


def _format_number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if 0.001 <= abs(value) <= 1 or value == 0 else f"{value:.4g}"

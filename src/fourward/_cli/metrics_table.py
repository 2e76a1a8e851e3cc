"""Measures of a model as text."""

from __future__ import annotations

from typing import Any


def show(console: Any, measures: dict[str, Any]) -> None:
    """Print measures; those of classes and of several targets as a table."""
    from rich.table import Table

    flat = {name: value for name, value in measures.items() if not isinstance(value, dict | str)}
    console.print(", ".join(f"{name} {_number(value)}" for name, value in flat.items()))
    for kind in ("classes", "targets"):
        if kind in measures:
            parts = measures[kind]
            columns = list(next(iter(parts.values())))
            table = Table(kind, *columns, box=None)
            for name, values in parts.items():
                table.add_row(name, *(_number(values[column]) for column in columns))
            console.print(table)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if 0.001 <= abs(value) <= 1 or value == 0 else f"{value:.4g}"

"""The reassignment experiment as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fourward.study._aggregate import EMPTY, LAYERED, Cell, CellKey, aggregate, aggregate_layerings, select
from fourward.study._figures.maps import BATCHES, METHODS, methods_in
from fourward.study._store import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Fill and hatch of each method, distinct in grey, too.
METHOD_STYLES = {"4ward": ("#2a9d4a", ""), "fourward": ("#d9c7e8", "...."), "sequential": ("#555555", "//")}
METHOD_STYLES |= {"deepstruct": ("#e8a33d", "xx")}


def draw_reassignment(figure: Figure, rows: Sequence[Row]) -> None:
    """Left: times with deviations between a graph's layerings; right: heights, and the fraction of nodes moved."""
    grid = figure.add_gridspec(2, 2, width_ratios=[1.5, 1])
    keys, methods = sorted({tuple(row.key[name] for name in LAYERED) for row in rows}), methods_in(rows)
    left = figure.add_subplot(grid[:, 0])
    width = 0.8 / len(methods)
    for k, method in enumerate(methods):
        cells = aggregate_layerings(select(rows, method=method), BATCHES)
        shift = (k - (len(methods) - 1) / 2) * width
        _bars(left, [cells.get(key, EMPTY) for key in keys], shift, width, METHODS[method], *METHOD_STYLES[method])
    left.set(xlabel="$p$", ylabel=f"seconds for {BATCHES} batches")
    left.legend(frameon=False)
    first = select(rows, method=methods[0])
    for line, name, label in ((0, "height", "height $H$"), (1, "moved", "fraction of hidden nodes moved")):
        axes = figure.add_subplot(grid[line, 1])
        cells = aggregate(first, LAYERED, name)
        _bars(axes, [cells.get(key, EMPTY) for key in keys], 0, 0.6, "", "#b8b8b8", "")
        axes.set(ylabel=label, xlabel="$p$" if line else "")
    for axes in figure.axes:
        axes.set_xticks(range(len(keys)), _labels(keys))


def _labels(keys: Sequence[CellKey]) -> list[str]:
    """By p; with the size and batch size below, where there are several."""
    several = len({key[:2] for key in keys}) > 1
    return [f"{p:g}" + (f"\n{size} nodes,\nbatch {batch}" if several else "") for size, batch, p in keys]


def _bars(
    axes: Axes, cells: Sequence[Cell], shift: float, width: float, label: str, colour: str, hatch: str
) -> None:  # fmt: skip
    """A bar with its deviation for each cell; one without a number says why, upright."""
    done: list[tuple[float, Any]] = [(k + shift, cell) for k, cell in enumerate(cells) if cell.mean is not None]
    axes.bar(
        [x for x, _ in done], [cell.mean for _, cell in done], width, yerr=[cell.deviation for _, cell in done],
        label=label, color=colour, hatch=hatch, edgecolor="#333333", linewidth=0.6, capsize=3,
        error_kw={"elinewidth": 1.0},
    )  # fmt: skip
    for k, cell in enumerate(cells):
        if cell.mean is None:
            axes.text(
                k + shift, 0.02, cell.status, rotation=90, ha="center", va="bottom", fontsize=7, color="#333333",
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip

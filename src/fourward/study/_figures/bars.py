"""The reassignment experiment as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fourward.study._aggregate import EMPTY, LAYERED, Cell, Place, cells, over_layerings, those
from fourward.study._figures.maps import BATCHES, METHODS, present
from fourward.study._store import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Fill and hatch of each method, apart in grey too.
LOOKS = {"4ward": ("#2a9d4a", ""), "fourward": ("#d9c7e8", "...."), "sequential": ("#555555", "//")}
LOOKS |= {"deepstruct": ("#e8a33d", "xx")}


def draw_reassignment(figure: Figure, rows: Sequence[Row]) -> None:
    """Left: times with deviations between a graph's layerings; right: heights, and the share of nodes moved."""
    grid = figure.add_gridspec(2, 2, width_ratios=[1.5, 1])
    places, methods = sorted({tuple(row.key[name] for name in LAYERED) for row in rows}), present(rows)
    left = figure.add_subplot(grid[:, 0])
    width = 0.8 / len(methods)
    for k, method in enumerate(methods):
        found = over_layerings(those(rows, method=method), BATCHES)
        shift = (k - (len(methods) - 1) / 2) * width
        _bars(left, [found.get(place, EMPTY) for place in places], shift, width, METHODS[method], *LOOKS[method])
    left.set(xlabel="$p$", ylabel=f"seconds for {BATCHES} batches")
    left.legend(frameon=False)
    one = those(rows, method=methods[0])
    for line, name, label in ((0, "height", "height $H$"), (1, "moved", "share of hidden nodes moved")):
        axes = figure.add_subplot(grid[line, 1])
        found = cells(one, LAYERED, name)
        _bars(axes, [found.get(place, EMPTY) for place in places], 0, 0.6, "", "#b8b8b8", "")
        axes.set(ylabel=label, xlabel="$p$" if line else "")
    for axes in figure.axes:
        axes.set_xticks(range(len(places)), _labels(places))


def _labels(places: Sequence[Place]) -> list[str]:
    """By p; with the size and batch size below, where there are several."""
    several = len({place[:2] for place in places}) > 1
    return [f"{p:g}" + (f"\n{size} nodes,\nbatch {batch}" if several else "") for size, batch, p in places]


def _bars(
    axes: Axes, found: Sequence[Cell], shift: float, width: float, label: str, colour: str, hatch: str
) -> None:  # fmt: skip
    """A bar with its deviation for each cell; one without a number says why, upright."""
    done: list[tuple[float, Any]] = [(k + shift, cell) for k, cell in enumerate(found) if cell.mean is not None]
    axes.bar(
        [x for x, _ in done], [cell.mean for _, cell in done], width, yerr=[cell.deviation for _, cell in done],
        label=label, color=colour, hatch=hatch, edgecolor="#333333", linewidth=0.6, capsize=3,
        error_kw={"elinewidth": 1.0},
    )  # fmt: skip
    for k, cell in enumerate(found):
        if cell.mean is None:
            axes.text(
                k + shift, 0.02, cell.status, rotation=90, ha="center", va="bottom", fontsize=7, color="#333333",
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip

"""Accuracy and damage of the topologies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward.study._aggregate import interval, those
from fourward.study._datasets import PROBLEMS
from fourward.study._matched import TOPOLOGIES
from fourward.study._store import DONE, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colour (Okabe and Ito's, made for every colour vision), marker and line of each topology.
LOOKS: dict[str, tuple[str, str, Any]] = {
    "erdos-renyi": ("#0072b2", "o", "-"),
    "watts-strogatz": ("#56b4e9", "s", "--"),
    "barabasi-albert": ("#009e73", "^", "-."),
    "connectome": ("#d55e00", "D", "-"),
    "shuffled": ("#e69f00", "v", "--"),
    "mlp": ("#000000", "P", "-"),
    "dense-mlp": ("#7f7f7f", "X", ":"),
}
COLUMNS = 4


def draw_accuracy(figure: Figure, rows: Sequence[Row]) -> None:
    """A panel for each data set: mean accuracy over seeds, with the 95 % interval, by topology."""
    found = _present(rows)
    for axes, data in _panels(figure, rows):
        for y, topology in enumerate(found):
            seen = _seen(rows, topology, data)
            colour, marker, _ = LOOKS[topology]
            if not seen:
                axes.text(0.03, y, "not run", va="center", fontsize=7, transform=axes.get_yaxis_transform())
                continue
            mean, half = interval([row.values["accuracy"] for row in seen])
            reach = [[min(half or 0.0, mean)], [min(half or 0.0, 1 - mean)]]  # accuracy ends at 1
            axes.errorbar(mean, y, xerr=reach, fmt=marker, color=colour, capsize=3, markersize=5)
        axes.set_yticks(range(len(found)), found)
        axes.set(ylim=(len(found) - 0.5, -0.5), xlabel="accuracy")
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.label_outer(remove_inner_ticks=True)
        axes.tick_params(labelbottom=True)


def draw_damage(figure: Figure, rows: Sequence[Row], kind: str) -> None:
    """A panel for each data set: mean accuracy as a rising share of edges, or of neurons, is removed."""
    for axes, data in _panels(figure, rows):
        for topology in _present(rows):
            curves = [row.values["damage"] for row in _seen(rows, topology, data)]
            if curves:
                _draw_curve(axes, topology, curves[0]["shares"], [curve[kind] for curve in curves])
        chance = [row.values["chance"] for row in those(rows, data=data) if row.status == DONE]
        if chance:
            axes.axhline(float(np.mean(chance)), color="#777777", linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set(xlabel=f"share of {kind} removed", ylabel="accuracy")
        axes.label_outer()
        axes.tick_params(labelbottom=True, labelleft=True)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def _draw_curve(axes: Axes, topology: str, shares: Sequence[float], curves: Sequence[Sequence[float]]) -> None:
    colour, marker, line = LOOKS[topology]
    found = [interval(list(values)) for values in zip(*curves, strict=True)]
    mean, half = np.array([[centre, reach or 0.0] for centre, reach in found]).T
    axes.plot(shares, mean, color=colour, marker=marker, linestyle=line, markersize=3.5, linewidth=1.2, label=topology)
    low, high = np.clip((mean - half, mean + half), 0, 1)
    axes.fill_between(shares, low, high, color=colour, alpha=0.12, linewidth=0)


def _panels(figure: Figure, rows: Sequence[Row]) -> list[tuple[Axes, str]]:
    """An axes for each data set that occurs, in the order of the tasks."""
    names = [name for name in PROBLEMS if those(rows, data=name)]
    height = -(-len(names) // COLUMNS)
    grid = figure.subplots(height, min(COLUMNS, len(names)), squeeze=False)
    panels = []
    for axes, name in zip_longest(grid.flat, names):
        if name is None:
            axes.remove()
            continue
        axes.set_title(name)
        panels.append((axes, name))
    return panels


def _present(rows: Sequence[Row]) -> list[str]:
    return [topology for topology in TOPOLOGIES if those(rows, topology=topology)]


def _seen(rows: Sequence[Row], topology: str, data: str) -> list[Row]:
    return [row for row in those(rows, topology=topology, data=data) if row.status == DONE]

"""Accuracy of the topologies, intact and with edges or neurons removed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward.study._aggregate import confidence_interval, select
from fourward.study._datasets import DATASETS
from fourward.study._matched import TOPOLOGIES
from fourward.study._store import DONE, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colour (Okabe and Ito's palette for all kinds of colour vision), marker and line style of each topology.
TOPOLOGY_STYLES: dict[str, tuple[str, str, Any]] = {
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
    """A subplot for each data set: mean accuracy over seeds, with the 95 % interval, by topology."""
    topologies = _topologies_in(rows)
    for axes, data in _subplots(figure, rows):
        for y, topology in enumerate(topologies):
            done = _done(rows, topology, data)
            colour, marker, _ = TOPOLOGY_STYLES[topology]
            if not done:
                axes.text(0.03, y, "not run", va="center", fontsize=7, transform=axes.get_yaxis_transform())
                continue
            mean, half_width = confidence_interval([row.values["accuracy"] for row in done])
            error = [[min(half_width or 0.0, mean)], [min(half_width or 0.0, 1 - mean)]]  # accuracy ends at 1
            axes.errorbar(mean, y, xerr=error, fmt=marker, color=colour, capsize=3, markersize=5)
        axes.set_yticks(range(len(topologies)), topologies)
        axes.set(ylim=(len(topologies) - 0.5, -0.5), xlabel="accuracy")
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=4)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.label_outer(remove_inner_ticks=True)
        axes.tick_params(labelbottom=True)


def draw_ablation(figure: Figure, rows: Sequence[Row], kind: str) -> None:
    """A subplot for each data set: mean accuracy against the fraction of edges, or of neurons, removed."""
    for axes, data in _subplots(figure, rows):
        for topology in _topologies_in(rows):
            curves = [row.values["damage"] for row in _done(rows, topology, data)]
            if curves:
                _draw_curve(axes, topology, curves[0]["shares"], [curve[kind] for curve in curves])
        chance = [row.values["chance"] for row in select(rows, data=data) if row.status == DONE]
        if chance:
            axes.axhline(float(np.mean(chance)), color="#777777", linewidth=0.8, linestyle=(0, (1, 2)))
        axes.set(xlabel=f"fraction of {kind} removed", ylabel="accuracy")
        axes.label_outer()
        axes.tick_params(labelbottom=True, labelleft=True)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)


def _draw_curve(axes: Axes, topology: str, fractions: Sequence[float], curves: Sequence[Sequence[float]]) -> None:
    colour, marker, line = TOPOLOGY_STYLES[topology]
    intervals = [confidence_interval(list(values)) for values in zip(*curves, strict=True)]
    mean, half_width = np.array([[centre, width or 0.0] for centre, width in intervals]).T
    axes.plot(
        fractions, mean, color=colour, marker=marker, linestyle=line, markersize=3.5, linewidth=1.2, label=topology
    )
    low, high = np.clip((mean - half_width, mean + half_width), 0, 1)
    axes.fill_between(fractions, low, high, color=colour, alpha=0.12, linewidth=0)


def _subplots(figure: Figure, rows: Sequence[Row]) -> list[tuple[Axes, str]]:
    """An axes for each data set that occurs, in the order of `DATASETS`."""
    names = [name for name in DATASETS if select(rows, data=name)]
    height = -(-len(names) // COLUMNS)
    grid = figure.subplots(height, min(COLUMNS, len(names)), squeeze=False)
    subplots = []
    for axes, name in zip_longest(grid.flat, names):
        if name is None:
            axes.remove()
            continue
        axes.set_title(name)
        subplots.append((axes, name))
    return subplots


def _topologies_in(rows: Sequence[Row]) -> list[str]:
    return [topology for topology in TOPOLOGIES if select(rows, topology=topology)]


def _done(rows: Sequence[Row], topology: str, data: str) -> list[Row]:
    return [row for row in select(rows, topology=topology, data=data) if row.status == DONE]

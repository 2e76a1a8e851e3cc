"""A graph too large for lines: how many edges lead from layer to layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._arrays import IntArray
from fourward.layering._layering import Layering
from fourward.view._histograms import whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELLS = 200  #: across, at most
CHUNK = 1 << 20  #: edges that are counted at a time


def count_between(layering: Layering, cells: int = CELLS) -> tuple[IntArray, int]:
    """(C, C) edges from a cell of layers (row) to another (column), and how many layers a cell holds."""
    per_cell = -(-layering.height // cells)
    num_cells = -(-layering.height // per_cell)
    cell = layering.level // per_cell
    count = np.zeros(num_cells * num_cells, np.int64)
    for first in range(0, layering.dag.num_edges, CHUNK):
        source, target = layering.dag.edges[first : first + CHUNK].T
        count += np.bincount(cell[source] * num_cells + cell[target], minlength=len(count))
    return count.reshape(num_cells, num_cells), per_cell


def draw_density(axes: Axes, layering: Layering, why: str = "") -> str:
    """Draw the counts on a colour scale by powers of ten; returns what is shown, and why, in words."""
    from matplotlib.colors import LogNorm

    count, per_cell = count_between(layering)
    edge = per_cell * np.arange(len(count) + 1) - 0.5
    norm = LogNorm(1, max(int(count.max()), 2))
    shown = np.ma.masked_equal(count.T, 0)
    mesh: Any = axes.pcolormesh(edge, edge, shown, norm=norm, cmap="cividis_r", rasterized=True)
    axes.set(xlabel="from layer", ylabel="to layer", aspect="equal")
    whole_numbers(axes.xaxis, axes.yaxis)
    axes.figure.colorbar(mesh, ax=axes, label="edges", fraction=0.04, pad=0.02)
    dag, cell = layering.dag, "layer" if per_cell == 1 else f"{per_cell:,} layers"
    return (
        f"Shown: not each of {dag.num_edges:,} edges and {dag.num_nodes:,} nodes{why}, but how many edges "
        f"lead from each {cell} to each {cell}; blank where none does."
    )

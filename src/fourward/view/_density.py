"""The picture of a graph that is too large for lines: the number of edges between each pair of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._arrays import IntArray
from fourward.graph._base import BaseGraph
from fourward.layering._layering import Layering
from fourward.view._histograms import use_integer_ticks
from fourward.view._palette import current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_CELLS = 200  #: rows and columns of the picture
CHUNK = 1 << 20  #: edges counted at a time


def count_edges_between_layers(
    graph: BaseGraph, layering: Layering, max_cells: int = MAX_CELLS
) -> tuple[IntArray, int]:
    """(C, C) number of edges from the layers of a cell (row) to those of another (column), and layers per cell."""
    per_cell = -(-layering.height // max_cells)
    num_cells = -(-layering.height // per_cell)
    cell = layering.level // per_cell
    count = np.zeros(num_cells * num_cells, np.int64)
    for first in range(0, graph.num_edges, CHUNK):
        source, target = graph.edges[first : first + CHUNK].T
        count += np.bincount(cell[source] * num_cells + cell[target], minlength=len(count))
    return count.reshape(num_cells, num_cells), per_cell


def draw_density(axes: Axes, graph: BaseGraph, layering: Layering, reason: str = "") -> str:
    """Draw the counts on a logarithmic colour scale; returns a caption, with the reason for this kind of picture."""
    from matplotlib.colors import LogNorm

    count, per_cell = count_edges_between_layers(graph, layering)
    boundary = per_cell * np.arange(len(count) + 1) - 0.5
    norm = LogNorm(1, max(int(count.max()), 2))
    values = np.ma.masked_equal(count.T, 0)
    mesh: Any = axes.pcolormesh(boundary, boundary, values, norm=norm, cmap=current_palette().counts, rasterized=True)
    axes.set(xlabel="from layer", ylabel="to layer", aspect="equal")
    use_integer_ticks(axes.xaxis, axes.yaxis)
    axes.figure.colorbar(mesh, ax=axes, label="edges", fraction=0.04, pad=0.02)
    cell = "layer" if per_cell == 1 else f"{per_cell:,} layers"
    return (
        f"Shown: the number of edges from each {cell} to each {cell}, blank where there are none; not each of "
        f"{graph.num_edges:,} edges and {graph.num_nodes:,} nodes{reason}."
    )

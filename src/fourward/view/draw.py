"""The layered network as a picture: nodes by layer, edges by weight."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._files import replacing
from fourward.errors import require
from fourward.graph.dag import Dag
from fourward.layering.layering import Layering
from fourward.nn.module import FourWard

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

#: The paper's colours: sources green, hidden nodes red, sinks violet, nodes that could move white.
SOURCE, HIDDEN, SINK, MOVABLE = "#2a9d4a", "#d1495b", "#7b3fa0", "#ffffff"


def draw_network(net: FourWard, path: str | Path, *, title: str | None = None) -> Path:
    """Draw a network's layering and weights into a PNG, SVG or PDF file, by its ending."""
    require("matplotlib", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 8), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=[4, 1])
    weight = net.weight.detach().double().cpu().numpy()
    draw_layers(figure.add_subplot(grid[:, 0]), net.dag, net.layering, weight)
    _draw_weights(figure.add_subplot(grid[0, 1]), weight)
    _draw_widths(figure.add_subplot(grid[1, 1]), net.layering)
    figure.suptitle(title or repr(net.dag))
    with replacing(Path(path)) as temporary:
        figure.savefig(temporary, dpi=130)
    return Path(path)


def place_nodes(dag: Dag, layering: Layering, sweeps: int = 12) -> FloatArray:
    """(N,) heights between 0 and 1: nodes spread evenly over their layer, in an order with few crossings.

    Each sweep orders every layer by the mean height of the nodes' neighbours.
    """
    size = np.bincount(layering.level, minlength=layering.height)
    start = np.concatenate(([0], np.cumsum(size)[:-1]))
    height = np.full(dag.num_nodes, 0.5)
    degree = np.maximum(dag.in_degree + dag.out_degree, 1)
    for sweep in range(sweeps + 1):
        pull = np.zeros(dag.num_nodes)
        np.add.at(pull, dag.source, height[dag.target])
        np.add.at(pull, dag.target, height[dag.source])
        wanted = (
            np.where(dag.in_degree + dag.out_degree > 0, pull / degree, height) if sweep else np.arange(dag.num_nodes)
        )
        order = np.lexsort((wanted, layering.level))
        rank = np.empty(dag.num_nodes)
        rank[order] = np.arange(dag.num_nodes) - start[layering.level[order]]
        height = (rank + 0.5) / size[layering.level]
    return height


def draw_layers(
    axes: Axes, dag: Dag, layering: Layering, weight: FloatArray | None = None, *, movable: bool = True
) -> None:
    """Nodes by layer in the paper's colours, edges by weight where there are weights, else grey.

    Without `movable`, hidden nodes are red whether they could move or not.
    """
    from matplotlib.collections import LineCollection

    spot = np.column_stack((layering.level, place_nodes(dag, layering)))
    if weight is None:
        axes.add_collection(LineCollection(list(spot[dag.edges]), colors="#555555", linewidths=0.6, alpha=0.6))
    else:
        limit = max(np.quantile(np.abs(weight), 0.98), 1e-12) if len(weight) else 1.0
        by_size = np.argsort(np.abs(weight))  # strong edges on top
        lines = LineCollection(
            list(spot[dag.edges[by_size]]), array=weight[by_size], cmap="PuOr_r", clim=(-limit, limit), linewidths=0.6,
            alpha=0.6,
        )  # fmt: skip
        axes.add_collection(lines)
        axes.figure.colorbar(lines, ax=axes, label="weight", fraction=0.02, pad=0.01)
    source, sink = dag.in_degree == 0, dag.out_degree == 0
    could_move = (layering.slack > 0) & movable
    kinds = {
        "source": (source, SOURCE),
        "hidden": (~source & ~sink & ~could_move, HIDDEN),
        "hidden, could move": (could_move, MOVABLE),
        "sink": (sink & ~source, SINK),
    }
    for name, (chosen, colour) in kinds.items():
        label = f"{name} ({np.count_nonzero(chosen):,})"
        x, y = spot[chosen].T
        axes.scatter(x, y, s=26, c=colour, edgecolors="#333333", linewidths=0.6, zorder=3, label=label)
    axes.set(xlabel="layer", yticks=[], xlim=(-1, layering.height), ylim=(-0.03, 1.03))
    axes.legend(loc="upper center", ncols=4, frameon=False, bbox_to_anchor=(0.5, 1.06))


def _draw_weights(axes: Axes, weight: FloatArray) -> None:
    axes.hist(weight, bins=60, color="#555555")
    axes.set(title="weights", xlabel="weight", ylabel="edges")


def _draw_widths(axes: Axes, layering: Layering) -> None:
    axes.bar(np.arange(layering.height), np.bincount(layering.level, minlength=layering.height), 1.0, color="#555555")
    axes.set(title="nodes per layer", xlabel="layer", ylabel="nodes")

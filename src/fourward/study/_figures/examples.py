"""The figures that explain: the overview, a forward pass step by step, and four layerings of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward.graph import generate
from fourward.graph._dag import Dag
from fourward.layering import Layering, longest_path, push_sources, reassign
from fourward.study._aggregate import aggregate, distinct, format_number, select
from fourward.study._figures.bars import METHOD_STYLES
from fourward.study._figures.maps import BATCHES, METHODS, methods_in
from fourward.study._figures.style import draw_text
from fourward.study._store import DONE, Row
from fourward.view._draw import draw_layers
from fourward.view._layout import layout_nodes
from fourward.view._palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PURPLE, PALE, ABSENT = "#7b3fa0", "#eadcf3", "#e4e4e4"
Positions = np.ndarray[Any, np.dtype[Any]]


def draw_overview(figure: Figure, rows: Sequence[Row]) -> None:
    """A random graph, its DAG, the layering, the masked layers, and the times, if there are any."""
    dag = generate.erdos_renyi(11, 0.28, seed=5)
    layering = push_sources(dag, longest_path(dag))
    angle = 2 * np.pi * np.arange(dag.num_nodes) / dag.num_nodes
    ring = np.column_stack((np.sin(angle), np.cos(angle)))
    axes = figure.subplots(1, 5)
    draw_graph(axes[0], dag, ring, arrows=False, colours=["#b8b8b8"] * dag.num_nodes)
    axes[0].set_title("1  Erdős-Rényi graph")
    draw_graph(axes[1], dag, ring, names=[str(position + 1) for position in dag.position])
    axes[1].set_title("2  edges along a random order")
    positions = np.column_stack((layering.level, layout_nodes(dag, layering)))
    draw_graph(axes[2], dag, positions, names=[str(position + 1) for position in dag.position])
    axes[2].set_title("3  layering")
    _draw_masks(axes[3], dag, layering)
    axes[3].set_title("4  masked layers")
    for subplot in (axes[2], axes[3]):
        subplot.set_facecolor(PALE)
    for subplot in axes:
        subplot.set_box_aspect(1)
    _draw_measured(axes[4], rows)
    axes[4].set_title("5  measured forward passes")


def draw_forward(figure: Figure, rows: Sequence[Row]) -> None:
    """The activations of layer 1, then of layer 2, with the matrices that give them."""
    pairs = ("ad", "bd", "be", "ce", "df", "ef", "af", "eg", "cg")
    dag = Dag.from_edges([tuple(pair) for pair in pairs], nodes=list("abcdefg"))
    layering = push_sources(dag, longest_path(dag))
    positions = np.array([[0, 2], [0, 1], [0, 0], [1, 1.6], [1, 0.4], [2, 1.6], [2, 0.4]], float)
    grid = figure.subplots(2, 2, height_ratios=[1.5, 1])
    for step in (1, 2):
        network, matrix = grid[:, step - 1]
        _highlight(network, dag, layering, positions, step)
        draw_graph(network, dag, positions, names=[f"$a_{label}$" for label in dag.labels], size=430)
        network.set_title(f"layer {step}")
        _draw_product(matrix, dag, layering, step)


def draw_layerings(figure: Figure, rows: Sequence[Row]) -> None:
    """One graph of 32 nodes by the longest path, with its movable nodes in white, and reassigned three times."""
    dag = generate.erdos_renyi(32, 0.1, seed=0)
    first = push_sources(dag, longest_path(dag))
    layerings = [first, *(reassign(dag, first, seed=seed) for seed in range(3))]
    for k, (axes, layering) in enumerate(zip(figure.subplots(2, 2).flat, layerings, strict=True)):
        draw_layers(axes, dag, layering, movable=k == 0)
        axes.get_legend().remove()
        moved = np.count_nonzero(layering.level != first.level)
        axes.set_title(f"reassigned, {moved} nodes moved" if k else "longest path")
        axes.set(xticks=range(layering.height), xlim=(-0.5, layering.height - 0.5))
        axes.spines["left"].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)


def draw_graph(
    axes: Axes,
    dag: Dag,
    positions: Positions,
    *,
    names: Sequence[str] | None = None,
    colours: Sequence[str] | None = None,
    arrows: bool = True,
    size: float = 170,
) -> None:
    """A small graph with a circle for each node."""
    shrink = size**0.5 / 2 + 1
    for u, v in dag.edges.tolist():
        style = {"arrowstyle": "-|>" if arrows else "-", "color": "#555555", "linewidth": 0.9}
        axes.annotate("", positions[v], positions[u], arrowprops=style | {"shrinkA": shrink, "shrinkB": shrink})
    if colours is None:
        source, sink = dag.in_degree == 0, dag.out_degree == 0
        colours = np.where(source, LIGHT.source, np.where(sink, LIGHT.sink, LIGHT.hidden)).tolist()
    axes.scatter(positions[:, 0], positions[:, 1], s=size, c=colours, edgecolors="#222222", linewidths=0.8, zorder=3)
    for (x, y), name in zip(positions, names or [], strict=False):
        axes.text(x, y, name, ha="center", va="center", fontsize=7.5, color="white", zorder=4)
    low, high = positions.min(0), positions.max(0)
    margin = 0.16 * np.maximum(high - low, 1e-9)
    axes.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def predecessors(dag: Dag, layer: Sequence[int]) -> list[int]:
    """The nodes that feed a layer, ascending: the paper's P_l."""
    return sorted(set(dag.source[np.isin(dag.target, layer)].tolist()))


def _draw_masks(axes: Axes, dag: Dag, layering: Layering) -> None:
    """Every layer's mask from left to right: a row for each of its nodes, a column for each of their predecessors."""
    from matplotlib.patches import Rectangle

    edges, left, tallest = set(map(tuple, dag.edges.tolist())), 0.0, max(map(len, layering.layers[1:]))
    for l, layer in enumerate(layering.layers[1:], start=1):
        feeding = predecessors(dag, layer.tolist())
        for y, v in enumerate(layer.tolist()):
            for x, u in enumerate(feeding):
                colour = PURPLE if (u, v) in edges else "white"
                axes.add_patch(Rectangle((left + x, -y), 1, 1, facecolor=colour, edgecolor="#555555", linewidth=0.6))
        axes.text(left + len(feeding) / 2, 1.25, f"$M^{l}$", ha="center", va="bottom", fontsize=9)
        left += len(feeding) + 1
    half, middle = (left + 1) / 2, 1.5 - tallest / 2  # as wide as high, so that entries are squares
    axes.set(xlim=(-1, left), ylim=(middle - half, middle + half), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _draw_measured(axes: Axes, rows: Sequence[Row]) -> None:
    """Times of the methods in the largest cell that all of them finished."""
    methods = methods_in(rows)
    cells = {method: aggregate(select(rows, method=method), ("size", "p", "batch"), "mean") for method in methods}
    finished = [{key for key, cell in by_key.items() if cell.status == DONE} for by_key in cells.values()]
    shared = set.intersection(*finished) if finished else set()
    if not shared:
        return draw_text(axes, "no times in\nthe results file")
    sparsest = min(distinct(rows, "p"))
    size, p, batch = largest = max(sorted(shared), key=lambda key: (key[1] == sparsest, key[0], key[2]))
    means = [BATCHES * (cells[method][largest].mean or 0.0) for method in methods]
    bars = axes.barh(
        [METHODS[method] for method in methods], means, color=[METHOD_STYLES[method][0] for method in methods]
    )
    for bar, method in zip(bars, methods, strict=True):
        bar.set(hatch=METHOD_STYLES[method][1], edgecolor="#333333")
    axes.bar_label(bars, [f" {format_number(mean)}" for mean in means], fontsize=7.5)
    axes.set(xscale="log", xlim=(min(means) / 3, max(means) * 6))
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds for {BATCHES} batches of {batch}\n$|\\mathcal{{N}}|={size}$, $p={p:g}$")


def _highlight(axes: Axes, dag: Dag, layering: Layering, positions: Positions, step: int) -> None:
    """A purple overlay behind the edges into a layer and their endpoints."""
    layer = layering.layers[step].tolist()
    inside = np.isin(dag.target, layer)
    for u, v in dag.edges[inside].tolist():
        axes.plot(*positions[[u, v]].T, color=PALE, linewidth=22, solid_capstyle="round", zorder=0)
    for v in {*layer, *dag.source[inside].tolist()}:
        axes.scatter(positions[v, 0], positions[v, 1], s=1300, color=PALE, zorder=0)


def _draw_product(axes: Axes, dag: Dag, layering: Layering, step: int) -> None:
    """The product of the masked weights and the activations that feed the layer."""
    from matplotlib.patches import Rectangle

    layer, edges = layering.layers[step].tolist(), set(map(tuple, dag.edges.tolist()))
    feeding, labels = predecessors(dag, layer), dag.labels
    middle = -len(layer) / 2 + 1
    words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 10}

    def column(nodes: list[int], left: float) -> None:
        for k, v in enumerate(nodes):
            y = middle + len(nodes) / 2 - k - 1
            axes.add_patch(Rectangle((left, y), 1, 1, facecolor=PALE, edgecolor="#555555"))
            axes.text(left + 0.5, y + 0.5, f"$a_{labels[v]}$", **words)

    column(layer, 0)
    axes.text(1.75, middle, "$= \\sigma\\,$", **words)
    for y, v in enumerate(layer):
        for x, u in enumerate(feeding):
            is_edge = (u, v) in edges
            text = f"$w_{{{labels[u]}{labels[v]}}}$" if is_edge else "0"
            axes.add_patch(
                Rectangle((2.5 + x, -y), 1, 1, facecolor="white" if is_edge else ABSENT, edgecolor="#555555")
            )  # fmt: skip
            axes.text(3 + x, 0.5 - y, text, **words)
    column(feeding, 2.9 + len(feeding))
    axes.text(
        2.2 + len(feeding) / 2, middle - len(feeding) / 2 - 0.7,
        f"$a^{step} = \\sigma((M^{step} \\odot \\tilde{{W}}^{step})\\,x^{step})$", **words,
    )  # fmt: skip
    axes.set(xlim=(-0.5, 4.5 + len(feeding)), ylim=(middle - 3.4, middle + 2.4), aspect="equal", xticks=[], yticks=[])
    axes.spines[:].set_visible(False)

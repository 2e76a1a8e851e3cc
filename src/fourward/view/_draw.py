"""The layered network as a picture: nodes by layer, edges by weight, and how degrees, weights and layers are spread."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import OptionError, require
from fourward.graph._convert import Labels
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering
from fourward.nn._fourward import FourWard
from fourward.view._density import draw_density
from fourward.view._histograms import draw_degrees, draw_weights, draw_widths, whole_numbers
from fourward.view._layout import FloatArray, bows, place_nodes
from fourward.view._subject import Subject, describe, kind_names, kinds, legible, limit_of, subject_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fourward.view._figure import Picture

__all__ = ["HIDDEN", "MOVABLE", "SINK", "SOURCE", "draw", "draw_layers", "place_nodes"]

Kind = Literal["auto", "lines", "density"]

MOST_EDGES, MOST_NODES = 12_000, 3_000  #: that are drawn one by one unless lines are asked for

#: The paper's colours: sources green, hidden nodes red, sinks violet, nodes that could move white.
SOURCE, HIDDEN, SINK, MOVABLE = "#2a9d4a", "#d1495b", "#7b3fa0", "#ffffff"
#: Colour and shape of each of subject.CHOSEN_KINDS; the shapes are for whoever can't tell the colours apart.
LOOKS = ((SOURCE, ">"), (HIDDEN, "o"), (MOVABLE, "o"), (SINK, "s"), (SINK, ">"))

FONT, LARGE = 5.5, 8.5  #: size of a node's name, in points, at least and at most
LETTER = 0.62  #: width of a letter, in its size
MARGIN = 1.5  #: beside the first and the last layer, in layers, where names have no room there
OUTER = 18  #: letters that are written there, at most
LEAST = 7  #: letters of a name that is cut in its middle


def draw(
    net_or_dag: FourWard | Dag,
    path: str | Path | None = None,
    *,
    title: str | None = None,
    layering: Layering | None = None,
    weight: Any = None,
    kind: Kind = "auto",
) -> Picture:
    """Draw a network or a graph: its layers, its weights, and how degrees and layers are spread.

    Sources and sinks have marks of their own, or the inputs and outputs where those are other nodes.

    Args:
        net_or_dag: A network, whose weights colour the edges, or a Dag.
        path: A PNG, SVG or PDF file to write, by its ending.
        title: Default: what the graph is made of.
        layering: To draw by; default: the network's own, or the paper's longest path with sources pushed.
        weight: (E,) numbers of a Dag's edges, such as the strengths of synapses; a network has its own.
        kind: "lines" for nodes and edges, "density" for the number of edges from layer to layer, "auto" for
            lines where a graph is small enough for them.

    Returns:
        A matplotlib figure; a notebook shows it, and its `save(path)` writes it.

    >>> from fourward import generate
    >>> draw(generate.chain(3)).get_suptitle()
    '3 nodes, 2 edges, 1 input, 1 output'
    """
    if kind not in ("auto", "lines", "density"):
        raise OptionError(f"kind={kind!r} came, but a picture is drawn by 'lines', 'density' or 'auto'.")
    subject = subject_of(net_or_dag, layering, weight)
    require("matplotlib", "plot")
    from fourward.view._figure import check_ending

    if path is not None:
        check_ending(path)  # before the work
    why = ""
    if kind == "auto":
        few = subject.dag.num_edges <= MOST_EDGES and subject.dag.num_nodes <= MOST_NODES
        kind, why = ("lines", "") if few else ("density", ", too many for lines")
    picture = _compose(subject, kind, why)
    picture.entitle(title or describe(subject.dag))
    if path is not None:
        picture.save(path)
    return picture


def _compose(subject: Subject, kind: Kind, why: str) -> Picture:
    """All but the title; `why` says why density was chosen, where it was."""
    from fourward.view._figure import Picture

    dag, layering = subject.dag, subject.layering
    weight = subject.weight if dag.num_edges else None  # without edges there are no weights to show
    width, height = _inches(dag, layering) if kind == "lines" else (9.0, 7.5)
    picture = Picture(width + 3.6, height)
    rows = 2 if weight is None else 3
    grid = picture.add_gridspec(rows, 2, width_ratios=[width, 3.6])
    main = picture.add_subplot(grid[:, 0])
    draw_degrees(picture.add_subplot(grid[0, 1]), dag)
    draw_widths(picture.add_subplot(grid[1, 1]), layering)
    if weight is not None:
        draw_weights(picture.add_subplot(grid[2, 1]), weight)
    if kind == "lines":
        named = draw_layers(main, dag, layering, weight, names=True)
        shown = f"Shown: every node and every edge, and the names of {named:,} of {dag.num_nodes:,} nodes."
    else:
        shown = draw_density(main, layering, why)
    picture.supxlabel(shown, fontsize=8)
    return picture


def _inches(dag: Dag, layering: Layering) -> tuple[float, float]:
    """Width and height that leave room for most names, within what a screen can show."""
    across = (layering.height + 1) * 1.25 * LETTER * FONT * min(_usual_length(dag.labels), 10) / 72
    up = np.bincount(layering.level).max() * 0.22
    return float(np.clip(across, 9, 24)), float(np.clip(up, 7, 14))


def draw_layers(
    axes: Axes,
    dag: Dag,
    layering: Layering,
    weight: FloatArray | None = None,
    *,
    names: bool = False,
    movable: bool = True,
) -> int:
    """Nodes by layer in the paper's colours, edges by weight where there are weights, else grey.

    Args:
        axes: To draw into.
        dag: The graph.
        layering: Its layering.
        weight: (E,) of the edges.
        names: Whether to write the nodes' labels, where there is room for them.
        movable: Whether hidden nodes that could move are white; else all are red.

    Returns:
        How many names were written.
    """
    height = place_nodes(dag, layering)
    spot = np.column_stack((layering.level.astype(np.float64), height))
    top = _draw_edges(axes, dag, spot, bows(dag, layering, height), weight)
    axes.set(xlabel="layer", yticks=[], ylim=(-top, 1 + top))
    wide, high = _points(axes)
    margin = _margin(layering, wide, names)
    axes.set_xlim(-margin, layering.height - 1 + margin)
    size = np.bincount(layering.level, minlength=layering.height)
    across = np.full(layering.height, wide / (layering.height - 1 + 2 * margin))
    room = np.column_stack(
        (across, high / 1.08 / np.maximum(size, 1))
    )  # points that a node of each layer has to itself
    radius = np.clip(np.minimum(0.24 * room[:, 0], 0.4 * room[:, 1]), 1.2, 4.5)[layering.level]
    kind = kinds(layering, movable)
    for code, (name, (colour, marker)) in enumerate(zip(kind_names(dag), LOOKS, strict=False)):
        x, y = spot[kind == code].T
        size = (2 * radius[kind == code]) ** 2
        label = f"{name} ({len(x):,})" if len(x) else None
        look: dict[str, Any] = {"c": colour, "marker": marker, "edgecolors": "#222222", "linewidths": 0.7}
        axes.scatter(x, y, s=size, zorder=3, label=label, **look)
    whole_numbers(axes.xaxis)
    ticks = axes.get_xticks()
    axes.set_xticks(ticks[(ticks >= 0) & (ticks < layering.height)])
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.legend(loc="lower center", ncols=5, frameon=False, bbox_to_anchor=(0.5, 1.0))
    return _write_names(axes, layering, spot, room, radius, margin) if names else 0


def _draw_edges(axes: Axes, dag: Dag, spot: FloatArray, bow: FloatArray, weight: FloatArray | None) -> float:
    """Draw the edges; returns how far they, or nodes, reach beyond the heights 0 and 1."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Curve

    from fourward.view._figure import SIGNS

    first = np.arange(dag.num_edges) if weight is None else np.argsort(np.abs(weight))  # strong edges on top
    begin, end = spot[dag.source[first]], spot[dag.target[first]]
    middle = (begin + end) / 2
    beyond = max(0.04, float((np.abs(middle[:, 1] + bow[first] - 0.5) - 0.48).max(initial=0.0)))
    middle[:, 1] += 2 * bow[first]  # a quadratic curve goes half as far as the point that pulls it
    codes = [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3]
    curves = [Curve(points, codes) for points in np.stack((begin, middle, end), 1)]
    opacity = float(np.clip(1500 / max(dag.num_edges, 1), 0.12, 0.9))
    look: dict[str, Any] = {"facecolors": "none", "alpha": opacity, "zorder": 1, "in_layout": False}
    if weight is None:
        axes.add_collection(PathCollection(curves, edgecolors="#555555", linewidths=0.6, **look), autolim=False)
        return beyond
    limit = limit_of(weight)
    ordered = np.clip(np.nan_to_num(weight[first]), -limit, limit)
    thin = float(np.clip(60 / max(dag.num_edges, 1), 0.3, 0.9))  # where edges are few, weak ones are seen as well
    widths = thin + 1.1 * np.abs(ordered) / limit
    lines = PathCollection(curves, linewidths=widths, array=ordered, cmap=SIGNS, clim=(-limit, limit), **look)
    axes.add_collection(lines, autolim=False)
    _draw_bar(axes, weight, limit)
    return beyond


def _draw_bar(axes: Axes, weight: FloatArray, limit: float) -> None:
    """The scale of the weights, with an arrow at an end beyond which there are some; zero ends it where none are."""
    from matplotlib.cm import ScalarMappable

    from fourward.view._figure import SIGNS

    scale = ScalarMappable(cmap=SIGNS)
    scale.set_clim(-limit, limit)
    low, high = np.nanmin(weight, initial=0.0), np.nanmax(weight, initial=0.0)
    ends = {(True, True): "both", (True, False): "min", (False, True): "max"}
    extend = ends.get((bool(low < -limit), bool(high > limit)), "neither")
    bar = axes.figure.colorbar(scale, ax=axes, label="weight", fraction=0.02, pad=0.01, extend=extend)
    if low < high:
        bar.ax.set_ylim(-limit if low < 0 else 0, limit if high > 0 else 0)


def _points(axes: Axes) -> tuple[float, float]:
    """The width and the height of axes once all is in its place."""
    figure = axes.get_figure(root=True)
    engine = None if figure is None else figure.get_layout_engine()
    if figure is not None and engine is not None:
        engine.execute(figure)
    inches = axes.get_window_extent().transformed(axes.figure.dpi_scale_trans.inverted())
    return 72 * inches.width, 72 * inches.height


def _margin(layering: Layering, wide: float, names: bool) -> float:
    """How many layers' room to leave beside the first and the last one: as much as names need there."""
    last = layering.height - 1
    outer = np.flatnonzero(np.isin(layering.level, (0, last)))
    letters = max(3, *(len(str(layering.dag.labels[v])) for v in outer.tolist())) if names else 0
    needed = LETTER * LARGE * min(letters, OUTER) + 16  # points
    return needed * last / (wide - 2 * needed) if last and wide > 4 * needed else MARGIN


def _write_names(
    axes: Axes, layering: Layering, spot: FloatArray, room: FloatArray, radius: FloatArray, margin: float
) -> int:
    """Write the names of the layers that have room for them, long ones shortened; returns how many.

    A name stands above its node; in the first layer before it, in the last one behind it.
    """
    labels, last = layering.dag.labels, layering.height - 1
    font = float(np.clip(0.3 * room[:, 1].min(), FONT, LARGE))
    font = float(np.clip(room[0, 0] / LETTER / _usual_length(labels), FONT, font))
    outer = np.isin(layering.level, (0, last))
    letters = (np.where(outer, margin * room[0, 0] - 8, room[0, 0]) / (LETTER * font)).astype(np.int64)
    needed = np.where(outer, 1.1 * font, 2 * radius + 1.3 * font)
    nodes = np.flatnonzero((room[layering.level, 1] >= needed) & (letters >= 3))
    places = {0: (-1.5, 0, "right", "center"), last: (1.5, 0, "left", "center")}
    names = _shorten({node: legible(str(labels[node])) for node in nodes.tolist()}, letters)
    for node, name in names.items():
        right, up, across, along = places.get(int(layering.level[node]), (0, 1, "center", "bottom"))
        away = (radius[node] + 0.5) * np.array((right, up))
        axes.annotate(
            name, spot[node], away, textcoords="offset points", ha=across, va=along, fontsize=font, zorder=4,
            parse_math=False, bbox={"fc": "white", "alpha": 0.7, "lw": 0, "pad": 0.2}, in_layout=False,
        )  # fmt: skip
    return len(names)


def _shorten(names: dict[int, str], letters: IntArray) -> dict[int, str]:
    """Names cut at their end, or in the middle if they would be alike; those that still are alike are left out."""
    short = {node: _cut(name, int(letters[node])) for node, name in names.items()}
    short |= {node: _cut_middle(names[node], int(letters[node])) for node in _alike(short, names)}
    alike = _alike(short, names)
    return {node: name for node, name in short.items() if node not in alike}


def _alike(short: dict[int, str], names: dict[int, str]) -> set[int]:
    """Those of the shortened names that occur more than once."""
    times = Counter(short.values())
    return {node for node, name in short.items() if times[name] > 1 and name != names[node]}


def _cut(name: str, letters: int) -> str:
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _cut_middle(name: str, letters: int) -> str:
    if letters < LEAST:
        return _cut(name, letters)
    head = letters // 2
    return f"{name[:head].rstrip()}…{name[head + 1 - letters :].lstrip()}"


def _usual_length(labels: Labels) -> float:
    return float(max(np.quantile([len(str(label)) for label in labels], 0.9), 1))

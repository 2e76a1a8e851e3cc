"""The layered network as a picture: nodes by layer, edges by weight, histograms of degrees, weights and layers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import OptionError, require
from fourward.graph._base import BaseGraph
from fourward.graph._convert import Labels
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.layering._layering import Layering
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.view._colours import NodeColours, draw_coloured_nodes, keep_paths, read_colours
from fourward.view._density import draw_density
from fourward.view._histograms import draw_degrees, draw_layer_sizes, draw_weights, use_integer_ticks
from fourward.view._layout import FloatArray, bend_edges, layout_nodes
from fourward.view._palette import current_palette
from fourward.view._subject import (
    Subject,
    build_subject,
    colour_limit,
    compare,
    describe,
    kind_names,
    node_kinds,
    printable,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path as Curve

    from fourward.view._figure import Picture

Kind = Literal["auto", "lines", "density"]

MAX_EDGES, MAX_NODES = 12_000, 3_000  #: largest graph that kind="auto" draws with lines
MARKERS = (">", "o", "o", "s", ">")  #: shape of each of IO_KINDS, for readers who can't tell the colours apart

DASHES = (0, (4, 2.5))  #: line style of feedback edges
LOOP_HEIGHT = 0.05  #: how far the controls of a self-loop are above its node

MIN_FONT, MAX_FONT = 5.5, 8.5  #: size of a node's name, in points
LETTER_WIDTH = 0.62  #: relative to the font size
MARGIN = 1.5  #: beside the first and the last layer, in layers, where names don't fit there
MAX_OUTER_LETTERS = 18  #: letters of a name in that margin
MIN_SPLIT_LETTERS = 7  #: letters of a name that is cut in its middle


def draw(
    net_or_dag: FourWard | Recurrent | Dag | Digraph,
    path: str | Path | None = None,
    *,
    title: str | None = None,
    layering: Layering | None = None,
    weight: Any = None,
    kind: Kind = "auto",
    colour: Any = None,
    colour_label: str | None = None,
    only: Literal["paths"] | None = None,
    before: Any = None,
) -> Picture:
    """Draw a network or a graph layer by layer, with histograms of its degrees, weights and layer sizes.

    Sources and sinks have their own marks, or inputs and outputs if those are other nodes. Colours follow
    matplotlib's style: `with matplotlib.style.context("dark_background")` draws on dark paper. Feedback edges are
    dashed.

    Args:
        net_or_dag: A network, whose weights colour the edges, or a graph.
        path: A PNG, SVG or PDF file to write, by its suffix.
        title: Default: the size of the graph.
        layering: The layers to draw. Default: those of the network, or the paper's for a Dag.
        weight: (E,) numbers that colour the edges of a graph, such as synaptic strengths; a network has its own.
        kind: "lines" draws every node and edge, "density" the number of edges between layers; "auto" chooses lines
            for graphs that are small enough, or whose nodes are coloured.
        colour: What colours the nodes instead of their place in the graph: the name of an attribute, such as "class",
            or (N,) numbers by node index, such as importances or activations. Where a few of these dwarf the rest,
            colours follow their ranks.
        colour_label: Name of the numbers.
        only: "paths" draws only nodes on paths from an input to an output.
        before: An earlier wiring of the same nodes, a graph or (E, 2) node indices: edges that grew since then are
            violet, those that are gone orange and dashed, and all others grey.

    Returns:
        A matplotlib figure; a notebook displays it, and its `save(path)` writes it.

    >>> from fourward import generate
    >>> draw(generate.chain(3)).get_suptitle()
    '3 nodes, 2 edges, 1 input, 1 output'
    """
    if kind not in ("auto", "lines", "density"):
        raise OptionError(f"kind must be 'auto', 'lines' or 'density', got {kind!r}.")
    subject = build_subject(net_or_dag, layering, weight)
    colours = None if colour is None else read_colours(colour, subject.dag, colour_label)
    if only is not None:
        subject, colours = keep_paths(subject, colours, only)
    if before is not None:
        subject = compare(subject, before)
    require("matplotlib", "plot")
    from fourward.view._figure import check_suffix

    if path is not None:
        check_suffix(path)  # raises early for an unknown suffix
    reason, most_edges = "", MAX_EDGES if kind == "auto" else None
    if kind == "auto":
        is_small = subject.graph.num_edges <= MAX_EDGES and subject.dag.num_nodes <= MAX_NODES
        is_small |= colours is not None
        kind, reason = ("lines", "") if is_small else ("density", ", too many for lines")
    if kind == "density" and colours is not None:
        raise OptionError("kind='density' draws no nodes that colour= could colour. Omit one of them.")
    picture = _compose(subject, kind, reason, colours, most_edges)
    picture.set_title(title or describe(subject.present))
    if path is not None:
        picture.save(path)
    return picture


def _compose(
    subject: Subject, kind: Kind, reason: str, colours: NodeColours | None = None, most_edges: int | None = None
) -> Picture:
    """Everything but the title; `reason` says why "auto" chose density."""
    from fourward.view._figure import Picture

    graph, layering, changes = subject.graph, subject.layering, subject.count_changes()
    weight = subject.weight if graph.num_edges else None
    width, height = _figure_size(graph, layering) if kind == "lines" else (9.0, 7.5)
    picture = Picture(width + 3.6, height)
    rows = 2 if weight is None or changes else 3
    grid = picture.add_gridspec(rows, 2, width_ratios=[width, 3.6])
    main = picture.add_subplot(grid[:, 0])
    draw_degrees(picture.add_subplot(grid[0, 1]), subject.present)
    draw_layer_sizes(picture.add_subplot(grid[1, 1]), layering)
    if rows == 3 and weight is not None:
        draw_weights(picture.add_subplot(grid[2, 1]), weight)
    if kind == "lines":
        num_named = draw_layers(
            main, graph, layering, weight, names=True, colours=colours, most_edges=most_edges, changes=changes
        )
        shown = graph.num_edges if most_edges is None else min(graph.num_edges, most_edges)
        edges = "every edge" if shown == graph.num_edges else f"at most {shown:,} of {graph.num_edges:,} edges"
        caption = f"Shown: every node and {edges}, and the names of {num_named:,} of {graph.num_nodes:,} nodes."
    else:
        caption = draw_density(main, graph, layering, reason)
    picture.supxlabel(caption, fontsize=8)
    return picture


def _figure_size(graph: BaseGraph, layering: Layering) -> tuple[float, float]:
    """Width and height in inches that leave room for most names, within what a screen can show."""
    width = (layering.height + 1) * 1.25 * LETTER_WIDTH * MIN_FONT * min(_typical_length(graph.labels), 10) / 72
    height = np.bincount(layering.level).max() * 0.22
    return float(np.clip(width, 9, 24)), float(np.clip(height, 7, 14))


def draw_layers(
    axes: Axes,
    graph: BaseGraph,
    layering: Layering,
    weight: FloatArray | None = None,
    *,
    names: bool = False,
    movable: bool = True,
    colours: NodeColours | None = None,
    most_edges: int | None = None,
    changes: tuple[int, int] | None = None,
) -> int:
    """Draw nodes by layer in the paper's colours, and edges by weight, or grey without weights.

    Args:
        axes: Axes to draw into.
        graph: The graph; feedback edges are dashed.
        layering: Its layering.
        weight: (E,) of the edges.
        names: Whether to write the nodes' labels where they fit.
        movable: Whether hidden nodes that could move are white; else all are red.
        colours: Colours of the nodes instead of these.
        most_edges: Draw at most so many edges, those of the largest weights; default: all.
        changes: How many edges grew and how many are gone, where `weight` says so (1, -1, 0).

    Returns:
        How many names were written.
    """
    y = layout_nodes(graph.dag, layering)
    xy = np.column_stack((layering.level.astype(np.float64), y))
    overshoot = _draw_edges(axes, graph, xy, bend_edges(graph, layering, y), weight, most_edges, changes)
    axes.set(xlabel="layer", yticks=[], ylim=(-overshoot, 1 + overshoot))
    width, height = _size_in_points(axes)
    margin = _compute_margin(layering, width, names)
    axes.set_xlim(-margin, layering.height - 1 + margin)
    size = np.bincount(layering.level, minlength=layering.height)
    # (H, 2) points that each node of a layer has to itself, across and up
    spacing = np.column_stack(
        (np.full(layering.height, width / (layering.height - 1 + 2 * margin)), height / 1.08 / np.maximum(size, 1))
    )
    radius = np.clip(np.minimum(0.24 * spacing[:, 0], 0.4 * spacing[:, 1]), 1.2, 4.5)[layering.level]
    if colours is None:
        _draw_nodes(axes, layering, xy, radius, movable)
    else:
        draw_coloured_nodes(axes, colours, xy, radius)
    use_integer_ticks(axes.xaxis)
    ticks = axes.get_xticks()
    axes.set_xticks(ticks[(ticks >= 0) & (ticks < layering.height)])
    axes.spines[["left", "right", "top"]].set_visible(False)
    if colours is None or colours.codes is not None:
        columns = 5 if colours is None else 6
        axes.legend(loc="lower center", ncols=columns, frameon=False, bbox_to_anchor=(0.5, 1.0))
    return _write_names(axes, layering, xy, spacing, radius, margin) if names else 0


def _draw_nodes(axes: Axes, layering: Layering, xy: FloatArray, radius: FloatArray, movable: bool) -> None:
    palette, kind = current_palette(), node_kinds(layering, movable)
    colours = (palette.source, palette.hidden, palette.movable, palette.sink, palette.sink)
    for code, (name, colour, marker) in enumerate(zip(kind_names(layering.dag), colours, MARKERS, strict=False)):
        x, y = xy[kind == code].T
        area = (2 * radius[kind == code]) ** 2
        label = f"{name} ({len(x):,})" if len(x) else None
        style: dict[str, Any] = {"c": colour, "marker": marker, "edgecolors": palette.ink, "linewidths": 0.7}
        axes.scatter(x, y, s=area, zorder=3, label=label, **style)


def _draw_edges(
    axes: Axes, graph: BaseGraph, xy: FloatArray, bend: FloatArray, weight: FloatArray | None, most_edges: int | None,
    changes: tuple[int, int] | None,
) -> float:  # fmt: skip
    """Draw the edges; returns how far they, or nodes, reach below y=0 and above y=1."""
    from matplotlib.collections import PathCollection

    from fourward.view._figure import sign_colormap

    order = np.arange(graph.num_edges) if weight is None else np.argsort(np.abs(weight))  # strong edges on top
    if most_edges is not None and graph.num_edges > most_edges:
        order = order[:: graph.num_edges // most_edges + 1] if weight is None else order[-most_edges:]
    middle = (xy[graph.source[order], 1] + xy[graph.target[order], 1]) / 2
    overshoot = max(0.04, float((np.abs(middle + bend[order] - 0.5) - 0.48).max(initial=0.0)))
    curves = _trace_edges(xy[graph.source[order]], xy[graph.target[order]], bend[order])
    opacity = float(np.clip(1500 / max(graph.num_edges, 1), 0.12, 0.9))
    style: dict[str, Any] = {"facecolors": "none", "alpha": opacity, "zorder": 1, "in_layout": False}
    palette = current_palette()
    is_feedback = order >= graph.dag.num_edges
    if is_feedback.any():
        style["linestyles"] = [DASHES if dashed else "-" for dashed in is_feedback.tolist()]
        num_feedback = np.count_nonzero(is_feedback) - (changes[1] if changes else 0)
        if num_feedback:
            label = f"feedback ({num_feedback:,})"
            axes.plot([], [], linestyle=DASHES, linewidth=0.9, color=palette.edge, label=label)
    if changes:
        grown = {"color": palette.signs[-1], "label": f"grown ({changes[0]:,})"}
        gone = {"color": palette.signs[0], "label": f"gone ({changes[1]:,})", "linestyle": DASHES}
        for line in (grown, gone):
            axes.plot([], [], linewidth=1.4, **line)
    if weight is None:
        axes.add_collection(PathCollection(curves, edgecolors=palette.edge, linewidths=0.6, **style), autolim=False)
        return overshoot
    limit = colour_limit(weight)
    values = np.clip(np.nan_to_num(weight[order]), -limit, limit)
    thinnest = float(np.clip(60 / max(graph.num_edges, 1), 0.3, 0.9))  # keeps the weak edges of small graphs visible
    widths = thinnest + 1.1 * np.abs(values) / limit
    style |= {"cmap": sign_colormap(palette), "clim": (-limit, limit)}
    axes.add_collection(PathCollection(curves, linewidths=widths, array=values, **style), autolim=False)
    if not changes:
        _draw_colorbar(axes, weight, limit)
    return overshoot


def _trace_edges(begin: FloatArray, end: FloatArray, bend: FloatArray) -> list[Curve]:
    """The curves of edges between points; a self-loop is a drop beside its node."""
    from matplotlib.path import Path as Curve

    control = (begin + end) / 2
    control[:, 1] += 2 * bend  # a quadratic Bezier curve goes half as far as its control point
    codes = [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3]
    curves = [Curve(points, codes) for points in np.stack((begin, control, end), 1)]
    loop_codes = [Curve.MOVETO, *[Curve.CURVE4] * 3]
    for k in np.flatnonzero((begin == end).all(1)).tolist():
        offsets = np.array(((0, 0), (-0.35, LOOP_HEIGHT), (0.35, LOOP_HEIGHT), (0, 0)))
        curves[k] = Curve(begin[k] + offsets, loop_codes)
    return curves


def _draw_colorbar(axes: Axes, weight: FloatArray, limit: float) -> None:
    """The scale of the weights, with an arrow at an end that some exceed; it ends at 0 where all have one sign."""
    from matplotlib.cm import ScalarMappable

    from fourward.view._figure import sign_colormap

    scale = ScalarMappable(cmap=sign_colormap(current_palette()))
    scale.set_clim(-limit, limit)
    low, high = np.nanmin(weight, initial=0.0), np.nanmax(weight, initial=0.0)
    ends = {(True, True): "both", (True, False): "min", (False, True): "max"}
    extend = ends.get((bool(low < -limit), bool(high > limit)), "neither")
    bar = axes.figure.colorbar(scale, ax=axes, label="weight", fraction=0.02, pad=0.01, extend=extend)
    if low < high:
        bar.ax.set_ylim(-limit if low < 0 else 0, limit if high > 0 else 0)


def _size_in_points(axes: Axes) -> tuple[float, float]:
    """Width and height of axes after layout."""
    figure = axes.get_figure(root=True)
    engine = None if figure is None else figure.get_layout_engine()
    if figure is not None and engine is not None:
        engine.execute(figure)
    inches = axes.get_window_extent().transformed(axes.figure.dpi_scale_trans.inverted())
    return 72 * inches.width, 72 * inches.height


def _compute_margin(layering: Layering, width: float, names: bool) -> float:
    """The margin beside the first and the last layer, in layers: as much as names need there."""
    last = layering.height - 1
    outer = np.flatnonzero(np.isin(layering.level, (0, last)))
    letters = max(3, *(len(str(layering.dag.labels[v])) for v in outer.tolist())) if names else 0
    needed = LETTER_WIDTH * MAX_FONT * min(letters, MAX_OUTER_LETTERS) + 16  # points
    return needed * last / (width - 2 * needed) if last and width > 4 * needed else MARGIN


def _write_names(
    axes: Axes, layering: Layering, xy: FloatArray, spacing: FloatArray, radius: FloatArray, margin: float
) -> int:
    """Write the names of layers with room for them, long ones shortened; returns how many were written.

    A name stands above its node; in the first layer to its left, in the last one to its right.
    """
    labels, last = layering.dag.labels, layering.height - 1
    font = float(np.clip(0.3 * spacing[:, 1].min(), MIN_FONT, MAX_FONT))
    font = float(np.clip(spacing[0, 0] / LETTER_WIDTH / _typical_length(labels), MIN_FONT, font))
    outer = np.isin(layering.level, (0, last))
    available = np.where(outer, margin * spacing[0, 0] - 8, spacing[0, 0])
    max_letters = (available / (LETTER_WIDTH * font)).astype(np.int64)
    needed = np.where(outer, 1.1 * font, 2 * radius + 1.3 * font)
    nodes = np.flatnonzero((spacing[layering.level, 1] >= needed) & (max_letters >= 3))
    anchors = {0: (-1.5, 0, "right", "center"), last: (1.5, 0, "left", "center")}
    names = _shorten({node: printable(str(labels[node])) for node in nodes.tolist()}, max_letters)
    box = {"fc": current_palette().paper, "alpha": 0.7, "lw": 0, "pad": 0.2}
    for node, name in names.items():
        right, up, ha, va = anchors.get(int(layering.level[node]), (0, 1, "center", "bottom"))
        offset = (radius[node] + 0.5) * np.array((right, up))
        axes.annotate(
            name, xy[node], offset, textcoords="offset points", ha=ha, va=va, fontsize=font, zorder=4,
            parse_math=False, bbox=box, in_layout=False,
        )  # fmt: skip
    return len(names)


def _shorten(names: dict[int, str], max_letters: IntArray) -> dict[int, str]:
    """Names cut at their end, or in the middle where that keeps them distinct; those that still collide are omitted."""
    short = {node: _cut_end(name, int(max_letters[node])) for node, name in names.items()}
    short |= {node: _cut_middle(names[node], int(max_letters[node])) for node in _collisions(short, names)}
    collisions = _collisions(short, names)
    return {node: name for node, name in short.items() if node not in collisions}


def _collisions(short: dict[int, str], names: dict[int, str]) -> set[int]:
    """The nodes whose shortened name occurs more than once."""
    times = Counter(short.values())
    return {node for node, name in short.items() if times[name] > 1 and name != names[node]}


def _cut_end(name: str, letters: int) -> str:
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _cut_middle(name: str, letters: int) -> str:
    if letters < MIN_SPLIT_LETTERS:
        return _cut_end(name, letters)
    head = letters // 2
    return f"{name[:head].rstrip()}…{name[head + 1 - letters :].lstrip()}"


def _typical_length(labels: Labels) -> float:
    return float(max(np.quantile([len(str(label)) for label in labels], 0.9), 1))

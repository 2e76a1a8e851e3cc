"""Histograms of degrees, weights and layer sizes: the small axes beside a drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fourward.graph._base import BaseGraph
from fourward.layering._layering import Layering
from fourward.view._layout import FloatArray
from fourward.view._palette import current_palette
from fourward.view._subject import colour_limit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

MAX_BINS = 1000  #: bins of the histogram of layer sizes
LOG_DEGREE = 40  #: largest degree that is still drawn on linear axes


def draw_degrees(axes: Axes, graph: BaseGraph) -> None:
    """Draw how many nodes have each in-degree and out-degree; on logarithmic axes where degrees are large."""
    logarithmic = max(int(graph.in_degree.max()), int(graph.out_degree.max())) > LOG_DEGREE
    palette, highest = current_palette(), 0
    axes.margins(0.08)
    series = (("in", graph.in_degree, "o", palette.bar), ("out", graph.out_degree, "x", palette.mark))
    for name, degree, marker, colour in series:
        count = np.bincount(degree)
        present = np.flatnonzero(count[1:]) + 1 if logarithmic else np.flatnonzero(count)
        axes.plot(present, count[present], marker, ms=4, color=colour, mfc="none", label=name)
        highest = max(highest, int(count.max()))
    if logarithmic:
        axes.set(title="degrees", xlabel="degree (0 left out)", ylabel="nodes", xscale="log", yscale="log")
    else:
        axes.set(title="degrees", xlabel="degree", ylabel="nodes", ylim=(0, 1.1 * highest))
        use_integer_ticks(axes.xaxis, axes.yaxis)
    axes.legend(frameon=False, fontsize=8)


def draw_layer_sizes(axes: Axes, layering: Layering) -> None:
    """Draw the number of nodes of each layer; where there are more than MAX_BINS layers, means over several."""
    per_bin = -(-layering.height // MAX_BINS)
    start = np.arange(0, layering.height, per_bin)
    end = np.append(start[1:], layering.height)
    size = np.bincount(layering.level // per_bin) / (end - start)
    axes.stairs(size, np.append(start, layering.height) - 0.5, fill=True, color=current_palette().bar)
    xlabel = "layer" if per_bin == 1 else f"layer (means of {per_bin:,})"
    axes.set(title="nodes per layer", xlabel=xlabel, ylabel="nodes")
    use_integer_ticks(axes.xaxis, axes.yaxis)
    if size.max() > 1000 * max(size.min(), 1):
        axes.set_yscale("log")


def draw_weights(axes: Axes, weight: FloatArray) -> None:
    """Draw how many edges have each weight, in the colours of the drawing."""
    from fourward.view._figure import sign_colormap

    palette = current_palette()
    finite = weight[np.isfinite(weight)]
    count, edge = np.histogram(finite, bins=61)
    middle, limit = (edge[1:] + edge[:-1]) / 2, colour_limit(weight)
    colours = sign_colormap(palette)(0.5 + middle / limit / 2)
    axes.bar(middle, count, np.diff(edge), color=colours, edgecolor=palette.bar, linewidth=0.3)
    lost = len(weight) - len(finite)
    axes.set(title=f"weights ({lost:,} not finite)" if lost else "weights", xlabel="weight", ylabel="edges")
    use_integer_ticks(axes.yaxis)


def use_integer_ticks(*axes: Axis) -> None:
    """Put ticks at integers only, and fewer of them where the numbers are long."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    for axis in axes:
        long = max(map(abs, axis.get_view_interval())) >= 10_000
        axis.set_major_locator(MaxNLocator(nbins=4 if long else 9, integer=True, min_n_ticks=1))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

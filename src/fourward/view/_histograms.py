"""How degrees, weights and layers are spread: the small panels beside a drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fourward.graph._dag import Dag
from fourward.layering._layering import Layering
from fourward.view._layout import FloatArray
from fourward.view._subject import limit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

GREY = "#5a5a5a"
STEPS = 1000  #: of the panel of layers, at most


def draw_degrees(axes: Axes, dag: Dag) -> None:
    """Nodes by in-degree and by out-degree, on logarithmic axes where degrees go far."""
    far = max(int(dag.in_degree.max()), int(dag.out_degree.max())) > 40
    most = 0
    axes.margins(0.08)
    for name, degree, look in (("in", dag.in_degree, "o"), ("out", dag.out_degree, "x")):
        count = np.bincount(degree)
        present = np.flatnonzero(count[1:]) + 1 if far else np.flatnonzero(count)
        axes.plot(present, count[present], look, ms=4, color=GREY if look == "o" else "black", mfc="none", label=name)
        most = max(most, int(count.max()))
    if far:
        axes.set(title="degrees", xlabel="degree (0 left out)", ylabel="nodes", xscale="log", yscale="log")
    else:
        axes.set(title="degrees", xlabel="degree", ylabel="nodes", ylim=(0, 1.1 * most))
        whole_numbers(axes.xaxis, axes.yaxis)
    axes.legend(frameon=False, fontsize=8)


def draw_widths(axes: Axes, layering: Layering) -> None:
    """The number of nodes of each layer; of very many layers, means over stretches of them."""
    stretch = -(-layering.height // STEPS)
    start = np.arange(0, layering.height, stretch)
    end = np.append(start[1:], layering.height)
    size = np.bincount(layering.level // stretch) / (end - start)
    axes.stairs(size, np.append(start, layering.height) - 0.5, fill=True, color=GREY)
    along = "layer" if stretch == 1 else f"layer (means of {stretch:,})"
    axes.set(title="nodes per layer", xlabel=along, ylabel="nodes")
    whole_numbers(axes.xaxis, axes.yaxis)
    if size.max() > 1000 * max(size.min(), 1):
        axes.set_yscale("log")


def draw_weights(axes: Axes, weight: FloatArray) -> None:
    """Edges by weight, in the colours that the weights have in the drawing."""
    from fourward.view._figure import SIGNS

    finite = weight[np.isfinite(weight)]
    count, edge = np.histogram(finite, bins=61)
    middle, limit = (edge[1:] + edge[:-1]) / 2, limit_of(weight)
    axes.bar(middle, count, np.diff(edge), color=SIGNS(0.5 + middle / limit / 2), edgecolor=GREY, linewidth=0.3)
    lost = len(weight) - len(finite)
    axes.set(title=f"weights ({lost:,} not finite)" if lost else "weights", xlabel="weight", ylabel="edges")
    whole_numbers(axes.yaxis)


def whole_numbers(*axes: Axis) -> None:
    """Ticks at whole numbers alone, fewer of them where they are long."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    for axis in axes:
        long = max(map(abs, axis.get_view_interval())) >= 10_000
        axis.set_major_locator(MaxNLocator(nbins=4 if long else 9, integer=True, min_n_ticks=1))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

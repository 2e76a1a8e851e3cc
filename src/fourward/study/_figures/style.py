"""What all figures share: their style, saving, and maps of cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._files import replacing
from fourward.errors import require
from fourward.study._aggregate import EMPTY, Cells, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
#: Lightness increases with the value, in colour and in grey, for all kinds of colour vision.
COLOUR_MAP = "cividis"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.5,
    "hatch.color": "#9a9a9a",
    "svg.hashsalt": "fourward",  # the same figure is the same file
}


def new_figure(draw: Callable[[Figure], None], width: float, height: float) -> Figure:
    """A figure of this size in inches, drawn in our style."""
    matplotlib = require("matplotlib", "plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure)
    return figure


def encode(figure: Figure, format: str) -> bytes:
    """The figure as a PNG or an SVG file."""
    buffer = BytesIO()
    with require("matplotlib", "plot").rc_context(STYLE):
        figure.savefig(buffer, format=format, dpi=150, metadata={"Date": None} if format == "svg" else None)
    return buffer.getvalue()


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure in every format; each file is replaced atomically."""
    paths = [folder / f"{name}.{format}" for format in FORMATS]
    for path in paths:
        with replacing(path) as temporary:
            temporary.write_bytes(encode(figure, path.suffix[1:]))
    return paths


def log_norm(groups: Sequence[Cells]) -> LogNorm:
    """A common logarithmic scale for all these cells."""
    from matplotlib.colors import LogNorm

    means = [cell.mean for cells in groups for cell in cells.values() if cell.mean] or [1.0]
    middle = (min(means) * max(means)) ** 0.5  # never so narrow that noise spans all colours
    return LogNorm(min(*means, middle / 1.2), max(*means, middle * 1.2))


def draw_scale(figure: Figure, image: Any, axes: Any, label: str = "") -> None:
    """The colour bar, with plain numbers beside it."""
    ticks = np.geomspace(image.norm.vmin, image.norm.vmax, 5).tolist()
    bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01, label=label)
    bar.set_ticks(ticks, labels=[format_number(tick) for tick in ticks])
    bar.minorticks_off()
    bar.outline.set_visible(False)


def draw_map(
    axes: Axes, cells: Cells, sizes: Sequence[int], densities: Sequence[float], norm: Any, *, unity: bool = False
) -> Any:
    """Cells by size and p, each with its number; cells without one are hatched and say why.

    Args:
        axes: Axes to draw into.
        cells: The cells, by (size, p).
        sizes: Sizes along the vertical axis, from the bottom.
        densities: Probabilities along the horizontal axis.
        norm: Maps values to colours.
        unity: Draw the line along which the value is 1.
    """
    grid = [[cells.get((size, p), EMPTY) for p in densities] for size in sizes]
    values = np.ma.masked_invalid([[np.nan if cell.mean is None else cell.mean for cell in line] for line in grid])
    image = axes.imshow(values, cmap=COLOUR_MAP, norm=norm, origin="lower", aspect="auto")
    for y, line in enumerate(grid):
        for x, cell in enumerate(line):
            if cell.mean is None:
                hatch_cell(axes, x, y, cell.status)
            else:
                _write_number(axes, x, y, format_number(cell.mean), image.cmap(norm(cell.mean)))
    if unity and values.count() and values.min() < 1 < values.max() and min(values.shape) > 1:
        _draw_unity(axes, values)
    axes.set_xticks(range(len(densities)), [f"{p:g}" for p in densities])
    axes.set_yticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set(xlabel="$p$", ylabel="$|\\mathcal{N}|$")
    axes.spines[:].set_visible(False)
    return image


def _write_number(axes: Axes, x: float, y: float, text: str, ground: Any) -> None:
    """A number on the colour of its cell, readable where a line crosses it."""
    dark = np.dot(ground[:3], (0.299, 0.587, 0.114)) < 0.5
    box = {"facecolor": ground, "edgecolor": "none", "pad": 0.2}
    colour = "white" if dark else "black"
    axes.text(x, y, text, ha="center", va="center", fontsize=7, color=colour, bbox=box, zorder=5)


def hatch_cell(axes: Axes, x: float, y: float, reason: str) -> None:
    """Draw a hatched cell that says why it has no number."""
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="#f2f2f2", edgecolor="#9a9a9a", hatch="////", lw=0))
    box = {"facecolor": "#f2f2f2", "edgecolor": "none", "pad": 0.8}
    axes.text(x, y, reason.replace(" ", "\n"), ha="center", va="center", fontsize=6, color="#333333", bbox=box)


def _draw_unity(axes: Axes, values: Any) -> None:
    from matplotlib.patheffects import Stroke

    lines = axes.contour(values, levels=[1.0], colors="white", linewidths=2.2)
    lines.set_path_effects([Stroke(linewidth=4.2, foreground="black"), Stroke(linewidth=2.2, foreground="white")])


def draw_text(axes: Axes, text: str) -> None:
    """Show text instead of a drawing."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color="#555555")

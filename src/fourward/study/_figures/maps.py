"""Maps over the paper's grid of sizes and probabilities: times, gains, training steps, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fourward.study._aggregate import Cells, aggregate, distinct, gain_cells, select
from fourward.study._figures.style import draw_map, draw_scale, log_norm
from fourward.study._store import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Methods as figures and tables name them, slowest first.
METHODS = {"sequential": "sequential", "deepstruct": "deepstruct", "4ward": "4Ward", "fourward": "fourward"}
#: (slower, faster): the paper's two gains, and ours over its method.
GAINS = (("sequential", "4ward"), ("deepstruct", "4ward"), ("4ward", "fourward"))
BATCHES = 100  #: batches in each of the paper's times


def draw_times(figure: Figure, rows: Sequence[Row]) -> None:
    """A row of maps for each method, a column for each batch size; seconds for 100 batches."""
    batches, methods = distinct(rows, "batch"), methods_in(rows)
    cells: dict[tuple[str, int], Cells] = {
        (method, batch): aggregate(select(rows, method=method, batch=batch), ("size", "p"), "mean", BATCHES)
        for method in methods
        for batch in batches
    }
    _draw_grid(figure, rows, [[cells[method, batch] for batch in batches] for method in methods], one_scale=True)
    _label_grid(figure, [METHODS[method] for method in methods], [f"batch size {batch}" for batch in batches])


def draw_gains(figure: Figure, rows: Sequence[Row], pairs: Sequence[tuple[str, str]] = GAINS) -> None:
    """A row of maps for each pair of methods, a column for each batch size; the white line is a gain of 1."""
    batches, methods = distinct(rows, "batch"), methods_in(rows)
    pairs = [pair for pair in pairs if set(pair) <= set(methods)]
    cells: list[list[Cells]] = [[gain_cells(select(rows, batch=batch), *pair) for batch in batches] for pair in pairs]
    _draw_grid(figure, rows, cells, unity=True)
    names = [f"{METHODS[slow]} / {METHODS[fast]}" for slow, fast in pairs]
    _label_grid(figure, names, [f"batch size {batch}" for batch in batches])


def draw_training(figure: Figure, rows: Sequence[Row]) -> None:
    """How many times faster a training step is than the paper's method's."""
    draw_gains(figure, rows, [("4ward", "fourward")])


def draw_attributes(figure: Figure, rows: Sequence[Row]) -> None:
    """Mean height, and mean height attenuation."""
    sizes, densities = distinct(rows, "size"), distinct(rows, "p")
    names = {"height": "height $H$", "attenuation": "height attenuation $|\\mathcal{N}|/H$"}
    for axes, (name, title) in zip(figure.subplots(1, 2), names.items(), strict=True):
        cells = aggregate(rows, ("size", "p"), name)
        draw_scale(figure, draw_map(axes, cells, sizes, densities, log_norm([cells])), axes)
        axes.set_title(title)


def methods_in(rows: Sequence[Row]) -> list[str]:
    """The methods that occur, in our order."""
    return [method for method in METHODS if select(rows, method=method)]


def _draw_grid(
    figure: Figure, rows: Sequence[Row], cells: list[list[Cells]], *, one_scale: bool = False, unity: bool = False
) -> None:
    """Maps in rows and columns; a scale for each row, or one for all."""
    sizes, densities = distinct(rows, "size"), distinct(rows, "p")
    shared = log_norm([group for line in cells for group in line])
    grid = figure.subplots(len(cells), len(cells[0]), squeeze=False)
    for axes_line, line in zip(grid, cells, strict=True):
        norm = shared if one_scale else log_norm(line)
        for axes, group in zip(axes_line, line, strict=True):
            image = draw_map(axes, group, sizes, densities, norm, unity=unity)
            axes.label_outer()
        if not one_scale:
            draw_scale(figure, image, axes_line)
    if one_scale:
        draw_scale(figure, image, grid, f"seconds for {BATCHES} batches")


def _label_grid(figure: Figure, rows: list[str], columns: list[str]) -> None:
    """Titles above the first row, and each row's name beside its first map."""
    maps = [axes for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]
    for k, axes in enumerate(maps):
        row, column = divmod(k, len(columns))
        if row == 0:
            axes.set_title(columns[column])
        if column == 0:
            axes.set_ylabel(f"{rows[row]}\n\n{axes.get_ylabel()}")

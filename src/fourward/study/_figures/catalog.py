"""All figures that a results file has rows for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fourward.study._aggregate import RowsByExperiment, device_rows, distinct, latest_rows
from fourward.study._figures.bars import draw_reassignment
from fourward.study._figures.examples import draw_forward, draw_layerings, draw_overview
from fourward.study._figures.maps import GAINS, draw_attributes, draw_gains, draw_times, draw_training, methods_in
from fourward.study._figures.style import new_figure, save
from fourward.study._figures.topologies import COLUMNS, draw_ablation, draw_accuracy
from fourward.study._store import Row, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """A figure with its name, which is also that of its file, and its caption; drawn when it is first used."""

    name: str
    caption: str
    draw: Callable[[Figure], None]
    width: float  #: inches
    height: float

    @cached_property
    def figure(self) -> Figure:
        """The figure."""
        return new_figure(self.draw, self.width, self.height)


def write_figures(store: Store, folder: Path | str) -> list[Path]:
    """Write every figure that the store has rows for into a folder, as PNG and SVG."""
    drawings = available_figures(latest_rows(store))
    return [path for drawn in drawings for path in save(drawn.figure, Path(folder), drawn.name)]


def available_figures(rows: RowsByExperiment) -> Iterator[Drawing]:
    """Every figure that these rows allow; figures that only explain need none."""
    timed = [device_rows(rows, "times", device) for device in distinct(rows.get("times", []), "device")]
    yield _drawing("overview", OVERVIEW, draw_overview, timed[0] if timed else [], 14, 3.6)
    yield _drawing("forward", FORWARD, draw_forward, [], 9, 5.6)
    yield _drawing("layerings", LAYERINGS, draw_layerings, [], 10, 7.5)
    for experiment in ("times", "training", "reassignment"):
        for device in distinct(rows.get(experiment, []), "device"):
            yield from _timed(experiment, device, device_rows(rows, experiment, device))
    if rows.get("attributes"):
        yield _drawing("attributes", ATTRIBUTES, draw_attributes, rows["attributes"], 9, 3.4)
    if rows.get("topologies"):
        yield from _topologies(rows["topologies"])


def _timed(experiment: str, device: str, rows: Sequence[Row]) -> Iterator[Drawing]:
    """The figures of one experiment on one device."""
    where, methods = f"On {device}. ", methods_in(rows)
    columns, pairs = len(distinct(rows, "batch")), [pair for pair in GAINS if set(pair) <= set(methods)]
    width = 1.6 + 3.3 * columns
    if experiment == "times":
        yield _drawing(f"times-{device}", where + TIMES, draw_times, rows, width, 0.5 + 2.3 * len(methods))
        if pairs:
            yield _drawing(f"gains-{device}", where + GAIN, draw_gains, rows, width, 0.5 + 2.3 * len(pairs))
    elif experiment == "training" and ("4ward", "fourward") in pairs:
        yield _drawing(f"training-{device}", where + TRAINING, draw_training, rows, width, 2.8)
    elif experiment == "reassignment":
        yield _drawing(f"reassignment-{device}", where + REASSIGNMENT, draw_reassignment, rows, 9, 4.2)


def _topologies(rows: Sequence[Row]) -> Iterator[Drawing]:
    lines = -(-len(distinct(rows, "data")) // COLUMNS)
    yield _drawing("accuracy", ACCURACY, draw_accuracy, rows, 12, 0.4 + 2.5 * lines)
    for kind in ("edges", "neurons"):
        draw = partial(draw_ablation, kind=kind)
        yield _drawing(f"ablation-{kind}", ABLATION.format(kind=kind), draw, rows, 12, 0.6 + 2.6 * lines)


def _drawing(
    name: str, caption: str, draw: Callable[[Figure, Sequence[Row]], None], rows: Sequence[Row], *size: float
) -> Drawing:
    return Drawing(name, caption, lambda figure: draw(figure, rows), *size)


OVERVIEW = (
    "Overview. Random graphs are drawn over a grid of sizes and probabilities; each becomes a DAG along a random order "
    "of its nodes (sources green, hidden nodes red, sinks violet); 4Ward (violet background) sorts the nodes into "
    "layers and computes each as a masked product; the forward passes are timed."
)
FORWARD = (
    "A forward pass step by step: the activations of layer 1, then of layer 2. A layer's product reads exactly the "
    "predecessors of its nodes, in whatever layer they are; grey entries are masked."
)
LAYERINGS = (
    "Four layerings of one graph with 32 nodes: by the longest path, where white nodes can move, and reassigned."
)
TIMES = "Mean times of 100 forward passes, by size and probability. Hatched: cut off by the time limit, or not run."
GAIN = "Mean gains: the time of the first method over that of the second. White line: a gain of 1."
TRAINING = "A training step, which the paper did not measure: the time of the paper's method over that of fourward."
ATTRIBUTES = "Mean height (left) and mean height attenuation (right) of the graphs."
REASSIGNMENT = (
    "Node reassignment. Left: mean times of 100 forward passes over graphs and layerings, with standard deviations "
    "between the layerings of one graph, averaged over graphs. "
    "Right: height of the graphs, and the fraction of hidden nodes that another layering moves."
)
ACCURACY = "Held-out accuracy of each topology: mean over seeds with its 95 % confidence interval (Student's t)."
ABLATION = (
    "Held-out accuracy against the fraction of {kind} removed at random, without further training: mean over seeds, "
    "with 95 % confidence bands. Dotted: the frequency of the most frequent class."
)

"""All figures that a results file has rows for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fourward.study._aggregate import Rows, among, newest, on_device
from fourward.study._figures.bars import draw_reassignment
from fourward.study._figures.examples import draw_forward, draw_layerings, draw_overview
from fourward.study._figures.maps import GAINS, draw_attributes, draw_gains, draw_times, draw_training, present
from fourward.study._figures.style import new_figure, save
from fourward.study._figures.topologies import COLUMNS, draw_accuracy, draw_damage
from fourward.study._store import Row, Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Picture(NamedTuple):
    """A figure with its name, which is that of its file, and what it shows."""

    name: str
    caption: str
    figure: Figure


def draw_all(store: Store, folder: Path | str) -> list[Path]:
    """Write every figure that the store has rows for into a folder, as PNG and SVG."""
    return [path for one in pictures(newest(store)) for path in save(one.figure, Path(folder), one.name)]


def pictures(found: Rows) -> Iterator[Picture]:
    """Every figure that these rows, by experiment, allow; those that only explain need none."""
    measured = [on_device(found, "times", device) for device in among(found.get("times", []), "device")]
    yield _picture("overview", OVERVIEW, draw_overview, measured[0] if measured else [], 14, 3.6)
    yield _picture("forward", FORWARD, draw_forward, [], 9, 5.6)
    yield _picture("layerings", LAYERINGS, draw_layerings, [], 10, 7.5)
    for experiment in ("times", "training", "reassignment"):
        for device in among(found.get(experiment, []), "device"):
            yield from _timed(experiment, device, on_device(found, experiment, device))
    if found.get("attributes"):
        yield _picture("attributes", ATTRIBUTES, draw_attributes, found["attributes"], 9, 3.4)
    if found.get("topologies"):
        yield from _topologies(found["topologies"])


def _timed(experiment: str, device: str, rows: Sequence[Row]) -> Iterator[Picture]:
    """The figures of one experiment on one device."""
    where, methods = f"On {device}. ", present(rows)
    columns, pairs = len(among(rows, "batch")), [pair for pair in GAINS if set(pair) <= set(methods)]
    width = 1.6 + 3.3 * columns
    if experiment == "times":
        yield _picture(f"times-{device}", where + TIMES, draw_times, rows, width, 0.5 + 2.3 * len(methods))
        if pairs:
            yield _picture(f"gains-{device}", where + GAIN, draw_gains, rows, width, 0.5 + 2.3 * len(pairs))
    elif experiment == "training" and ("4ward", "fourward") in pairs:
        yield _picture(f"training-{device}", where + TRAINING, draw_training, rows, width, 2.8)
    elif experiment == "reassignment":
        yield _picture(f"reassignment-{device}", where + REASSIGNMENT, draw_reassignment, rows, 9, 4.2)


def _topologies(rows: Sequence[Row]) -> Iterator[Picture]:
    lines = -(-len(among(rows, "data")) // COLUMNS)
    yield _picture("accuracy", ACCURACY, draw_accuracy, rows, 12, 0.4 + 2.5 * lines)
    for kind in ("edges", "neurons"):
        draw = partial(draw_damage, kind=kind)
        yield _picture(f"damage-{kind}", DAMAGE.format(kind=kind), draw, rows, 12, 0.6 + 2.6 * lines)


def _picture(
    name: str, caption: str, draw: Callable[[Figure, Sequence[Row]], None], rows: Sequence[Row], *size: float
) -> Picture:
    return Picture(name, caption, new_figure(lambda figure: draw(figure, rows), *size))


OVERVIEW = (
    "Overview. Random graphs are drawn over a grid of sizes and probabilities; each becomes a DAG along a random order "
    "of its nodes (sources green, hidden nodes red, sinks violet); 4Ward (on violet ground) sorts the nodes into "
    "layers and makes a masked product of each; the forward passes are timed."
)
FORWARD = (
    "A forward pass by hand: the activations of layer 1, then of layer 2. A layer's product reads exactly the nodes "
    "that feed it, wherever they stand; grey entries are masked."
)
LAYERINGS = (
    "Four layerings of one graph with 32 nodes: by the longest path, where white nodes can move, and reassigned."
)
TIMES = "Mean times of 100 forward passes, by size and probability. Hatched: cut off by the time limit, or not run."
GAIN = "Mean gains: how many times as long the first method takes as the second. White line: both take equally long."
TRAINING = (
    "A whole training step, which the paper did not measure: the time of the paper's method over that of fourward."
)
ATTRIBUTES = "Mean height (left) and mean height attenuation (right) of the graphs."
REASSIGNMENT = (
    "Node reassignment. Left: mean times of 100 forward passes over graphs and layerings, with standard deviations "
    "between the layerings of one graph, averaged over graphs. "
    "Right: height of the graphs, and the share of hidden nodes that another layering moves."
)
ACCURACY = "Held-out accuracy of each topology: mean over seeds with its 95 % confidence interval (Student's t)."
DAMAGE = (
    "Held-out accuracy as a rising share of {kind} is removed at random, without learning again: mean over seeds, with "
    "95 % confidence bands. Dotted: the share of the most frequent class."
)

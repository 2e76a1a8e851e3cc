"""Pictures of training: learning curves, and the activations of each layer for each sample."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from fourward.errors import InputError, OptionError, require
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.view._histograms import use_integer_ticks
from fourward.view._layout import FloatArray
from fourward.view._palette import current_palette
from fourward.view._subject import compute_activations, format_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fourward.view._figure import Picture

X_COLUMNS = ("epoch", "step")  #: the first of these that a history has is the x axis
SPLITS = ("train", "val", "validation", "test")  #: prefixes of columns such as "val_loss"
NOT_METRICS = (*X_COLUMNS, "seconds")
MAX_VALUES = 1 << 23  #: activations in memory at a time
DASHES, MARKERS = ("-", "--", "-.", ":"), ("o", "s", "^", "D")  #: line style and marker of each split

History = Mapping[str, Sequence[float | None]]


def learning_curves(history: History | str | Path, path: str | Path | None = None) -> Picture:
    """Plot a training history: axes for each metric (loss, accuracy, ...), a line for each split of the data.

    Args:
        history: Columns by name, or a CSV file with them: "epoch", and metrics such as "train_loss", "val_loss",
            "test_accuracy" or "learning_rate". Missing values are skipped.
        path: A PNG, SVG or PDF file to write, by its suffix.
    """
    require("matplotlib", "plot")
    from fourward.view._figure import Picture

    columns = _read_columns(history)
    metrics = [name for name in columns if name not in NOT_METRICS and np.isfinite(columns[name]).any()]
    if not metrics:
        raise InputError(f"expected columns of metrics such as 'train_loss', got {list(columns)}.")
    by_metric: dict[str, list[str]] = {}
    for name in metrics:
        by_metric.setdefault(_split_name(name)[1], []).append(name)
    splits = dict.fromkeys(_split_name(name)[0] for name in metrics)
    styles = dict(zip(splits, cycle(zip(current_palette().lines, DASHES, MARKERS, strict=True)), strict=False))
    xlabel = next((name for name in X_COLUMNS if name in columns), None)
    x = np.arange(float(len(columns[metrics[0]]))) if xlabel is None else columns[xlabel]
    picture = Picture(5.5 * len(by_metric), 4)
    for axes, (metric, names) in zip(
        np.atleast_1d(picture.subplots(1, len(by_metric))), by_metric.items(), strict=True
    ):
        for name in names:
            _draw_line(axes, x, columns[name], _humanize(name), styles[_split_name(name)[0]])
        axes.set(title=_humanize(metric), xlabel=xlabel or "row")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        use_integer_ticks(axes.xaxis)
    if path is not None:
        picture.save(path)
    return picture


def _split_name(name: str) -> tuple[str, str]:
    """The split and the metric of a column: "val_loss" is ("val", "loss"), "lr" is ("", "lr")."""
    split, _, metric = name.partition("_")
    return (split, metric) if split in SPLITS and metric else ("", name)


def _humanize(name: str) -> str:
    return name.replace("_", " ").strip()


def _draw_line(axes: Axes, x: FloatArray, y: FloatArray, name: str, style: tuple[str, str, str]) -> None:
    colour, dashes, marker = style
    finite = np.isfinite(x) & np.isfinite(y)
    every = max(np.count_nonzero(finite) // 12, 1)
    axes.plot(x[finite], y[finite], dashes, color=colour, marker=marker, markevery=every, ms=4, label=name)


def _read_columns(history: History | str | Path) -> dict[str, FloatArray]:
    if isinstance(history, Mapping):
        columns = {str(name): list(values) for name, values in history.items()}
    else:
        with open(history, encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            names, rows = table.fieldnames or (), list(table)
        columns = {name: [_parse_number(name, row[name]) for row in rows] for name in names}
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise InputError(f"expected columns of equal length, got lengths {sorted(lengths)}.")
    return {name: np.array(values, np.float64) for name, values in columns.items()}  # None becomes NaN


def _parse_number(name: str, text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InputError(f"expected numbers in the column {name!r} of the history, got {text!r}.") from None


def activation_map(
    net: FourWard | Recurrent,
    x: torch.Tensor,
    path: str | Path | None = None,
    *,
    samples: int = 200,
) -> Picture:
    """Draw the mean absolute activation of each layer (vertical) for each sample (horizontal).

    Args:
        net: The network.
        x: (S, num_inputs) samples, such as some that training didn't see; of a Recurrent also sequences (S, T,
            num_inputs), after whose last step the activations are drawn.
        path: A PNG, SVG or PDF file to write, by its suffix.
        samples: How many to draw at most, from the first on.
    """
    require("matplotlib", "plot")
    from fourward.view._figure import Picture

    if samples < 1:
        raise OptionError(f"samples must be at least 1, got {samples}.")
    if x.dim() not in ((2, 3) if isinstance(net, Recurrent) else (2,)) or len(x) == 0:
        raise InputError(f"expected x of shape (samples, {net.dag.num_inputs}), got {tuple(x.shape)}.")
    mean = mean_activations(net, x[:samples])
    picture = Picture(8, 5.5)
    axes = picture.subplots()
    image = axes.imshow(mean, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest")
    axes.set(title="mean absolute activation", xlabel="sample", ylabel="layer")
    use_integer_ticks(axes.xaxis, axes.yaxis)
    picture.colorbar(image, ax=axes, label="mean |activation|")
    caption = f"Shown: {mean.shape[1]:,} of {len(x):,} samples, {format_all(len(mean), 'layer')}."
    picture.supxlabel(caption, fontsize=8)
    if path is not None:
        picture.save(path)
    return picture


def mean_activations(net: FourWard | Recurrent, x: torch.Tensor) -> FloatArray:
    """(H, S) the mean absolute activation of each layer for each sample, some samples at a time."""
    layering = net.layering
    level = torch.as_tensor(np.array(layering.level), dtype=torch.int64)
    size = torch.bincount(level, minlength=layering.height)
    means = []
    for rows in x.split(max(MAX_VALUES // net.dag.num_nodes, 1)):
        total = torch.zeros(len(rows), layering.height).double()
        means.append(total.index_add_(1, level, compute_activations(net, rows).abs().double()) / size)
    return np.asarray(torch.cat(means).T.numpy())

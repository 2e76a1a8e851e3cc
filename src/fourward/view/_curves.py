"""What training left behind: learning curves, and which layers are active for which samples."""

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
from fourward.view._histograms import whole_numbers
from fourward.view._layout import FloatArray
from fourward.view._subject import activations_of, all_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fourward.view._figure import Picture

AXIS = ("epoch", "step")  #: the first of these columns that is there goes along the bottom
PARTS = ("train", "val", "held", "test")  #: of the data; a column such as "val_loss" is the loss of a part
ASIDE = (*AXIS, "seconds")  #: columns that say nothing of what was learned
VALUES = 1 << 23  #: activations that are held at a time
LOOKS = (("#3c1361", "-", "o"), ("#c05a00", "--", "s"), ("#2a7f62", "-.", "^"), ("#555555", ":", "D"))

History = Mapping[str, Sequence[float | None]]


def learning_curves(history: History | str | Path, path: str | Path | None = None) -> Picture:
    """Draw how a training went: a panel for each measure (loss, accuracy, ...), a line for each part of the data.

    Args:
        history: Columns by name, or a CSV file with them: "epoch", and measures such as "train_loss", "val_loss",
            "held_accuracy" or "learning_rate". Gaps are left out.
        path: A PNG, SVG or PDF file to write, by its ending.
    """
    require("matplotlib", "plot")
    from fourward.view._figure import Picture

    columns = _columns(history)
    measured = [name for name in columns if name not in ASIDE and np.isfinite(columns[name]).any()]
    if not measured:
        raise InputError(f"no measures came to draw, only {list(columns)}. Wanted: columns such as 'train_loss'.")
    panels: dict[str, list[str]] = {}
    for name in measured:
        panels.setdefault(_split(name)[1], []).append(name)
    looks = dict(zip(dict.fromkeys(_split(name)[0] for name in measured), cycle(LOOKS), strict=False))
    along = next((name for name in AXIS if name in columns), None)
    x = np.arange(float(len(columns[measured[0]]))) if along is None else columns[along]
    picture = Picture(5.5 * len(panels), 4)
    for axes, (measure, names) in zip(np.atleast_1d(picture.subplots(1, len(panels))), panels.items(), strict=True):
        for name in names:
            _draw_line(axes, x, columns[name], _words(name), looks[_split(name)[0]])
        axes.set(title=_words(measure), xlabel=along or "row")
        axes.grid(alpha=0.3)
        axes.legend(frameon=False)
        whole_numbers(axes.xaxis)
    if path is not None:
        picture.save(path)
    return picture


def _split(name: str) -> tuple[str, str]:
    """The part of the data that a column is about, and its measure."""
    part, _, measure = name.partition("_")
    return (part, measure) if part in PARTS and measure else ("", name)


def _words(name: str) -> str:
    return name.replace("_", " ").strip()


def _draw_line(axes: Axes, x: FloatArray, y: FloatArray, name: str, look: tuple[str, str, str]) -> None:
    colour, dashes, marker = look
    there = np.isfinite(x) & np.isfinite(y)
    every = max(np.count_nonzero(there) // 12, 1)
    axes.plot(x[there], y[there], dashes, color=colour, marker=marker, markevery=every, ms=4, label=name)


def _columns(history: History | str | Path) -> dict[str, FloatArray]:
    if isinstance(history, Mapping):
        named = {str(name): list(values) for name, values in history.items()}
    else:
        with open(history, encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            names, rows = table.fieldnames or (), list(table)
        named = {name: [_number(name, row[name]) for row in rows] for name in names}
    lengths = {len(values) for values in named.values()}
    if len(lengths) > 1:
        raise InputError(f"the columns of a history must be of one length, but they have {sorted(lengths)} rows.")
    return {name: np.array(values, np.float64) for name, values in named.items()}  # None becomes NaN


def _number(name: str, text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise InputError(f"the column {name!r} of a history holds {text!r}, but numbers were wanted.") from None


def activation_map(
    net: FourWard,
    x: torch.Tensor,
    path: str | Path | None = None,
    *,
    samples: int = 200,
) -> Picture:
    """Draw the mean size of the activations of each layer (up) for each sample (across).

    Args:
        net: The network.
        x: (S, num_inputs) samples, such as some that training didn't see.
        path: A PNG, SVG or PDF file to write, by its ending.
        samples: How many to draw at most; the first ones are.
    """
    require("matplotlib", "plot")
    from fourward.view._figure import Picture

    if samples < 1:
        raise OptionError(f"samples={samples} came, but at least one sample is drawn.")
    if x.dim() != 2 or len(x) == 0:
        raise InputError(f"x has shape {tuple(x.shape)}, but (samples, {net.dag.num_inputs}) was wanted.")
    mean = mean_activations(net, x[:samples])
    picture = Picture(8, 5.5)
    axes = picture.subplots()
    image = axes.imshow(mean, aspect="auto", origin="lower", cmap="cividis", interpolation="nearest")
    axes.set(title="mean size of activations", xlabel="sample", ylabel="layer")
    whole_numbers(axes.xaxis, axes.yaxis)
    picture.colorbar(image, ax=axes, label="mean |activation|")
    picture.supxlabel(f"Shown: {mean.shape[1]:,} of {len(x):,} samples, {all_of(len(mean), 'layer')}.", fontsize=8)
    if path is not None:
        picture.save(path)
    return picture


def mean_activations(net: FourWard, x: torch.Tensor) -> FloatArray:
    """(H, S) the mean absolute activation of each layer for each sample, computed a few samples at a time."""
    layering = net.layering
    level = torch.as_tensor(np.array(layering.level), dtype=torch.int64)
    size = torch.bincount(level, minlength=layering.height)
    parts = []
    for rows in x.split(max(VALUES // net.dag.num_nodes, 1)):
        total = torch.zeros(len(rows), layering.height).double()
        parts.append(total.index_add_(1, level, activations_of(net, rows).abs().double()) / size)
    return np.asarray(torch.cat(parts).T.numpy())

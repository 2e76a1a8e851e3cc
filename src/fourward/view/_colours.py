"""Colours of nodes by an attribute or by numbers, and the part of a graph on paths from inputs to outputs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import GraphError, OptionError
from fourward.graph._attributes import find_attribute
from fourward.graph._base import BaseGraph
from fourward.graph._dag import Dag
from fourward.graph._feedback import find_reached
from fourward.layering import Layering
from fourward.view._layout import FloatArray
from fourward.view._palette import current_palette
from fourward.view._subject import Subject, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_CLASSES = 10  #: classes with a colour of their own; the rarest others share grey
#: Colours of classes, told apart by most readers (Okabe and Ito), and three more.
CLASS_COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#8f6fc0", "#7f5539", "#9aa800",
)  # fmt: skip
#: Numbers are coloured by rank if the 98th percentile of their sizes is so many times their median.
DWARFED = 20


class NodeColours(NamedTuple):
    """What colours the nodes: classes, or numbers."""

    label: str
    values: FloatArray | None  #: (N,) numbers
    codes: IntArray | None  #: (N,) indices into `names`
    names: tuple[str, ...] = ()

    def select(self, nodes: IntArray) -> NodeColours:
        """The colours of these nodes."""
        if self.codes is not None:
            return self._replace(codes=self.codes[nodes])
        assert self.values is not None
        return self._replace(values=self.values[nodes])


def read_colours(colour: Any, dag: BaseGraph, label: str | None = None) -> NodeColours:
    """Check what is to colour the nodes: the name of an attribute, or a number for each node."""
    name = colour if isinstance(colour, str) else label or ""
    column: Any = find_attribute(dag.attributes, colour) if isinstance(colour, str) else colour
    if isinstance(colour, str) and any(isinstance(value, str | bool) for value in column):
        return _group(name, [None if value is None else str(value) for value in column])
    if hasattr(column, "detach"):
        column = column.detach().double().cpu().numpy()
    try:
        values = np.array([np.nan if value is None else value for value in column], np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape != (dag.num_nodes,):
        raise OptionError(
            f"colour must be the name of an attribute, or {dag.num_nodes:,} numbers, one for each node, got "
            f"{type(colour).__name__}."
        )
    return NodeColours(name, values, None)


def _group(name: str, column: list[str | None]) -> NodeColours:
    """Classes, the most frequent first; those beyond MAX_CLASSES and missing values are "other"."""
    frequent = [value for value, _ in Counter(v for v in column if v is not None).most_common(MAX_CLASSES)]
    index = {value: k for k, value in enumerate(frequent)}
    codes = np.array([len(frequent) if value is None else index.get(value, len(frequent)) for value in column])
    return NodeColours(name, None, codes, (*frequent, "other"))


def draw_coloured_nodes(axes: Axes, colours: NodeColours, xy: FloatArray, radius: FloatArray) -> None:
    """Draw nodes in the colours of their classes, with a legend, or of their numbers, with a bar."""
    palette = current_palette()
    style: dict[str, Any] = {"edgecolors": palette.ink, "linewidths": 0.5, "zorder": 3}
    area = (2 * radius) ** 2
    if colours.codes is not None:
        shades = (*CLASS_COLOURS[: len(colours.names) - 1], palette.bar)
        for code, (name, shade) in enumerate(zip(colours.names, shades, strict=True)):
            inside = colours.codes == code
            if inside.any():
                label = f"{printable(name)} ({np.count_nonzero(inside):,})"
                x, y = xy[inside].T
                axes.scatter(x, y, s=area[inside], c=shade, label=label, **style)
        return
    assert colours.values is not None
    shown = np.where(np.isfinite(colours.values), colours.values, np.nan)
    ranked = _is_dwarfed(shown)
    values = rank_values(shown) if ranked else shown
    order = np.argsort(np.nan_to_num(values, nan=-np.inf))  # large ones on top
    x, y = xy[order].T
    points = axes.scatter(x, y, s=area[order], c=values[order], cmap="viridis", plotnonfinite=True, **style)
    bar = axes.figure.colorbar(points, ax=axes, label=printable(colours.label), fraction=0.02, pad=0.01)
    if ranked:
        ticks = np.linspace(0, 1, 6)
        bar.set_ticks(list(ticks), labels=[f"{q:.2g}" for q in np.nanquantile(shown, ticks)])
        bar.set_label(printable(f"{colours.label} (by rank)"))


def _is_dwarfed(values: FloatArray) -> bool:
    sizes = np.abs(values[np.isfinite(values)])
    return bool(len(sizes) > 1 and np.quantile(sizes, 0.98) > DWARFED * np.median(sizes))


def rank_values(values: FloatArray) -> FloatArray:
    """(N,) the fraction of the finite numbers below each, equal for equal numbers; NaN stays."""
    ordered = np.sort(values[np.isfinite(values)])
    rank = np.searchsorted(ordered, values) / max(len(ordered) - 1, 1)
    return np.where(np.isfinite(values), rank, np.nan)


def find_path_nodes(dag: Dag) -> IntArray:
    """The nodes on paths from an input to an output."""
    inside = find_reached(dag.source, dag.target, dag.num_nodes, dag.inputs)
    inside &= find_reached(dag.target, dag.source, dag.num_nodes, dag.outputs)
    if not inside.any():
        raise GraphError("only='paths' shows nothing: no path leads from an input to an output.")
    return np.flatnonzero(inside)


def check_only(only: Any) -> None:
    """Raise for another value than "paths" or None."""
    if only not in ("paths", None):
        raise OptionError(f"only must be 'paths' or None, got {only!r}.")


def keep_paths(
    subject: Subject, colours: NodeColours | None, only: Any
) -> tuple[Subject, NodeColours | None]:  # fmt: skip
    """The nodes on paths from an input to an output, with their layers, weights and colours."""
    check_only(only)
    dag, nodes = subject.dag, find_path_nodes(subject.dag)
    index = np.full(dag.num_nodes, -1, np.int64)
    index[nodes] = np.arange(len(nodes))
    edges = np.flatnonzero((index[dag.source] >= 0) & (index[dag.target] >= 0))
    part = Dag.from_arrays(
        index[dag.edges[edges]],
        labels=[dag.labels[v] for v in nodes.tolist()],
        inputs=index[dag.inputs][index[dag.inputs] >= 0],
        outputs=index[dag.outputs][index[dag.outputs] >= 0],
    )
    weight = None
    if subject.weight is not None:
        weight = part.align(subject.weight[edges], index[dag.edges[edges]], by="index")
    _, level = np.unique(subject.layering.level[nodes], return_inverse=True)
    layering = Layering(part, level.astype(np.int32))
    chosen = None if colours is None else colours.select(nodes)
    return Subject(part, layering, weight, None, None), chosen

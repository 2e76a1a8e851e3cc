"""The colours of pictures, on light and on dark paper."""

from __future__ import annotations

from typing import NamedTuple


class Palette(NamedTuple):
    """Colours of a picture; nodes have the paper's: green sources, red hidden nodes, violet sinks, white if movable."""

    paper: str  #: background behind names
    ink: str  #: outlines of nodes
    edge: str  #: edges without weights
    bar: str  #: bars and marks of histograms
    mark: str  #: marks that must stand out from those
    source: str
    hidden: str
    movable: str
    sink: str
    #: Weights from negative to positive, orange to violet: told apart by the colour-blind, and in grey by brightness.
    signs: tuple[str, ...]
    lines: tuple[str, ...]  #: learning curves
    counts: str  #: name of the colour map of counts, from few to many


LIGHT = Palette(
    paper="white",
    ink="#222222",
    edge="#555555",
    bar="#5a5a5a",
    mark="black",
    source="#2a9d4a",
    hidden="#d1495b",
    movable="#ffffff",
    sink="#7b3fa0",
    signs=("#e08214", "#f1b56b", "#c8c8c8", "#8667b4", "#3c1361"),
    lines=("#3c1361", "#c05a00", "#2a7f62", "#555555"),
    counts="cividis_r",
)
DARK = Palette(
    paper="#1e2129",
    ink="#c8cad4",
    edge="#a3a5b2",
    bar="#9a9caa",
    mark="white",
    source="#45c06d",
    hidden="#ee6a7c",
    movable="#ffffff",
    sink="#b98af0",
    signs=("#f59a2f", "#9a6427", "#4a4a54", "#9a86c9", "#e4d7ff"),
    lines=("#c4a5f2", "#f0994a", "#5cc79d", "#b5b7c2"),
    counts="cividis",
)


def current_palette() -> Palette:
    """The palette that suits matplotlib's current style, by the brightness of its figures."""
    import matplotlib
    from matplotlib.colors import to_rgb

    return LIGHT if sum(to_rgb(matplotlib.rcParams["figure.facecolor"])) > 1.5 else DARK

"""Figures without a window, saved whole or not at all; imported only where matplotlib is there."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fourward._files import replacing
from fourward.errors import OptionError

ENDINGS = (".png", ".svg", ".pdf")
#: Orange below zero, violet above: told apart by the colour-blind, and in grey, where orange is the lighter one.
SIGNS = LinearSegmentedColormap.from_list("signs", ["#e08214", "#f1b56b", "#dcdcdc", "#8667b4", "#3c1361"])
INK = "#333333"


class Picture(Figure):
    """A matplotlib figure that a notebook shows as it is."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=130, layout="constrained")

    def _repr_png_(self) -> bytes:
        data = BytesIO()
        self.savefig(data, format="png")
        return data.getvalue()

    def save(self, path: str | Path) -> None:
        """Write a PNG, SVG or PDF file, by the ending of its name; the same picture gives the same bytes."""
        path = check_ending(path)
        date: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower(), {})
        with replacing(path) as temporary, matplotlib.rc_context({"svg.hashsalt": "fourward", "svg.fonttype": "none"}):
            self.savefig(temporary, metadata=date)


def check_ending(path: str | Path) -> Path:
    """The path of a picture, if its ending is known."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise OptionError(f"{path} came, but a picture's name ends in {', '.join(ENDINGS)}.")
    return Path(path)

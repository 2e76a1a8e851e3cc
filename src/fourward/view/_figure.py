"""Figures without a window, saved whole or not at all; imported only where matplotlib is there."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any

import matplotlib
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from fourward._files import replacing
from fourward.errors import OptionError
from fourward.view._subject import legible

ENDINGS = (".png", ".svg", ".pdf")
#: Orange below zero, violet above: told apart by the colour-blind, and in grey, where orange is the lighter one.
SIGNS = LinearSegmentedColormap.from_list("signs", ["#e08214", "#f1b56b", "#c8c8c8", "#8667b4", "#3c1361"])
INK = "#333333"
SVG: Any = {"svg.hashsalt": "fourward", "svg.fonttype": "none"}  #: equal bytes each time, and text as text


class Picture(Figure):
    """A matplotlib figure that a notebook shows as it is."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=130, layout="constrained")

    def entitle(self, title: str) -> None:
        """Write a title over all, in as many lines as it needs, up to three."""
        lines = wrap(legible(title), int(9 * self.get_figwidth()), max_lines=3, placeholder=" …")
        self.suptitle("\n".join(lines), parse_math=False)

    def _repr_png_(self) -> bytes:
        data = BytesIO()
        with _one_warning():
            self.savefig(data, format="png")
        return data.getvalue()

    def save(self, path: str | Path) -> None:
        """Write a PNG, SVG or PDF file, by the ending of its name; the same picture gives the same bytes."""
        path = check_ending(path)
        ending = path.suffix.lower()
        date: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(ending, {})
        with replacing(path) as temporary, matplotlib.rc_context(SVG), _one_warning(boxes=ending != ".svg"):
            self.savefig(temporary, metadata=date)


@contextmanager
def _one_warning(boxes: bool = True) -> Iterator[None]:
    """One warning for all letters that the font lacks, instead of one for each; none where no boxes are drawn."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    lacking = {chr(int(found[1])) for one in caught if (found := re.match(r"Glyph (\d+) ", str(one.message)))}
    for one in caught:
        if not str(one.message).startswith("Glyph "):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if lacking and boxes:
        letters = " ".join(sorted(lacking)[:10])
        warnings.warn(
            f"the font of the picture has no {letters}: boxes stand for them. An SVG file, or the page, keeps them.",
            stacklevel=4,
        )


def check_ending(path: str | Path) -> Path:
    """The path of a picture, if its ending is known."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise OptionError(f"{path} came, but a picture's name ends in {', '.join(ENDINGS)}.")
    return Path(path)

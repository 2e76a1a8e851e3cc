"""Matplotlib figures without a window, written atomically; imported only where matplotlib is installed."""

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
from fourward.view._palette import Palette
from fourward.view._subject import printable

SUFFIXES = (".png", ".svg", ".pdf")
SVG_STYLE: Any = {"svg.hashsalt": "fourward", "svg.fonttype": "none"}  #: reproducible bytes, and text as text


class Picture(Figure):
    """A matplotlib figure that a notebook displays; `save(path)` writes it."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), dpi=130, layout="constrained")

    def set_title(self, title: str) -> None:
        """Write a title above all axes, wrapped to at most three lines."""
        lines = wrap(printable(title), int(9 * self.get_figwidth()), max_lines=3, placeholder=" …")
        self.suptitle("\n".join(lines), parse_math=False)

    def _repr_png_(self) -> bytes:
        data = BytesIO()
        with _collect_glyph_warnings():
            self.savefig(data, format="png")
        return data.getvalue()

    def save(self, path: str | Path) -> None:
        """Write a PNG, SVG or PDF file, by the suffix of `path`; the same picture gives the same bytes."""
        path = check_suffix(path)
        suffix = path.suffix.lower()
        metadata: dict[str, Any] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix, {})
        embeds_glyphs = suffix != ".svg"
        with replacing(path) as temporary, matplotlib.rc_context(SVG_STYLE), _collect_glyph_warnings(embeds_glyphs):
            self.savefig(temporary, metadata=metadata)


def sign_colormap(palette: Palette) -> LinearSegmentedColormap:
    """The colour map of weights."""
    return LinearSegmentedColormap.from_list("signs", list(palette.signs))


@contextmanager
def _collect_glyph_warnings(report: bool = True) -> Iterator[None]:
    """Replace matplotlib's warnings of missing glyphs, one for each letter, by a single one, or by none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    missing = {chr(int(match[1])) for each in caught if (match := re.match(r"Glyph (\d+) ", str(each.message)))}
    for each in caught:
        if not str(each.message).startswith("Glyph "):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing and report:
        letters = " ".join(sorted(missing)[:10])
        warnings.warn(
            f"the font of the picture has no glyphs for {letters}, and shows boxes instead. Save it as .svg, or use "
            "fourward.view, to keep them.",
            stacklevel=4,
        )


def check_suffix(path: str | Path) -> Path:
    """The path of a picture; raises an OptionError if its suffix is unknown."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise OptionError(f"expected a picture's path to end in {', '.join(SUFFIXES)}, got {path}.")
    return Path(path)

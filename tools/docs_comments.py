"""For the API pages: what stands behind `#:` beside a field is its documentation."""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Docstring, Extension

#: A comment behind the definition; the definition itself may hold anything but another one.
_BESIDE = re.compile(r"#:\s*(.+?)\s*$")
_ABOVE = re.compile(r"^\s*#:\s*(.+?)\s*$")


class Comments(Extension):
    """Reads them from the source, as Sphinx would."""

    def on_attribute_instance(self, *, attr: Attribute, **kwargs: Any) -> None:
        """Give an attribute without a docstring its comment."""
        if attr.docstring is not None or attr.lineno is None or attr.endlineno is None:
            return
        if not isinstance(attr.filepath, list):
            text = comment_of(attr.lines_collection[attr.filepath], attr.lineno, attr.endlineno)
            if text:
                attr.docstring = Docstring(text, parent=attr)


def comment_of(lines: list[str], first: int, last: int) -> str:
    """The comment behind lines first to last, counted from 1, or on the lines right above them."""
    beside = [found[1] for line in lines[first - 1 : last] if (found := _BESIDE.search(line))]
    if beside:
        return " ".join(beside)
    above: list[str] = []
    while first > 1 and (found := _ABOVE.match(lines[first - 2])):
        above.insert(0, found[1])
        first -= 1
    return " ".join(above)

"""Extension of griffe for the API pages: `#:` comments document fields, and doctests are shown as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

_BESIDE = re.compile(r"#:\s*(.+?)\s*$")
_ABOVE = re.compile(r"^\s*#:\s*(.+?)\s*$")
_DOCTEST = re.compile(r"^>>> (?:.+\n?)+", re.MULTILINE)


class Comments(Extension):
    """Reads `#:` comments from the source, as Sphinx does, and fences doctests."""

    def on_attribute(self, *, attr: Attribute, **kwargs: Any) -> None:
        """Give an attribute without a docstring its comment."""
        if attr.docstring is None and attr.lineno and attr.endlineno and not isinstance(attr.filepath, list):
            lines = attr.lines_collection[attr.filepath]
            text = find_comment(lines, attr.lineno, attr.endlineno)
            if not text and attr.parent is not None and attr.parent.is_class:  # it may be assigned far from there
                text = find_declared_comment(attr.parent.lines, attr.name)
            attr.docstring = Docstring(text, parent=attr) if text else None

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Fence its doctests."""
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)


def find_comment(lines: list[str], first: int, last: int) -> str:
    """The comment at the end of lines first to last, counted from 1, or on the lines right above them."""
    beside = [match[1] for line in lines[first - 1 : last] if (match := _BESIDE.search(line))]
    if beside:
        return " ".join(beside)
    above: list[str] = []
    while first > 1 and (match := _ABOVE.match(lines[first - 2])):
        above.insert(0, match[1])
        first -= 1
    return " ".join(above)


def find_declared_comment(lines: list[str], name: str) -> str:
    """The comment beside the declaration of a field, `name: type  #: comment`, in the lines of its class."""
    beside = re.compile(rf"^\s*{name}: .*?#:\s*(.+?)\s*$")
    return next((match[1] for line in lines if (match := beside.match(line))), "")


def fence_doctests(text: str) -> str:
    """Paragraphs that start with >>> as blocks of code."""
    return _DOCTEST.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", text)

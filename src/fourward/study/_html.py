"""Building blocks of an HTML page; all text is escaped here and nowhere else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


Text = str | Html


def html(text: Text) -> Html:
    """HTML unchanged, other text escaped."""
    return text if isinstance(text, Html) else Html(escape(str(text)))


def tag(name: str, *content: Text, **attributes: str) -> Html:
    """An element; `class_` sets the attribute class."""
    attribute_text = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items() if value)
    return Html(f"<{name}{attribute_text}>{''.join(map(html, content))}</{name}>")


def join(*parts: Text) -> Html:
    """Concatenate parts, a line each."""
    return Html("\n".join(map(html, parts)))


def table(head: Sequence[Text], body: Sequence[Sequence[Text]], caption: Text = "", numbers: int = 0) -> Html:
    """A table whose last `numbers` columns are aligned right."""

    def line(kind: str, cells: Sequence[Text]) -> Html:
        right = len(cells) - numbers
        return tag("tr", *(tag(kind, cell, class_="number" if k >= right else "") for k, cell in enumerate(cells)))

    title = tag("caption", caption) if caption else Html("")
    rows = join(tag("thead", line("th", head)), tag("tbody", *(line("td", cells) for cells in body)))
    return tag("div", tag("table", title, rows), class_="wide")


def image(svg: bytes, caption: Text, name: str) -> Html:
    """An image embedded in the page."""
    source = f"data:image/svg+xml;base64,{b64encode(svg).decode()}"
    return Html(
        f'<figure id="{escape(name)}"><img alt="{escape(caption)}" src="{source}">'
        f"<figcaption>{html(caption)}</figcaption></figure>"
    )


def fold(title: Text, *content: Text) -> Html:
    """A section that opens on click."""
    return tag("details", tag("summary", title), *content)


def links(targets: Mapping[str, Text]) -> Html:
    """Links to elements of this page, by their ids."""
    return tag("nav", Html(" ".join(tag("a", title, href=f"#{name}") for name, title in targets.items())))


def page(title: str, body: Html) -> str:
    """A complete, self-contained page with its style sheet."""
    style = (files("fourward.study") / "report.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )

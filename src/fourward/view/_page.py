"""The page: a network to look into, in one HTML file that asks nothing of any other."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from fourward._files import replacing
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering
from fourward.nn._fourward import FourWard
from fourward.view._scene import build_scene
from fourward.view._subject import describe, legible, subject_of

#: In the order in which they need each other.
LIBRARY = ("color", "interpolate", "dispatch", "selection", "timer", "ease", "transition", "drag", "zoom", "quadtree")
SCRIPTS = ("graph.js", "painter.js", "panel.js", "page.js")


@dataclass(frozen=True, repr=False)
class Page:
    """One self-contained HTML file; a notebook shows it, and `save` writes it."""

    html: str
    shown: str  #: what it shows, and what it leaves out

    def save(self, path: str | Path) -> Path:
        """Write the page."""
        with replacing(Path(path)) as temporary:
            temporary.write_text(self.html, encoding="utf-8", newline="\n")
        return Path(path)

    def _repr_html_(self) -> str:
        frame = 'width="100%" height="720" style="border:0" sandbox="allow-scripts" title="Network"'
        return f'<iframe {frame} srcdoc="{escape(self.html, quote=True)}"></iframe>'

    def __repr__(self) -> str:
        return f"Page({len(self.html):,} characters; {self.shown})"


def view(
    net_or_dag: FourWard | Dag,
    *,
    title: str | None = None,
    layering: Layering | None = None,
    weight: Any = None,
    samples: Any = None,
    around: Hashable | None = None,
) -> Page:
    """A page to look into a network: pan, zoom, hover, click, search, switch layerings, step the forward pass.

    Args:
        net_or_dag: A network, or a Dag, which has no weights and activations to show.
        title: Default: what the graph is made of.
        layering: To show first; default: the network's own, or the paper's longest path with sources pushed.
        weight: (E,) numbers of a Dag's edges, such as the strengths of synapses; a network has its own.
        samples: (S, num_inputs) numbers to step the forward pass with, the first 8 of them; default: three random
            ones.
        around: The label of a neuron round which to show a part of a large graph; default: the one with the most
            edges.

    >>> from fourward import generate
    >>> view(generate.chain(3)).shown
    'Shown: all 3 neurons and all 2 edges.'
    """
    subject = subject_of(net_or_dag, layering, weight)
    scene = build_scene(subject, legible(title or describe(subject.dag)), samples, around)
    return Page(_assemble(scene), scene["shown"])


def _assemble(scene: dict[str, Any]) -> str:
    style = _asset("page.css")
    library = [_asset(f"d3/d3-{name}.min.js") for name in LIBRARY]
    script = "\n".join([*library, *map(_asset, SCRIPTS)])
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_asset("page.html")).substitute(
        policy=policy,
        title=escape(scene["title"]),
        style=style,
        licence=escape(_asset("d3/LICENSE.txt")),
        scene=json.dumps(scene, ensure_ascii=True).replace("<", "\\u003c"),  # so that no label can end the block
        script=script,
    )


def _asset(name: str) -> str:
    return files("fourward.view").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")

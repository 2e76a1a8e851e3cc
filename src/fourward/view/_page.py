"""The page: one self-contained HTML file to explore a network."""

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
from typing import Any, Literal

from fourward._files import replacing
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.layering._layering import Layering
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.view._colours import check_only, find_path_nodes, read_colours
from fourward.view._scene import build_scene
from fourward.view._subject import build_subject, compare, describe, printable

#: Modules of D3, in the order of their dependencies.
D3_MODULES = (
    "color",
    "interpolate",
    "dispatch",
    "selection",
    "timer",
    "ease",
    "transition",
    "drag",
    "zoom",
    "quadtree",
)
SCRIPTS = ("graph.js", "painter.js", "sidebar.js", "page.js")


@dataclass(frozen=True, repr=False)
class Page:
    """A self-contained HTML file; a notebook displays it, and `save(path)` writes it."""

    html: str  #: the file
    shown: str  #: what the page shows, and what it leaves out

    def save(self, path: str | Path) -> Path:
        """Write the page to a file."""
        with replacing(Path(path)) as temporary:
            temporary.write_text(self.html, encoding="utf-8", newline="\n")
        return Path(path)

    def _repr_html_(self) -> str:
        frame = 'width="100%" height="720" style="border:0" sandbox="allow-scripts" title="Network"'
        return f'<iframe {frame} srcdoc="{escape(self.html, quote=True)}"></iframe>'

    def __repr__(self) -> str:
        return f"Page({len(self.html):,} characters; {self.shown})"


def view(
    net_or_dag: FourWard | Recurrent | Dag | Digraph,
    *,
    title: str | None = None,
    layering: Layering | None = None,
    weight: Any = None,
    samples: Any = None,
    around: Hashable | None = None,
    colour: Any = None,
    colour_label: str | None = None,
    only: Literal["paths"] | None = None,
    before: Any = None,
) -> Page:
    """Make a page to explore a network: pan, zoom, search, switch layerings, step through the forward pass.

    Args:
        net_or_dag: A network, or a graph, which has no weights and activations to show. Feedback edges are dashed; the
            activations of a Recurrent are those after some steps with the same features.
        title: Default: the size of the graph.
        layering: The layering to show first. Default: that of the network, or the paper's for a Dag.
        weight: (E,) numbers of a graph's edges, such as synaptic strengths; a network has its own.
        samples: (S, num_inputs) inputs of the forward pass to step through; the first 8 are used. Default: three
            random ones.
        around: Label of the neuron around which to show part of a large graph, with all its edges. Default: the one
            with the most edges, for a graph of more neurons than a page shows.
        colour: What colours the nodes at first: the name of an attribute, or (N,) numbers by node index, such as
            importances; the page can switch between it and all attributes.
        colour_label: Name of these numbers.
        only: "paths" shows only nodes on paths from an input to an output.
        before: An earlier wiring of the same nodes, a graph or (E, 2) node indices: edges that grew since then are
            violet, those that are gone orange and dashed, and all others grey.

    >>> from fourward import generate
    >>> view(generate.chain(3)).shown
    'Shown: all 3 neurons and all 2 edges.'
    """
    subject = build_subject(net_or_dag, layering, weight)
    check_only(only)
    colouring = None if colour is None else read_colours(colour, subject.dag, colour_label or "value")
    nodes = None if only is None else find_path_nodes(subject.dag)
    if before is not None:
        subject = compare(subject, before)
    scene = build_scene(subject, printable(title or describe(subject.present)), samples, around, colouring, nodes)
    return Page(_render(scene), scene["shown"])


def _render(scene: dict[str, Any]) -> str:
    style = _read_asset("page.css")
    library = [_read_asset(f"d3/d3-{name}.min.js") for name in D3_MODULES]
    script = "\n".join([*library, *map(_read_asset, SCRIPTS)])
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_read_asset("page.html")).substitute(
        policy=policy,
        title=escape(scene["title"]),
        style=style,
        licence=escape(_read_asset("d3/LICENSE.txt")),
        scene=json.dumps(scene, ensure_ascii=True).replace("<", "\\u003c"),  # so that no label can end the block
        script=script,
    )


def _read_asset(name: str) -> str:
    return files("fourward.view").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode("ascii")

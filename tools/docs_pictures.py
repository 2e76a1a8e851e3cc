"""Draw the pictures of the documentation: `python tools/docs_pictures.py [NAME...]`.

Each is drawn twice, for a light and for a dark page: `graph.svg` and `graph-dark.svg`. Pages name the light one; the
site shows the one that fits its theme (`tools/docs_site.py`), and the README has a <picture> element.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.style
import networkx as nx
import numpy as np
import torch
from PIL import Image

import fourward as fw
from fourward._files import replacing
from fourward.engine._gpu.tiling import TILE_SIZE, cut_tiles
from fourward.layering import longest_path, push_sources, reassign
from fourward.train import History, fit
from fourward.train._data import bundled, split
from fourward.train._model import Model, Scaling
from fourward.view._curves import activation_map, learning_curves
from fourward.view._draw import draw_layers
from fourward.view._figure import Picture
from fourward.view._palette import DARK, current_palette

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
INK = "#dfe1e8"  #: text on dark pages
#: Style of the pictures on dark pages, which are transparent, so that they fit any of them.
DARK_STYLE: Any = {
    **dict(matplotlib.style.library["dark_background"]),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), DARK.paper),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
    "savefig.transparent": True,
}

#: The worm's touch circuit: classes of neurons, left and right as one, joined where the synapses between them show in
#: at least 14 sections. docs/concepts/graph.md lists the same.
WIRING = {
    "ALM": ["PVC"],
    "AVM": ["PVC", "AVB"],
    "PLM": ["AVD", "AVA"],
    "PVC": ["AVB", "AVD", "AVA", "B"],
    "AVD": ["AVA", "A"],
    "AVB": ["AVA", "A"],
    "AVA": ["A", "PVC", "AVD"],
    "A": ["B"],
    "B": ["A"],
}
TOUCH = [(source, target) for source, targets in WIRING.items() for target in targets]


def touch_dag() -> fw.Dag:
    """The circuit without its feedback."""
    return fw.orient.remove_feedback(TOUCH).dag


def graph() -> Picture:
    """The circuit as it is, its feedback dashed, and as a Dag."""
    dag, removed = fw.orient.remove_feedback(TOUCH)
    picture = Picture(11, 4.4)
    left, right = picture.subplots(1, 2)
    circuit = nx.DiGraph(TOUCH)
    xy = nx.circular_layout(circuit)
    style: dict[str, Any] = {"node_size": 760, "arrowsize": 13, "connectionstyle": "arc3,rad=0.08"}
    forward = [edge for edge in circuit.edges if edge not in removed]
    palette = current_palette()
    fill, feedback = ("#353945", "#f0994a") if palette is DARK else ("#eeeeee", "#c05a00")
    nx.draw_networkx_nodes(circuit, xy, ax=left, node_size=760, node_color=fill, edgecolors=palette.ink)
    nx.draw_networkx_labels(circuit, xy, ax=left, font_size=9, font_color=palette.ink)
    nx.draw_networkx_edges(circuit, xy, forward, ax=left, edge_color=palette.edge, **style)
    nx.draw_networkx_edges(circuit, xy, removed, ax=left, edge_color=feedback, style="dashed", width=1.8, **style)
    left.set_title("a graph; dashed: feedback edges, which close cycles")
    left.margins(0.12)
    left.set_axis_off()
    draw_layers(right, dag, push_sources(dag, longest_path(dag)), names=True, movable=False)
    right.set_title("its Dag", pad=24)
    return picture


def layering() -> Picture:
    """Three layerings of one graph."""
    dag = fw.generate.erdos_renyi(26, 0.17, seed=11)
    first = longest_path(dag)
    pushed = push_sources(dag, first)
    picture = Picture(13, 4.4)
    titles = ("longest path", "sources pushed to layer 0", "reassigned at random")
    layerings = (first, pushed, reassign(dag, pushed, seed=2))
    for axes, title, each in zip(picture.subplots(1, 3), titles, layerings, strict=True):
        draw_layers(axes, dag, each)
        axes.set_title(title)
        handles, names = axes.get_legend_handles_labels()
        axes.get_legend().remove()
    picture.legend(handles, [name.partition(" (")[0] for name in names], loc="outside upper center", ncols=4)
    return picture


def plan() -> Picture:
    """The edges as a matrix, before and after the plan gives nodes their positions."""
    net = fw.FourWard(fw.generate.erdos_renyi(96, 0.08, seed=3), seed=0)
    dag, plan, palette = net.dag, net.plan, current_palette()
    picture = Picture(10, 4.9)
    before, after = picture.subplots(1, 2)
    before.scatter(dag.source, dag.target, s=5, c=palette.edge, linewidths=0)
    before.set(title="edges by node index", xlabel="from node", ylabel="to node")
    kind = np.full(dag.num_nodes, palette.hidden)
    kind[: dag.num_inputs] = palette.source
    kind[plan.outputs] = palette.sink
    for start in plan.level_start.tolist():
        after.axhline(start - 0.5, color=palette.edge, alpha=0.25, linewidth=0.6, zorder=0)
    after.scatter(plan.source, plan.target, s=5, c=kind[plan.target].tolist(), linewidths=0)
    after.plot([0, dag.num_nodes], [0, dag.num_nodes], color=palette.edge, linewidth=0.8, linestyle="--")
    after.set(title="the same by position: a level is a range of rows", xlabel="from position", ylabel="to position")
    for axes in (before, after):
        _square(axes, dag.num_nodes)
    return picture


def engines() -> Picture:
    """The tiles of that matrix that have an edge."""
    net = fw.FourWard(fw.generate.watts_strogatz(512, 8, 0.02, order="natural", seed=0), seed=0)
    plan, tiles, palette = net.plan, cut_tiles(net.plan), current_palette()
    size = len(tiles.out_tile_start) - 1
    input_blocks = size - (len(tiles.tile_start) - 1)
    occupied = np.zeros((size, size))
    occupied[input_blocks + np.repeat(np.arange(size - input_blocks), np.diff(tiles.tile_start)), tiles.tile_block] = 1
    occupied[np.arange(input_blocks, size), np.arange(input_blocks, size)] = 1
    picture = Picture(5, 4.7)
    axes, alpha = picture.subplots(), 0.18 if palette is DARK else 1.0
    values = np.ma.masked_equal(occupied, 0)
    axes.imshow(values, extent=(0, size, size, 0), cmap="Purples", vmin=0, vmax=4, alpha=alpha, interpolation="nearest")
    axes.scatter(
        tiles.row[plan.source] / TILE_SIZE, tiles.row[plan.target] / TILE_SIZE, s=1.6, c=palette.lines[0], linewidths=0
    )
    axes.set(xticks=range(0, size + 1, 2), yticks=range(0, size + 1, 2), xlabel="from block", ylabel="to block")
    axes.grid(color=palette.edge, alpha=0.35, linewidth=0.6)
    full = (size - input_blocks) * (size + input_blocks + 1) // 2
    axes.set_title(
        f"{net.dag.num_edges:,} edges in {int(occupied.sum())} of {full} tiles of {TILE_SIZE} by {TILE_SIZE}"
    )
    return picture


def network() -> Picture:
    """What `fw.draw` makes of a small network."""
    net = fw.FourWard(touch_dag(), activation="tanh", seed=3)
    return fw.draw(net, title="fw.draw(net)")


@cache
def _learned() -> tuple[Model, torch.Tensor, History]:
    """The worm after some epochs of digits, as in the demo; held-out digits as its inputs receive them; the history."""
    digits, ink = bundled("digits"), Scaling(np.full(64, 8.0), np.full(64, 8.0))
    train, validation, _ = split(digits.y, 0.2, 0.0, seed=0)
    net = fw.FourWard(fw.connectomes.load("c-elegans").dag, init="kaiming_normal", seed=0)
    model = Model(net, digits.features, digits.targets, digits.classes, ink, None, seed=0)
    x, y = ink.apply(digits.x), digits.y
    options: dict[str, Any] = {"epochs": 30, "learning_rate": 9e-3, "label_smoothing": 0.05}
    history = fit(model, x[train], y[train], validation=(x[validation], y[validation]), **options)
    with torch.no_grad():
        return model, model.input_adapter(torch.tensor(x[validation], dtype=torch.float32)), history


def training() -> Picture:
    """Learning curves of the worm."""
    wanted = ("epoch", "train_loss", "val_loss", "val_accuracy")
    rows = _learned()[-1].rows()
    picture = learning_curves({name: [row[name] for row in rows] for name in wanted})
    picture.set_size_inches(10, 3.6)
    return picture


def activations() -> Picture:
    """Which layers respond to which digit."""
    model, x, _ = _learned()
    picture = activation_map(model.net, x, samples=60)
    picture.set_size_inches(9, 4.6)
    return picture


def worm() -> Picture:
    """The worm after it learned the digits, small enough for a README."""
    net = _learned()[0].net
    picture = Picture(13, 5.6)
    draw_layers(picture.subplots(), net.dag, net.layering, net.weight.detach().double().numpy())
    picture.suptitle("The nervous system of C. elegans after it learned to read digits: edges by weight")
    return picture


def _square(axes: Axes, count: int) -> None:
    axes.set(xlim=(-1, count), ylim=(count, -1), aspect="equal")


#: What draws each picture.
PICTURES: dict[str, Callable[[], Picture]] = {
    "graph.svg": graph,
    "layering.svg": layering,
    "plan.png": plan,
    "engines.png": engines,
    "network.svg": network,
    "training.svg": training,
    "activations.png": activations,
    "worm.png": worm,
}


def dark_name(name: str) -> str:
    """The file of a picture for dark pages: "graph-dark.svg" for "graph.svg"."""
    stem, _, ending = name.rpartition(".")
    return f"{stem}-dark.{ending}"


def save(picture: Picture, path: Path) -> None:
    """Write a picture; the large one with few colours, so that the repository stays small."""
    if not path.name.startswith("worm"):
        picture.save(path)
        return
    data = BytesIO()
    picture.savefig(data, format="png", dpi=92, transparent=False)
    small = Image.open(data).convert("RGB").quantize(160, method=Image.Quantize.MAXCOVERAGE)
    options: dict[str, Any] = (
        {"transparency": small.getpixel((0, 0))} if matplotlib.rcParams["savefig.transparent"] else {}
    )
    with replacing(path) as temporary:
        small.save(temporary, optimize=True, **options)


def main() -> None:
    """Draw all pictures, or those that are named."""
    torch.set_num_threads(2)
    for name in sys.argv[1:] or PICTURES:
        for file, style in ((name, None), (dark_name(name), DARK_STYLE)):
            with matplotlib.rc_context(style):
                save(PICTURES[name](), FOLDER / file)
            print(f"{FOLDER / file}: {(FOLDER / file).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

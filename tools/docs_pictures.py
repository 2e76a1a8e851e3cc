"""The pictures of the documentation, drawn by fourward itself: `python tools/docs_pictures.py [NAME...]`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import torch
from PIL import Image

import fourward as fw
from fourward._files import replacing
from fourward.engine._gpu.tiling import SIDE, cut_tiles
from fourward.layering import longest_path, push_sources, reassign
from fourward.train import History, fit
from fourward.train._data import bundled, split
from fourward.train._model import Model, Scaling
from fourward.view._curves import activation_map, learning_curves
from fourward.view._draw import draw_layers
from fourward.view._figure import Picture
from fourward.view._palette import LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"

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


def graph(path: Path) -> None:
    """The circuit as it is, its feedback dashed, and as a Dag."""
    dag, removed = fw.orient.remove_feedback(TOUCH)
    picture = Picture(11, 4.4)
    left, right = picture.subplots(1, 2)
    circuit = nx.DiGraph(TOUCH)
    spot = nx.circular_layout(circuit)
    look: dict[str, Any] = {"node_size": 760, "arrowsize": 13, "connectionstyle": "arc3,rad=0.08"}
    kept = [edge for edge in circuit.edges if edge not in removed]
    nx.draw_networkx_nodes(circuit, spot, ax=left, node_size=760, node_color="#eeeeee", edgecolors="#222222")
    nx.draw_networkx_labels(circuit, spot, ax=left, font_size=9)
    nx.draw_networkx_edges(circuit, spot, kept, ax=left, edge_color="#555555", **look)
    nx.draw_networkx_edges(circuit, spot, removed, ax=left, edge_color="#c05a00", style="dashed", width=1.8, **look)
    left.set_title("a graph, as it comes; dashed: the edges that close cycles")
    left.margins(0.12)
    left.set_axis_off()
    draw_layers(right, dag, push_sources(dag, longest_path(dag)), names=True, movable=False)
    right.set_title("its Dag", pad=24)
    picture.save(path)


def layering(path: Path) -> None:
    """Three layerings of one graph."""
    dag = fw.generate.erdos_renyi(26, 0.17, seed=11)
    first = longest_path(dag)
    pushed = push_sources(dag, first)
    picture = Picture(13, 4.4)
    titles = ("longest path", "sources pushed to layer 0", "reassigned at random")
    shown = (first, pushed, reassign(dag, pushed, seed=2))
    for axes, title, one in zip(picture.subplots(1, 3), titles, shown, strict=True):
        draw_layers(axes, dag, one)
        axes.set_title(title)
        handles, names = axes.get_legend_handles_labels()
        axes.get_legend().remove()
    picture.legend(handles, [name.partition(" (")[0] for name in names], loc="outside upper center", ncols=4)
    picture.save(path)


def plan(path: Path) -> None:
    """The edges as a matrix, before and after the plan gives nodes their positions."""
    net = fw.FourWard(fw.generate.erdos_renyi(96, 0.08, seed=3), seed=0)
    dag, made = net.dag, net.plan
    picture = Picture(10, 4.9)
    before, after = picture.subplots(1, 2)
    before.scatter(dag.source, dag.target, s=5, c="#555555", linewidths=0)
    before.set(title="edges by node number", xlabel="from node", ylabel="to node")
    kind = np.full(dag.num_nodes, LIGHT.hidden)
    kind[: dag.num_inputs] = LIGHT.source
    kind[made.outputs] = LIGHT.sink
    for start in made.level_start.tolist():
        after.axhline(start - 0.5, color="#dddddd", linewidth=0.6, zorder=0)
    after.scatter(made.source, made.target, s=5, c=kind[made.target].tolist(), linewidths=0)
    after.plot([0, dag.num_nodes], [0, dag.num_nodes], color="#999999", linewidth=0.8, linestyle="--")
    after.set(title="the same by position: a level is a stretch of rows", xlabel="from position", ylabel="to position")
    for axes in (before, after):
        _square(axes, dag.num_nodes)
    picture.save(path)


def engines(path: Path) -> None:
    """What an engine for blocks keeps of that matrix."""
    net = fw.FourWard(fw.generate.watts_strogatz(512, 8, 0.02, order="natural", seed=0), seed=0)
    made, tiles = net.plan, cut_tiles(net.plan)
    size = len(tiles.back_start) - 1
    lead = size - (len(tiles.start) - 1)
    kept = np.zeros((size, size))
    kept[lead + np.repeat(np.arange(size - lead), np.diff(tiles.start)), tiles.block] = 1
    kept[np.arange(lead, size), np.arange(lead, size)] = 1
    picture = Picture(5, 4.7)
    axes = picture.subplots()
    axes.imshow(kept, extent=(0, size, size, 0), cmap="Purples", vmin=0, vmax=4, interpolation="nearest")
    axes.scatter(tiles.slot[made.source] / SIDE, tiles.slot[made.target] / SIDE, s=1.6, c="#3c1361", linewidths=0)
    axes.set(xticks=range(0, size + 1, 2), yticks=range(0, size + 1, 2), xlabel="from block", ylabel="to block")
    axes.grid(color="#cccccc", linewidth=0.6)
    full = (size - lead) * (size + lead + 1) // 2
    axes.set_title(f"{net.dag.num_edges:,} edges in {int(kept.sum())} of {full} tiles of {SIDE} by {SIDE}")
    picture.save(path)


def network(path: Path) -> None:
    """What `fw.draw` makes of a small network."""
    net = fw.FourWard(touch_dag(), activation="tanh", seed=3)
    fw.draw(net, title="fw.draw(net)").save(path)


def _learned() -> tuple[Model, torch.Tensor, History]:
    """The worm after some epochs of digits, as in the demo; held-out digits as they come to its inputs; the history."""
    digits, ink = bundled("digits"), Scaling(np.full(64, 8.0), np.full(64, 8.0))
    train, validation, _ = split(digits.y, 0.2, 0.0, seed=0)
    net = fw.FourWard(fw.connectomes.load("c-elegans").dag, init="kaiming_normal", seed=0)
    model = Model(net, digits.features, digits.targets, digits.classes, ink, None, seed=0)
    x, y = ink.apply(digits.x), digits.y
    options: dict[str, Any] = {"epochs": 30, "learning_rate": 9e-3, "label_smoothing": 0.05}
    history = fit(model, x[train], y[train], validation=(x[validation], y[validation]), **options)
    with torch.no_grad():
        return model, model.input_adapter(torch.tensor(x[validation], dtype=torch.float32)), history


def training(path: Path) -> None:
    """Learning curves of the worm."""
    wanted = ("epoch", "train_loss", "val_loss", "val_accuracy")
    rows = _learned()[-1].rows()
    picture = learning_curves({name: [row[name] for row in rows] for name in wanted})
    picture.set_size_inches(10, 3.6)
    picture.save(path)


def activations(path: Path) -> None:
    """Which layers answer to which digit."""
    model, x, _ = _learned()
    picture = activation_map(model.net, x, samples=60)
    picture.set_size_inches(9, 4.6)
    picture.save(path)


def worm(path: Path) -> None:
    """The worm after it learned the digits, small enough for a README."""
    net = _learned()[0].net
    picture = Picture(13, 5.6)
    draw_layers(picture.subplots(), net.dag, net.layering, net.weight.detach().double().numpy())
    picture.suptitle("The nervous system of C. elegans after it learned to read digits: edges by weight")
    data = BytesIO()
    picture.savefig(data, format="png", dpi=92)
    with replacing(path) as temporary:
        Image.open(data).convert("RGB").quantize(160, method=Image.Quantize.MAXCOVERAGE).save(temporary, optimize=True)


def _square(axes: Axes, count: int) -> None:
    axes.set(xlim=(-1, count), ylim=(count, -1), aspect="equal")


#: What draws each picture.
PICTURES: dict[str, Callable[[Path], None]] = {
    "graph.svg": graph,
    "layering.svg": layering,
    "plan.png": plan,
    "engines.png": engines,
    "network.svg": network,
    "training.svg": training,
    "activations.png": activations,
    "worm.png": worm,
}


def main() -> None:
    """Draw all pictures, or those that are named."""
    torch.set_num_threads(2)
    for name in sys.argv[1:] or PICTURES:
        PICTURES[name](FOLDER / name)
        print(f"{FOLDER / name}: {(FOLDER / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

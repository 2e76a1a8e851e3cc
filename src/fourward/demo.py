"""The demo: a worm's nervous system learns to read digits. Run with `make demo` or `python -m fourward.demo`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fourward.errors import require
from fourward.graph.connectomes import load
from fourward.nn._fourward import FourWard
from fourward.paper import Masked4Ward
from fourward.study._timing import median_seconds
from fourward.train._callbacks import Progress
from fourward.train._data import bundled, split
from fourward.train._fit import fit
from fourward.train._model import Model, Scaling
from fourward.view._draw import draw

BATCH = 64


class Outcome(NamedTuple):
    """What the demo found."""

    accuracy: float
    seconds: float
    times: dict[str, tuple[float, float]]  #: seconds of a forward pass, and of forward and backward, by method
    picture: Path


def time_methods(net: FourWard, rounds: int = 30, limit: float = 5.0) -> dict[str, tuple[float, float]]:
    """Median seconds of a forward pass, and of forward and backward: the paper's method and ours, alternating.

    After `limit` seconds no further round begins: beside other work a step of the paper's method may take seconds.
    """
    masked = Masked4Ward(net.dag, seed=0)
    masked.load_edge_weights(net.weight, net.bias)
    x = torch.randn(BATCH, net.dag.num_inputs, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(masked(x), net(x), rtol=1e-4, atol=1e-4)
    methods = {"the paper's method": masked, f"fourward ({net.engine})": net}
    settings: dict[str, Any] = {"seconds": limit / 2, "min_rounds": 1, "max_rounds": rounds, "cold": True}
    with torch.no_grad():
        forward = median_seconds({name: partial(model, x) for name, model in methods.items()}, **settings)
    backward = median_seconds({name: partial(_backward, model, x) for name, model in methods.items()}, **settings)
    return {name: (forward[name], backward[name]) for name in methods}


def _backward(model: nn.Module, x: Tensor) -> None:
    model.zero_grad()
    model(x).sum().backward()


def run(out: Path, epochs: int = 40, seed: int = 0) -> Outcome:
    """Load the worm, train it, time it, draw it; everything is told as it happens."""
    console = require("rich.console", "cli").Console(highlight=False)
    worm = load("c-elegans")
    net = FourWard(worm.dag, init="kaiming_normal", seed=seed)
    lay = net.layering
    console.print(f"[bold]C. elegans[/bold], chemical synapses. {worm.citation}")
    console.print(
        f"{worm.dag.num_nodes} neurons, {worm.dag.num_edges:,} connections "
        f"({len(worm.removed):,} feedback edges left out), height {lay.height}, attenuation {lay.attenuation:.2f}"
    )
    console.print(net.explain())
    digits = bundled("digits")
    train, validation, _ = split(digits.y, 0.2, 0.0, seed)
    ink = Scaling(np.full(64, 8.0), np.full(64, 8.0))  # 0 to 16, as -1 to 1
    model = Model(net, digits.features, digits.targets, digits.classes, ink, None, seed=seed)
    x, y = ink.apply(digits.x), digits.y
    with Progress(console) as progress:
        history = fit(
            model,
            x[train],
            y[train],
            validation=(x[validation], y[validation]),
            epochs=epochs,
            learning_rate=9e-3,
            label_smoothing=0.05,
            seed=seed,
            callbacks=[progress],
        )
    seconds, accuracy = sum(history.seconds), history.val_score[-1]
    console.print(f"[bold]{accuracy:.1%}[/bold] of {len(validation)} held-out digits right, after {seconds:.1f} s")
    times = time_methods(net)
    for name, (forward, step) in times.items():
        console.print(f"{name:>20}: forward {1e3 * forward:6.2f} ms, forward and backward {1e3 * step:6.2f} ms")
    picture = out / "c-elegans.png"
    draw(net, picture, title="C. elegans after learning the digits")
    console.print(f"picture of the layering and the weights: {picture}")
    return Outcome(accuracy, seconds, times, picture)


def main() -> None:
    """Parse the words of the command line."""
    parser = argparse.ArgumentParser(prog="python -m fourward.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()

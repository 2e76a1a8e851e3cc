"""The demo: the nervous system of a worm learns to read digits; `make demo`, or `python -m fourward.demo`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import fourward as fw
from fourward.errors import require

if TYPE_CHECKING:
    from rich.console import Console
    from torch import Tensor, nn

    from fourward.nn import FourWard
    from fourward.train import History

BATCH = 64
VALIDATION = 0.2  #: fraction of the samples


class Outcome(NamedTuple):
    """The results of the demo."""

    accuracy: float
    seconds: float
    times: dict[str, tuple[float, float]]  #: seconds of a forward pass, and of forward and backward, by method
    picture: Path


def run(out: Path, epochs: int = 40, seed: int = 0) -> Outcome:
    """Load the connectome, train it, time it and draw it, and print each step."""
    console = require("rich.console", "cli").Console(highlight=False)
    worm = fw.connectomes.load("c-elegans")
    net = fw.FourWard(worm.dag, init="kaiming_normal", seed=seed)
    layering = net.layering
    console.print(f"[bold]C. elegans[/bold], chemical synapses. {worm.citation}")
    console.print(
        f"{worm.dag.num_nodes} neurons, {worm.dag.num_edges:,} connections from {worm.dag.num_inputs} sensory to "
        f"{worm.dag.num_outputs} motor neurons ({len(worm.removed):,} others, feedback most of all, are left out), "
        f"height {layering.height}, attenuation {layering.attenuation:.2f}"
    )
    console.print(net.explain())
    history = train(net, epochs, seed, console)
    accuracy, seconds = history.val_score[-1], sum(history.seconds)
    console.print(f"[bold]{accuracy:.1%}[/bold] accuracy on held-out digits, after {seconds:.1f} s of training")
    times = time_methods(net)
    console.print(f"median times of batches of {BATCH}:")
    for name, (forward, both) in times.items():
        console.print(f"{name:>20}: forward {1e3 * forward:6.2f} ms, forward and backward {1e3 * both:6.2f} ms")
    picture = out / "c-elegans.png"
    fw.draw(net, picture, title="C. elegans, trained on the digits")
    console.print(f"picture of the layering and the weights: {picture}")
    return Outcome(accuracy, seconds, times, picture)


def train(net: FourWard, epochs: int, seed: int, console: Console) -> History:
    """Train the network, between two linear adapters, on scikit-learn's digits."""
    import numpy as np

    from fourward.train._callbacks import Progress

    digits = fw.train.bundled("digits")
    scaling = fw.train.Scaling(np.full(64, 8.0), np.full(64, 8.0))  # pixels of 0 to 16, as -1 to 1
    x, y = scaling.apply(digits.x), digits.y
    rows, validation, _ = fw.train.split(y, VALIDATION, 0.0, seed)
    model = fw.train.Model(net, digits.features, digits.targets, digits.classes, scaling, None, seed=seed)
    with Progress(console) as progress:
        return fw.train.fit(
            model,
            x[rows],
            y[rows],
            validation=(x[validation], y[validation]),
            epochs=epochs,
            learning_rate=9e-3,
            label_smoothing=0.05,
            seed=seed,
            callbacks=[progress],
        )


def time_methods(net: FourWard, rounds: int = 30, limit: float = 5.0) -> dict[str, tuple[float, float]]:
    """Median seconds of a forward pass, and of forward and backward: the paper's method and ours, alternating.

    After `limit` seconds no further round begins: beside other work a step of the paper's method may take seconds.
    """
    import torch

    from fourward.study._timing import median_seconds

    masked = fw.paper.Masked4Ward(net.dag, seed=0)
    masked.load_edge_weights(net.weight, net.bias)
    x = torch.randn(BATCH, net.dag.num_inputs, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(masked(x), net(x), rtol=1e-4, atol=1e-4)
    methods = {"the paper's method": masked, f"fourward ({net.engine})": net}
    settings: dict[str, Any] = {"seconds": limit / 2, "min_rounds": 1, "max_rounds": rounds, "cold": True}
    with torch.no_grad():
        forward = median_seconds({name: partial(model, x) for name, model in methods.items()}, **settings)
    both = median_seconds(
        {name: partial(_forward_and_backward, model, x) for name, model in methods.items()}, **settings
    )
    return {name: (forward[name], both[name]) for name in methods}


def _forward_and_backward(model: nn.Module, x: Tensor) -> None:
    model.zero_grad()
    model(x).sum().backward()


def main() -> None:
    """Run the demo with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m fourward.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder of the picture (default: demo)")
    parser.add_argument("--epochs", type=int, default=40, help="training epochs (default: 40)")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the weights, the split and the batches (default: 0)"
    )
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()

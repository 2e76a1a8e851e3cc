"""The demo: a worm's nervous system learns to read digits. Run with `make demo` or `python -m fourward.demo`."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fourward.errors import require
from fourward.graph.connectomes import load
from fourward.nn.module import FourWard
from fourward.paper import Masked4Ward
from fourward.view.draw import draw

BATCH = 64


class Digits(NamedTuple):
    """Images of handwritten digits, standardised, in two parts."""

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor


class Outcome(NamedTuple):
    """What the demo found."""

    accuracy: float
    seconds: float
    times: dict[str, tuple[float, float]]  #: seconds of a forward pass and of a training step, by method
    picture: Path


def read_digits(seed: int) -> Digits:
    """scikit-learn's bundled digits, a fifth of them held out, standardised by the rest."""
    datasets, selection = require("sklearn.datasets", "train"), require("sklearn.model_selection", "train")
    data = datasets.load_digits()
    parts = selection.train_test_split(data.data, data.target, test_size=0.2, stratify=data.target, random_state=seed)
    x, held_x = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    mean, deviation = x.mean(0), x.std(0) + 0.1
    y, held_y = map(torch.tensor, parts[2:])
    return Digits((x - mean) / deviation, y, (held_x - mean) / deviation, held_y)


def train(model: nn.Module, digits: Digits, epochs: int, seed: int, tick: Callable[[float], None]) -> None:
    """AdamW on cross-entropy with a one-cycle learning rate; `tick` receives the loss after each epoch."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    steps = epochs * -(-len(digits.x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=9e-3, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(digits.x), generator=generator).split(BATCH):
            loss = nn.functional.cross_entropy(model(digits.x[rows]), digits.y[rows], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        tick(loss.item())


def time_methods(net: FourWard, repeats: int = 30) -> dict[str, tuple[float, float]]:
    """Median seconds of a forward pass and of a training step: the paper's method and ours, taking turns."""
    masked = Masked4Ward(net.dag, seed=0)
    masked.load_edge_weights(net.weight, net.bias)
    x = torch.randn(BATCH, net.dag.num_inputs, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(masked(x), net(x), rtol=1e-4, atol=1e-4)
    methods = {"the paper's method": masked, f"fourward ({net.engine})": net}
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in methods}
    for _ in range(repeats):
        for name, model in methods.items():
            with torch.no_grad():
                found[name][0].append(_seconds(lambda model=model: model(x)))  # type: ignore[misc]
            found[name][1].append(_seconds(lambda model=model: model(x).sum().backward()))  # type: ignore[misc]
            model.zero_grad()
    return {name: (statistics.median(f), statistics.median(t)) for name, (f, t) in found.items()}


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def run(out: Path, epochs: int = 40, seed: int = 0) -> Outcome:
    """Load the worm, train it, time it, draw it; everything is told as it happens."""
    console_module, progress_module = require("rich.console", "cli"), require("rich.progress", "cli")
    console = console_module.Console(highlight=False)
    worm = load("c-elegans")
    net = FourWard(worm.dag, init="kaiming_normal", seed=seed)
    lay = net.layering
    console.print(f"[bold]C. elegans[/bold], chemical synapses. {worm.citation}")
    console.print(
        f"{worm.dag.num_nodes} neurons, {worm.dag.num_edges:,} synapses "
        f"({len(worm.removed):,} feedback edges left out), height {lay.height}, attenuation {lay.attenuation:.2f}"
    )
    console.print(net.explain())
    digits = read_digits(seed)
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(
        _adaptor(digits.x.shape[1], net.dag.num_inputs, generator), net, _adaptor(net.dag.num_outputs, 10, generator)
    )
    start = time.perf_counter()
    columns = ["[progress.description]{task.description}", progress_module.BarColumn()]
    columns += ["{task.completed}/{task.total} epochs", progress_module.TimeRemainingColumn(), "{task.fields[loss]}"]
    with progress_module.Progress(*columns, console=console) as progress:
        task = progress.add_task("learning the digits", total=epochs, loss="")
        train(model, digits, epochs, seed, lambda loss: progress.update(task, advance=1, loss=f"loss {loss:.3f}"))
    seconds = time.perf_counter() - start
    with torch.no_grad():
        accuracy = (model(digits.held_x).argmax(1) == digits.held_y).double().mean().item()
    console.print(f"[bold]{accuracy:.1%}[/bold] of {len(digits.held_y)} held-out digits right, after {seconds:.1f} s")
    times = time_methods(net)
    for name, (forward, step) in times.items():
        console.print(f"{name:>20}: forward {1e3 * forward:6.2f} ms, forward and backward {1e3 * step:6.2f} ms")
    picture = out / "c-elegans.png"
    draw(net, picture, title="C. elegans after learning the digits")
    console.print(f"picture of the layering and the weights: {picture}")
    return Outcome(accuracy, seconds, times, picture)


def _adaptor(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A linear layer whose weights come from a generator of its own."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        for parameter in (layer.weight, layer.bias):
            parameter.uniform_(-(inputs**-0.5), inputs**-0.5, generator=generator)
    return layer


def main() -> None:
    """Parse the words of the command line."""
    parser = argparse.ArgumentParser(prog="python -m fourward.demo", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()

"""Every built-in activation against relu: `python -m benchmarks.activations`, a minute on two cores.

The protocol: networks that differ in their activation alone (N=256, p=0.2, B=512, float32) take turns in forward passes
without gradients, then in forward and backward passes; medians. Writes activations.json and activations.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import format_environment, format_rows
from benchmarks.storage import RESULTS, describe_environment, write_page, write_results
from fourward import FourWard, generate
from fourward.plan.activations import ACTIVATIONS
from fourward.study._timing import median_seconds

NODES, DENSITY, BATCH = 256, 0.2, 512
SECONDS = 25.0  #: for all passes of a kind


def differentiate(net: FourWard, x: torch.Tensor) -> None:
    """A forward and a backward pass."""
    net.zero_grad()
    net(x).sum().backward()


def measure(seconds: float) -> dict[str, dict[str, float]]:
    """Median seconds by kind of pass and activation."""
    dag = generate.erdos_renyi(NODES, DENSITY, seed=0)
    nets = {name: FourWard(dag, name, seed=0) for name in ACTIVATIONS}
    x = torch.randn(BATCH, dag.num_inputs, generator=torch.Generator().manual_seed(0))
    forward: dict[str, Callable[[], object]] = {name: partial(net, x) for name, net in nets.items()}
    both: dict[str, Callable[[], object]] = {name: partial(differentiate, net, x) for name, net in nets.items()}
    with torch.no_grad():
        times = {"forward": median_seconds(forward, seconds=seconds)}
    return times | {"forward and backward": median_seconds(both, seconds=seconds)}


def format_report(data: Mapping[str, Any]) -> str:
    """The results as a page."""
    kinds: dict[str, dict[str, float]] = data["seconds"]
    rows = [["activation", *(text for kind in kinds for text in (f"{kind}, us", "over relu"))]]
    for name in kinds["forward"]:
        times = [f"{1e6 * seconds[name]:.1f}" for seconds in kinds.values()]
        ratios = [f"{seconds[name] / seconds['relu']:.2f}" for seconds in kinds.values()]
        rows.append([name, *(text for pair in zip(times, ratios, strict=True) for text in pair)])
    parts = [
        "# CPU benchmark: activations",
        f"{format_environment(data['environment'])} Written by `python -m benchmarks.activations`: N={NODES}, "
        f"p={DENSITY}, B={BATCH}; medians of alternating turns.",
        format_rows(rows),
    ]
    return "\n\n".join(parts) + "\n"


def main(folder: Path = RESULTS, seconds: float = SECONDS) -> None:
    """Measure and store."""
    data = {"environment": describe_environment(), "seconds": measure(seconds)}
    write_results("activations", data, folder)
    write_page("activations", format_report(data), folder)
    print(format_report(data))


if __name__ == "__main__":
    main()

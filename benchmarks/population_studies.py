"""Where studies gain from populations, and where they don't: training, random removals, exact ablations.

    python -m benchmarks.population_studies                # about a minute

Each pair computes the same, which is compared first, and alternates in one process and one thread, as a worker of
`fourward study topologies` does:

- training: all topologies of a data set and a seed, for 4 epochs: `fit` one by one, or as a population;
- removals: a curve of a network of 302 nodes, 46 networks with random edges removed: weights set to zero, one by
  one, or a population that lacks these edges, built for it;
- ablations: `importance` of all edges, by the kernel that follows the changes from an edge on, or by a population of as
  many networks.

Writes benchmarks/results/population-studies.json and population-studies.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fourward as fw
from benchmarks.storage import RESULTS, describe_environment, write_page, write_results
from fourward.study import TOPOLOGIES, matched_graph
from fourward.study._datasets import Split, load_split
from fourward.study._timing import median_seconds
from fourward.study._topologies import FRACTIONS, TRAINING, ablation_curve, build, removed_edges
from fourward.train import fit
from fourward.train._joint_fit import fit_together

Call = Callable[[], Any]
DRAWS = 5
ABLATED = (50, 0.08)  #: nodes and density of the network whose edges are ablated


def training(data: str, epochs: int) -> dict[str, Call]:
    """All topologies on a data set, alone and together; both return the losses of each after every epoch."""
    samples, dags = load_split(data, 0), [matched_graph(name, 0) for name in TOPOLOGIES]
    validation = samples.validation_x, samples.validation_y
    options: dict[str, Any] = {"validation": validation, "epochs": epochs, "seed": 0, **TRAINING}

    def alone() -> list[list[float]]:
        losses = []
        for dag in dags:
            model, _ = build(dag, samples, 0)
            losses.append(fit(model, samples.x, samples.y, **options).train_loss)
        return losses

    def together() -> list[list[float]]:
        models = [build(dag, samples, 0)[0] for dag in dags]
        return [curves.train_loss for curves in fit_together(models, samples.x, samples.y, **options)]

    np.testing.assert_allclose(together(), alone(), rtol=1e-3)
    return {"one by one": alone, "population": together}


def removals(data: str, topology: str = "connectome") -> dict[str, Call]:
    """A curve of accuracies."""
    samples = load_split(data, 0)
    model, net = build(matched_graph(topology, 0), samples, 0)

    def alone() -> list[float]:
        return ablation_curve(model, net, samples, "edges", DRAWS, np.random.default_rng(0))

    def together() -> list[float]:
        return _curve_by_population(model, net, samples, np.random.default_rng(0))

    np.testing.assert_allclose(together(), alone(), atol=2 / len(samples.validation_y))
    return {"one by one": alone, "population": together}


@torch.no_grad()
def _curve_by_population(model: Any, net: fw.FourWard, samples: Split, rng: np.random.Generator) -> list[float]:
    counts = [DRAWS if fraction else 1 for fraction in FRACTIONS]
    masks = [
        ~removed_edges(net.dag, "edges", fraction, rng)
        for fraction, count in zip(FRACTIONS, counts, strict=True)
        for _ in range(count)
    ]
    edges, (before, _, after) = np.concatenate([np.flatnonzero(mask) for mask in masks]), model
    assert net.bias is not None
    pop = fw.Population.from_arrays(
        net.dag.edges[edges], np.cumsum([0, *(mask.sum() for mask in masks)]), net.dag.num_nodes,
        inputs=net.dag.inputs, outputs=net.dag.outputs, weight=net.weight.detach()[torch.from_numpy(edges)],
        bias=net.bias.detach().repeat(len(masks)), activation="relu",
    )  # fmt: skip
    predicted = after(pop(before(samples.validation_x))).argmax(-1)
    accuracies = (predicted == samples.validation_y).double().mean(1).split(counts)
    return [float(part.mean()) for part in accuracies]


def ablations(rows: int) -> dict[str, Call]:
    """The importance of all edges of a network of 50 nodes."""
    nodes, density = ABLATED
    net = fw.FourWard(fw.generate.erdos_renyi(nodes, density, seed=0), "tanh", seed=0)
    x = torch.randn(rows, net.dag.num_inputs, generator=torch.Generator().manual_seed(0))

    def by_kernel() -> Tensor:
        return fw.importance(net, x, of="edges")

    @torch.no_grad()
    def by_population() -> Tensor:
        edges, bias = net.dag.num_edges, net.bias
        assert bias is not None
        weight = net.weight.detach().repeat(edges, 1).fill_diagonal_(0)
        pop = fw.Population.from_arrays(
            np.tile(net.dag.edges, (edges, 1)), np.arange(edges + 1) * edges, nodes, inputs=net.dag.inputs,
            outputs=net.dag.outputs, weight=weight.flatten(), bias=bias.repeat(edges), activation="tanh",
        )  # fmt: skip
        result: Tensor = (pop(x) - net(x)).double().square().mean((1, 2)).sqrt()
        return result

    torch.testing.assert_close(by_population(), by_kernel(), rtol=1e-3, atol=1e-6)
    return {"one by one": by_kernel, "population": by_population}


def report(data: Mapping[str, Any]) -> str:
    """The table."""
    lines = [
        "# Populations in studies",
        "",
        "Generated by `python -m benchmarks.population_studies`. Milliseconds.",
        "",
    ]
    lines += ["| what | without a population | as a population | gain |", "|---|---|---|---|"]
    for name, times in data["cells"].items():
        alone, together = times["one by one"], times["population"]
        lines.append(f"| {name} | {alone * 1e3:.3g} | {together * 1e3:.3g} | {alone / together:.2g} |")
    environment = data["environment"]
    lines += ["", f"{environment['processor']}, 1 thread, commit {environment['commit']}."]
    return "\n".join([*lines, ""])


def main(args: list[str] | None = None, folder: Path = RESULTS) -> dict[str, Any]:
    """Measure all pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["digits", "wine"])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rows", type=int, default=450, help="Rows of the ablations.")
    options = parser.parse_args(args)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    data: dict[str, Any] = {"environment": describe_environment(), "cells": {}}
    try:
        pairs = {f"training, {name}": training(name, options.epochs) for name in options.data}
        pairs |= {f"removals, {name}": removals(name) for name in options.data}
        pairs[f"ablations, {options.rows} rows"] = ablations(options.rows)
        for name, pair in pairs.items():
            data["cells"][name] = median_seconds(pair, min_rounds=7)
    finally:
        torch.set_num_threads(threads)
    write_results("population-studies", data, folder)
    write_page("population-studies", report(data), folder)
    print(report(data))
    return data


if __name__ == "__main__":
    main()

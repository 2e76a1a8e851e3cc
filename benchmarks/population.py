"""Many networks at once, against how others compute them: build and forward, forward, training step.

    python -m benchmarks.population                        # a few minutes on 2 cores
    python -m benchmarks.population --device cuda          # with a padded version in TensorNEAT's manner
    python -m benchmarks.population --members 10 --rows 4 100 --sizes 50,100 --generations 0
    python -m benchmarks.population --rows 1000 --sizes 500,5000 --generations 0 --keep     # beside stored cells

Members are genomes of neat-python with tanh neurons, 8 inputs and 2 outputs. Rivals are a loop over FourWard,
neat-python's own activation, and torch.func.vmap over stacked masked networks. A rival that takes too long is measured
on some of the members, and its time multiplied. Writes benchmarks/results/population.json and population.md, on a GPU
population-gpu.json and population-gpu.md.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import neat
import numpy as np
import torch
from torch import Tensor

import fourward as fw
from benchmarks.neat_configs import neat_config, random_genomes
from benchmarks.storage import RESULTS, describe_environment, list_commits, put_cell, write_page, write_results
from fourward.study._timing import CudaClock, HostClock, median_seconds

INPUTS, OUTPUTS = 8, 2
SIZES, MEMBERS, ROWS = ("50,100", "500,5000"), (1, 10, 1000, 10_000), (4, 100, 1000)
CELL_KEY = "nodes", "edges", "members", "rows"  #: what distinguishes cells
MOST_EDGES = 10**7  #: edges of a population that is measured: 1,000 members of 5,000 are, 10,000 aren't
MANY_EDGES = (
    2 * 10**6
)  #: edges of a population above which it is built in one round, since its genes take seconds to read
MOST_SECONDS = 0.3  #: a call of a rival takes about so long at most
Call = Callable[[], Any]


@lru_cache(maxsize=1)  # millions of genes, which cells that differ in rows share
def make_members(members: int, nodes: int, edges: int, device: str) -> tuple[list[Any], Any, fw.Population]:
    """Genomes, their config and their population."""
    config = neat_config(INPUTS, OUTPUTS)
    genomes = random_genomes(members, nodes, edges, config)
    return genomes, config, fw.exchange.neat_population(genomes, config, device=device)


class Cell:
    """A population, its genomes, and a batch."""

    def __init__(self, members: int, nodes: int, edges: int, rows: int, device: str) -> None:
        self.device = device
        self.genomes, self.config, self.pop = make_members(members, nodes, edges, device)
        self.x = torch.randn(rows, INPUTS, generator=torch.Generator().manual_seed(0)).to(device)
        self.what = {"members": members, "nodes": nodes, "edges": edges, "rows": rows}

    def build(self) -> Tensor:
        """Build the population from genomes, and compute it once."""
        with torch.no_grad():
            return fw.exchange.neat_population(self.genomes, self.config, device=self.device)(self.x)  # type: ignore[no-any-return]

    def build_arrays(self) -> Tensor:
        """The same from arrays."""
        pop, members = self.pop, self.pop.members
        assert pop.bias is not None
        activation = ["tanh"], np.zeros(len(pop.bias), np.int64)
        with torch.no_grad():
            built = fw.Population.from_arrays(
                members.edges, members.edge_start, members.num_nodes, inputs=INPUTS, outputs=members.outputs,
                weight=pop.weight, bias=pop.bias, activation=activation, device=self.device,
            )  # fmt: skip
            return built(self.x)  # type: ignore[no-any-return]


def train(module: torch.nn.Module, forward: Call) -> None:
    """A forward and a backward pass."""
    module.zero_grad()
    forward().square().mean().backward()


def by_loop(cell: Cell, members: int) -> tuple[Call, Call | None]:
    """A FourWard for each member, one after another."""
    nets = torch.nn.ModuleList([cell.pop[p] for p in range(members)])

    def forward() -> Tensor:
        return torch.stack([net(cell.x) for net in nets])

    return forward, partial(train, nets, forward)


def by_neat(cell: Cell, members: int) -> tuple[Call, Call | None]:
    """neat-python's own activation, a sample at a time."""
    nets = [neat.nn.FeedForwardNetwork.create(genome, cell.config) for genome in cell.genomes[:members]]
    rows = cell.x.tolist()
    return lambda: torch.tensor([[net.activate(row) for row in rows] for net in nets]), None


def build_by_neat(cell: Cell, members: int) -> tuple[Call, Call | None]:
    """The same, networks included."""
    return lambda: by_neat(cell, members)[0](), None


class Masked(torch.nn.Module):
    """Stacked matrices of all pairs of nodes, under masks; as many rounds as the deepest member has levels."""

    mask: Tensor
    outputs: Tensor

    def __init__(self, cell: Cell, members: int) -> None:
        super().__init__()
        pop, nodes = cell.pop, cell.what["nodes"]
        weight, bias = torch.zeros(members, nodes, nodes), torch.zeros(members, nodes)
        outputs = torch.empty(members, OUTPUTS, dtype=torch.int64)
        for p in range(members):
            net = pop[p].cpu()
            dag = net.dag
            weight[p, torch.tensor(dag.source.copy()), torch.tensor(dag.target.copy())] = net.weight.detach()
            assert net.bias is not None
            bias[p, torch.tensor(dag.neurons.copy())] = net.bias.detach()
            outputs[p] = torch.tensor(dag.outputs.copy())
        end = int(pop.plan.neuron_start[members])
        self.rounds = int(pop.plan.level[:end].max())
        self.weight = torch.nn.Parameter(weight)
        self.bias = torch.nn.Parameter(bias)
        self.register_buffer("mask", weight != 0)
        self.register_buffer("outputs", outputs)

    def forward(self, x: Tensor) -> Tensor:
        """All members, by vmap."""

        def one_member(weight: Tensor, bias: Tensor, mask: Tensor, outputs: Tensor) -> Tensor:
            wide = torch.nn.functional.pad(x, (0, len(bias) - x.shape[1]))
            is_input = torch.arange(len(bias), device=x.device) < x.shape[1]
            a = wide
            for _ in range(self.rounds):
                a = torch.where(is_input, wide, torch.tanh(a @ (weight * mask) + bias))
            return a.index_select(1, outputs)

        result: Tensor = torch.func.vmap(one_member)(self.weight, self.bias, self.mask, self.outputs)
        return result


class Padded(Masked):
    """A node of all members at a time, in topological order, as TensorNEAT does."""

    order: Tensor

    def __init__(self, cell: Cell, members: int) -> None:
        super().__init__(cell, members)
        orders = [np.setdiff1d(dag.order, dag.inputs, assume_unique=True) for dag in map(cell.pop.dag, range(members))]
        self.register_buffer("order", torch.tensor(np.array(orders).astype(np.int64)))

    def forward(self, x: Tensor) -> Tensor:
        """All members, by vmap."""

        def one_member(weight: Tensor, bias: Tensor, mask: Tensor, outputs: Tensor, order: Tensor) -> Tensor:
            a = torch.nn.functional.pad(x, (0, len(bias) - x.shape[1]))
            columns = (weight * mask).t()
            for node in order:
                value = torch.tanh(a @ columns[node] + bias[node])
                a = a.index_copy(1, node.reshape(1), value.unsqueeze(1))
            return a.index_select(1, outputs)

        result: Tensor = torch.func.vmap(one_member)(self.weight, self.bias, self.mask, self.outputs, self.order)
        return result


def by_module(kind: type[Masked], cell: Cell, members: int) -> tuple[Call, Call | None]:
    """Forward and training step of such a module."""
    module = kind(cell, members).to(cell.device)
    forward = partial(module, cell.x)
    return forward, partial(train, module, forward)


Rival = Callable[[Cell, int], tuple[Call, Call | None]]
RIVALS: dict[str, Rival] = {
    "loop over FourWard": by_loop,
    "neat-python": by_neat,
    "vmap, masked": partial(by_module, Masked),
}
PADDED: dict[str, Rival] = {"vmap, padded": partial(by_module, Padded)}


def affordable(cell: Cell, make: Rival) -> int:
    """How many members a rival computes in about MOST_SECONDS, by its time for a few."""
    sample = min(4, cell.what["members"])
    forward, step = make(cell, sample)
    call = step or forward
    call()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    return int(np.clip(sample * MOST_SECONDS / seconds, sample, cell.what["members"]))


def measure(cell: Cell, rivals: Mapping[str, Any], clock: Any) -> dict[str, Any]:
    """Median seconds of everyone in turn; results are compared first."""
    with torch.no_grad():
        want = cell.pop(cell.x)
    ours = "fourward"
    forward: dict[str, Call] = {ours: partial(cell.pop, cell.x)}
    steps: dict[str, Call] = {ours: partial(train, cell.pop, forward[ours])}
    counts = {ours: len(cell.pop)}
    torch.testing.assert_close(cell.build(), want, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(cell.build_arrays(), want, rtol=1e-5, atol=1e-6)
    for name, make in rivals.items():
        counts[name] = affordable(cell, make)
        forward[name], step = make(cell, counts[name])
        if step is not None:
            steps[name] = step
        with torch.no_grad():
            got = forward[name]().to(want)
        torch.testing.assert_close(got, want[: counts[name]], rtol=1e-3, atol=1e-4, msg=name)
    counts |= {"fourward, from arrays": len(cell.pop), "neat-python, built": affordable(cell, build_by_neat)}
    builds: dict[str, Call] = {ours: cell.build, "fourward, from arrays": cell.build_arrays}
    builds["neat-python, built"] = build_by_neat(cell, counts["neat-python, built"])[0]
    with torch.no_grad():
        times = {"forward": median_seconds(forward, min_rounds=3, clock=clock)}
    times["train"] = median_seconds(steps, min_rounds=3, clock=clock)
    rounds = 1 if cell.what["members"] * cell.what["edges"] > MANY_EDGES else 3
    times["build"] = median_seconds(builds, min_rounds=rounds, clock=clock)
    scaled = {
        kind: {name: seconds * len(cell.pop) / counts[name] for name, seconds in own.items()}
        for kind, own in times.items()
    }
    return {**cell.what, **scaled, "measured members": counts}


class Stopwatch:
    """Seconds within functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose seconds are added up."""

        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

        return timed


def evolve(generations: int) -> dict[str, Any]:
    """XOR-sized NEAT: the seconds of all generations, and of what they consist of.

    Reproduction (crossover and mutation) and speciation are neat-python's own operators. Every generation is evaluated
    a second time by neat-python's own activation, which is not part of `seconds`.
    """
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    target = torch.tensor([0.0, 1.0, 1.0, 0.0])
    evaluate = fw.exchange.NeatEvaluator(x, lambda y: 4 - (y[..., 0] - target).square().sum(1))
    random.seed(0)
    population, rows = neat.Population(neat_config(2, 1)), x.tolist()
    population.run(evaluate, 1)  # compiles
    watch = Stopwatch()

    def by_neat(genomes: Any, config: Any) -> None:
        for _, genome in genomes:
            net = neat.nn.FeedForwardNetwork.create(genome, config)
            for row in rows:
                net.activate(row)

    ours, theirs = watch.wrap("evaluation", evaluate), watch.wrap("evaluation by neat-python", by_neat)

    def evaluate_twice(genomes: Any, config: Any) -> None:
        ours(genomes, config)
        theirs(genomes, config)

    for name, owner, method in (
        ("reproduction", population.reproduction, "reproduce"),
        ("speciation", population.species, "speciate"),
    ):
        setattr(owner, method, watch.wrap(name, getattr(owner, method)))
    watch.wrap("total", population.run)(evaluate_twice, generations)
    parts = watch.seconds
    theirs_seconds, total = parts.pop("evaluation by neat-python"), parts.pop("total")
    seconds = total - theirs_seconds
    parts["other"] = seconds - sum(parts.values())
    sizes = {"genomes": len(population.population), "generations": generations}
    return sizes | {"seconds": seconds, "parts": parts, "evaluation by neat-python": theirs_seconds}


def report(data: Mapping[str, Any]) -> str:
    """The tables."""
    lines = [
        "# Populations",
        "",
        "Generated by `python -m benchmarks.population`. Milliseconds; in brackets how much longer a rival takes.",
        "Networks of tanh neurons with 8 inputs and 2 outputs; evaluations are those of one member on one row.",
        "",
        "## Forward",
        "",
        "| members | nodes, edges | rows | fourward | evaluations/s | " + " | ".join(_rivals(data, "forward")) + " |",
        "|---|---|---|---|---|" + "---|" * len(_rivals(data, "forward")),
    ]
    for cell in data["cells"]:
        rate = cell["members"] * cell["rows"] / cell["forward"]["fourward"]
        lines.append(_row(cell, "forward", data, [f"{rate:.2g}"]))
    lines += [
        "",
        "## Training step",
        "",
        "| members | nodes, edges | rows | fourward | " + " | ".join(_rivals(data, "train")) + " |",
    ]
    lines += ["|---|---|---|---|" + "---|" * len(_rivals(data, "train"))]
    lines += [_row(cell, "train", data, []) for cell in data["cells"]]
    lines += ["", "## Building and one forward pass", "", "From genomes of neat-python."]
    lines += ["", "| members | nodes, edges | rows | fourward | " + " | ".join(_rivals(data, "build")) + " |"]
    lines += ["|---|---|---|---|" + "---|" * len(_rivals(data, "build"))]
    lines += [_row(cell, "build", data, []) for cell in data["cells"]]
    if data.get("neat"):
        run = data["neat"]
        parts = run["parts"] | {"evaluation by neat-python instead": run["evaluation by neat-python"]}
        lines += ["", "## Evolution of XOR", ""]
        lines += [f"{run['generations']:,} generations of {run['genomes']:,} genomes in {run['seconds']:.1f} s."]
        lines += ["", "| part | seconds | share |", "|---|---|---|"]
        for part, seconds in parts.items():
            share = f"{seconds / run['seconds']:.0%}" if part in run["parts"] else ""
            lines.append(f"| {part} | {seconds:.2f} | {share} |")
    environment = data["environment"]
    commits = list_commits(data["cells"])
    lines += ["", f"{environment['processor']}, {environment['threads']} threads, commit {commits}."]
    return "\n".join([*lines, ""])


def _rivals(data: Mapping[str, Any], kind: str) -> list[str]:
    names = dict.fromkeys(name for cell in data["cells"] for name in cell[kind])
    return [name for name in names if name != "fourward"]


def _row(cell: Mapping[str, Any], kind: str, data: Mapping[str, Any], extra: list[str]) -> str:
    own = cell[kind]["fourward"]
    values = [
        f"{cell['members']:,}",
        f"{cell['nodes']}, {cell['edges']:,}",
        f"{cell['rows']:,}",
        f"{own * 1e3:.3g}",
        *extra,
    ]
    for name in _rivals(data, kind):
        seconds = cell[kind].get(name)
        values.append("" if seconds is None else f"{seconds * 1e3:,.3g} ({seconds / own:,.3g}x)")
    return f"| {' | '.join(values)} |"


def main(args: list[str] | None = None, folder: Path = RESULTS) -> dict[str, Any]:
    """Measure all cells, and write them after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--members", type=int, nargs="+", default=MEMBERS)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--sizes", nargs="+", default=SIZES, help="Pairs NODES,EDGES.")
    parser.add_argument("--generations", type=int, default=1000, help="Generations of XOR; 0: none.")
    parser.add_argument("--keep", action="store_true", help="Keep stored results of other cells.")
    options = parser.parse_args(args)
    on_card = options.device != "cpu"
    rivals, clock = (RIVALS | PADDED, CudaClock()) if on_card else (RIVALS, HostClock())
    name, environment = "population-gpu" if on_card else "population", describe_environment()
    stored = json.loads((folder / f"{name}.json").read_text()) if options.keep else {}
    data: dict[str, Any] = stored | {"environment": environment, "cells": stored.get("cells", [])}
    for nodes, edges in (map(int, size.split(",")) for size in options.sizes):
        for members in options.members:
            if members * edges > MOST_EDGES or (edges > 1000 and members < 1000):
                continue
            for rows in options.rows:
                cell = measure(Cell(members, nodes, edges, rows, options.device), rivals, clock)
                data["cells"] = put_cell(data["cells"], cell, CELL_KEY, environment["commit"])
                ratio = cell["forward"]["neat-python"] / cell["forward"]["fourward"]
                print(
                    f"{members:,} members of {edges:,} edges, {rows:,} rows: {ratio:,.0f} times neat-python", flush=True
                )
                _write(name, data, folder)
    if options.generations:
        data["neat"] = evolve(options.generations)
        share = data["neat"]["parts"]["evaluation"] / data["neat"]["seconds"]
        print(f"{share:.0%} of {options.generations} generations is evaluation", flush=True)
        _write(name, data, folder)
    return data


def _write(name: str, data: Mapping[str, Any], folder: Path) -> None:
    write_results(name, data, folder)
    write_page(name, report(data), folder)


if __name__ == "__main__":
    main()

"""Evolved wiring with trained weights: Lamarckian and Baldwinian evolution against plain NEAT, on three tasks.

    python -m benchmarks.neat_hybrid                       # about five minutes on 2 cores
    python -m benchmarks.neat_hybrid --seeds 2 --generations 5

Protocol. neat-python evolves 150 genomes of tanh neurons for 60 generations and 10 seeds, with the probabilities of
mutations of docs/howto/populations.md. "lamarckian" takes 10 steps of Adam (learning rate 0.05) on the weights and
biases of all genomes in each generation and writes them back to the genes; "baldwinian" takes the same steps, and only
the fitness after them counts. Fitness is the sum of squared errors on the rows of the task, negative. "neat" has no
gradients, and evolves on until it has taken as much time as the Lamarckian run of the same seed: both its error after
as many generations and that after as much time are reported. Time is that of the process, in one thread. The tasks:

- xor: two bits, all four rows.
- parity: three bits, all eight rows.
- regression: 0.9 sin(pi a) b of a and b in [-1, 1], on 64 rows; errors are those on 1,000 other rows.

A first version of this protocol had the mutations of `neat_configs.SMALL`, 100 generations and a parity of four bits,
on which no method left the error of a constant.

Reported is the mean squared error of the genome that was best on the task's rows so far: geometric means over seeds
with 95 % intervals (Student's t of the logarithm), and in how many runs it is below 0.01. Writes after each seed
benchmarks/results/neat-hybrid.json, and in the end neat-hybrid.md.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import neat
import numpy as np
import torch
from torch import Tensor

import fourward as fw
from benchmarks.neat_configs import GROWING, neat_config
from benchmarks.storage import RESULTS, describe_environment, write_page, write_results

GENOMES, GENERATIONS, SEEDS = 150, 60, 10
STEPS, LEARNING_RATE = 10, 0.05
SOLVED = 0.01  #: an error below which a task is solved
LEAST = 1e-12  #: errors below count as this much: they have logarithms


class Task(NamedTuple):
    """Rows to evolve on, and rows to measure the error on."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def parity(bits: int) -> Task:
    """All rows of so many bits, and whether the number of ones is odd."""
    x = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * bits)
    y = x.sum(1, keepdim=True) % 2
    return Task(x, y, x, y)


def regression(rows: int = 64, test_rows: int = 1000) -> Task:
    """A smooth function of two variables, and other rows of it."""
    x = 2 * torch.rand(rows + test_rows, 2, generator=torch.Generator().manual_seed(0)) - 1
    y = 0.9 * torch.sin(math.pi * x[:, :1]) * x[:, 1:]
    return Task(x[:rows], y[:rows], x[rows:], y[rows:])


TASKS: dict[str, Callable[[], Task]] = {"xor": lambda: parity(2), "parity": lambda: parity(3), "regression": regression}


def errors(pop: fw.Population, x: Tensor, y: Tensor) -> Tensor:
    """(P,) mean squared errors."""
    result: Tensor = (pop(x) - y).square().mean((1, 2))
    return result


class Evolution:
    """A run: the best error so far, on the test rows, and the seconds after each generation."""

    def __init__(self, task: Task, seed: int, genomes: int, steps: int = 0, write_back: bool = False) -> None:
        self.task, self.steps, self.write_back = task, steps, write_back
        self.best, self.curve, self.seconds = math.inf, list[float](), list[float]()
        random.seed(seed)  # neat-python draws from Python's global generator
        sizes = task.x.shape[1], task.y.shape[1]
        self.population = neat.Population(neat_config(*sizes, genomes, rates=GROWING))
        self.spent = 0.0

    def run(self, generations: int) -> None:
        """Evolve on for so many generations."""
        start = time.process_time()
        self.before, self.start = self.spent, start
        self.population.run(self.evaluate, generations)
        self.spent = self.before + time.process_time() - start

    def evaluate(self, genomes: Sequence[tuple[int, Any]], config: Any) -> None:
        """Train all genomes for a few steps, and set their fitness."""
        task, pop = self.task, fw.exchange.neat_population(genomes, config)
        optimizer = torch.optim.Adam(pop.parameters(), lr=LEARNING_RATE)
        for _ in range(self.steps):
            optimizer.zero_grad()
            errors(pop, task.x, task.y).sum().backward()
            optimizer.step()
        if self.write_back:
            pop.write_back()
        with torch.no_grad():
            own = errors(pop, task.x, task.y)
            best = int(own.argmin())
            if float(own[best]) < self.best:
                self.best = float(own[best])
                net = pop[best]
                self.error = float((net(task.test_x) - task.test_y).square().mean())
        for (_, genome), value in zip(genomes, (-own * task.y.numel()).tolist(), strict=True):
            genome.fitness = value
        self.curve.append(self.error)
        self.seconds.append(self.before + time.process_time() - self.start)

    def results(self) -> dict[str, Any]:
        """What is stored of it."""
        winner = self.population.best_genome
        return {
            "error": [float(f"{value:.4g}") for value in self.curve],
            "seconds": [round(value, 4) for value in self.seconds],
            "neurons": len(winner.nodes),
            "edges": sum(gene.enabled for gene in winner.connections.values()),
        }


def run_seed(task: Task, seed: int, generations: int, genomes: int) -> dict[str, Any]:
    """All three runs of a seed."""
    runs = {
        "lamarckian": Evolution(task, seed, genomes, STEPS, write_back=True),
        "baldwinian": Evolution(task, seed, genomes, STEPS),
        "neat": Evolution(task, seed, genomes),
    }
    for run in runs.values():
        run.run(generations)
    while runs["neat"].spent < runs["lamarckian"].spent:
        runs["neat"].run(10)
    return {name: run.results() for name, run in runs.items()}


def final_errors(runs: Sequence[Mapping[str, Any]], generations: int) -> dict[str, list[float]]:
    """The errors at the end of each row of the table, seed by seed."""
    return {
        "NEAT, as many generations": [run["neat"]["error"][generations - 1] for run in runs],
        "NEAT, as much time": [run["neat"]["error"][-1] for run in runs],
        "Baldwinian": [run["baldwinian"]["error"][-1] for run in runs],
        "Lamarckian": [run["lamarckian"]["error"][-1] for run in runs],
    }


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean, and a 95 % interval of it."""
    from scipy.stats import t

    logs = np.log(np.maximum(values, LEAST))
    half = t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
    low, middle, high = np.exp([logs.mean() - half, logs.mean(), logs.mean() + half]).tolist()
    return middle, low, high


def report(data: Mapping[str, Any]) -> str:
    """The table."""
    settings, environment = data["settings"], data["environment"]
    tasks = list(data["tasks"])
    lines = [
        "# Evolved wiring, trained weights",
        "",
        f"Generated by `python -m benchmarks.neat_hybrid`, whose first lines are the protocol: {settings['genomes']} "
        f"genomes, {settings['generations']} generations, {settings['seeds']} seeds; mean squared errors (geometric "
        f"means and 95 % intervals), and how many runs end below {SOLVED}.",
        "",
        f"| evolution | {' | '.join(tasks)} |",
        f"|---|{'---|' * len(tasks)}",
    ]
    columns = [final_errors(data["tasks"][task], settings["generations"]) for task in tasks]
    for name in columns[0]:
        cells = []
        for column in columns:
            middle, low, high = interval(column[name])
            solved = sum(value < SOLVED for value in column[name])
            cells.append(f"{middle:.2g} ({low:.2g} to {high:.2g}), {solved} of {len(column[name])}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "Median numbers of neurons and edges of the winners, generations, and seconds of a run:", ""]
    lines += [f"| winner | {' | '.join(tasks)} |", f"|---|{'---|' * len(tasks)}"]
    for name in ("neat", "baldwinian", "lamarckian"):
        lines.append(f"| {name} | {' | '.join(_sizes(data['tasks'][task], name) for task in tasks)} |")
    lines += ["", f"{environment['processor']}, 1 thread, commit {environment['commit']}."]
    return "\n".join([*lines, ""])


def _sizes(runs: Sequence[Mapping[str, Any]], name: str) -> str:
    own = [run[name] for run in runs]
    neurons, edges = (int(np.median([run[what] for run in own])) for what in ("neurons", "edges"))
    generations = int(np.median([len(run["error"]) for run in own]))
    seconds = float(np.median([run["seconds"][-1] for run in own]))
    return f"{neurons} and {edges}, {generations} generations, {seconds:.2g} s"


def main(args: list[str] | None = None, folder: Path = RESULTS) -> dict[str, Any]:
    """Run all seeds of all tasks, and write them after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--generations", type=int, default=GENERATIONS)
    parser.add_argument("--genomes", type=int, default=GENOMES)
    options = parser.parse_args(args)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    settings = vars(options) | {"steps": STEPS, "learning_rate": LEARNING_RATE}
    data: dict[str, Any] = {"environment": describe_environment(), "settings": settings}
    data["tasks"] = {name: [] for name in TASKS}
    try:
        run_seed(TASKS["xor"](), 0, 2, 10)  # compiles
        for seed in range(options.seeds):
            for name, make in TASKS.items():
                run = run_seed(make(), seed, options.generations, options.genomes)
                data["tasks"][name].append(run)
                ends = ", ".join(f"{kind} {own['error'][-1]:.2g}" for kind, own in run.items())
                print(f"{name}, seed {seed}: {ends}", flush=True)
            write_results("neat-hybrid", data, folder)
    finally:
        torch.set_num_threads(threads)
    data["settings"]["seeds"] = min(map(len, data["tasks"].values()))
    write_page("neat-hybrid", report(data), folder)
    return data


if __name__ == "__main__":
    main()

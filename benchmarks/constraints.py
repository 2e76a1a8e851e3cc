"""What constraints cost in a training step, and how long exact ablations take: `python -m benchmarks.constraints`.

Training steps (forward, backward, Adam) of a free network and of networks with constraints alternate in one run, on a
graph of the paper's protocol with N=1,024 and p=0.2, batch 128, in one thread, by the wall clock and then by that of
the processor, which doesn't count other work on the machine. (In two threads on a busy machine, threads that wait for
each other spin, and a step takes from 12 to 132 ms, in no relation to constraints.) Then each neuron of a network of
5,000 is ablated on 1,000 samples, with and without targets, in all threads: half of the seconds of the processor is
what two free cores need at least. Writes results/constraints.json and prints two tables.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fourward as fw
from benchmarks.storage import RESULTS, describe_environment, write_results
from fourward.study._timing import HostClock, Turn, alternate

N, P, BATCH = 1024, 0.2, 128
ROUNDS, CALLS = 100, 10  #: turns of each contestant, and steps of a turn
TYPES = 40  #: values of the attribute that ties edges
NEURONS, EDGES_PER_NEURON, ENDS, SAMPLES = 5000, 12, 300, 1000


class ProcessorClock(HostClock):
    """Seconds that the process spends on the processor."""

    def time(self, call: Callable[[], object], calls: int = 1) -> float:
        """Seconds of so many calls."""
        start = time.process_time()
        for _ in range(calls):
            call()
        return time.process_time() - start


def make_options(dag: fw.Dag) -> dict[str, dict[str, Any]]:
    """The options of each contestant: none, each constraint alone, and all of them."""
    rng = np.random.default_rng(0)
    single: dict[str, dict[str, Any]] = {
        "sign": {"sign": rng.choice([-1, 1], dag.num_nodes)},
        "frozen": {"frozen": rng.random(dag.num_edges) < 0.5},
        "tied": {"tied": "type"},
        "scale": {"scale": rng.lognormal(1, 1, dag.num_edges)},
    }
    together = {name: value for options in single.values() for name, value in options.items()}
    return {"free": {}, **single, "all": together}


def make_step(dag: fw.Dag, options: Mapping[str, Any], x: Tensor) -> Callable[[], object]:
    """A training step of a network with these constraints."""
    net = fw.FourWard(dag, "tanh", seed=0, **options)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        net(x).square().mean().backward()
        optimiser.step()

    return step


def time_training(n: int, batch: int, rounds: int) -> dict[str, Any]:
    """Median milliseconds of a step of each contestant, in alternating turns."""
    dag = fw.generate.erdos_renyi(n, P, seed=0)
    types = np.random.default_rng(1).integers(0, TYPES, dag.num_nodes)
    dag = dag.with_attributes({"type": types})
    x = torch.randn(batch, dag.num_inputs, generator=torch.Generator().manual_seed(0))
    steps = {name: make_step(dag, options, x) for name, options in make_options(dag).items()}
    turns = {name: Turn(step, calls=CALLS, warmup=1, rounds=rounds) for name, step in steps.items()}
    cell: dict[str, Any] = {
        "n": n,
        "p": P,
        "batch": batch,
        "nodes": dag.num_nodes,
        "edges": dag.num_edges,
        "rounds": rounds,
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, clock in (("wall", HostClock()), ("processor", ProcessorClock())):
            times = alternate(turns, clock)
            cell[name] = {
                "milliseconds": {each: 1e3 * seconds for each, seconds in times.items()},
                "ratio": {each: seconds / times["free"] for each, seconds in times.items()},
            }
    finally:
        torch.set_num_threads(threads)
    return cell


def make_connectome(neurons: int, ends: int) -> fw.Dag:
    """A graph as tables of synapses give it: sensory neurons first, motor neurons last, edges mostly near."""
    rng = np.random.default_rng(0)
    source = rng.integers(0, neurons, neurons * EDGES_PER_NEURON)
    target = source + 1 + rng.exponential(400, len(source)).astype(np.int64)
    keep = (target < neurons) & (target >= ends) & (source < neurons - ends)
    pairs = np.unique(np.stack((source, target), -1)[keep], axis=0)
    return fw.Dag.from_arrays(pairs, labels=neurons, inputs=range(ends), outputs=range(neurons - ends, neurons))


def time_ablations(neurons: int, ends: int, samples: int) -> dict[str, Any]:
    """Seconds, and seconds of the processor, for the exact importance of every neuron, after compilation."""
    dag = make_connectome(neurons, ends)
    generator = torch.Generator().manual_seed(0)
    net = fw.FourWard(dag, "relu", "identity", seed=0)
    x = torch.randn(samples, dag.num_inputs, generator=generator)
    y = torch.randint(0, dag.num_outputs, (samples,), generator=generator)
    fw.importance(net, x[:16], y[:16])
    seconds = {}
    for name, targets in (("change of the outputs", None), ("increase of the loss", y)):
        start, start_cpu = time.perf_counter(), time.process_time()
        fw.importance(net, x, targets)
        seconds[name] = {"wall": time.perf_counter() - start, "processor": time.process_time() - start_cpu}
    return {"nodes": dag.num_nodes, "edges": dag.num_edges, "outputs": ends, "samples": samples, "seconds": seconds}


def format_tables(data: Mapping[str, Any]) -> str:
    """Both tables in Markdown."""
    training, ablations = data["training"], data["ablations"]
    lines = ["| constraints | ms | over free | ms of the processor | over free |", "|---|---|---|---|---|"]
    for name in training["wall"]["ratio"]:
        times = [training[clock] for clock in ("wall", "processor")]
        cells = [f"{each['milliseconds'][name]:.3g} | {each['ratio'][name]:.3f}" for each in times]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| ablations | seconds | of the processor |", "|---|---|---|"]
    for name, seconds in ablations["seconds"].items():
        lines.append(f"| {name} | {seconds['wall']:.1f} | {seconds['processor']:.1f} |")
    return "\n".join(lines)


def main(args: list[str] | None = None, folder: Path = RESULTS) -> dict[str, Any]:
    """Measure both, store the results, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=N)
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--neurons", type=int, default=NEURONS)
    parser.add_argument("--ends", type=int, default=ENDS, help="Inputs, and outputs, of the network that is ablated.")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    options = parser.parse_args(args)
    environment = describe_environment()
    training = time_training(options.n, options.batch, options.rounds)
    ablations = time_ablations(options.neurons, options.ends, options.samples)
    data = {"environment": environment, "training": training, "ablations": ablations}
    write_results("constraints", data, folder)
    print(format_tables(data))
    return data


if __name__ == "__main__":
    main()

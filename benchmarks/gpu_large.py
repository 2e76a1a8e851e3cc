"""Large sparse graphs on one GPU, up to 10^9 edges: `python -m benchmarks.gpu_large --edges 118e6 1e9`.

A circulant wiring: neuron v reads v - s for each of a set of strides s, drawn between 1/79 and 2/79 of the nodes, so
that the height is 79 whatever the size. The protocol: each graph is built on the machine of the GPU, in a new process;
then the network takes training steps with Adam for each batch size and dtype of activations (bfloat16 by autocast),
`STEPS` times after two that warm up; medians. Stored are the seconds of each stage of building, the peak memory of host
and GPU, the seconds of a step, and the bytes that it gathers. Writes gpu-large.json and gpu-large.md after each graph.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.gpu_cells import Settings, bytes_moved
from benchmarks.gpu_host import describe_gpu
from benchmarks.report import format_environment, format_rows
from benchmarks.storage import RESULTS, write_page, write_results
from fourward import Dag, FourWard
from fourward.study._timing import clock_for

HEIGHT = 79
DEGREE = 60
STEPS = 5
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}


def circulant(nodes: int, degree: int = DEGREE) -> np.ndarray[Any, Any]:
    """(E, 2) int32 pairs sorted by target."""
    shortest = -(-nodes // HEIGHT)
    longer = np.random.default_rng(0).choice(np.arange(shortest + 1, 2 * shortest), degree - 1, replace=False)
    strides = np.append(longer, shortest)
    strides = np.sort(strides)[::-1].astype(np.int32)
    target = np.arange(shortest, nodes, dtype=np.int32)
    pairs = np.empty((degree * nodes - int(strides.sum()), 2), np.int32)
    at = 0
    for part in range(0, len(target), 1 << 20):
        rows = target[part : part + (1 << 20)]
        inside = strides[None, :] <= rows[:, None]
        size = int(inside.sum())
        pairs[at : at + size, 0] = (rows[:, None] - strides[None, :])[inside]
        pairs[at : at + size, 1] = np.repeat(rows, inside.sum(1))
        at += size
    return pairs


def measure(edges: int, batches: list[int], device: str) -> dict[str, Any]:
    """Build one graph, and train it for a few steps."""
    marks = [time.perf_counter()]
    nodes = int(1.02 * edges / DEGREE)  # the first ones have fewer edges
    pairs = circulant(nodes)
    marks.append(time.perf_counter())
    dag = Dag.from_arrays(pairs, labels=nodes)
    marks.append(time.perf_counter())
    del pairs
    net = FourWard(dag, seed=0, device=device)
    clock, steps = clock_for(device), []
    clock.synchronize()
    marks.append(time.perf_counter())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-6, fused=True)
    for batch in batches:
        x = Settings(device).random(batch, dag.num_inputs)
        for name, dtype in DTYPES.items():
            seconds, peak = time_steps(net, optimizer, x, dtype)
            moved = bytes_moved(dag.num_nodes, dag.num_edges, batch)["train, gathered"]
            steps.append({"batch": batch, "activations": name, "seconds": seconds, "gathered": moved, "peak": peak})
            print(
                f"{dag.num_edges:,} edges, B={batch}, {name}: {1e3 * seconds:.1f} ms, {peak / 2**30:.1f} GiB",
                flush=True,
            )
    names = "pairs", "graph", "network"
    building = {name: end - start for name, start, end in zip(names, marks, marks[1:], strict=False)}
    sizes = {"nodes": dag.num_nodes, "edges": dag.num_edges, "height": net.layering.height, "engine": net.engine}
    host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**sizes, "building": building, "host_peak": host, "steps": steps}


def time_steps(
    net: FourWard, optimizer: torch.optim.Optimizer, x: torch.Tensor, dtype: torch.dtype | None
) -> tuple[float, int]:
    """Median seconds of a step, and the peak of memory on the GPU."""
    device = x.device.type

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, dtype) if dtype else nullcontext():
            loss = net(x).float().square().mean()
        loss.backward()
        optimizer.step()

    clock = clock_for(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        step()
    seconds = statistics.median(clock.time(step) for _ in range(STEPS))
    if not all(torch.isfinite(parameter).all() for parameter in net.parameters()):
        raise ValueError("a parameter isn't finite")
    return seconds, torch.cuda.max_memory_allocated() if device == "cuda" else 0


def format_report(data: dict[str, Any]) -> str:
    """The results as a page."""
    machine = data["facts"]
    building = [["nodes", "edges", "pairs, s", "graph, s", "network, s", "host's peak, GiB"]]
    training = [["edges", "B", "activations", "step, ms", "gathered, GB", "GB/s", "peak, GiB"]]
    for graph in data["graphs"]:
        sizes = f"{graph['nodes']:,}", f"{graph['edges']:,}"
        seconds = [f"{graph['building'][part]:.1f}" for part in ("pairs", "graph", "network")]
        building.append([*sizes, *seconds, f"{graph['host_peak'] / 2**30:.1f}"])
        for step in graph["steps"]:
            row = [sizes[1], f"{step['batch']}", step["activations"], f"{1e3 * step['seconds']:.1f}"]
            gathered = step["gathered"] / 1e9 if step["activations"] == "float32" else None
            rates = ["", ""] if gathered is None else [f"{gathered:,.0f}", f"{gathered / step['seconds']:,.0f}"]
            training.append([*row, *rates, f"{step['peak'] / 2**30:.1f}"])
    parts = [
        "# GPU benchmark: large graphs",
        f"{machine['card']}, driver {machine['driver']}. {format_environment(machine)} Written by `python -m "
        f"benchmarks.gpu_large`, which has the protocol. A circulant wiring, {HEIGHT} levels, {DEGREE} edges a neuron. "
        "Gathered bytes: those of a row for each edge, as if no row were read from a cache.",
        "## Building",
        format_rows(building),
        "## Training step with Adam",
        format_rows(training),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Measure each size in a new process, and store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_large", description=__doc__)
    parser.add_argument("--edges", type=float, nargs="+", default=[118e6, 1e9])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--commit", help="commit of the results, where git can't tell")
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)  # "cpu": a dry run
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)  # in the new process
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(int(options.edges[0]), options.batches, options.device)))
        return 0
    data: dict[str, Any] = {"facts": describe_gpu(Settings(options.device), options.commit), "graphs": []}
    for edges in options.edges:
        command = [sys.executable, "-m", "benchmarks.gpu_large", "--one", "--device", options.device]
        command += ["--edges", str(edges), "--batches", *map(str, options.batches)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        print(done.stdout, flush=True)
        data["graphs"].append(json.loads(done.stdout.splitlines()[-1]))
        write_results("gpu-large", data, options.out)
        write_page("gpu-large", format_report(data), options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

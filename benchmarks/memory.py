"""How much memory a large network takes on a CPU, stage by stage: `python -m benchmarks.memory`.

Each graph has a new process. Edges are drawn in another one and passed as a file, so that the peaks are those of
fourward. docs/scale.md derives the formulas that are compared with the measurements.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DEGREE = 10  #: edges per node
BATCH = 32
SIZES = (10**6, 3 * 10**6, 10**7)  #: edges


def cpu_bytes(nodes: int, edges: int, batch: int) -> int:
    """Memory of a training step on two cores in float32 with Adam, for activations whose gradient doesn't need z."""
    return 64 * edges + 120 * nodes + 8 * nodes * batch


def gpu_bytes(nodes: int, edges: int, batch: int) -> int:
    """The same on a GPU, with the CSR layout."""
    return 36 * edges + 100 * nodes + 8 * nodes * batch


def measure(path: str, nodes: int) -> dict[str, Any]:
    """Bytes above those before the edges were read, at the peak of each stage."""
    import torch

    from fourward import Dag, FourWard, generate
    from fourward.study._timing import training_step

    warm = FourWard(generate.chain(5), seed=0)
    training_step(warm, torch.ones(BATCH, 1))()  # compiles, and loads what torch loads late
    before, peaks = _status("VmRSS"), {}
    edges = np.load(path)
    dag = Dag.from_edges(edges, nodes=nodes)
    peaks["dag"] = _status("VmHWM") - before
    net = FourWard(dag, seed=0)
    peaks["network"] = _status("VmHWM") - before
    edge_bytes = edges.nbytes
    del edges
    step = training_step(net, torch.ones(BATCH, dag.num_inputs))
    for _ in range(2):  # the first makes Adam's state
        step()
    peaks["training"] = _status("VmHWM") - before
    sizes = {"nodes": dag.num_nodes, "edges": dag.num_edges, "batch": BATCH, "given": edge_bytes}
    return sizes | {"peaks": peaks, "formula": cpu_bytes(dag.num_nodes, dag.num_edges, BATCH)}


def draw(path: str, nodes: int, edges: int) -> None:
    """Write random edges."""
    from benchmarks.fresh import random_edges

    np.save(path, random_edges(nodes, edges))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def report(data: dict[str, Any]) -> str:
    """The results as a page."""
    from benchmarks.report import format_environment

    head = "| nodes | edges | building the Dag | building the network | training | formula | measured over formula |"
    lines = [
        "# Memory on a CPU",
        format_environment(data["facts"]),
        f"Peaks in MB (10^6 bytes) above a process that has torch and fourward loaded, B={BATCH}, float32, relu, Adam; "
        "until the network is built, they include the list of edges (16 bytes each). The formula is "
        "64 E + 120 N + 8 N B. Written by `python -m benchmarks.memory`.",
        "\n".join([head, "|---|---|---|---|---|---|---|", *map(_row, data["graphs"])]),
    ]
    return "\n\n".join(lines) + "\n"


def _row(graph: dict[str, Any]) -> str:
    stages = [f"{graph['peaks'][stage] / 1e6:,.0f}" for stage in ("dag", "network", "training")]
    ratio = graph["peaks"]["training"] / graph["formula"]
    cells = [f"{graph['nodes']:,}", f"{graph['edges']:,}", *stages, f"{graph['formula'] / 1e6:,.0f}", f"{ratio:.2f}"]
    return f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> None:
    """Measure all sizes, and write memory.json and memory.md."""
    from benchmarks.storage import RESULTS, describe_environment, write_page, write_results

    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    graphs = []
    with tempfile.TemporaryDirectory() as folder:
        for edges in options.edges:
            nodes, path = edges // DEGREE, f"{folder}/{edges}.npy"
            _in_process("draw", path, nodes, edges)
            graphs.append(json.loads(_in_process("measure", path, nodes)))
            print(_row(graphs[-1]))
    data = {"facts": describe_environment(), "graphs": graphs}
    write_results("memory", data, options.out)
    write_page("memory", report(data), options.out)


def _in_process(*arguments: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", *map(str, arguments)], capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    parts: dict[str, Callable[..., Any]] = {"draw": draw, "measure": measure}
    if sys.argv[1:2] and sys.argv[1] in parts:
        name, path, *numbers = sys.argv[1:]
        print(json.dumps(parts[name](path, *map(int, numbers))))
    else:
        main()

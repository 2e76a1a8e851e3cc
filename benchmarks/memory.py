"""How much memory a large network takes on a CPU, step by step: `python -m benchmarks.memory`.

Each graph has a process of its own. Edges are drawn in another one and come as a file, so that the peaks are those of
fourward. The formulas that stand beside what is measured are derived in docs/scale.md.
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

from fourward._files import replacing

DEGREE = 10  #: edges for each node
BATCH = 32
SIZES = (10**6, 3 * 10**6, 10**7)  #: edges


def held_bytes(nodes: int, edges: int, batch: int) -> int:
    """What a training step on a CPU holds in float32, with Adam, for activations whose slope needs no z."""
    return 48 * edges + 130 * nodes + 8 * nodes * batch


def card_bytes(nodes: int, edges: int, batch: int) -> int:
    """The same on a card, where lists of edges are walked."""
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
    given = edges.nbytes
    del edges
    step = training_step(net, torch.ones(BATCH, dag.num_inputs))
    for _ in range(2):  # the first makes Adam's state
        step()
    peaks["training"] = _status("VmHWM") - before
    facts = {"nodes": dag.num_nodes, "edges": dag.num_edges, "batch": BATCH, "given": given}
    return facts | {"peaks": peaks, "formula": held_bytes(dag.num_nodes, dag.num_edges, BATCH)}


def draw(path: str, nodes: int, edges: int) -> None:
    """Write random edges."""
    from benchmarks.fresh import random_edges

    np.save(path, random_edges(nodes, edges))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def report(data: dict[str, Any]) -> str:
    """The results as a page."""
    from benchmarks.report import facts_text

    head = "| nodes | edges | making the Dag | making the network | training | formula | measured over formula |"
    lines = [
        "# Memory on a CPU",
        facts_text(data["facts"]),
        f"Peaks in MB (10^6 bytes) above a process that has torch and fourward loaded, B={BATCH}, float32, relu, Adam; "
        "until the network is made, the edges that were given (16 bytes each) are among them. The formula is "
        "48 E + 130 N + 8 N B. Written by `python -m benchmarks.memory`.",
        "\n".join([head, "|---|---|---|---|---|---|---|", *map(_row, data["graphs"])]),
    ]
    return "\n\n".join(lines) + "\n"


def _row(one: dict[str, Any]) -> str:
    made = [f"{one['peaks'][stage] / 1e6:,.0f}" for stage in ("dag", "network", "training")]
    share = one["peaks"]["training"] / one["formula"]
    cells = [f"{one['nodes']:,}", f"{one['edges']:,}", *made, f"{one['formula'] / 1e6:,.0f}", f"{share:.2f}"]
    return f"| {' | '.join(cells)} |"


def main(words: list[str] | None = None) -> None:
    """Measure all sizes, and write memory.json and memory.md."""
    from benchmarks.storage import RESULTS, facts, store

    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--edges", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args(words)
    graphs = []
    with tempfile.TemporaryDirectory() as folder:
        for edges in chosen.edges:
            nodes, path = edges // DEGREE, f"{folder}/{edges}.npy"
            _apart("draw", path, nodes, edges)
            graphs.append(json.loads(_apart("measure", path, nodes)))
            print(_row(graphs[-1]))
    data = {"facts": facts(), "graphs": graphs}
    store("memory", data, chosen.out)
    with replacing(chosen.out / "memory.md") as temporary:
        temporary.write_text(report(data))


def _apart(*words: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", *map(str, words)], capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    parts: dict[str, Callable[..., Any]] = {"draw": draw, "measure": measure}
    if sys.argv[1:2] and sys.argv[1] in parts:
        name, path, *numbers = sys.argv[1:]
        print(json.dumps(parts[name](path, *map(int, numbers))))
    else:
        main()

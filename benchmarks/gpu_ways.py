"""The evidence for the gpu engine's table of ways: `python -m benchmarks.gpu_ways`, on a card.

Every way of a kind over the same networks in turns, forward and with the backward pass, each under a CUDA graph, so
that the card's time is seen and not the host's; and cuBLAS's linear solve under one, too. Prints microseconds, and
stores them beside the other results, a file for each kind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import rivals
from benchmarks.contest import captured, contest
from benchmarks.fresh import random_edges
from benchmarks.gpu_cells import Settings
from benchmarks.gpu_host import card_facts
from benchmarks.storage import RESULTS, store
from fourward import Dag, FourWard, connectomes, generate
from fourward.study._timing import Call, clock_for

ROUNDS = 5
BATCHES = {"panels": (32, 512, 2048, 8192), "lists": (32, 512), "either": (32, 128, 512)}
STEPS = ((32, 4, True), (16, 4, True), (16, 4, False), (16, 2, False))
#: (name, samples in a slice, steps or edges at a time, warps, neurons at a time, whether four neurons of a panel are
#: handed on at once), by kind of program; "either" has those of both kinds.
WAYS: dict[str, list[tuple[Any, ...]]] = {
    "panels": [("panels", 8, steps, warps, 0, fours) for steps, warps, fours in STEPS],
    "lists": [("lists", 32, 8, 4, 8), ("levels", 32, 8, 4, 16), ("levels", 32, 8, 4, 4), ("levels", 32, 32, 4, 4)],
}
WAYS["either"] = [
    ("panels", 8, 16, 4, 0, True),
    ("lists", 32, 8, 4, 8),
    ("levels", 32, 8, 4, 16),
    ("levels", 32, 32, 4, 4),
]


def sparse(nodes: int, degree: int) -> Dag:
    """A random graph with so many edges for each node."""
    return Dag.from_edges(random_edges(nodes, nodes * degree), nodes=nodes)


def fed(inputs: int, neurons: int, degree: int) -> Dag:
    """Neurons that each take so many random inputs, and a twentieth of the neurons before them."""
    rng = np.random.default_rng(0)
    taken = np.stack((rng.integers(0, inputs, neurons * degree), inputs + np.arange(neurons * degree) // degree), 1)
    inner = inputs + np.argwhere(np.triu(rng.random((neurons, neurons)) < 0.05, 1))
    edges = np.unique(np.concatenate((taken, inner)), axis=0)
    return Dag.from_edges(edges, nodes=inputs + neurons, inputs=range(inputs))


GRAPHS: dict[str, tuple[str, Callable[[], Dag]]] = {
    "ER, N=64, p=1.0": ("panels", partial(generate.erdos_renyi, 64, 1.0, seed=0)),
    "ER, N=128, p=1.0": ("panels", partial(generate.erdos_renyi, 128, 1.0, seed=0)),
    "ER, N=256, p=1.0": ("panels", partial(generate.erdos_renyi, 256, 1.0, seed=0)),
    "C. elegans": ("panels", lambda: connectomes.load("c-elegans").dag),
    "ER, N=384, p=1.0": ("panels", partial(generate.erdos_renyi, 384, 1.0, seed=0)),
    "ER, N=512, p=1.0": ("panels", partial(generate.erdos_renyi, 512, 1.0, seed=0)),
    "ER, N=1024, p=1.0": ("panels", partial(generate.erdos_renyi, 1024, 1.0, seed=0)),
    "N=10^4, E=10^5": ("lists", partial(sparse, 10**4, 10)),
    "N=10^4, E=10^6": ("lists", partial(sparse, 10**4, 100)),
    "N=10^5, E=10^6": ("lists", partial(sparse, 10**5, 10)),
    "chain of 5,000": ("lists", partial(generate.chain, 5000)),
    "chain, N=5,000": ("either", partial(generate.chain, 5000)),
}
for _n, _degree in ((1000, 4), (1000, 8), (3000, 16), (3000, 32), (4096, 16), (4096, 64), (4096, 256), (10**4, 100)):
    GRAPHS[f"N={_n:,}, E={_n * _degree:,}"] = "either", partial(sparse, _n, _degree)
for _inputs, _degree in ((800, 50), (4000, 50), (4000, 1000), (30_000, 100)):
    GRAPHS[f"{_inputs:,} inputs, {_degree:,} for each of 200"] = "either", partial(fed, _inputs, 200, _degree)


def prepared(dag: Dag, way: tuple[Any, ...], batch: int, back: bool) -> Call:
    """A network that is walked in this way, captured."""
    from fourward.engine._gpu import engine, heuristics, launch, packing  # Triton is there only where a card is

    chosen = heuristics.Way(*way)
    launch.forget()
    vars(heuristics)["way_of"] = lambda *_: chosen
    vars(heuristics)["ROWS"] = heuristics.STEPS * packing.STRETCH  # all steps that a way has, however long they compile
    vars(engine)["kind_of"] = lambda plan: packing.PANELS if way[0] == "panels" else packing.LISTS
    net = FourWard(dag, seed=0, device="cuda")
    x = torch.randn(batch, dag.num_inputs, device="cuda")
    gradient = torch.randn(batch, dag.num_outputs, device="cuda")

    def call() -> None:
        if back:
            net(x).backward(gradient)
        else:
            with torch.no_grad():
                net(x)

    return captured(call)


def main() -> int:
    """Time all ways, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=WAYS, default=list(WAYS), help="of programs")
    parser.add_argument("--batches", type=int, nargs="+", help="instead of 32, 512 and, for panels, 2048 and 8192")
    parser.add_argument("--commit")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("No CUDA card is here, and the ways of the gpu engine are for cards.", file=sys.stderr)
        return 2
    settings = Settings("cuda", ROUNDS, 2.0)
    found: dict[str, list[Any]] = {kind: [] for kind in options.kinds}
    for graph, (kind, make) in GRAPHS.items():
        if kind not in found:
            continue
        dag, rows = make(), found[kind]
        for batch in options.batches or BATCHES[kind]:
            for back in (False, True):
                makers = {str(way): partial(prepared, dag, way, batch, back) for way in WAYS[kind]}
                if kind == "panels" and not back:
                    solves = rivals.triangular_solves(dag, batch, "cuda")
                    makers |= {name: partial(captured, call) for name, call in solves.items()}
                outcome = contest(makers, clock_for("cuda"), rounds=ROUNDS)
                rows.append({"graph": graph, "batch": batch, "backward": back, "seconds": outcome.times})
                times = ", ".join(f"{way} {1e6 * seconds:.1f}" for way, seconds in outcome.times.items())
                print(f"{graph}, B={batch}{', with backward' if back else ''}: {times}", flush=True)
                store(f"gpu-ways-{kind}", {"facts": card_facts(settings, options.commit), "rows": rows}, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

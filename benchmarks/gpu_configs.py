"""The measurements behind the gpu engine's heuristics: `python -m benchmarks.gpu_configs`, on a GPU.

Every launch configuration of a suite over the same networks in turns, forward and with the backward pass, each under a
CUDA graph, so that the GPU's time is measured and not the host's; and cuBLAS's linear solve likewise. Prints
microseconds, and stores them beside the other results, a file for each suite.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import baselines
from benchmarks.contest import captured, contest
from benchmarks.fresh import random_edges
from benchmarks.gpu_cells import Settings
from benchmarks.gpu_host import describe_gpu
from benchmarks.real_graphs import deep_circuit
from benchmarks.storage import RESULTS, write_results
from fourward import Dag, FourWard, connectomes, generate
from fourward.plan import Plan
from fourward.study._timing import Call, clock_for

ROUNDS = 5
BATCHES = {"tiled": (32, 512, 2048, 8192), "csr": (32, 512), "layouts": (32, 128, 512), "fused": (32, 256)}
#: (unroll factor, warps, quads) of the tiled layout.
TILED = ((32, 4, True), (16, 4, True), (16, 4, False), (16, 2, False))
#: (warps, edges of a neuron in a line, samples) of a block that computes fused levels.
FUSED = (
    (4, 2, 8),
    (16, 2, 8),
    (16, 4, 8),
    (16, 8, 8),
    (4, 2, 4),
    (8, 4, 4),
    (2, 2, 2),
    (4, 2, 2),
    (8, 2, 2),
    (4, 4, 2),
    (8, 4, 2),
    (4, 8, 2),
)
#: The fields of `heuristics.LaunchConfig`: (strategy, samples in a slice, unroll factor, warps, neurons at a time,
#: quads), then for fused runs those of `FUSED`. A suite measures one layout; "layouts" compares them.
CONFIGS: dict[str, list[tuple[Any, ...]]] = {
    "tiled": [("tiled", 8, unroll, warps, 0, quads) for unroll, warps, quads in TILED],
    "csr": [
        ("csr_persistent", 32, 8, 4, 8),
        ("csr_per_level", 32, 8, 4, 16),
        ("csr_per_level", 32, 8, 4, 4),
        ("csr_per_level", 32, 32, 4, 4),
    ],
    "layouts": [
        ("tiled", 8, 16, 4, 0, True),
        ("csr_persistent", 32, 8, 4, 8),
        ("csr_per_level", 32, 8, 4, 16),
        ("csr_per_level", 32, 32, 4, 4),
        ("csr_fused", 32, 8, 4, 16, False, 16, 4, 8),
    ],
    "fused": [
        ("csr_per_level", 32, 8, 4, 16),
        *(("csr_fused", 32, 8, 4, 16, False, *fused) for fused in FUSED),
    ],
}


def random_graph(nodes: int, degree: int) -> Dag:
    """A random graph with so many edges for each node."""
    return Dag.from_edges(random_edges(nodes, nodes * degree), nodes=nodes)


def wide_input_graph(inputs: int, neurons: int, degree: int) -> Dag:
    """Neurons with edges from so many random inputs each, and from a twentieth of the neurons before them."""
    rng = np.random.default_rng(0)
    taken = np.stack((rng.integers(0, inputs, neurons * degree), inputs + np.arange(neurons * degree) // degree), 1)
    inner = inputs + np.argwhere(np.triu(rng.random((neurons, neurons)) < 0.05, 1))
    edges = np.unique(np.concatenate((taken, inner)), axis=0)
    return Dag.from_edges(edges, nodes=inputs + neurons, inputs=range(inputs))


def load_graph(path: Path) -> Dag:
    """A graph of an npz file."""
    with np.load(path) as file:
        return Dag.from_edges(file["edges"], nodes=int(file["nodes"]))


#: By the name that stored results have: the suite, and how to make the graph.
GRAPHS: dict[str, tuple[str, Callable[[], Dag]]] = {
    "ER, N=64, p=1.0": ("tiled", partial(generate.erdos_renyi, 64, 1.0, seed=0)),
    "ER, N=128, p=1.0": ("tiled", partial(generate.erdos_renyi, 128, 1.0, seed=0)),
    "ER, N=256, p=1.0": ("tiled", partial(generate.erdos_renyi, 256, 1.0, seed=0)),
    "C. elegans": ("tiled", lambda: connectomes.load("c-elegans").acyclic(inputs="sources", outputs="sinks").dag),
    "ER, N=384, p=1.0": ("tiled", partial(generate.erdos_renyi, 384, 1.0, seed=0)),
    "ER, N=512, p=1.0": ("tiled", partial(generate.erdos_renyi, 512, 1.0, seed=0)),
    "ER, N=1024, p=1.0": ("tiled", partial(generate.erdos_renyi, 1024, 1.0, seed=0)),
    "N=10^4, E=10^5": ("csr", partial(random_graph, 10**4, 10)),
    "N=10^4, E=10^6": ("csr", partial(random_graph, 10**4, 100)),
    "N=10^5, E=10^6": ("csr", partial(random_graph, 10**5, 10)),
    "chain of 5,000": ("csr", partial(generate.chain, 5000)),
    "chain, N=5,000": ("layouts", partial(generate.chain, 5000)),
}
GRAPHS["deep circuit stand-in"] = "fused", lambda: Dag.from_edges(deep_circuit(seed=0), nodes=101_000)
for _n, _degree in ((1000, 4), (1000, 8), (3000, 16), (3000, 32), (4096, 16), (4096, 64), (4096, 256), (10**4, 100)):
    GRAPHS[f"N={_n:,}, E={_n * _degree:,}"] = "layouts", partial(random_graph, _n, _degree)
for _inputs, _degree in ((800, 50), (4000, 50), (4000, 1000), (30_000, 100)):
    _name = f"{_inputs:,} inputs, {_degree:,} for each of 200"
    GRAPHS[_name] = "layouts", partial(wide_input_graph, _inputs, 200, _degree)


def force_fused(plan: Plan, *block: int) -> list[Any]:
    """Fused runs of all narrow levels, with as many slots as shared memory has room for."""
    from fourward.engine._gpu import heuristics
    from fourward.engine._gpu.fused_schedule import BlockShape

    runs = heuristics.narrow_runs(plan, heuristics.MAX_FUSED_WIDTH)
    return [heuristics.fused_config(runs, BlockShape(*block))] if runs else []


@lru_cache(maxsize=16)  # the networks of one graph
def build(dag: Dag, layout: int, fused: tuple[int, ...]) -> FourWard:
    """A network in this layout and with these levels fused."""
    from fourward.engine._gpu import engine

    vars(engine)["choose_layout"] = lambda _: layout
    vars(engine)["choose_fused"] = lambda plan, _: force_fused(plan, *fused) if fused else []
    return FourWard(dag, seed=0, device="cuda")


def prepare(dag: Dag, config: tuple[Any, ...], batch: int, with_backward: bool) -> Call:
    """A captured pass of a network with this launch configuration."""
    from fourward.engine._gpu import heuristics, launch, packing  # Triton is there only where a GPU is

    forced, fused = heuristics.LaunchConfig(*config[:6]), config[6:]
    launch.clear_passes()
    vars(heuristics)["choose_config"] = lambda *_: forced
    # The unroll factor of the configuration, however long it compiles.
    vars(heuristics)["MAX_UNROLLED_ROWS"] = heuristics.MAX_UNROLL * packing.MAX_SEGMENT
    net = build(dag, packing.TILED if forced.strategy == "tiled" else packing.CSR, fused)
    seeded = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(batch, n, generator=seeded).cuda() for n in (dag.num_inputs, dag.num_outputs))

    def call() -> Tensor:
        if with_backward:
            return torch.autograd.grad(net(x), net.weight, gradient)[0]
        with torch.no_grad():
            out: Tensor = net(x)
        return out

    return captured(call)


def main() -> int:
    """Time all configurations, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    parser.add_argument("--batches", type=int, nargs="+", help="batch sizes, instead of those of each suite")
    parser.add_argument("--graphs", type=Path, help="folder of npz files with edges and nodes, for the suite fused")
    parser.add_argument("--commit", help="commit of the results, where git can't tell")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("python -m benchmarks.gpu_configs needs a CUDA device, and torch sees none here.", file=sys.stderr)
        return 2
    settings = Settings("cuda", ROUNDS, 2.0)
    if options.graphs is not None:
        GRAPHS.update({p.stem: ("fused", partial(load_graph, p)) for p in sorted(options.graphs.glob("*.npz"))})
    results: dict[str, list[Any]] = {suite: [] for suite in options.suites}
    for graph, (suite, make) in GRAPHS.items():
        if suite not in results:
            continue
        dag, rows = make(), results[suite]
        for batch in options.batches or BATCHES[suite]:
            for with_backward in (False, True):
                makers = {str(config): partial(prepare, dag, config, batch, with_backward) for config in CONFIGS[suite]}
                if suite == "tiled" and not with_backward:
                    solves = baselines.triangular_solves(dag, batch, "cuda")
                    makers |= {name: partial(captured, call) for name, call in solves.items()}
                want = makers[str(CONFIGS[suite][0])]()()
                assert isinstance(want, Tensor)
                want = want.clone()
                expected = {str(config): want for config in CONFIGS[suite]}
                outcome = contest(makers, clock_for("cuda"), expected=expected, rounds=ROUNDS)
                cell = {"graph": graph, "batch": batch, "backward": with_backward}
                rows.append({**cell, "seconds": outcome.times, "missing": outcome.missing})
                times = ", ".join(f"{config} {1e6 * seconds:.1f}" for config, seconds in outcome.times.items())
                times += "".join(f", {config} {reason}" for config, reason in outcome.missing.items())
                print(f"{graph}, B={batch}{', with backward' if with_backward else ''}: {times}", flush=True)
                data = {"facts": describe_gpu(settings, options.commit), "rows": rows}
                write_results(f"gpu-configs-{suite}", data, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The CPU benchmark: `make bench-cpu`, or `python -m benchmarks.cpu [--quick] [--only real]`.

All methods alternate in one process; medians. Writes benchmarks/results/cpu.json, a table and a plot; and real.json and
real.md, of real graphs (`benchmarks.real`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import baselines, real
from benchmarks.checkout import Checkout, RemoteCall, TurnClock
from benchmarks.report import write_cpu_report
from benchmarks.storage import RESULTS, describe_environment, write_results
from fourward import Dag, FourWard, connectomes, generate, paper
from fourward.study._timing import median_seconds, training_step

SIZES, DENSITIES, BATCHES = (64, 128, 256, 512, 1024), (0.2, 0.4, 0.6, 0.8, 1.0), (32, 128, 512)
METHODS: dict[str, Callable[..., torch.nn.Module]] = {
    "masked": paper.Masked4Ward,
    "sequential": paper.SequentialBaseline,
    "deepstruct": paper.DeepStruct,
}
#: DeepStruct has a parameter for each pair of layers; beyond so many a pass takes seconds, and it is cut off.
MOST_PAIRS = 4_000
#: Passes over the grid, minutes apart, of which each method's best median counts: other users of a shared machine's
#: memory can slow down memory-bound calls fourfold for a minute.
PASSES = 2
#: Seconds of a duel with another checkout.
DUEL_SECONDS = 0.6


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, or a quick part of it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="measure a few cells, to see that it works; nothing is written"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="measure again what needs new processes, and update the stored results"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--only",
        choices=["real", "before"],
        help="measure real graphs alone, ten minutes; or the grid against --before",
    )
    parser.add_argument("--graphs", type=Path, help="folder of memctrl.npz and log2.npz, arrays `edges` and `nodes`")
    parser.add_argument("--before", type=Path, help="checkout of another commit, to be timed in turn")
    parser.add_argument("--out", type=Path, help="folder for the results of real graphs; default: the stored ones")
    options = parser.parse_args(arguments)
    if options.only == "before" and (options.before is None or options.quick):
        parser.error("--only before needs --before CHECKOUT, and measures the whole grid: omit --quick")
    torch.set_num_threads(options.threads)
    if options.out is None and not options.quick:
        options.out = RESULTS
    if options.only == "real":
        real.main(options)
        return
    if options.fresh:
        data = json.loads((RESULTS / "cpu.json").read_text()) | fresh_parts()
        note_commit(data, "linear solves, cold calls, building, first use and overhead")
        write_results("cpu", data)
        write_cpu_report(data)
        return
    sizes, densities, batches = ((64, 256), (0.2, 1.0), (32,)) if options.quick else (SIZES, DENSITIES, BATCHES)
    graphs = [(n, p) for n in sizes for p in densities]

    def measure_grid(cells: Callable[[Dag, dict[str, Any]], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        passes = [
            [cell for n, p in graphs for cell in cells(generate.erdos_renyi(n, p, seed=0), {"n": n, "p": p})]
            for _ in range(PASSES)
        ]
        return [best_medians(cells) for cells in zip(*passes, strict=True)]

    duels: list[dict[str, Any]] = [{} for _ in range(len(graphs) * len(batches))]
    before = None
    if options.before is not None:  # both in new processes, which hold nothing else
        folders = {"fourward": Path(__file__).parents[1], "before": options.before}
        with ExitStack() as stack:
            pair = {who: stack.enter_context(Checkout(at, options.threads)) for who, at in folders.items()}
            duels, before = measure_grid(partial(measure_duels, batches=batches, pair=pair)), pair["before"].commit
    if options.only == "before":
        data = json.loads((RESULTS / "cpu.json").read_text())
        data["grid"] = [cell | duel for cell, duel in zip(data["grid"], duels, strict=True)]
        data["facts"]["before"] = before
        note_commit(data, "the comparison with another commit")
        write_results("cpu", data)
        write_cpu_report(data)
        return
    grid = measure_grid(partial(measure, batches=batches))
    grid = [cell | duel for cell, duel in zip(grid, duels, strict=True)]
    worm_dag = connectomes.load("c-elegans").acyclic(inputs="sources", outputs="sinks").dag
    worm = measure(worm_dag, {"graph": "c-elegans"}, batches)
    most = 10**5 if options.quick else 10**7
    large = [measure_large(family, edges, degree) for family, edges, degree in large_cases(most)]
    data = {
        "facts": describe_environment() | {"before": before},
        "grid": grid,
        "c-elegans": worm,
        "large": large,
    }
    if not options.quick:
        data |= fresh_parts()
        print(write_results("cpu", data))
        write_cpu_report(data)
    real.main(options)


def note_commit(data: dict[str, Any], what: str) -> None:
    """Store that a part of the results was measured later than the others."""
    environment = describe_environment()
    data["facts"].setdefault("later", {})[what] = f"{environment['date']}, commit {environment['commit']}"


def measure(dag: Dag, label: dict[str, Any], batches: tuple[int, ...]) -> list[dict[str, Any]]:
    """Forward passes and training steps of all methods on one graph, for each batch size."""
    net = FourWard(dag, seed=0)
    methods: dict[str, torch.nn.Module] = {"fourward": net}
    pairs = len(set(zip(*net.layering.level[dag.edges].T.tolist(), strict=True)))
    for name, cls in METHODS.items():
        if name != "deepstruct" or pairs <= MOST_PAIRS:
            methods[name] = cls(dag, seed=0)
    mlp, width = baselines.mlp(dag.num_edges)
    csr = baselines.sparse_levels(net)
    x = torch.randn(8, dag.num_inputs, generator=torch.Generator().manual_seed(0))
    for out in (*(model(x) for model in methods.values()), csr(x)):  # before training steps make them differ
        torch.testing.assert_close(out, net(x), rtol=1e-3, atol=1e-4)
    cells = []
    for batch in batches:
        x, x_mlp = torch.ones(batch, dag.num_inputs), torch.ones(batch, width)
        forward: dict[str, Callable[[], object]] = {name: partial(model, x) for name, model in methods.items()}
        forward |= {"csr": partial(csr, x), "mlp": partial(mlp, x_mlp)}
        with torch.no_grad():
            forward_times = median_seconds(forward)
        steps = {name: training_step(model, x) for name, model in methods.items()}
        train_times = median_seconds({**steps, "mlp": training_step(mlp, x_mlp)}, min_rounds=3)
        cell = {**label, "batch": batch, "nodes": dag.num_nodes, "edges": dag.num_edges, "height": net.layering.height}
        cell |= {"forward": forward_times, "train": train_times}
        cells.append(cell)
        print(_line(cells[-1]), flush=True)
    return cells


def measure_duels(
    dag: Dag, label: dict[str, Any], batches: tuple[int, ...], pair: dict[str, Checkout]
) -> list[dict[str, Any]]:
    """Two checkouts' forward passes and training steps alone, in many short turns, to tell five percent."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "edges.npy"
        np.save(path, dag.edges)
        for checkout in pair.values():
            checkout.request("load", path=str(path), nodes=dag.num_nodes, activation="relu")
    cells = []
    for batch in batches:
        cells.append({**label, "batch": batch})
        for kind in ("forward", "train"):
            for checkout in pair.values():
                checkout.request("prepare", kind=kind, batch=batch)
                checkout.request("collect")
            calls = {name: RemoteCall(checkout, kind) for name, checkout in pair.items()}
            cells[-1][f"{kind}, before"] = median_seconds(calls, TurnClock(), seconds=DUEL_SECONDS)
        print(_line(cells[-1]), flush=True)
    return cells


def best_medians(cells: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """One cell from several passes: the best median of each method."""
    kinds = [kind for kind, value in cells[0].items() if isinstance(value, dict)]
    return cells[0] | {kind: {name: min(c[kind][name] for c in cells) for name in cells[0][kind]} for kind in kinds}


def measure_solves() -> list[dict[str, Any]]:
    """Ours against BLAS's linear triangular solve on complete graphs; several passes, best medians."""
    passes = []
    for _ in range(PASSES):
        cells = []
        for n in SIZES:
            net = FourWard(generate.complete(n), seed=0)
            for batch in BATCHES:
                calls: dict[str, Callable[[], object]] = {"fourward": partial(net, torch.ones(batch, 1))}
                calls |= baselines.triangular_solves(net.dag, batch)
                with torch.no_grad():
                    times = median_seconds(calls)
                cells.append({"n": n, "batch": batch, "height": n, "forward": times, "train": {}})
        passes.append(cells)
    return [best_medians(cells) for cells in zip(*passes, strict=True)]


def measure_cold() -> list[dict[str, Any]]:
    """Single calls of ours, the paper's method and the MLP alternate: each finds the others' data in the cache."""
    cells = []
    for n in SIZES:
        for p in (0.2, 0.6, 1.0):
            dag = generate.erdos_renyi(n, p, seed=0)
            mlp, width = baselines.mlp(dag.num_edges)
            net, masked = FourWard(dag, seed=0), paper.Masked4Ward(dag, seed=0)
            for batch in BATCHES:
                x, x_mlp = torch.ones(batch, dag.num_inputs), torch.ones(batch, width)
                calls = {"fourward": partial(net, x), "masked": partial(masked, x), "mlp": partial(mlp, x_mlp)}
                with torch.no_grad():
                    cells.append(
                        {"n": n, "p": p, "batch": batch, "forward": median_seconds(calls, min_rounds=15, cold=True)}
                    )
    return cells


def large_cases(most: int) -> list[tuple[str, int, int]]:
    """Families, numbers of edges and mean degrees of the large sparse graphs."""
    sizes = [edges for edges in (10**4, 10**5, 10**6, 10**7) if edges <= most]
    return [(family, edges, degree) for family in ("er", "ba") for degree in (10, 100) for edges in sizes]


def large_graph(family: str, edges: int, degree: int) -> Dag:
    """A sparse graph with about so many edges and that mean degree."""
    nodes = 2 * edges // degree
    if family == "er":
        return generate.erdos_renyi(nodes, degree / (nodes - 1), seed=0)
    return generate.barabasi_albert(nodes, degree // 2, seed=0)


def measure_large(family: str, edges: int, degree: int, batch: int = 32) -> dict[str, Any]:
    """Forward and training on a large sparse graph, beside CSR levels and the MLP."""
    dag = large_graph(family, edges, degree)
    net = FourWard(dag, seed=0)
    mlp, width = baselines.mlp(dag.num_edges)
    csr = baselines.sparse_levels(net)
    x, x_mlp = torch.ones(batch, dag.num_inputs), torch.ones(batch, width)
    with torch.no_grad():
        forward = median_seconds(
            {"fourward": lambda: net(x), "csr": lambda: csr(x), "mlp": lambda: mlp(x_mlp)}, min_rounds=3, seconds=1.0
        )
    steps = {"fourward": training_step(net, x), "mlp": training_step(mlp, x_mlp)}
    train = median_seconds(steps, min_rounds=3, seconds=1.0)
    label = {"graph": family, "degree": degree, "batch": batch, "nodes": dag.num_nodes, "edges": dag.num_edges}
    cell = {**label, "height": net.layering.height, "forward": forward, "train": train}
    print(_line(cell), flush=True)
    return cell


def fresh_parts() -> dict[str, Any]:
    """Cold calls, linear solves, building, memory, first use and overhead."""
    parts = ("building", "a_million_nodes", "first_uses", "overhead")
    return {"solve": measure_solves(), "cold": measure_cold()} | {name: in_fresh_process(name) for name in parts}


def in_fresh_process(name: str) -> dict[str, Any]:
    """A measurement of memory or of first use needs a new process."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.fresh", name], capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(name, measured, flush=True)
    return measured


def _line(cell: dict[str, Any]) -> str:
    label = " ".join(f"{name}={value}" for name, value in cell.items() if not isinstance(value, dict))
    times = [
        f"{kind}: " + ", ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in cell[kind].items())
        for kind in ("forward", "train", "forward, before", "train, before")
        if kind in cell
    ]
    return f"{label} | ms {' | '.join(times)}"


if __name__ == "__main__":
    main()

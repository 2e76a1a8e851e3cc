"""Real graphs on a GPU: `python -m benchmarks.gpu_real --graphs DIR`, a part of `make bench-gpu`.

The protocol, fixed before anything was measured: for each graph, activation and batch size, fourward as called and
under a CUDA graph, the MLP with as many weights, and CSR levels where a graph has few, take turns between CUDA events,
and medians count. Results and gradients are compared with those of the cpu engine before anything is timed. Beside each
cell stands the time of the same cell on two CPU cores, if real.json has it (`make bench-cpu`): another machine and
another run. `python -m benchmarks.real_graphs DIR` writes the graphs.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import baselines
from benchmarks.contest import Maker, Outcome, as_is, captured, relative_error
from benchmarks.gpu_cells import GRADIENT_TOLERANCE, Settings, build_cell, training_makers
from benchmarks.gpu_host import describe_gpu
from benchmarks.report import format_environment, format_rows
from benchmarks.storage import RESULTS, geometric_mean, write_page, write_results
from fourward import Dag, FourWard

ACTIVATIONS = ("relu", "tanh")
BATCHES = (32, 256)
MOST_CSR_LEVELS = 300  #: levels up to which a sparse product for each is measured
ROUNDS, LIMIT = 7, 0.7


def measure_graph(path: Path, settings: Settings, batches: list[int]) -> list[dict[str, Any]]:
    """The cells of a graph."""
    with np.load(path) as file:
        dag = Dag.from_edges(file["edges"], nodes=int(file["nodes"]))
    cells = []
    for activation in ACTIVATIONS:
        began = time.perf_counter()
        net = FourWard(dag, activation=activation, seed=0, device=settings.device)
        building = time.perf_counter() - began
        reference = FourWard(dag, activation=activation, seed=0)
        for batch in batches:
            errors = compare(net, reference, settings.random(batch, dag.num_inputs))
            cell = build_cell(net, batch, _compete(net, batch, settings, activation), errors)
            cells.append({"graph": path.stem, "activation": activation, "building": building} | cell)
            print(_line(cells[-1]), flush=True)
        gc.collect()
    return cells


def compare(net: FourWard, reference: FourWard, x: torch.Tensor) -> dict[str, float]:
    """Relative errors of outputs and of gradients of weights against another engine; raise if they are too large."""
    results = []
    for model in (net, reference):
        model.zero_grad()
        out = model(x.to(model.weight.device))
        out.square().mean().backward()
        assert model.weight.grad is not None
        results.append((out.detach().cpu(), model.weight.grad.cpu()))
        model.zero_grad()
    errors = dict(zip(("output", "gradient"), map(relative_error, *results), strict=True))
    if errors["output"] > 1e-3 or errors["gradient"] > GRADIENT_TOLERANCE:
        raise ValueError(f"wrong results: relative errors {errors}")
    return errors


def _compete(net: FourWard, batch: int, settings: Settings, activation: str) -> dict[str, Outcome]:
    x = settings.random(batch, net.dag.num_inputs)
    mlp, width = baselines.mlp(net.dag.num_edges, settings.device)
    x_mlp = settings.random(batch, width)
    with torch.no_grad():
        calls: dict[str, Any] = {"fourward": partial(net, x), "mlp": partial(mlp, x_mlp)}
        makers: dict[str, Maker] = {name: as_is(call) for name, call in calls.items()}
        if net.layering.height <= MOST_CSR_LEVELS:
            makers["csr"] = as_is(partial(baselines.sparse_levels(net, activation), x))
        if settings.graphs:
            makers |= {f"{name} graph": partial(captured, call) for name, call in calls.items()}
        forward = settings.contest(makers)
    graphs = tuple(calls) if settings.graphs else ()
    steps = training_makers({"fourward": net}, x, settings, graphs=graphs[:1])
    steps |= training_makers({"mlp": mlp}, x_mlp, settings, graphs=graphs[1:])
    return {"forward": forward, "train": settings.contest(steps)}


def format_report(data: dict[str, Any], cpu: dict[str, Any] | None) -> str:
    """The results as a page, beside the times of two CPU cores."""
    machine, cells = data["facts"], data["real"]
    known = {} if cpu is None else {_key(cell): cell for cell in cpu["real"]}
    head = ["graph", "nodes", "edges", "levels", "activation", "B"]
    parts = [
        "# GPU benchmark: real graphs",
        f"{machine['card']}, driver {machine['driver']}. {format_environment(machine)} `benchmarks/gpu_real.py` has "
        "the protocol. Medians of alternating turns, milliseconds; *graph*: replayed under a CUDA graph. *2 cores*: "
        "the same cell of [the CPU benchmark](real.md), measured on another machine; *gain* is its time over ours as "
        "called.",
    ]
    for kind, title in (("forward", "Forward without gradients"), ("train", "Training step with Adam")):
        columns = [
            c for c in ("fourward", "fourward graph", "csr", "mlp", "mlp graph") if any(c in x[kind] for x in cells)
        ]
        rows, gains = [[*head, *columns, "2 cores", "gain"]], []
        for cell in cells:
            times = [_milliseconds(cell[kind].get(name)) for name in columns]
            two_cores = known.get(_key(cell), {}).get(kind, {}).get("fourward")
            gain = None if two_cores is None else two_cores / cell[kind]["fourward"]
            gains += [] if gain is None else [gain]
            sizes = [f"{cell[name]:,}" for name in ("nodes", "edges", "height")]
            label = [cell["graph"], *sizes, cell["activation"], str(cell["batch"])]
            rows.append([*label, *times, _milliseconds(two_cores), "" if gain is None else f"{gain:.2g}x"])
        parts.append(f"## {title}")
        if gains:
            slower = sum(gain < 1 for gain in gains)
            parts.append(
                f"Gain over two cores: {geometric_mean(gains):.2g}x ({min(gains):.2g}x to {max(gains):.2g}x), "
                f"slower in {slower} of {len(gains)} cells."
            )
        parts.append(format_rows(rows))
    return "\n\n".join(parts) + "\n"


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    return cell["graph"], cell["edges"], cell["activation"], cell["batch"]


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.3g}"


def _line(cell: dict[str, Any]) -> str:
    times = [
        f"{kind}: " + ", ".join(f"{n} {_milliseconds(s)}" for n, s in cell[kind].items())
        for kind in ("forward", "train")
    ]
    return f"{cell['graph']}, {cell['activation']}, B={cell['batch']} | {' | '.join(times)} | {cell['errors']}"


def write_report(data: dict[str, Any], folder: Path) -> None:
    """gpu-real.md, beside real.json if that exists."""
    cpu = RESULTS / "real.json"
    write_page("gpu-real", format_report(data, json.loads(cpu.read_text()) if cpu.exists() else None), folder)


def main() -> int:
    """Time all graphs of a folder, print and store."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_real", description=__doc__)
    parser.add_argument("--graphs", type=Path, required=True, help="folder of npz files with edges and nodes")
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--seconds", type=float, default=480.0, help="time limit, after which no new graph is started")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--commit", help="commit of the results, where git can't tell")
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)  # "cpu": a dry run
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("python -m benchmarks.gpu_real needs a CUDA device, and torch sees none here.", file=sys.stderr)
        return 2
    settings, began = Settings(options.device, ROUNDS, LIMIT), time.perf_counter()
    data: dict[str, Any] = {"facts": describe_gpu(settings, options.commit), "real": []}
    for path in sorted(options.graphs.glob("*.npz"), key=lambda path: path.stat().st_size):
        if time.perf_counter() - began < options.seconds:
            data["real"] += measure_graph(path, settings, options.batches)
            write_results("gpu-real", data, options.out)
            write_report(data, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())

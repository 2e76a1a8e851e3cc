"""The GPU benchmark: `make bench-gpu`, or `python -m benchmarks.gpu [--quick]`.

All baselines and ours in one process, taking turns, CUDA events, medians. Writes gpu.json after every cell, and gpu.md.
A second run of the same commit resumes where the first one stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.cpu import BATCHES, DENSITIES, SIZES
from benchmarks.fresh import FIRST_USES
from benchmarks.gpu_cells import Settings, measure, measure_large
from benchmarks.gpu_host import copy_bandwidth, describe_gpu, first_use, host_overhead
from benchmarks.gpu_report import goals, plot_gpu, report_text
from benchmarks.storage import RESULTS, write_page, write_results
from fourward import connectomes, generate

FULL = {"sizes": SIZES, "densities": DENSITIES, "batches": BATCHES, "edges": (10**5, 10**6, 10**7), "rounds": 11}
QUICK = {"sizes": (64, 256), "densities": (0.2, 1.0), "batches": (32, 512), "edges": (10**5,), "rounds": 3}
DEGREES, LARGE_BATCH = (10, 100), 128
PARTS = ("worm", "host", "large", "grid")
OURS = ("fourward", "fourward graph")


class Run:
    """The results of a run: those of an earlier run that it resumes, new ones, and failures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.settings = Settings(options.device, options.rounds, options.cell_seconds)
        self.name = "gpu-quick" if options.quick else "gpu" if options.device == "cuda" else "gpu-smoke"
        self.start = time.perf_counter()
        self.data: dict[str, Any] = {"facts": describe_gpu(self.settings, options.commit)}
        if not options.fresh:
            self.data |= self._load_previous()
        self.data["failures"] = []
        self.data["facts"]["copy_bandwidth"] = copy_bandwidth(self.settings)

    def _load_previous(self) -> dict[str, Any]:
        """Stored results, if they are from the same commit and GPU."""
        path = self.options.out / f"{self.name}.json"
        if not path.exists():
            return {}
        data: dict[str, Any] = json.loads(path.read_text())
        now, then = self.data["facts"], data["facts"]
        same = all(now[key] == then.get(key) for key in ("commit", "card", "driver", "versions"))
        if not same or now["commit"] == "unknown" or now["commit"].endswith("with changes"):
            return {}
        print(f"resuming {path.name}", flush=True)
        return data

    def has(self, part: str, **what: Any) -> bool:
        """Whether a cell has been measured already."""
        return any(what.items() <= _plain(cell).items() for cell in self.data.get(part, []))

    def add(self, part: str, cells: Callable[[], Iterable[dict[str, Any]]]) -> None:
        """Measure cells and store each; failures are recorded, and the run continues unless the device is lost."""
        try:
            for cell in cells():
                self.data.setdefault(part, []).append(cell)
                print(line(part, cell), flush=True)
                self.save()
        except Exception as error:  # other cells can still be measured
            self.fail(part, error)
        gc.collect()
        gc.freeze()  # later collections needn't visit what is left now

    def measure(self, name: str, function: Callable[[Settings], Any]) -> None:
        """Call a function and store its result under this name, unless there is one."""
        if name not in self.data:
            try:
                self.data[name] = function(self.settings)
                print(name, self.data[name], flush=True)
            except Exception as error:  # as above
                self.fail(name, error)
            self.save()

    def fail(self, where: str, error: Exception) -> None:
        """Record a failure; raise if the device is lost."""
        message = getattr(error, "stderr", None) or str(error)  # the last output of a process that failed
        self.data["failures"].append(f"{where}: {type(error).__name__}: {message.strip()[-400:]}")
        print(self.data["failures"][-1], file=sys.stderr, flush=True)
        self.save()
        self.settings.clock.synchronize()

    def save(self) -> None:
        """Write all results so far, as JSON and as a report."""
        write_results(self.name, self.data, self.options.out)
        write_page(self.name, report_text(self.data), self.options.out)

    @property
    def timed_out(self) -> bool:
        """Whether the time limit has passed."""
        return bool(time.perf_counter() - self.start > self.options.seconds)


def main(arguments: list[str] | None = None) -> int:
    """Run everything, or a part of it; 2 means no GPU, 1 that something of ours failed."""
    options = build_parser().parse_args(arguments)
    for name, value in (QUICK if options.quick else FULL).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("python -m benchmarks.gpu needs a CUDA device, and torch sees none here.", file=sys.stderr)
        return 2
    run = Run(options)
    parts = {"worm": run_worm, "host": run_host, "large": run_large, "grid": run_grid}
    for part in PARTS:
        if options.part in (part, "all") and not run.timed_out:
            parts[part](run)
    if run.timed_out:
        print(f"stopped after {options.seconds:.0f} s; the same command resumes there", flush=True)
    run.save()
    plot_gpu(run.data, options.out / f"{run.name}.png")
    print("\n".join(goals(run.data)))
    return 1 if failures(run.data) else 0


def run_worm(run: Run) -> None:
    """C. elegans."""
    what = {"graph": "c-elegans"}
    batches = [batch for batch in run.options.batches if not run.has("worm", batch=batch)]
    if batches:
        dag = connectomes.load("c-elegans").acyclic(inputs="sources", outputs="sinks").dag
        run.add("worm", lambda: measure(dag, what, batches, run.settings))


def run_grid(run: Run) -> None:
    """The paper's grid."""
    for n in run.options.sizes:
        for p in run.options.densities:
            batches = [batch for batch in run.options.batches if not run.has("grid", n=n, p=p, batch=batch)]
            if batches and not run.timed_out:
                run.add("grid", partial(_grid_cells, n, p, batches, run.settings))


def run_large(run: Run) -> None:
    """Large sparse graphs."""
    for edges in run.options.edges:
        for degree in DEGREES:
            if not run.timed_out and not run.has("large", wanted=edges, degree=degree):
                run.add("large", partial(_large_cells, edges, degree, run.settings))


def run_host(run: Run) -> None:
    """Host overhead and first use."""
    run.measure("overhead", host_overhead)
    for name, nodes in FIRST_USES.items():
        run.measure(name, partial(first_use, nodes))


def failures(data: dict[str, Any]) -> list[str]:
    """What went wrong with ours, or stopped a cell."""
    cells = [cell for part in PARTS for cell in data.get(part, [])]
    reasons = [cell["missing"][kind].get(name) for cell in cells for kind in ("forward", "train") for name in OURS]
    return [*data["failures"], *(reason for reason in reasons if reason is not None)]


def line(part: str, cell: dict[str, Any]) -> str:
    """A cell in one line."""
    what = f"{part} N={cell['nodes']} E={cell['edges']} H={cell['height']} B={cell['batch']} {cell['engine']}"
    times = [
        f"{kind}: " + ", ".join(f"{name} {1e6 * seconds:.3g}" for name, seconds in cell[kind].items())
        for kind in ("forward", "train")
    ]
    missing = [f"{name} {why}" for kind in cell["missing"].values() for name, why in kind.items()]
    return " | ".join([what, *times, *missing])


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a smoke test: two sizes, densities and batches, stored as gpu-quick.*")
    add("--part", choices=(*PARTS, "all"), default="all")
    add("--out", type=Path, default=RESULTS, help="folder of the results")
    add("--sizes", type=int, nargs="+")
    add("--densities", type=float, nargs="+")
    add("--batches", type=int, nargs="+")
    add("--edges", type=int, nargs="+", help="numbers of edges of the large graphs")
    add("--rounds", type=int, help="measurements of each contestant at a cell")
    add("--cell-seconds", type=float, default=2.0, help="time limit of a contestant at a cell")
    add("--seconds", type=float, default=480.0, help="time limit, after which no new graph is started")
    add("--fresh", action="store_true", help="don't resume from stored results")
    add("--commit", help="commit of the results, where git can't tell")
    add("--device", default="cuda", help=argparse.SUPPRESS)  # "cpu": a dry run with the engines there are
    return parser


def _plain(cell: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in cell.items() if not isinstance(value, dict)}


def _grid_cells(n: int, p: float, batches: list[int], settings: Settings) -> Iterable[dict[str, Any]]:
    return measure(generate.erdos_renyi(n, p, seed=0), {"n": n, "p": p}, batches, settings)


def _large_cells(edges: int, degree: int, settings: Settings) -> Iterable[dict[str, Any]]:
    yield measure_large(edges, degree, LARGE_BATCH, settings)


if __name__ == "__main__":
    sys.exit(main())

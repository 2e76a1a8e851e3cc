"""Host time of a call in several source trees: `python -m benchmarks.gpu_overhead --trees A/src B/src`, on a GPU.

Each tree is measured in new processes, in turns, through the public API alone, so that trees of any age can be
compared. Prints the median microseconds until a call returns (N=64, p=0.2, B=32; the device isn't waited for), and
those of a bare Triton launch in the same processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

BURST, ROUNDS = 50, 41


def measure() -> dict[str, float]:
    """Microseconds of each call with the fourward that is imported here."""
    from benchmarks.bare_launch import bare_launch
    from fourward import FourWard, generate

    net = FourWard(generate.erdos_renyi(64, 0.2, seed=0), seed=0, device="cuda")
    x = torch.randn(32, net.dag.num_inputs, device="cuda")
    gradient = torch.randn(32, net.dag.num_outputs, device="cuda")
    calls: dict[str, Callable[[], object]] = {
        "forward": torch.no_grad()(partial(net, x)),
        "forward and backward": lambda: net(x).backward(gradient),
        "bare launch": bare_launch("cuda"),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            call()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(BURST):
                call()
            times[name].append(1e6 * (time.perf_counter() - start) / BURST)
    torch.cuda.synchronize()
    return {name: statistics.median(values) for name, values in times.items()}


def measure_tree(tree: Path) -> dict[str, float]:
    """Microseconds of each call with the fourward of a source tree, in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve())}
    command = [sys.executable, "-m", "benchmarks.gpu_overhead"]
    root = Path(__file__).parents[1]
    ended = subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    times: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return times


def main() -> int:
    """Measure the imported fourward, or several trees in turns; 2 means no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_overhead", description=__doc__)
    parser.add_argument("--trees", type=Path, nargs="+", help="folders that contain the package fourward")
    parser.add_argument("--processes", type=int, default=3, help="for each tree")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("python -m benchmarks.gpu_overhead needs a CUDA device, and torch sees none here.", file=sys.stderr)
        return 2
    if options.trees is None:
        print(json.dumps(measure()))
        return 0
    runs: dict[Path, list[dict[str, float]]] = {tree: [] for tree in options.trees}
    for _ in range(options.processes):
        for tree, results in runs.items():
            results.append(measure_tree(tree))
    for tree, results in runs.items():
        medians = {name: statistics.median(times[name] for times in results) for name in results[0]}
        print(f"{tree}: " + ", ".join(f"{name} {value:.1f} us" for name, value in medians.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

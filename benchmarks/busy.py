"""Small passes with one thread and with two, on a machine that others keep busy: `python -m benchmarks.busy`.

The protocol: a training step without an optimiser (forward and backward pass) of each network, timed call by call, in
turns of `CALLS` calls with each number of threads, for `SECONDS`, beside 0, 1 and 4 processes that never rest. Writes
busy.json and busy.md, and prints the table: medians and 95th percentiles, in milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from benchmarks.report import format_environment, format_rows
from benchmarks.storage import describe_environment, write_page, write_results
from fourward import Dag, FourWard, connectomes, generate

CASES: Mapping[str, tuple[Callable[[], Dag], int]] = {
    "*C. elegans*, B=64": (lambda: connectomes.load("c-elegans").acyclic(inputs="sources", outputs="sinks").dag, 64),
    "N=64, p=0.2, B=32": (lambda: generate.erdos_renyi(64, 0.2, seed=0), 32),
    "N=256, p=0.2, B=32": (lambda: generate.erdos_renyi(256, 0.2, seed=0), 32),
    "N=1024, p=0.2, B=32": (lambda: generate.erdos_renyi(1024, 0.2, seed=0), 32),
    "N=1024, p=0.2, B=256": (lambda: generate.erdos_renyi(1024, 0.2, seed=0), 256),
}
LOADS = (0, 1, 4)  #: processes that keep cores busy
THREADS = (1, 2)
CALLS = 50
SECONDS = 4.0


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many cores busy."""
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        time.sleep(0.3 if processes else 0)
        yield
    finally:
        for child in children:
            child.kill()
            child.wait()


def measure(dag: Dag, batch: int, seconds: float = SECONDS) -> dict[str, list[float]]:
    """Median and 95th percentile, in milliseconds, for each number of threads."""
    net = FourWard(dag, activation="tanh", seed=0)
    x, grad = torch.ones(batch, dag.num_inputs), torch.ones(batch, dag.num_outputs)
    samples: dict[int, list[float]] = {threads: [] for threads in THREADS}
    before = torch.get_num_threads()
    try:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds or not samples[THREADS[-1]]:
            for threads in THREADS:
                torch.set_num_threads(threads)
                for call in range(CALLS + 2):  # the first two fill the caches
                    begin = time.perf_counter()
                    net.zero_grad()
                    net(x).backward(grad)
                    if call >= 2:
                        samples[threads].append(1e3 * (time.perf_counter() - begin))
    finally:
        torch.set_num_threads(before)
    return {
        str(threads): [statistics.median(times), statistics.quantiles(times, n=20)[-1]]
        for threads, times in samples.items()
    }


def format_table(data: Mapping[str, Any]) -> str:
    """Medians and 95th percentiles as a Markdown table."""
    columns = [f"{load} busy, {threads} thread{'s' * (threads > 1)}" for load in LOADS for threads in THREADS]
    rows = [["forward and backward", *columns]]
    for name in CASES:
        cells = [data["milliseconds"][str(load)][name][str(threads)] for load in LOADS for threads in THREADS]
        rows.append([name, *(f"{median:.3g} ({late:.3g})" for median, late in cells)])
    return format_rows(rows)


def format_report(data: Mapping[str, Any]) -> str:
    """The results as a page."""
    parts = "# Benchmark: a busy machine", format_environment(data["environment"]), format_table(data)
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Measure all cases beside all loads, store the results, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each network and load")
    parser.add_argument("--dry-run", action="store_true", help="store nothing")
    options = parser.parse_args()
    milliseconds: dict[str, Any] = {}
    for load in LOADS:
        with busy(load):
            milliseconds[str(load)] = {
                name: measure(build(), batch, options.seconds) for name, (build, batch) in CASES.items()
            }
    data = {"environment": describe_environment(), "milliseconds": milliseconds}
    if not options.dry_run:
        write_results("busy", data)
        write_page("busy", format_report(data))
    print(format_table(data))


if __name__ == "__main__":
    main()

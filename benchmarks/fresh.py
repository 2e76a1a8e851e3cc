"""Measurements that need a new process: `python -m benchmarks.fresh building`, for example. Prints JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Neurons of the networks whose first use is timed: executed in one launch, and in segments.
FIRST_USES = {"first_uses": 64, "first_uses_of_stretches": 1024}


def building() -> dict[str, Any]:
    """Seconds to build a Dag, its layering and its plan, after compilation, and the peak memory."""
    from fourward.engine._cpu import launch
    from fourward.graph._dag import Dag
    from fourward.layering import longest_path, push_sources
    from fourward.plan import build_plan

    def build(edges: np.ndarray[Any, Any], nodes: int) -> dict[str, float]:
        marks = [time.perf_counter()]
        dag = Dag.from_edges(edges, nodes=nodes)
        marks.append(time.perf_counter())
        layering = push_sources(dag, longest_path(dag))
        marks.append(time.perf_counter())
        plan = build_plan(dag, layering, np.ones(nodes, np.int32))
        marks.append(time.perf_counter())
        launch.pack(plan)
        marks.append(time.perf_counter())
        parts = zip(("dag", "layering", "plan", "runs"), marks, marks[1:], strict=False)
        return {name: end - start for name, start, end in parts}

    build(_complete(8), 8)  # compiles
    dense = build(_complete(1024), 1024)
    before = _peak()
    large = build(random_edges(10**6, 10**7), 10**6)
    return {"complete 1024": dense, "10^6 nodes, 10^7 edges": large, "peak_gib": _peak(), "peak_gib_before": before}


def a_million_nodes() -> dict[str, Any]:
    """A training step on 10^6 nodes and 10^7 edges, batch 32: seconds and memory."""
    import torch

    from fourward import Dag, FourWard
    from fourward.study._timing import HostClock, training_step

    dag = Dag.from_edges(random_edges(10**6, 10**7), nodes=10**6)
    net = FourWard(dag, seed=0)
    step = training_step(net, torch.ones(32, dag.num_inputs))
    before = _peak()
    times = [HostClock().time(step) for _ in range(4)]
    # Weights, gradients and Adam's two moments; activations and their gradients.
    floor = (4 * dag.num_edges * 4 + 2 * dag.num_nodes * 32 * 4) / 2**30
    return {"seconds": sorted(times)[1], "peak_gib": _peak(), "peak_gib_before": before, "tensors_gib": floor}


def overhead() -> dict[str, Any]:
    """Microseconds of a forward pass at N=64, p=0.2, B=32, and of the kernel in it."""
    import torch

    from fourward import FourWard, generate
    from fourward.engine._cpu import launch, threads
    from fourward.study._timing import median_seconds

    net = FourWard(generate.erdos_renyi(64, 0.2, seed=0), seed=0)
    x = torch.ones(32, net.dag.num_inputs)
    captured: list[tuple[Any, ...]] = []
    run = threads.run
    with torch.no_grad():
        packed_plan, shape = launch.pack(net.plan)
        threads.run = lambda *arguments: captured.append(arguments)
        output = launch.forward(x, net.weight, net.bias, packed_plan, shape, None, 0.0, False)
        threads.run = run
        calls = {"pass": lambda: net(x), "kernel": lambda: run(*captured[0])}
        times = median_seconds(calls, seconds=2.0, max_rounds=5000)
    del output  # the kernel wrote to it until here
    return {name: 1e6 * seconds for name, seconds in times.items()}


def first_use(device: str = "cpu", nodes: str = "64") -> dict[str, Any]:
    """Seconds of the first forward and backward pass in this process, imports included."""
    start = time.perf_counter()
    import torch

    torch.ones(1, device=device).cpu()  # initialises CUDA, which isn't ours to count
    imported = time.perf_counter()
    from fourward import FourWard, generate

    net = FourWard(generate.erdos_renyi(int(nodes), 0.2, seed=0), seed=0, device=device)
    net(torch.ones(32, net.dag.num_inputs, device=device)).sum().backward()
    assert net.weight.grad is not None
    net.weight.grad.cpu()  # waits for the device
    return {"torch": imported - start, "fourward": time.perf_counter() - imported}


def first_uses(device: str = "cpu", nodes: int = 64) -> dict[str, Any]:
    """The same with an empty cache of the device's kernels, and with the cache that this left."""
    seconds = {}
    cache = "TRITON_CACHE_DIR" if device == "cuda" else "NUMBA_CACHE_DIR"
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first process", "later process"):
            command = [sys.executable, "-m", "benchmarks.fresh", "first_use", device, str(nodes)]
            environment = {**os.environ, cache: folder}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            seconds[name] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _complete(n: int) -> np.ndarray[Any, Any]:
    return np.stack(np.triu_indices(n, 1), -1)


def random_edges(nodes: int, edges: int) -> np.ndarray[Any, Any]:
    """Distinct random pairs along a random order."""
    assert edges <= nodes * (nodes - 1) // 2, "more edges than pairs"
    rng = np.random.default_rng(0)
    keys = np.empty(0, np.int64)
    while len(keys) < edges:
        drawn = rng.integers(0, nodes, (2, 5 * edges // 4))
        low, high = drawn.min(0), drawn.max(0)
        keys = np.unique(np.concatenate((keys, (low * nodes + high)[low < high])))
    keys = keys[rng.permutation(len(keys))[:edges]]
    return rng.permutation(nodes)[np.stack((keys // nodes, keys % nodes), -1)]


def _peak() -> float:
    """The peak so far in GiB; getrusage would count the parent's memory, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20


if __name__ == "__main__":
    measurements: dict[str, Callable[..., dict[str, Any]]] = {
        "building": building,
        "a_million_nodes": a_million_nodes,
        "first_use": first_use,
        "first_uses": first_uses,
        "overhead": overhead,
    }
    print(json.dumps(measurements[sys.argv[1]](*sys.argv[2:])))

"""The GPU, its bandwidth, and the host's time: overhead of a call, first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks import baselines
from benchmarks.contest import as_is, contest
from benchmarks.fresh import first_uses
from benchmarks.gpu_cells import Settings
from benchmarks.storage import describe_environment
from fourward import FourWard, generate
from fourward.study._environment import driver_version
from fourward.study._timing import LaunchClock, Turn, alternate, training_step


def describe_gpu(settings: Settings, commit: str | None) -> dict[str, Any]:
    """The machine, the GPU, its driver, the versions and the commit that results belong to."""
    machine = describe_environment() | {"device": settings.device, "matmul": torch.get_float32_matmul_precision()}
    if commit is not None:
        machine["commit"] = commit
    if settings.device != "cuda":
        return machine | {"card": "none", "driver": "none", "cuda": "none"}
    properties = torch.cuda.get_device_properties(0)
    return machine | {
        "card": properties.name,
        "card_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "driver": driver_version(),
        "cuda": torch.version.cuda,
    }


def copy_bandwidth(settings: Settings) -> float:
    """Bytes a second that a large copy on the device reads and writes."""
    size = 2**28 if settings.device == "cuda" else 2**22
    source = torch.ones(size, device=settings.device)
    target = torch.empty_like(source)
    outcome = contest({"copy": as_is(partial(target.copy_, source))}, settings.clock, always=("copy",))
    return 2 * 4 * size / outcome.times["copy"]


def host_overhead(settings: Settings) -> dict[str, float]:
    """Microseconds that the host is busy with one call at N=64, p=0.2, B=32, while the device isn't waited for."""
    net = FourWard(generate.erdos_renyi(64, 0.2, seed=0), seed=0, device=settings.device)
    mlp, width = baselines.mlp(net.dag.num_edges, settings.device)
    x, x_mlp = settings.random(32, net.dag.num_inputs), settings.random(32, width)
    with torch.no_grad():
        calls: dict[str, Callable[[], object]] = {"pass": partial(net, x), "MLP pass": partial(mlp, x_mlp)}
        if settings.device == "cuda":
            from benchmarks.bare_launch import bare_launch  # imported here: Triton isn't needed without a GPU

            calls["bare launch"] = bare_launch(settings.device)
        times = _host_times(calls, settings)
    steps: dict[str, Callable[[], object]] = {"training step": training_step(net, x, fused=True)}
    steps["MLP training step"] = training_step(mlp, x_mlp, fused=True)
    times |= _host_times(steps, settings)
    return {name: 1e6 * seconds for name, seconds in times.items()}


def first_use(nodes: int, settings: Settings) -> dict[str, Any]:
    """Seconds until a first forward and backward pass is done, with an empty kernel cache, and with a warm one."""
    return first_uses(settings.device, nodes)


def _host_times(
    calls: dict[str, Callable[[], object]], settings: Settings, burst: int = 50, rounds: int = 21
) -> dict[str, float]:
    """Median seconds in which the host has issued each call, in turns; few at a time, so that no queue is full."""
    turns = {name: Turn(call, burst, 0, rounds) for name, call in calls.items()}
    times = alternate(turns, LaunchClock(settings.clock))
    settings.clock.synchronize()
    return times

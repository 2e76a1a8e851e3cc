"""Timing that can be trusted: rivals take turns in one process, medians, with the machine written beside them."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fourward import __version__
from fourward._files import replacing
from fourward.study._environment import output_of, processor, versions
from fourward.study._timing import no_collection

RESULTS = Path(__file__).parent / "results"


def take_turns(
    calls: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 0.25,
    least: int = 5,
    most: int = 200,
    bare: bool = False,
) -> dict[str, float]:
    """Median seconds of each call: turn by turn, rounds until `seconds` are over or `most` are done.

    A turn of a short call starts with calls that aren't counted and then takes the mean of about 5 ms of them, so that
    each rival finds its own data in the cache, as it would in a loop of its own, and not what the one before it left.
    With `bare`, a turn is one call and nothing else.
    """
    repeats, unseen = {}, {}
    for name, call in calls.items():
        call()
        expected = min(seconds_of(call), seconds_of(call))
        repeats[name] = max(1, min(100, round(0.005 / expected)))
        unseen[name] = 0 if expected > 0.05 else 2
        if bare:
            repeats[name], unseen[name] = 1, 0
    found: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    gc.collect()
    with no_collection():
        for done in range(most):
            for name, call in calls.items():
                for _ in range(unseen[name]):
                    call()
                start = time.perf_counter()
                for _ in range(repeats[name]):
                    call()
                found[name].append((time.perf_counter() - start) / repeats[name])
            if done + 1 >= least and time.perf_counter() - begun > seconds:
                break
    return {name: statistics.median(times) for name, times in found.items()}


def seconds_of(call: Callable[[], object]) -> float:
    """One call, timed."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def facts() -> dict[str, Any]:
    """The machine, the versions and the commit that results belong to."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {"fourward": __version__} | versions("torch", "triton", "numpy", "numba", "scipy", "rustworkx"),
        "commit": _commit(),
    }


def store(name: str, data: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write results as JSON, all or nothing."""
    path = folder / f"{name}.json"
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n")
    return path


def geometric_mean(values: list[float]) -> float:
    """Of ratios."""
    return statistics.geometric_mean(values)


def _commit() -> str:
    here = "git", "-C", str(Path(__file__).parent)
    commit = output_of(*here, "rev-parse", "HEAD")
    changed = output_of(*here, "status", "--porcelain", "--", "../src", ".").splitlines()
    own = [line for line in changed if "results" not in line]
    return f"{commit} with changes" if own and commit != "unknown" else commit

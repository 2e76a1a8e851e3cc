"""Results as JSON files, with the machine, the versions and the commit that they belong to."""

from __future__ import annotations

import json
import operator
import os
import platform
import statistics
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from fourward import __version__
from fourward._files import replacing
from fourward.study._environment import command_output, processor_name, versions

RESULTS = Path(__file__).parent / "results"


def describe_environment() -> dict[str, Any]:
    """The machine, the versions and the commit that results belong to."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {"fourward": __version__} | versions("torch", "triton", "numpy", "numba", "scipy", "rustworkx"),
        "commit": _commit(),
    }


def write_results(name: str, data: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write results as JSON, atomically."""
    path = folder / f"{name}.json"
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(data, indent=1) + "\n")
    return path


def write_page(name: str, text: str, folder: Path = RESULTS) -> None:
    """Write a page beside the results of this name, atomically."""
    with replacing(folder / f"{name}.md") as temporary:
        temporary.write_text(text)


def put_cell(
    cells: list[dict[str, Any]], cell: dict[str, Any], names: tuple[str, ...], commit: str
) -> list[dict[str, Any]]:
    """The cells with one more, instead of an earlier one with the same values of `names`, by which they are sorted."""
    key = operator.itemgetter(*names)
    other_cells = [other for other in cells if key(other) != key(cell)]
    return sorted([*other_cells, cell | {"commit": commit}], key=key)


def list_commits(cells: Iterable[Mapping[str, Any]]) -> str:
    """The commits of cells that were measured one after another."""
    return ", ".join(dict.fromkeys(cell["commit"] for cell in cells))


def geometric_mean(values: list[float]) -> float:
    """The geometric mean, for ratios."""
    return statistics.geometric_mean(values)


def _commit() -> str:
    here = "git", "-C", str(Path(__file__).parent)
    commit = command_output(*here, "rev-parse", "HEAD")
    changed = command_output(*here, "status", "--porcelain", "--", "../src", ".").splitlines()
    sources = [line for line in changed if "results" not in line]
    return f"{commit} with changes" if sources and commit != "unknown" else commit

"""The machine, the versions and the code that results belong to."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fourward._version import __version__

PACKAGE = Path(__file__).parent.parent
PACKAGES = ("torch", "triton", "numpy", "numba")


def facts(commit: str | None = None) -> dict[str, Any]:
    """What tells runs apart that have the same parameters: two runs are the same only if all of this is the same.

    Args:
        commit: Of the code, where there is no git to ask; default: `code_version`.
    """
    import torch

    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {"fourward": __version__} | versions(*PACKAGES),
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "driver": driver() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda,
        "commit": commit or code_version(),
    }


def processor() -> str:
    """The model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    wide = any("avx512f" in line for line in lines if line.startswith("flags"))
    return f"{model}{' (AVX-512)' if wide else ''}"


def driver() -> str:
    """The version of the card's driver."""
    asked = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return asked.splitlines()[0] if asked else "unknown"


def versions(*packages: str) -> dict[str, str]:
    """Of the packages that are installed."""
    found = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def code_version(package: Path = PACKAGE) -> str:
    """The last commit that changed the package, so that commits of other things don't part the rows of a study.

    Changes that aren't committed, and code that isn't under git, are told apart by a digest of the sources.
    """
    here = "git", "-C", str(package)
    commit = output_of(*here, "log", "-1", "--format=%H", "--", ".")
    if commit in ("", "unknown"):
        return f"source {_digest(package)}"
    changed = output_of(*here, "status", "--porcelain", "--", ".")
    return f"{commit} with changes {_digest(package)}" if changed else commit


@cache
def code() -> dict[str, str]:
    """Python, the packages and the sources that this process runs, whether or not there is a git to ask."""
    found = {"python": platform.python_version(), "fourward": __version__} | versions(*PACKAGES)
    return found | {"sources": _digest(PACKAGE)}


def output_of(*command: str) -> str:
    """What a command prints, or "unknown" where it fails or isn't there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _digest(package: Path) -> str:
    """Of all Python files of the package."""
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        found.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]

"""The environment that results belong to: machine, versions and code."""

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


def describe_environment(commit: str | None = None) -> dict[str, Any]:
    """The machine, the versions and the commit; runs of equal parameters are the same only if all of this is equal.

    Args:
        commit: Commit of the code; default: `code_version`.
    """
    import torch

    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {"fourward": __version__} | versions(*PACKAGES),
        "card": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "driver": driver_version() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda,
        "commit": commit or code_version(),
    }


def processor_name() -> str:
    """The model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
    wide = any("avx512f" in line for line in lines if line.startswith("flags"))
    return f"{model}{' (AVX-512)' if wide else ''}"


def driver_version() -> str:
    """The version of the GPU driver."""
    output = command_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return output.splitlines()[0] if output else "unknown"


def versions(*packages: str) -> dict[str, str]:
    """The versions of those packages that are installed."""
    installed = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def code_version(package: Path = PACKAGE) -> str:
    """The last commit that changed the package, so that commits of other things don't split the rows of a study.

    Uncommitted changes, and code that isn't under git, are identified by a digest of the sources.
    """
    git = "git", "-C", str(package)
    commit = command_output(*git, "log", "-1", "--format=%H", "--", ".")
    if commit in ("", "unknown"):
        return f"source {_digest(package)}"
    changed = command_output(*git, "status", "--porcelain", "--", ".")
    return f"{commit} with changes {_digest(package)}" if changed else commit


@cache
def code_fingerprint() -> dict[str, str]:
    """Versions of Python and the packages, and a digest of the sources that this process runs, with or without git."""
    running = {"python": platform.python_version(), "fourward": __version__} | versions(*PACKAGES)
    return running | {"sources": _digest(PACKAGE)}


def command_output(*command: str) -> str:
    """What a command prints, or "unknown" if it fails or doesn't exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def _digest(package: Path) -> str:
    """A digest of all Python files of the package."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]

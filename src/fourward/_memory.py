"""Available memory, to check before work that may need more."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_memory() -> int | None:
    """Bytes that this process can still allocate, or None if the system doesn't report it."""
    limits = (_system_memory(), _cgroup_memory())
    return min((limit for limit in limits if limit is not None), default=None)


def _system_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # neither Linux nor POSIX
        return None


def _cgroup_memory() -> int | None:
    """Bytes left below a container's limit, or None without one."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return max(int(limit) - int(used), 0)
    except (OSError, ValueError):  # no cgroup, or no limit: "max"
        return None


def format_bytes(count: float) -> str:
    """Format a number of bytes in the largest unit that doesn't exceed it.

    >>> format_bytes(3 * 2**30), format_bytes(12)
    ('3.0 GiB', '12 bytes')
    """
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count:.0f} bytes"

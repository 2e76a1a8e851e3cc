"""How much memory is free, asked before work that may need more."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available() -> int | None:
    """Bytes that this process can still take, or None where the system doesn't say."""
    known = [amount for amount in (_of_system(), _of_group()) if amount is not None]
    return min(known, default=None)


def _of_system() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # neither Linux nor POSIX
        return None


def _of_group() -> int | None:
    """What a container's limit leaves."""
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return max(int(limit) - int(used), 0)
    except (OSError, ValueError):  # no such group, or "max"
        return None


def format_bytes(count: float) -> str:
    """Bytes in the unit that reads best.

    >>> format_bytes(3 * 2**30), format_bytes(12)
    ('3.0 GiB', '12 bytes')
    """
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count:.0f} bytes"

"""Available memory, to check before work that may need more, and a limit that users set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from fourward.errors import FileError, OptionError, Repair

_limit: ContextVar[int | None] = ContextVar("memory_limit", default=None)
_CGROUP, _OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


class _CgroupFiles(NamedTuple):
    """What a version of cgroups calls its files."""

    root: str
    limit: str
    used: str
    cached: str  #: in memory.stat


_V1 = _CgroupFiles("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_V2 = _CgroupFiles("", "memory.max", "memory.current", "inactive_file")


def available_memory() -> int | None:
    """Bytes that this process can still allocate, or None if the system doesn't report it."""
    limits = (_system_memory(), _cgroup_memory())
    return min((limit for limit in limits if limit is not None), default=None)


@contextmanager
def limit_memory(max_bytes: int | None) -> Iterator[None]:
    """Within the block, `check_memory` raises for more than `max_bytes`, too; None leaves the limit as it is."""
    if max_bytes is not None and (isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1):
        raise OptionError(f"max_bytes must be a positive int or None, got {max_bytes!r}.")
    token = _limit.set(_limit.get() if max_bytes is None else max_bytes)
    try:
        yield
    finally:
        _limit.reset(token)


def check_memory(name: str | Path, required: float, reason: str) -> None:
    """Raise, before any work, if it would take more memory than is available, or than a limit allows."""
    limit, available = _limit.get(), available_memory()
    takes = f"{reason}, which takes about {format_bytes(required)} of memory"
    if limit is not None and required > limit:
        raise FileError(
            f"{name} is larger than the limit of {format_bytes(limit)}: {takes}.",
            Repair("max_bytes", ..., "allow more"),
        )
    if available is not None and required > available:
        raise FileError(
            f"{name} is too large for this machine: {takes}, but {format_bytes(available)} are available. "
            "Use a machine with more memory, or less data."
        )


def _system_memory() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):  # neither Linux nor POSIX
        return None


def _cgroup_memory() -> int | None:
    """Bytes left below the limits of this process's cgroups, such as a container's, or None without any."""
    left = (_memory_left(folder, version) for version, folder in _cgroup_folders())
    return min((count for count in left if count is not None), default=None)


def _cgroup_folders() -> Iterator[tuple[_CgroupFiles, Path]]:
    """The folders of this process's cgroup and of those above it, whose limits hold, too.

    A container may see its own cgroup as the root, while /proc names its path on the host: folders that aren't there
    are skipped, and the root is always looked at.
    """
    try:
        lines = _OWN_CGROUPS.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:  # "0::/path" is version 2, "4:memory:/path" version 1
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or "memory" in controllers.split(","):
            version = _V2 if number == "0" else _V1
            root = _CGROUP / version.root
            folder = root / path.strip("/")
            yield from ((version, each) for each in (folder, *folder.parents) if each.is_relative_to(root))


def _memory_left(folder: Path, version: _CgroupFiles) -> int | None:
    try:
        limit, used = (int((folder / name).read_text()) for name in (version.limit, version.used))
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        cached = int(statistics.get(version.cached, 0))  # pages of files, which the kernel gives up first
        return max(limit - max(used - cached, 0), 0)
    except (OSError, ValueError):  # no such cgroup, or no limit: "max"
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

"""Available memory: the smallest of the system's and of the limits of cgroups."""

import pytest

from fourward import _memory, files
from fourward.errors import FileError

GIB = 2**30


def write_v2(folder, limit, used, cached):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon {used - cached}\ninactive_file {cached}\n")


def write_v1(folder, limit, used, cached):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"inactive_file 0\ntotal_inactive_file {cached}\n")


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """A folder of cgroups, and a function that writes /proc/self/cgroup."""
    own = tmp_path / "self"
    monkeypatch.setattr(_memory, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr(_memory, "_OWN_CGROUPS", own)
    monkeypatch.setattr(_memory, "_system_memory", lambda: 64 * GIB)
    return tmp_path / "cgroup", own.write_text


def test_without_cgroups(cgroups):
    _, write_own = cgroups
    assert _memory.available_memory() == 64 * GIB
    write_own("0::/\n")
    assert _memory.available_memory() == 64 * GIB
    write_own("no such line\n")
    assert _memory.available_memory() == 64 * GIB


def test_version_2_of_a_container(cgroups):
    folder, write_own = cgroups
    write_own("0::/../host/path\n")  # a path of the host, which the container doesn't see
    write_v2(folder, 2 * GIB, GIB, GIB // 4)
    assert _memory.available_memory() == 2 * GIB - GIB * 3 // 4, "cached files don't count"
    write_v2(folder, "max", GIB, 0)
    assert _memory.available_memory() == 64 * GIB


def test_version_2_of_a_service_within_a_slice(cgroups):
    folder, write_own = cgroups
    write_own("0::/batch.slice/job.scope\n")
    write_v2(folder / "batch.slice/job.scope", "max", GIB, 0)
    write_v2(folder / "batch.slice", 3 * GIB, GIB, 0)
    assert _memory.available_memory() == 2 * GIB, "the limit of a cgroup above holds, too"
    write_v2(folder / "batch.slice/job.scope", GIB, 2 * GIB, 0)
    assert _memory.available_memory() == 0


def test_version_1(cgroups):
    folder, write_own = cgroups
    write_own("9:name=systemd:/\n4:cpu,memory:/job/7\n0::/\n")
    write_v1(folder / "memory/job/7", 5 * GIB, 2 * GIB, GIB)
    write_v1(folder / "memory", 2**63 - 4096, 2 * GIB, 0)
    assert _memory.available_memory() == 4 * GIB


def test_a_file_larger_than_the_limit_is_refused(cgroups, tmp_path):
    folder, write_own = cgroups
    path = tmp_path / "x.csv"
    path.write_text("1,2\n" * 100_000)
    assert files.read_dag(path, merge=True).dag.num_edges == 1
    write_own("0::/\n")
    write_v2(folder, GIB, GIB - 2**20, 0)
    with pytest.raises(FileError, match=r"too large for this machine: .* but 1\.0 MiB are available"):
        files.read_dag(path, merge=True)

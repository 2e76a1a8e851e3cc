"""Atomic writes."""

import errno
import os

import pytest

from fourward._files import replacing


def write(path, text, error=None):
    with replacing(path) as temporary:
        temporary.write_text(text)
        if error is not None:
            raise error


def test_a_crash_leaves_the_old_file(tmp_path):
    path = tmp_path / "old.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="power"):
        write(path, "half", RuntimeError("no power"))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_bytes_reach_the_disk_before_the_name_does(tmp_path, monkeypatch):
    path, seen = tmp_path / "new.txt", []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append((os.fstat(handle).st_size, path.exists())))
    write(path, "all of it")
    assert seen == [(9, False)]
    assert path.read_text() == "all of it"


def test_errors_name_the_destination(tmp_path):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(OSError, match="No space") as caught:
        write(tmp_path / "x.txt", "half", full)
    assert caught.value.filename == str(tmp_path / "x.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write(tmp_path / "folder", "text")
    assert caught.value.filename == str(tmp_path / "folder")
    long = tmp_path / ("x" * 300)
    with pytest.raises(OSError, match="too long") as caught:
        write(long, "text")
    assert caught.value.filename == str(long)
    other = FileNotFoundError(errno.ENOENT, "No such file", "other.txt")
    with pytest.raises(FileNotFoundError, match=r"other\.txt"):
        write(tmp_path / "x.txt", "half", other)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]

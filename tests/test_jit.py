"""Numba's cache: what is damaged in it is compiled again."""

import importlib.util
import logging

import pytest

SOURCE = """
from numba import types
from fourward._jit import cached_cfunc, cached_njit

@cached_njit
def double(x):
    return 2 * x

def call():
    return double(21)

def compile_cfunc():
    return cached_cfunc(half, types.float64(types.float64))

def half(x):
    return x / 2
"""


def load(path):
    spec = importlib.util.spec_from_file_location("kernels", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"garbage", None], ids=["empty", "garbage", "truncated"])
def test_a_damaged_cache_is_rebuilt(suffix, content, tmp_path, caplog):
    path = tmp_path / "kernels.py"
    path.write_text(SOURCE)
    module = load(path)
    assert module.call() == 42
    assert module.compile_cfunc()
    damaged = list(tmp_path.rglob(f"*.{suffix}"))
    assert len(damaged) == 2
    for file in damaged:
        file.write_bytes(file.read_bytes()[:-20] if content is None else content)
    with caplog.at_level(logging.WARNING, "fourward"):
        module = load(path)
        assert module.call() == 42
        assert module.compile_cfunc()
    assert "damaged kernel" in caplog.text
    caplog.clear()
    module = load(path)
    assert module.call() == 42
    assert module.compile_cfunc()
    assert not caplog.text

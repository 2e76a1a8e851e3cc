"""The quick comparison of methods on one graph."""

import pytest
import torch

from fourward import generate
from fourward.errors import OptionError
from fourward.study import _bench


def test_all_are_timed():
    dag = generate.erdos_renyi(30, 0.2, seed=0)
    timings = _bench.compare_methods(dag, 8, methods=list(_bench.METHODS), batches=2)
    assert [timing.name for timing in timings] == list(_bench.METHODS)
    for timing in timings:
        assert timing.forward > 0
        assert timing.step > 0
        assert timing.note == ""


def test_the_mlp_has_as_many_weights():
    for edges in (4, 1_000, 50_000):
        weights = sum(p.numel() for p in _bench.make_mlp(edges).parameters() if p.dim() == 2)
        assert abs(weights - edges) <= 0.1 * edges + 4


def test_the_mlp_leaves_torchs_generator_alone():
    before = torch.get_rng_state()
    _bench.make_mlp(100)
    assert torch.equal(before, torch.get_rng_state())


def test_who_is_too_slow_is_cut_off():
    dag = generate.erdos_renyi(150, 0.2, seed=0)
    ours, slow = _bench.compare_methods(dag, 8, methods=["fourward", "deepstruct"], batches=2, limit=0.005)
    assert ours.name == "fourward"
    assert "cut off" in slow.note


def test_who_cant_be_built_is_noted(monkeypatch):
    def fail(dag, **options):
        raise RuntimeError("no memory\nat all")

    monkeypatch.setitem(_bench.METHOD_CLASSES, "4ward", fail)
    ours, other = _bench.compare_methods(generate.chain(3), 2, methods=["fourward", "4ward"], batches=1)
    assert ours.forward > 0
    assert other == ("4ward", None, None, "building failed: RuntimeError: no memory")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"methods": ["magic"]}, "unknown method 'magic'. Choose from 'fourward', '4ward'"),
        ({"device": "cuda"}, r"no CUDA device here\. Pass device='cpu' to run on the CPU"),
    ],
)
def test_wrong_options(change, match):
    if change.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(OptionError, match=match):
        _bench.compare_methods(generate.chain(3), **change)

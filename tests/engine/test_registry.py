import pytest
import torch

from fourward import FourWard, generate
from fourward.engine._registry import ENGINES
from fourward.errors import EngineError


def test_unknown_engine_lists_the_known():
    with pytest.raises(EngineError, match=r"no engine 'warp'.*auto.*torch.*reference"):
        FourWard(generate.chain(3), engine="warp")


def test_explain_says_what_runs_and_why():
    net = FourWard(generate.chain(3))
    assert net.engine in ENGINES
    assert net.engine != "reference"
    assert net.engine in net.explain()
    asked = FourWard(generate.chain(3), engine="reference")
    assert "engine='reference' was asked for" in asked.explain()


def test_dropout_is_fair_and_independent():
    from fourward.engine._base import Dropout, dropout_scale, pass_key

    node = torch.arange(500)
    keys = [pass_key(7, torch.tensor(i)) for i in range(4)]
    draws = torch.stack([dropout_scale(Dropout(0.3, key), node, 400, torch.float64) for key in keys])
    assert set(draws.unique().tolist()) == {0.0, 1 / 0.7}
    dropped = (draws == 0).double() - 0.3
    deviation = (0.3 * 0.7 / dropped.numel()) ** 0.5
    assert abs(dropped.mean()) < 5 * deviation
    for shifted in (dropped.roll(1, 0), dropped.roll(1, 1), dropped.roll(1, 2), dropped.roll((1, 1), (1, 2))):
        correlation = (dropped * shifted).mean() / (0.3 * 0.7)
        assert abs(correlation) < 5 / dropped.numel() ** 0.5
    assert abs(dropped.mean((0, 1))).max() < 6 * (0.21 / 2000) ** 0.5
    assert abs(dropped.mean((0, 2))).max() < 6 * (0.21 / 1600) ** 0.5

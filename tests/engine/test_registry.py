import pytest

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

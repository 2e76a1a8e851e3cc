import os

import pytest
import torch

from fourward.engine._gpu import launch
from tests.engine import interpreter
from tests.engine.gpu import STRATEGIES, force


@pytest.fixture(params=STRATEGIES)
def strategy(request, monkeypatch):
    """Every strategy of the gpu engine, in turn."""
    force(request.param, monkeypatch)
    yield request.param
    launch.clear_passes()


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


if os.environ.get("TRITON_INTERPRET") == "1":
    interpreter.install()

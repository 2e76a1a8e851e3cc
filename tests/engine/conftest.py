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
def two_threads(monkeypatch):
    """Two threads, also for networks that are too small to gain from them."""
    from fourward.engine._cpu import launch, recurrent

    for module in (launch, recurrent):
        monkeypatch.setattr(module, "THREAD_WORK", 10_000)
    layouts = launch._forward_layout, launch._backward_layout
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    for layout in layouts:
        layout.cache_clear()
    yield
    torch.set_num_threads(before)
    for layout in layouts:
        layout.cache_clear()


if os.environ.get("TRITON_INTERPRET") == "1":
    interpreter.install()

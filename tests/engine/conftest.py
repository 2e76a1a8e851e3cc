import pytest

from fourward.engine._gpu import launch
from tests.engine.gpu import WAYS, force


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    force(request.param, monkeypatch)
    yield request.param
    launch.forget()

import os

import pytest

from fourward.engine._gpu import launch
from tests.engine import interpreter
from tests.engine.gpu import WAYS, force


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    force(request.param, monkeypatch)
    yield request.param
    launch.forget()


if os.environ.get("TRITON_INTERPRET") == "1":
    interpreter.install()

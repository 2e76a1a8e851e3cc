from contextlib import nullcontext

import pytest

from fourward.study._aggregate import newest
from fourward.study._store import Store
from tests.study import made


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """A results file with rows of every experiment, to read."""
    return made.everything(tmp_path_factory.mktemp("study") / "results.sqlite")


@pytest.fixture(scope="session")
def found(study):
    """Its rows by experiment."""
    with Store(study, create=False) as store:
        return newest(store)


class Future:
    def __init__(self, status, outcome=None):
        self.status, self.outcome = status, outcome

    def result(self):
        return self.outcome

    def release(self):
        pass


class Client:
    """Stands in for a cluster: runs at once, or is gone."""

    def __init__(self, gone_after=99):
        self.left = gone_after

    def submit(self, function, *arguments, pure):
        self.left -= 1
        return Future("finished", function(*arguments)) if self.left >= 0 else Future("cancelled")


@pytest.fixture
def fake(monkeypatch):
    """No processes: runs end in the order in which they were asked for."""
    client = Client()
    monkeypatch.setattr("fourward.study._cluster._client", lambda workers, scheduler: nullcontext(client))
    monkeypatch.setattr("distributed.as_completed", list)
    return client

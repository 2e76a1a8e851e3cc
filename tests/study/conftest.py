from contextlib import nullcontext

import pytest

from fourward.study._aggregate import latest_rows
from fourward.study._figures import available_figures
from fourward.study._store import Store
from tests.study import synthetic


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """A results file with rows of every experiment, to read."""
    return synthetic.write_study(tmp_path_factory.mktemp("study") / "results.sqlite")


@pytest.fixture(scope="session")
def rows_by_experiment(study):
    """Its rows by experiment."""
    with Store(study, create=False) as store:
        return latest_rows(store)


@pytest.fixture(scope="session")
def drawings(rows_by_experiment):
    """All its figures, each drawn once."""
    return list(available_figures(rows_by_experiment))


class Future:
    def __init__(self, status, outcome=None):
        self.status, self.outcome = status, outcome

    def result(self):
        return self.outcome

    def release(self):
        pass


class Client:
    """Stands in for a cluster: runs at once, or cancels when it is lost."""

    def __init__(self, lost_after=99):
        self.left = lost_after

    def submit(self, function, *arguments, pure):
        self.left -= 1
        return Future("finished", function(*arguments)) if self.left >= 0 else Future("cancelled")


@pytest.fixture
def fake_cluster(monkeypatch):
    """No processes: runs end in the order in which they were submitted."""
    client = Client()
    monkeypatch.setattr("fourward.study._cluster._client", lambda workers, scheduler: nullcontext(client))
    monkeypatch.setattr("distributed.as_completed", list)
    return client

import pytest

from fourward.study.cells import newest
from fourward.study.store import Store
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

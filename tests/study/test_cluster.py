"""Runs on a Dask cluster, with workers that die."""

import os
from pathlib import Path

import pytest

from fourward.errors import OptionError, StudyError
from fourward.study import _cluster
from fourward.study._cluster import _OneByOne, attempt, run_all
from fourward.study._environment import code_fingerprint
from fourward.study._store import Store

ENVIRONMENT = {"commit": "abc"}


def risky(key):
    """Kills its worker at the first try where `dies`, raises where `raises`."""
    mark = Path(str(key["folder"])) / f"tried-{key['number']}"
    if key["kind"] == "dies" and not mark.exists():
        mark.touch()
        os._exit(1)
    if key["kind"] == "raises":
        raise ValueError("wrong number\nand more")
    return {"square": key["number"] ** 2, "worker": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS")}


def test_a_lost_worker_costs_its_run_only_and_errors_are_outcomes(tmp_path):
    kinds = ["works", "dies", "raises", "works"]
    keys = [{"number": k, "kind": kind, "folder": str(tmp_path)} for k, kind in enumerate(kinds)]
    reports = []
    with Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store:
        summary = run_all(store, "squares", keys, risky, workers=1, on_progress=reports.append)
        rows = {row.key["number"]: row for row in store.rows("squares")}
    assert summary.ended == {"done": 3, "failed": 1}
    assert [rows[k].status for k in range(4)] == ["done", "done", "failed", "done"]
    assert rows[1].values["square"] == 1
    assert (tmp_path / "tried-1").exists(), "it died once"
    assert rows[2].note == "ValueError: wrong number"
    assert rows[0].values["worker"] != os.getpid()
    assert rows[0].values["threads"] == "1"
    assert [(progress.ended, progress.total) for progress in reports] == [(k, 4) for k in range(5)]
    assert reports[-1].left == 0


def keys(folder, count):
    return [{"number": k, "kind": "works", "folder": str(folder)} for k in range(count)]


def test_what_is_there_is_not_run_again(fake_cluster, tmp_path):
    with Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store:
        run_all(store, "squares", keys(tmp_path, 2), risky)
        summary = run_all(store, "squares", keys(tmp_path, 5), risky)
        assert (summary.skipped, summary.ended["done"]) == (2, 3)
        third = run_all(store, "squares", keys(tmp_path, 5), risky)
        assert (third.skipped, sum(third.ended.values())) == (5, 0)


def test_a_lost_cluster_keeps_what_is_done(fake_cluster, tmp_path):
    fake_cluster.left = 2
    with Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store:
        with pytest.raises(StudyError, match="connection to the cluster was lost") as caught:
            run_all(store, "squares", keys(tmp_path, 5), risky)
        assert caught.value.exit_code == 1
        assert len(store.rows("squares")) == 2


def test_an_interrupt_keeps_what_is_done(fake_cluster, tmp_path):
    def stop(progress):
        if progress.ended == 3:
            raise KeyboardInterrupt

    with Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store:
        with pytest.raises(KeyboardInterrupt):
            run_all(store, "squares", keys(tmp_path, 5), risky, on_progress=stop)
        assert len(store.rows("squares")) == 3


def test_an_existing_cluster(tmp_path):
    from distributed import LocalCluster

    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store,
    ):
        summary = run_all(store, "squares", keys(tmp_path, 6), risky, scheduler=cluster.scheduler_address)
        assert summary.ended["done"] == len(store.rows("squares")) == 6


def test_an_address_without_a_scheduler(tmp_path, monkeypatch):
    monkeypatch.setattr(_cluster, "CONNECT_TIMEOUT", 0.5)
    with (
        Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store,
        pytest.raises(OptionError, match=r"no Dask scheduler answers at 'tcp://127.0.0.1:9'"),
    ):
        run_all(store, "squares", keys(tmp_path, 1), risky, scheduler="tcp://127.0.0.1:9")


@pytest.mark.parametrize("workers", [0, -1])
def test_at_least_one_worker(fake_cluster, tmp_path, workers):
    with (
        Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store,
        pytest.raises(OptionError, match=f"workers must be at least 1, or None for one per core, got {workers}"),
    ):
        run_all(store, "squares", keys(tmp_path, 1), risky, workers=workers)


@pytest.mark.parametrize("other", [{"torch": "0.1"}, {"sources": "abc"}, {"more": "1"}])
def test_a_worker_with_other_code_runs_nothing(fake_cluster, tmp_path, monkeypatch, other):
    codes = iter([code_fingerprint() | other, code_fingerprint()])
    monkeypatch.setattr(_cluster, "code_fingerprint", lambda: next(codes))
    with Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store:
        assert run_all(store, "squares", keys(tmp_path, 1), risky).ended == {"failed": 1}
        (row,) = store.rows("squares")
    (name,) = other
    assert f"the worker's code differs from the submitting process's: expected {name} " in row.note
    assert row.values == {}


@pytest.mark.parametrize(("kind", "status"), [("works", "done"), ("raises", "failed")])
def test_an_attempt_records_its_time_however_it_ends(kind, status):
    (outcome,) = attempt(_OneByOne(risky), [{"number": 3, "kind": kind, "folder": "nowhere"}])
    assert outcome.status == status
    assert outcome.seconds > 0


def halves(keys):
    """The members of a group know each other; odd ones fail on their own."""
    numbers = [key["number"] for key in keys]
    return [ValueError("odd") if k % 2 else {"together": numbers} for k in numbers]


def test_groups_are_computed_together(fake_cluster, tmp_path):
    keys = [{"number": k, "half": k // 5} for k in range(10)]
    reports = []
    with Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as store:
        store.add("halves", keys[1], {})
        summary = run_all(
            store, "halves", keys, halves, group=lambda key: key["half"], workers=2, on_progress=reports.append
        )
        rows = {row.key["number"]: row for row in store.rows("halves")}
    assert (summary.skipped, summary.ended) == (1, {"done": 5, "failed": 4})
    assert rows[0].values["together"] == [0, 2, 3, 4]
    assert rows[8].values["together"] == [5, 6, 7, 8, 9]
    assert rows[7].note == "ValueError: odd"
    assert [progress.ended for progress in reports] == [1, *range(2, 11)]
    with Store(tmp_path / "other.sqlite", environment=ENVIRONMENT) as store:
        run_all(store, "halves", keys[:5], halves, group=lambda key: key["half"], workers=2)
        together = {tuple(row.values["together"]) for row in store.rows("halves") if row.status == "done"}
    assert together == {(0, 1, 2), (3, 4)}, "each worker has a part"

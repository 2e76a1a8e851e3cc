"""Verdicts on rows whose results are known, both ways."""

from dataclasses import replace

import pytest

from fourward.study._aggregate import (
    aggregate,
    aggregate_layerings,
    confidence_interval,
    format_number,
    gain_cells,
    latest_rows,
)
from fourward.study._findings import FAILS, HOLDS, PARTLY, UNKNOWN, findings
from fourward.study._store import Store
from tests.study import synthetic

NAMES = ("sparse", "even", "deepstruct", "height", "size", "batch", "deviation", "moved")


def evaluate(times, reassignment=()):
    return dict(zip(NAMES, findings(times, reassignment), strict=True))


def rows(tmp_path, **changes):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_times(store, **changes)
        return store.rows()


def test_all_hold_where_times_are_as_in_the_paper(rows_by_experiment):
    results = evaluate(rows_by_experiment["times"], rows_by_experiment["reassignment"])
    assert {name: finding.verdict for name, finding in results.items()} == dict.fromkeys(NAMES, HOLDS)
    assert results["sparse"].measured.startswith("up to 2.23, at 64 nodes, p = 0.2")
    assert "0.95 at p = 0.8" in results["even"].measured
    assert "cut off in 4 of 22 cells" in results["deepstruct"].measured
    assert "1.000 at batch size 512" in results["height"].measured
    assert (
        "2.0 % at p = 0.2, 2.0 % at p = 0.4, 2.0 % at p = 0.8, noise of 1.0 % at p = 1" in results["deviation"].measured
    )
    assert results["moved"].measured == "0.25 at p = 0.2"


def flat(method, size, p, batch):
    """All times are proportional to the batch size, and 4Ward's the longest."""
    return 1e-5 * batch * (2 if method == "4ward" else 1) * (p if method == "sequential" else 1)


def test_none_holds_where_the_batch_decides(tmp_path):
    results = evaluate(rows(tmp_path, method_seconds=flat))
    assert {name: results[name].verdict for name in NAMES[:6]} == dict.fromkeys(NAMES[:6], FAILS)
    assert "batches of 512 take 16 times as long" in results["batch"].measured


def opposite(method, size, p, batch):
    return synthetic.seconds(method, size, 1.2 - p if method == "4ward" else p, batch)


def test_a_gain_elsewhere_does_not_hold(tmp_path):
    results = evaluate(rows(tmp_path, method_seconds=opposite))
    assert results["sparse"].verdict == FAILS
    assert "p = 1, " in results["sparse"].measured
    assert "at p = 0.2 for 0 of 6" in results["sparse"].measured
    assert results["even"].verdict == PARTLY
    assert results["height"].verdict == FAILS


def opposite_in_small_graphs(method, size, p, batch):
    return (opposite if size == 64 else synthetic.seconds)(method, size, p, batch)


def test_most_sizes_with_the_gain_at_sparse_graphs_hold_in_part(tmp_path):
    results = evaluate(rows(tmp_path, method_seconds=opposite_in_small_graphs))
    assert results["sparse"].verdict == PARTLY
    assert "at p = 0.2 for 4 of 6" in results["sparse"].measured


def slower_in_large_batches(method, size, p, batch):
    return synthetic.seconds(method, size, p, batch) * (1.5 if batch == 512 and size == 64 and p == 0.2 else 1)


def test_one_cell_that_minds_the_batch_leaves_part_of_the_finding(tmp_path):
    assert evaluate(rows(tmp_path, method_seconds=slower_in_large_batches))["batch"].verdict == PARTLY


@pytest.mark.parametrize(("deviation", "verdict"), [(0.05, HOLDS), (0.2, PARTLY), (0.6, FAILS)])
def test_deviations(tmp_path, deviation, verdict):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_reassignment(store, deviation=deviation, moved=0.6)
        results = evaluate([], store.rows())
    assert results["deviation"].verdict == verdict
    assert results["moved"].verdict == FAILS


def test_deviations_are_those_between_the_layerings_of_one_graph(tmp_path):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_reassignment(store, slower=1.0)
        synthetic.add_reassignment(store, size=128, batch=32)
        stored = store.rows()
    assert evaluate([], stored)["deviation"].verdict == HOLDS
    cell = aggregate_layerings(stored)[64, 512, 0.2]
    assert (cell.count, cell.deviation / cell.mean) == (6, pytest.approx(0.02))
    assert {key[:2] for key in aggregate_layerings(stored)} == {(64, 512), (128, 32)}


@pytest.mark.parametrize(("noise", "verdict"), [(0.15, HOLDS), (0.1, PARTLY)])
def test_deviations_within_noise_hold(tmp_path, noise, verdict):
    with Store(tmp_path / "results.sqlite", environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_reassignment(store, deviation=0.2, noise=noise)
        assert evaluate([], store.rows())["deviation"].verdict == verdict


def test_nothing_is_concluded_without_rows(tmp_path):
    assert {finding.verdict for finding in findings([], [])} == {UNKNOWN}
    ours = [row for row in rows(tmp_path) if row.key["method"] == "fourward" and row.key["batch"] == 32]
    assert {finding.verdict for finding in findings(ours, [])} == {UNKNOWN}


def test_a_cell_that_was_cut_off_has_no_number(tmp_path):
    selected = rows(tmp_path, cut={("4ward", 64, 0.2)})
    assert gain_cells(selected, "sequential", "4ward")[64, 0.2].text == "cut off"
    assert gain_cells(selected, "sequential", "4ward")[64, 0.4].mean == pytest.approx(1 / (33 / 64 * 1.25))
    results = evaluate(selected)
    assert "at 64 nodes, p = 0.2" not in results["sparse"].measured


def test_a_graph_more_that_was_cut_off_leaves_the_gain_over_deepstruct(tmp_path):
    selected = [row for row in rows(tmp_path) if row.key["method"] != "deepstruct" or row.key["seed"] == 0]
    selected = [
        replace(row, status="cut off") if row.key["method"] == "4ward" and row.key["seed"] == 1 else row
        for row in selected
    ]
    assert evaluate(selected)["deepstruct"].verdict == HOLDS


def test_gains_compare_a_graph_with_itself(tmp_path):
    selected = [row for row in rows(tmp_path) if row.key["batch"] == 32]
    slow = [row for row in selected if row.key["method"] == "sequential" and row.key["seed"] == 1]
    for row in slow:
        row.values["mean"] *= 3
    cell = gain_cells(selected, "sequential", "4ward")[64, 0.2]
    first = 64 / 23 / 1.25
    assert (cell.mean, cell.count) == (pytest.approx(2 * first), 2)


def test_cells_keep_failures_apart(tmp_path):
    selected = [row for row in rows(tmp_path, seeds=3) if (row.key["size"], row.key["p"]) == (64, 0.2)]
    selected = [row for row in selected if row.key["method"] == "4ward" and row.key["batch"] == 32]
    failed = [replace(row, status="failed", values={}) for row in selected]
    assert aggregate(failed, ("size",), "mean")[64,].text == "failed"
    assert aggregate([failed[0], *selected[1:]], ("size",), "mean")[64,].count == 2
    cut = aggregate([replace(selected[0], status="cut off", values={"mean": 9.0}), *selected[1:]], ("size",), "mean")[
        64,
    ]
    assert (cut.text, cut.mean, cut.count) == ("cut off", None, 2)
    assert cut.observed > 3, "partial results are for tables"


def test_only_comparable_rows_are_selected(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path, environment=synthetic.ENVIRONMENT) as store:
        synthetic.add_attributes(store)
        synthetic.add_reassignment(store)
    with Store(path, environment={**synthetic.ENVIRONMENT, "commit": "def"}) as store:
        synthetic.add_attributes(store)
        synthetic.add_reassignment(store, device="cuda")
        latest = latest_rows(store)
    assert {row.environment["commit"] for row in latest["attributes"]} == {"def"}
    assert {(row.key["device"], row.environment["commit"]) for row in latest["reassignment"]} == {
        ("cpu", "abc"), ("cuda", "def"),
    }  # fmt: skip


def test_intervals_are_student_s():
    mean, half_width = confidence_interval([0.9, 0.92, 0.94])
    assert (mean, half_width) == (pytest.approx(0.92), pytest.approx(4.3027 * 0.02 / 3**0.5, rel=1e-4))
    assert confidence_interval([0.5]) == (0.5, None)


def test_numbers_are_short():
    assert [format_number(value) for value in (0, 0.00012, 0.0123, 1.2345, 160.37, 12345.6)] == [
        "0", "1.2e-04", "0.0123", "1.23", "160", "12,346",
    ]  # fmt: skip

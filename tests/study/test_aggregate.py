"""Tables from rows whose results are known."""

import pytest

from fourward.study._aggregate import gain_cells, gains, group_by_environment, status
from fourward.study._protocol import Protocol
from fourward.study._store import Store

CELL = {"size": 64, "p": 0.2, "batch": 32, "device": "cpu"}


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite", environment={"processor": "one"}) as results:
        yield results


def add(store, method, seed, mean, *, batches=100, count=None, status="done", **cell):
    key = CELL | cell | {"seed": seed, "method": method, "batches": batches}
    values = {"mean": mean, "count": (batches if mean else 0) if count is None else count, "height": 20 + seed}
    store.add("times", key, values, status=status)


def test_a_gain_is_the_mean_of_the_ratios_of_each_graph(store):
    for seed, (slow, fast) in enumerate([(2.0, 1.0), (12.0, 2.0)]):
        add(store, "sequential", seed, slow)
        add(store, "4ward", seed, fast)
    add(store, "sequential", 2, 100.0)  # a graph that only one of both was run on
    (line,) = gains(store.rows())
    assert line["gain"] == (2 + 6) / 2
    assert line["of_means"] == pytest.approx(14 / 3)
    assert line["deviation"] == pytest.approx(8**0.5)
    assert (line["slow"], line["fast"], line["graphs"], line["cut_off"], line["missing"]) == (
        "sequential", "4ward", 2, 0, 0
    )  # fmt: skip
    assert {name: line[name] for name in CELL} == CELL


def test_cut_off_runs_count_with_what_was_measured_and_are_counted(store):
    add(store, "deepstruct", 0, 8.0, count=3, status="cut off")
    add(store, "deepstruct", 1, None, status="cut off")
    add(store, "deepstruct", 2, None, status="failed")
    for seed in range(3):
        add(store, "4ward", seed, 2.0)
    (line,) = gains(store.rows())
    assert (line["gain"], line["graphs"], line["cut_off"], line["missing"], line["failed"]) == (4.0, 1, 1, 2, 1)
    cell = gain_cells(store.rows(), "deepstruct", "4ward")[64, 0.2]
    assert (cell.status, cell.mean, cell.observed, cell.count) == ("cut off", None, 4.0, 0)


def test_failed_runs_are_omitted_whatever_was_measured_of_them(store):
    add(store, "sequential", 0, 9.0, status="failed")
    add(store, "4ward", 0, 1.0)
    (line,) = gains(store.rows())
    assert (line["gain"], line["graphs"], line["missing"], line["failed"]) == (None, 0, 1, 1)
    assert gain_cells(store.rows(), "sequential", "4ward")[64, 0.2].text == "failed"
    add(store, "sequential", 1, 2.0)
    add(store, "4ward", 1, 1.0)
    (line,) = gains(store.rows())
    assert (line["gain"], line["graphs"], line["missing"], line["failed"]) == (2.0, 1, 1, 1)
    assert gain_cells(store.rows(), "sequential", "4ward")[64, 0.2].mean == 2


def test_only_runs_with_as_many_batches_are_compared(store):
    add(store, "sequential", 0, 2.0, batches=10)
    add(store, "4ward", 0, 1.0, batches=10)
    add(store, "4ward", 0, 0.5, batches=100)
    (line,) = gains(store.rows())
    assert line["gain"] == 2
    add(store, "sequential", 0, 4.0, batches=100)
    (line,) = gains(store.rows())
    assert line["gain"] == 8


def test_cells_devices_and_pairs_stay_apart(store):
    for method, mean in (("sequential", 6.0), ("deepstruct", 12.0), ("4ward", 3.0), ("fourward", 1.0)):
        add(store, method, 0, mean)
        add(store, method, 0, 2 * mean if method == "fourward" else mean, device="cuda")
        add(store, method, 0, mean, p=0.4)
    table = {(line["p"], line["device"], line["slow"], line["fast"]): line["gain"] for line in gains(store.rows())}
    assert len(table) == 3 * 5
    assert table[0.2, "cpu", "sequential", "4ward"] == 2
    assert table[0.2, "cpu", "deepstruct", "4ward"] == 4
    assert table[0.2, "cpu", "4ward", "fourward"] == 3
    assert table[0.2, "cuda", "4ward", "fourward"] == 1.5
    assert table[0.4, "cpu", "deepstruct", "fourward"] == 12


def test_nothing_to_compare(store):
    assert gains(store.rows()) == []
    add(store, "4ward", 0, None, status="cut off")
    add(store, "sequential", 0, None, status="cut off")
    (line,) = gains(store.rows())
    assert (line["gain"], line["of_means"], line["graphs"], line["missing"]) == (None, None, 0, 1)


def test_status_counts_what_was_requested(store):
    protocol = Protocol(sizes=(64,), densities=(0.2,), batch_sizes=(32,), seeds=3, methods=("4ward", "sequential"))
    store.set_protocol("times", protocol.as_dict())
    store.set_protocol("topologies", {"wanted": 7})
    add(store, "4ward", 0, 1.0)
    add(store, "4ward", 1, None, status="cut off")
    add(store, "deepstruct", 0, None, status="failed")
    store.add("topologies", {"topology": "er", "seed": 1}, {})
    (group,) = status(store)["groups"]
    times, topologies = group["experiments"]
    counts = {name: times[name] for name in ("requested", "done", "cut_off", "failed")}
    assert counts == {"requested": 6, "done": 1, "cut_off": 1, "failed": 1}
    by_method = {cell["method"]: cell for cell in times["cells"]}
    assert by_method["4ward"].items() >= {"requested": 3, "done": 1, "cut_off": 1, "failed": 0, "size": 64}.items()
    assert by_method["sequential"].items() >= {"requested": 3, "done": 0}.items()
    assert by_method["deepstruct"].items() >= {"requested": None, "failed": 1}.items()
    assert times["reduced"][0] == "sizes: 64 instead of 64, 128, 256, 512, 1024"
    assert (topologies["requested"], topologies["done"], topologies["cells"][0]["topology"]) == (7, 1, "er")


def test_groups_end_with_who_ran_last(tmp_path):
    for name in ("one", "two", "one"):
        with Store(tmp_path / "results.sqlite", environment={"processor": name}) as results:
            add(results, "4ward", len(results.rows(all_environments=True)), 1.0)
    with Store(tmp_path / "results.sqlite", create=False) as results:
        groups = group_by_environment(results.rows(all_environments=True))
        assert [rows[0].environment["processor"] for rows in groups.values()] == ["two", "one"]
        assert [len(rows) for rows in groups.values()] == [1, 2]
        assert [group["environment"]["processor"] for group in status(results)["groups"]] == ["two", "one"]

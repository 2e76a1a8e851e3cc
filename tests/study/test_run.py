"""The experiments, small: what they measure is what their rows say."""

import os
import subprocess
import sys
import time
from functools import partial

import pytest
import torch

from fourward import generate
from fourward.errors import OptionError, StudyError
from fourward.layering import longest_path
from fourward.paper import Masked4Ward
from fourward.study import _grid, _reassignment
from fourward.study._protocol import METHODS, Protocol, iter_keys, paper_protocol
from fourward.study._run import Progress, run
from fourward.study._store import Store

ENVIRONMENT = {"processor": "a"}
TINY = Protocol(sizes=(8, 12), densities=(0.5, 1.0), batch_sizes=(2, 3), seeds=2, batches=3)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite", environment=ENVIRONMENT) as results:
        yield results


@pytest.mark.parametrize("experiment", ["times", "training"])
def test_every_run_of_the_grid_is_a_row(store, experiment):
    summary = run(store, {experiment: TINY})
    rows = store.rows(experiment)
    assert summary.ended == {"done": len(rows)}
    assert sorted(map(str, (row.key for row in rows))) == sorted(map(str, iter_keys(experiment, TINY)))
    for row in rows:
        dag = generate.erdos_renyi(row.key["size"], row.key["p"], seed=row.key["seed"])
        assert (row.values["height"], row.values["edges"]) == (longest_path(dag).height, dag.num_edges)
        assert row.values["count"] == 3
        assert row.values["mean"] > 0
        assert row.values["median"] > 0
        assert row.seconds > 3 * row.values["mean"]


def test_networks_are_built_once_for_all_batch_sizes(store, monkeypatch):
    built = []
    classes = {name: partial(lambda name, make, *a, **k: built.append(name) or make(*a, **k), name, make)
               for name, make in _grid.METHOD_CLASSES.items()}  # fmt: skip
    monkeypatch.setattr(_grid, "METHOD_CLASSES", classes)
    run(store, {"times": TINY})
    assert sorted(built) == sorted(METHODS * 2 * 2 * 2)


def test_batches_are_ones_without_gradients_and_training_trains(store, monkeypatch):
    states = []

    class Spy(Masked4Ward):
        def forward(self, x):
            states.append((x.shape[0], bool((x == 1).all()), torch.is_grad_enabled(), self.weights[0].grad is not None))
            return super().forward(x)

    monkeypatch.setattr(_grid, "METHOD_CLASSES", {"4ward": Spy})
    small = Protocol(sizes=(8,), densities=(0.5,), batch_sizes=(2,), seeds=1, batches=3, methods=("4ward",))
    run(store, {"times": small})
    assert set(states) == {(2, True, False, False)}
    states.clear()
    run(store, {"training": small})
    assert {(batch, ones, grad) for batch, ones, grad, _ in states} == {(2, True, True)}


def test_a_second_call_runs_nothing_and_a_larger_one_the_rest(store):
    small = Protocol(sizes=(8,), densities=(0.5,), batch_sizes=(2,), seeds=1, batches=2)
    assert run(store, {"times": small}).ended == {"done": 4}
    before = [(row.key, row.values, row.when) for row in store.rows()]
    second = run(store, {"times": small})
    assert (second.ended, second.skipped, second.left) == ({}, 4, 0)
    larger = run(store, {"times": Protocol(sizes=(8,), densities=(0.5,), batch_sizes=(2, 3), seeds=2, batches=2)})
    assert (larger.ended, larger.skipped) == ({"done": 12}, 4)
    assert [(row.key, row.values, row.when) for row in store.rows()][:4] == before


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, float("inf")])
def test_a_budget_is_a_number_of_seconds(store, seconds):
    with pytest.raises(OptionError, match=f"seconds: expected a number from 0 to 1e.09, got {seconds}"):
        run(store, {"attributes": TINY}, seconds=seconds)
    assert store.protocols() == {}


def test_a_budget_ends_between_graphs_and_progress_says_what_is_known(store):
    reports = []
    summary = run(store, {"attributes": TINY}, seconds=0.0, on_progress=reports.append)
    assert (summary.ended, summary.left) == ({}, 8)
    run(store, {"attributes": TINY}, on_progress=reports.append)
    assert [progress.ended for progress in reports] == [0, *range(9)]
    assert {progress.total for progress in reports} == {8}
    assert [progress.unknown for progress in reports] == [4, 4, 3, 2, 1, 0, 0, 0, 0, 0]
    assert reports[-1].left == 0
    assert all(progress.left > 0 for progress in reports[2:-1])


class Sleepy(Masked4Ward):
    def forward(self, x):
        time.sleep(0.06)
        return super().forward(x)


class Endless(Masked4Ward):
    def _build(self, dtype):
        while True:
            super()._build(dtype)


class TooLarge(Masked4Ward):
    def _build(self, dtype):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 TiB")


class Wrong(Masked4Ward):
    def forward(self, x):
        return super().forward(x) + 1


def with_methods(monkeypatch, **classes):
    monkeypatch.setattr(_grid, "METHOD_CLASSES", {"4ward": Masked4Ward, **classes})
    return Protocol(sizes=(8,), densities=(0.5,), batch_sizes=(2, 3), seeds=1, batches=20, methods=("4ward", *classes))


def test_a_cut_off_run_keeps_what_was_seen(store, monkeypatch):
    protocol = with_methods(monkeypatch, sequential=Sleepy)
    limited = Protocol(**protocol.as_dict() | {"cell_seconds": 0.4})
    assert run(store, {"times": limited}).ended == {"done": 2, "cut off": 2}
    for row in store.rows():
        if row.key["method"] == "sequential":
            assert row.status == "cut off"
            assert 1 <= row.values["count"] < 20
            assert row.values["mean"] >= 0.06
            assert row.note.startswith("cut off after 0.4")
    assert run(store, {"times": limited}).skipped == 4
    monkeypatch.setitem(_grid.METHOD_CLASSES, "sequential", Masked4Ward)
    assert run(store, {"times": limited}, retry=True).ended == {"done": 2}
    assert {row.status for row in store.rows()} == {"done"}


def test_building_has_the_same_limit(store, monkeypatch):
    protocol = with_methods(monkeypatch, deepstruct=Endless)
    run(store, {"times": Protocol(**protocol.as_dict() | {"cell_seconds": 1.0})})
    rows = {(row.key["method"], row.key["batch"]): row for row in store.rows()}
    assert {rows["4ward", batch].status for batch in (2, 3)} == {"done"}
    for batch in (2, 3):
        row = rows["deepstruct", batch]
        assert (row.status, row.note) == ("cut off", "cut off after 1 s, while it was built")
        assert (row.values["count"], row.values["mean"]) == (0, None)
        assert row.values["height"] > 1
    assert rows["deepstruct", 2].seconds >= 1.0  # the time of building counts once
    assert rows["deepstruct", 3].seconds == 0


def test_what_fails_is_noted_and_tried_again(store, monkeypatch):
    protocol = with_methods(monkeypatch, deepstruct=TooLarge, sequential=Wrong)
    assert run(store, {"times": protocol}).ended == {"done": 2, "failed": 4}
    notes = {row.key["method"]: row.note for row in store.rows()}
    assert notes["deepstruct"] == (
        "building failed: OutOfMemoryError: CUDA out of memory. Tried to allocate 3 TiB"
    )  # fmt: skip
    assert notes["sequential"] == "ArithmeticError: the outputs differ from those of 4ward by 1"
    monkeypatch.setattr(_grid, "METHOD_CLASSES", dict.fromkeys(METHODS, Masked4Ward))
    summary = run(store, {"times": protocol})
    assert (summary.ended, summary.skipped) == ({"done": 4}, 2)


def test_graphs_with_nothing_to_train_fail_alone(store):
    lonely = Protocol(sizes=(2,), densities=(0.001, 1.0), batch_sizes=(2,), seeds=1, batches=2)
    assert run(store, {"times": lonely}).ended == {"done": 8}
    assert run(store, {"training": lonely}).ended == {"done": 5, "failed": 3}  # ours has a parameter of no numbers
    notes = {row.note for row in store.rows("training") if row.status == "failed"}
    assert notes == {"ValueError: optimizer got an empty parameter list"}


def test_without_a_card_cuda_is_refused(store, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match=r"no CUDA device here\. Pass device='cpu'"):
        run(store, {"times": Protocol(device="cuda")})


def test_attributes(store):
    run(store, {"attributes": TINY})
    for row in store.rows("attributes"):
        dag = generate.erdos_renyi(row.key["size"], row.key["p"], seed=row.key["seed"])
        assert row.values == {
            "height": longest_path(dag).height,
            "attenuation": dag.num_nodes / longest_path(dag).height,
            "nodes": dag.num_nodes,
            "edges": dag.num_edges,
            "inputs": dag.num_inputs,
            "outputs": dag.num_outputs,
        }


def test_reassigned_graphs_have_the_mean_height_and_legal_layerings():
    for p in (0.2, 1.0):
        seeds = _reassignment.seeds_with_mean_height(64, p, 6)
        assert len(set(seeds)) == 6
        assert seeds == _reassignment.seeds_with_mean_height(64, p, 30)[:6]
        for seed in seeds:
            dag = generate.erdos_renyi(64, p, seed=seed)
            start = _reassignment.initial_layering(dag)
            layerings = [_reassignment.reassigned_layering(dag, seed, variant) for variant in range(4)]
            for layering in layerings:
                layering.verify()
                assert layering.height == start.height == _reassignment.mean_height(64, p)
            fractions = [_reassignment.moved_fraction(start, layering) for layering in layerings]
            if p == 1.0:
                assert fractions == [0, 0, 0, 0]
            else:
                assert all(0 < fraction < 1 for fraction in fractions)
                assert len({layering.level.tobytes() for layering in layerings}) == 4


def test_reassignment_of_another_layering_of_the_same_network_is_timed(store, monkeypatch):
    protocol = Protocol(
        sizes=(16,), densities=(0.3,), batch_sizes=(4,), seeds=2, batches=2, variants=3, methods=("4ward", "fourward")
    )
    used = []

    class Spy(Masked4Ward):
        def __init__(self, dag, *, layering, **options):
            used.append(layering.level.tolist())
            super().__init__(dag, layering=layering, **options)

    monkeypatch.setitem(_grid.METHOD_CLASSES, "4ward", Spy)
    assert run(store, {"reassignment": protocol}).ended == {"done": 2 * 3 * 2}
    rows = store.rows("reassignment")
    height = _reassignment.mean_height(16, 0.3)
    assert {row.values["height"] for row in rows} == {height}
    assert {row.key["graph"] for row in rows} == set(_reassignment.seeds_with_mean_height(16, 0.3, 2))
    assert {row.key["variant"] for row in rows} == {0, 1, 2}
    dag = generate.erdos_renyi(16, 0.3, seed=rows[0].key["graph"])
    assert used[:3] == [
        _reassignment.reassigned_layering(dag, rows[0].key["graph"], v).level.tolist() for v in range(3)
    ]
    for row in rows:
        dag = generate.erdos_renyi(16, 0.3, seed=row.key["graph"])
        after = _reassignment.reassigned_layering(dag, row.key["graph"], row.key["variant"])
        assert row.values["moved"] == _reassignment.moved_fraction(_reassignment.initial_layering(dag), after)
        assert row.values["count"] == 2


def test_reassignment_refuses_what_it_cannot_do(monkeypatch):
    monkeypatch.setattr(_reassignment, "_MAX_SEEDS", 100)
    with pytest.raises(OptionError, match="doesn't use layerings"):
        list(_reassignment.reassignment_tasks(paper_protocol("times")))
    with pytest.raises(StudyError, match=r"expected 30 connected graphs with 40 nodes, .* got \d+ among 100 seeds"):
        _reassignment.seeds_with_mean_height(40, 0.001, 30)


def test_the_time_left_is_reported_as_far_as_it_is_known():
    key = {"size": 64}
    assert str(Progress("times", 3, 3, key, 0.0, 0)) == "times: 3 of 3 runs, done"
    assert Progress("times", 1, 3, key, 90.0, 0).time_left == "about 1 min 30 s left"
    assert Progress("times", 1, 3, key, 90.0, 2).time_left == "at least 1 min 30 s left, 2 cells not measured yet"
    assert Progress("times", 0, 3, None, 0.0, 2).time_left == "2 cells not measured yet"


def test_it_runs_with_nothing_but_torch_numpy_scipy_networkx_and_numba(tmp_path):
    code = """
import sys
for name in ("rustworkx", "safetensors", "matplotlib", "rich", "typer", "pandas", "pyarrow", "sklearn",
             "lightning", "dask", "distributed", "pytest", "hypothesis"):
    sys.modules[name] = None
from dataclasses import replace
from fourward.study import Store, gains, paper_protocol, run, status
small = dict(sizes=(8, 12), densities=(0.5, 1.0), batch_sizes=(2,), seeds=1, batches=2)
names = ("attributes", "times", "reassignment", "training")
with Store(sys.argv[1] + "/results.sqlite") as store:
    run(store, {name: replace(paper_protocol(name), **small) for name in names}, on_progress=print)
    (group,) = status(store)["groups"]
    print(gains(store.rows("times"))[0]["gain"] > 0, [each["done"] for each in group["experiments"]])
"""
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # threads that wait for one another are slow on a busy machine
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "True [4, 16, 80, 16]"

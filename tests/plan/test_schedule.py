"""Orders are topological, and no row is taken again while it is still to be read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fourward import Dag, generate, layering
from fourward.plan import _schedule as schedules
from fourward.plan import build_plan
from fourward.plan._schedule import SMALL, build_schedule, rows_alive


def make_plan(dag):
    lay = layering.push_sources(dag, layering.longest_path(dag))
    return build_plan(dag, lay, np.ones(dag.num_nodes, np.int64))


def most_alive(plan, position):
    """The largest number of rows alive, by definition."""
    step = np.argsort(position)
    last = step.copy()
    np.maximum.at(last, plan.source, step[plan.target])
    return max(sum(step[v] <= s <= last[v] for v in range(len(step))) for s in range(len(step)))


def check(plan, schedule):
    nodes = plan.dag.num_nodes
    assert sorted(schedule.position) == list(range(nodes))
    assert (schedule.position[schedule.step] == np.arange(nodes)).all()
    source, target = schedule.step[plan.source], schedule.step[plan.target]
    assert (source < target).all(), "topological"
    reaches = plan.reaches_output[schedule.position]
    assert reaches[: schedule.needed].all()
    assert not reaches[schedule.needed :].any()
    if schedule.reuses_rows:
        check_slots(schedule.slot, schedule.num_slots, source, target)
        check_slots(schedule.back_slot[::-1], schedule.num_back_slots, nodes - 1 - target, nodes - 1 - source)


def check_slots(slot, num_slots, source, target):
    """Whoever reads a row finds what its source wrote."""
    assert slot.max() == num_slots - 1
    readers = [source[target == s] for s in range(len(slot))]
    holds = np.full(num_slots, -1)
    for s in range(len(slot)):
        holds[slot[s]] = s  # a node's row is written while it reads
        assert (holds[slot[readers[s]]] == readers[s]).all()


@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 60), density=st.floats(0, 0.4), outputs=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_all_orders_of_random_graphs(seed, nodes, density, outputs):
    dag = generate.erdos_renyi(nodes, density, seed=seed)
    chosen = np.random.default_rng(seed).permutation(nodes)[:outputs]
    plan = make_plan(Dag.from_arrays(dag.edges, labels=nodes, outputs=chosen))
    for order in (
        np.arange(nodes, dtype=np.int32),
        schedules._from_outputs(plan.edge_start, plan.source, plan.outputs),
        schedules._from_sources(plan.source, plan.target, nodes),
    ):
        check(plan, build_schedule(plan, order))
        alive = rows_alive(plan.edge_start, plan.source, order, np.argsort(order).astype(np.int32))
        assert alive == most_alive(plan, order)
        if plan.reaches_output.all():
            assert build_schedule(plan, order).num_slots == alive, "a linear scan is optimal for intervals"
    check(plan, plan.schedule)


@pytest.mark.parametrize(
    ("dag", "name", "reuses"),
    [
        (generate.erdos_renyi(SMALL - 1, 0.01, seed=0), "by level", False),  # small
        (generate.erdos_renyi(2000, 0.1, seed=0), "by level", False),  # dense
        (generate.erdos_renyi(5000, 0.002, seed=0), "by level", False),  # nothing helps
        (generate.layered_mlp([4] * 400), "by level", True),
    ],
)
def test_where_rows_are_reused(dag, name, reuses):
    schedule = make_plan(dag).schedule
    assert (schedule.name, schedule.reuses_rows) == (name, reuses)
    check(make_plan(dag), schedule)


def test_another_order_is_taken_only_if_fewer_rows_are_alive():
    side, size = 40, 40 * 40  # a grid, each of whose nodes reads the one above and the one to the left
    index = np.arange(size).reshape(side, side)
    pairs = [(index[:-1], index[1:]), (index[:, :-1], index[:, 1:])]
    plan = make_plan(Dag.from_arrays(np.concatenate([np.stack([a.ravel(), b.ravel()], 1) for a, b in pairs])))
    by_level = rows_alive(plan.edge_start, plan.source, *(np.arange(size, dtype=np.int32),) * 2)
    assert plan.schedule.num_slots <= by_level
    assert plan.schedule.name == "by level" or plan.schedule.num_slots <= schedules.GAIN * by_level


def test_the_string_says_the_order_and_the_rows():
    assert (
        str(make_plan(generate.chain(2000)).schedule)
        == "nodes are computed by level, with at most 2 of 2,000 rows alive at once"
    )
    assert str(make_plan(generate.chain(20)).schedule) == "nodes are computed by level, with a row for each"

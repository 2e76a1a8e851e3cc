"""Orders of the nodes, rows that are reused, slices and blocks of the CPU engine."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fourward import Dag, FourWard, generate, plan
from fourward.engine._cpu import launch, slices
from fourward.engine._cpu.buffers import BUFFERS
from tests.engine.cpu import assert_matches_torch, random_order, x_for


@pytest.mark.parametrize("batch", [1, 5, 40])
@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 40), density=st.floats(0, 1), hidden_outputs=st.booleans())
@settings(max_examples=8, deadline=None)
def test_any_order_gives_the_same(batch, activation, seed, nodes, density, hidden_outputs):
    dag = generate.erdos_renyi(nodes, density, seed=seed)
    if hidden_outputs:  # others then lead to no output
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(dag.num_nodes)[: rng.integers(1, dag.num_nodes + 1)]
        dag = Dag.from_arrays(dag.edges, labels=nodes, outputs=chosen)
    for all_nodes in (False, True):
        assert_matches_torch(
            dag, batch, order=lambda plan: random_order(plan, seed), all_nodes=all_nodes, activation=activation
        )


GRAPHS = {
    "depth first from the outputs": lambda: trees(),
    "depth first from the inputs": lambda: random_tree(),
    "by level": lambda: ladder(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_chosen_orders(name, two_threads):
    """Graphs for which each order is the best."""
    dag = GRAPHS[name]()
    plan = FourWard(dag, activation="tanh").plan
    assert plan.schedule.name == name
    assert plan.schedule.reuses_rows
    assert_matches_torch(dag, 40, activation="tanh")
    assert_matches_torch(dag, 40, activation="gelu", dropout=0.3)


def random_tree(nodes=2000):
    """A tree from one input, in which each neuron has an edge from a random earlier one."""
    target = np.arange(1, nodes)
    return Dag.from_arrays(np.stack((np.random.default_rng(0).integers(0, target), target), 1))


def trees(leaves=1024):
    """A binary tree from many inputs to one output."""
    child = np.arange(2, 2 * leaves)
    return Dag.from_arrays(np.stack((child - 1, child // 2 - 1), 1))


def ladder(steps=1000):
    """Two chains side by side, joined at each step: few rows are alive in any order."""
    up, down = np.arange(0, 2 * steps, 2), np.arange(1, 2 * steps, 2)
    pairs = [(up[:-1], up[1:]), (down[:-1], down[1:]), (up[:-1], down[1:])]
    return Dag.from_arrays(np.concatenate([np.stack(ends, 1) for ends in pairs]))


def test_inference_takes_memory_for_the_rows_alive_alone(monkeypatch, two_threads):
    net, sizes, take = FourWard(trees(), activation="tanh", seed=0), [], BUFFERS.take
    monkeypatch.setattr(BUFFERS, "take", lambda size, owner: sizes.append(size) or take(size, owner))
    x = x_for(net.dag, 1024)
    with torch.no_grad():
        net(x)
    alive, threads_used = net.plan.schedule.num_slots, 2
    assert alive == 12 < net.dag.num_nodes // 100
    assert sizes == [alive * 128 * 4 * threads_used]
    assert net.plan.schedule.num_slots * 128 * 4 == plan.cost(net.plan, 1024).inference_bytes
    assert "at most 12 of 2,047 rows alive" in net.explain()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 2, 3, 5, 8, 9, 17, 18, 33, 65, 128, 129, 1000])
def test_inference_takes_what_its_cost_says(batch, dtype, monkeypatch):
    """Slices are padded: to a power of two, or to whole groups of lanes."""
    net, sizes, take = FourWard(trees(), seed=0, dtype=dtype), [], BUFFERS.take
    monkeypatch.setattr(BUFFERS, "take", lambda size, owner: sizes.append(size) or take(size, owner))
    with torch.no_grad():
        net(x_for(net.dag, batch).to(dtype))
    assert sizes == [plan.cost(net.plan, batch, itemsize=dtype.itemsize).inference_bytes]


@pytest.mark.parametrize("pushes", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 5, 8, 16, 27])
def test_narrow_slices_whose_backward_pass_pulls_or_pushes(pushes, batch, monkeypatch, two_threads):
    monkeypatch.setattr(launch, "_pushes", lambda shape, cut, dtype: pushes)
    monkeypatch.setattr(launch, "_backward_layout", launch._backward_layout.__wrapped__)
    size = 120 if batch > 16 else 60  # large enough for two threads, each of which takes a slice
    dropped = Dag.from_arrays(generate.erdos_renyi(size, 0.6, seed=1).edges, labels=size, outputs=[40, 50])
    for dtype in (torch.float32, torch.float64)[: 2 if batch <= 8 else 1]:  # wider rows of float64 are pulled
        for all_nodes in (False, True):
            assert_matches_torch(dropped, batch, dtype, all_nodes=all_nodes, activation="gelu", dropout=0.3)
            assert_matches_torch(generate.complete(size), batch, dtype, all_nodes=all_nodes, activation="tanh")


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("batch", [1, 2, 5, 8, 16])
def test_levels_in_parts(num_threads, batch, monkeypatch, two_threads):
    for name, value in {"LEVEL_WORK": 1e-6, "THREAD_WORK": 0, "last_cache_bytes": lambda: 0}.items():
        monkeypatch.setattr(launch, name, value)
    for name in ("_forward_layout", "_backward_layout"):
        monkeypatch.setattr(launch, name, getattr(launch, name).__wrapped__)
    monkeypatch.setattr(launch, "_num_threads", lambda shape, batch, most: num_threads)
    monkeypatch.setattr(launch, "_goes_by_level", lambda shape, cut, threads: shape.levels > 0 and cut.jobs == 1)
    dropped = Dag.from_arrays(generate.erdos_renyi(60, 0.6, seed=1).edges, labels=60, outputs=[40, 50])
    isolated = Dag.from_arrays([[0, 2], [0, 4]], labels=5, inputs=[0, 1], outputs=[2, 3])
    for dtype in (torch.float32, torch.float64)[: 2 if batch <= 8 else 1]:
        for all_nodes in (False, True):
            assert_matches_torch(dropped, batch, dtype, all_nodes=all_nodes, activation="gelu", dropout=0.3)
            assert_matches_torch(generate.complete(60), batch, dtype, all_nodes=all_nodes, activation="tanh")
            assert_matches_torch(isolated, batch, dtype, all_nodes=all_nodes, activation="tanh")


def test_levels_are_taken_in_parts_where_they_are_large():
    shape = launch.Shape(nodes=10, inputs=1, outputs=1, edges=10**6, z_rows=0, slots=10, back_slots=10, levels=5)

    def by_level(batch, num_threads, shape=shape):
        return launch._goes_by_level(shape, slices.slices(batch, 16, num_threads), num_threads)

    assert by_level(2, 1)
    assert by_level(16, 2)
    assert not by_level(8, 1), "wide rows, and nothing to share"
    assert not by_level(2, 2, shape._replace(levels=21)), "small levels"
    assert not by_level(2, 2, shape._replace(levels=0)), "steps aren't by level"
    assert not by_level(17, 2), "two slices"


def test_backward_passes_push_where_rows_are_narrow_and_fit_the_cache():
    def pushes(nodes, batch):
        shape = launch.Shape(
            nodes=nodes, inputs=1, outputs=1, edges=1, z_rows=0, slots=nodes, back_slots=nodes, levels=0
        )
        return launch._pushes(shape, slices.slices(batch, 16, 1), torch.float32)

    cache = slices.own_cache_bytes()
    assert pushes(cache // 128, 16)
    assert not pushes(cache // 128 + 1, 16)
    assert not pushes(2, 17), "two lane groups"


def test_wide_slices_read_rows_that_fit_the_cache():
    cache = slices.last_cache_bytes()
    assert slices.most_groups(10) == slices.MOST_GROUPS
    assert slices.most_groups(10**9) == slices.LEAST_GROUPS
    assert slices.most_groups(cache // 4 // (4 * 64)) == 4


def test_rows_are_prefetched_where_the_cache_is_too_small(monkeypatch, two_threads):
    monkeypatch.setattr(launch, "last_cache_bytes", lambda: 0)
    monkeypatch.setattr(launch, "_forward_layout", launch._forward_layout.__wrapped__)
    monkeypatch.setattr(launch, "_backward_layout", launch._backward_layout.__wrapped__)
    dag = generate.erdos_renyi(300, 0.05, seed=0)
    shape = FourWard(dag).runner.shape
    assert launch._forward_layout(shape, 40, torch.float32, 2, True).distance == launch.PREFETCH_DISTANCE
    assert_matches_torch(dag, 40, activation="tanh")
    assert_matches_torch(generate.complete(70), 40, activation="tanh")

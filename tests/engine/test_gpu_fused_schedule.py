"""Slots of fused levels: each neuron finds what it reads in the slot that it reads; and sums of hubs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.real_graphs import deep_circuit
from fourward import Dag, FourWard
from fourward.engine._gpu.fused_schedule import (
    BARRIER,
    COPY,
    COPY_DISTANCE,
    HEADER_WORDS,
    BlockShape,
    _schedule,
    _split_items,
    backward_gather,
    build_streams,
    forward_gather,
    new_state,
)


def check_slots(gather, low, high, slots, state=None):
    """Follow the slots of a run level by level; return how many levels it has, and how many copies of its own rows."""
    level, level_start, node, start, neighbour = gather
    state = new_state(gather) if state is None else state
    end, item_start, item_node, item_slot = _schedule(*gather, *state, low, high, slots)
    edge_slot = state.edge_slot
    assert not state.slot.any()
    holds, copies = {}, 0
    for now in range(low - 1, end):
        items = range(item_start[now - low + 1], item_start[now - low + 2])
        if now >= low:
            computed = node[level_start[now] : level_start[now + 1]]
            assert sorted(item_node[i] for i in items if item_node[i] >= 0) == sorted(computed)
            reading = {edge_slot[e] for q in computed for e in range(start[q], start[q + 1])}
            for q in computed:
                for e in range(start[q], start[q + 1]):
                    assert holds[edge_slot[e]] == neighbour[e]
        else:
            reading = set()
        written = [item_slot[i] for i in items if item_slot[i] > 0]
        assert len(written) == len(set(written))
        assert not reading & set(written)
        assert all(slot <= slots for slot in written)
        for i in items:
            row = item_node[i] if item_node[i] >= 0 else -1 - item_node[i]
            if item_node[i] < 0:
                assert level[row] < low or now - level[row] >= COPY_DISTANCE
                copies += level[row] >= low
            if item_slot[i] > 0:
                holds[item_slot[i]] = row
    return end - low, copies


def deep_plan(seed, levels, width):
    """A plan whose rows are read up to hundreds of rows later."""
    edges = deep_circuit(levels, levels * width, seed=seed)
    return FourWard(Dag.from_edges(edges, nodes=levels * width), seed=0, engine="torch").plan


@pytest.mark.parametrize("direction", [forward_gather, backward_gather])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), levels=st.integers(1, 60), width=st.integers(1, 12), data=st.data())
def test_slots_hold_what_is_read(direction, seed, levels, width, data):
    plan = deep_plan(seed, levels, width)
    low = data.draw(st.integers(0, plan.num_levels))
    high = data.draw(st.integers(low, plan.num_levels))
    check_slots(direction(plan), low, high, data.draw(st.integers(1, 12 * width)))


@pytest.mark.parametrize("slots", [20, 60, 160])
def test_rows_that_lose_their_slot_are_copied_again(slots):
    """Among them are rows that lose it in the level that computes them."""
    copies, low = 0, 0
    for seed in range(5):
        gather = backward_gather(deep_plan(seed, 80, 10))
        state = new_state(gather)
        high = len(gather.level_start) - 1
        while low < high:
            levels, copied = check_slots(gather, low, high, slots, state)
            low, copies = low + levels + 1, copies + copied
        low = 0
    assert copies > 0


@pytest.mark.parametrize(("degree", "parts"), [(24, 0), (25, 4), (1000, 8)])
def test_sums_of_hubs_are_divided(degree, parts):
    """One hub among 8 lane groups that have 2 edges to a line."""
    start, item_start, items = np.array([0, degree]), np.array([0, 1]), np.zeros(1, np.int32)
    phase_start, _, slot, first, count, partial = _split_items(start, item_start, items, items + 7, 8, 2, 100)
    if parts == 0:
        assert phase_start.tolist() == [0, 1]
        return
    covered = [(f, f + c) for f, c in zip(first[partial], count[partial], strict=True)]
    assert len(phase_start) == 3
    assert len(covered) == parts
    assert [low for low, _ in covered] == [0, *(high for _, high in covered[:-1])]
    assert covered[-1][1] == degree
    assert slot[partial].tolist() == list(range(100, 100 + len(covered)))
    assert (slot[-1], first[-1], count[-1]) == (7, -1 - 100, len(covered))


def follow_streams(streams, block, values):
    """Compute fused levels as a block does, for a sample and f(z) = z with weights of 1, from the values of others."""
    for i, run in enumerate(streams.runs):
        shape = block.warps, run.rounds, block.groups, HEADER_WORDS
        headers = streams.headers[run.first_header : run.first_header + np.prod(shape[:3])].reshape(shape)
        line = run.first_line + streams.warp_lines[i].astype(np.int64)
        slots, pending = np.full(10**5, np.nan), []
        slots[0] = 0
        for round_ in range(run.rounds):
            for warp in range(block.warps):
                iterations = headers[warp, round_, 0, 0] & (1 << 20) - 1
                taken = streams.lines[line[warp] : line[warp] + iterations]
                line[warp] += iterations
                for group in range(block.groups):
                    flags, slot, row = headers[warp, round_, group, :3]
                    used = taken[:, 1, group] != -1
                    z = slots[taken[:, 0, group][used] // (block.lanes * 4)].sum()
                    if flags & COPY:
                        z = values[row]
                    elif row >= 0:
                        z = values[row] = z + 1  # the bias
                    if slot >= 0:
                        pending.append((slot // (block.lanes * 4), z))
            if headers[0, round_, 0, 0] & BARRIER:
                for slot, z in pending:
                    slots[slot] = z
                pending = []


@pytest.mark.parametrize("direction", [forward_gather, backward_gather])
@pytest.mark.parametrize("block", [BlockShape(1, 2, 8), BlockShape(2, 4, 4), BlockShape(1, 4, 2)])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), hubs=st.integers(0, 4), slots=st.integers(20, 200))
def test_streams_compute_every_sum(direction, block, seed, hubs, slots):
    edges = deep_circuit(30, 400, seed=seed)
    rng = np.random.default_rng(seed)
    for hub in rng.integers(100, 300, hubs):
        into, out = rng.choice(hub, 60, replace=False), hub + 1 + rng.choice(400 - hub - 1, 60, replace=False)
        edges = np.concatenate((edges, np.stack((into, 0 * into + hub), 1), np.stack((0 * out + hub, out), 1)))
    plan = FourWard(Dag.from_edges(np.unique(edges, axis=0), nodes=400), seed=0, engine="torch").plan
    gather, levels = direction(plan), plan.num_levels
    fields = dict.fromkeys(("code", "bias_index", "node", "hidden"), np.zeros(400, np.int64))
    streams = build_streams(gather, [(0, levels)], fields, block, slots + 2 * block.width)
    fused = {level for run in streams.runs for level in range(run.low, run.high)}
    want = np.ones(400)
    for q in gather.node:
        want[q] += want[gather.neighbour[gather.start[q] : gather.start[q + 1]]].sum()
    got = np.where(np.isin(gather.level, list(fused)), np.nan, want)
    follow_streams(streams, block, got)
    np.testing.assert_allclose(got, want, rtol=1e-12)

"""Fused runs: consecutive levels that a thread block computes alone, with activations in slots of shared memory.

A run goes level by level, in rounds: in each, a *lane group* (the lanes of a warp that share a neuron, one for each
sample) computes a neuron. A slot holds a row from the level that computes it to that of its last reader, and is taken
again from the level after that. Rows that come from before the run, or whose slot was needed by others, are copied
from global memory in the level before they are read. Where slots don't suffice, the run ends.

Both directions have them: forward, a neuron reads the rows of its sources; backward, levels are taken from the last to
the first, and it reads the deltas of its targets.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.plan._plan import Plan

LANES = 8  #: samples in a block
GROUPS = 32 // LANES  #: neurons that a warp computes at once
ROUNDS_AHEAD = 4  #: rounds whose copies have begun, AHEAD in fused.cu
#: A copy begins up to ROUNDS_AHEAD levels before its own, and a level may have a single round: the row must be stored
#: before that, and a barrier passed.
COPY_DISTANCE = ROUNDS_AHEAD + 2
BARRIER, COPY, HIDDEN = 1 << 20, 1 << 21, 1 << 22  #: flags of a header
HEADER_WORDS = 8
_CHUNKS, _HEADER_CHUNKS = 8, 4  # chunks in the rings of fused.cu
_MIN_CHUNK_EDGES = 16 * GROUPS  # edges of a chunk, of which a line may have more


def ring_bytes(k: int, itemsize: int) -> int:
    """Bytes of shared memory for what a warp reads ahead, with sums of this size: RING_BYTES in fused.cu."""
    lines = _CHUNKS * max(_MIN_CHUNK_EDGES, GROUPS * k) * (4 + itemsize)
    return lines + _HEADER_CHUNKS * ROUNDS_AHEAD * GROUPS * HEADER_WORDS * 4


def shared_bytes(warps: int, k: int, slots: int, itemsize: int) -> int:
    """Bytes of shared memory of a block: slots, with the one that is always 0, and rings."""
    return (slots + 1) * LANES * itemsize + warps * ring_bytes(k, itemsize)


def max_slots(warps: int, k: int, available: int) -> int:
    """The slots for float32 sums that this many bytes of shared memory have room for."""
    return (available - shared_bytes(warps, k, 0, 4)) // (LANES * 4)


class Gather(NamedTuple):
    """What the nodes of a pass read: node q, neighbour[start[q]:start[q+1]]. Levels count in its direction."""

    level: IntArray  #: (N,) -1: inputs, which are never fused
    level_start: IntArray  #: (L+1,) where the nodes of each level start in `node`
    node: IntArray  #: the nodes by level
    start: IntArray
    neighbour: IntArray  #: (E,) the node that is read


class FusedRun(NamedTuple):
    """A run of levels: where its streams start, in the units of `Streams`."""

    low: int  #: first level
    high: int  #: one after the last level
    rounds: int
    first_header: int
    first_line: int


class Streams(NamedTuple):
    """All fused runs of a direction, as arrays that a kernel reads."""

    runs: list[FusedRun]
    warp_lines: IntArray  #: (runs, warps) the first line of each warp, from the first line of its run
    headers: IntArray  #: (H, 8) int32: `Header` in fused.cu
    lines: IntArray  #: (lines, 2, GROUPS, K) int32: byte offsets of slots for float32, then edges by their place in the
    #: gather lists; -1: padding


def forward_gather(plan: Plan) -> Gather:
    """Neurons read the activations of their sources."""
    level = _levels(plan)
    node = np.arange(plan.dag.num_inputs, plan.dag.num_nodes, dtype=np.int32)
    return Gather(level, plan.level_start - plan.dag.num_inputs, node, plan.edge_start, plan.source)


def backward_gather(plan: Plan) -> Gather:
    """Neurons read the deltas of their targets, the last level first."""
    level = _levels(plan)
    level[level >= 0] = plan.num_levels - 1 - level[level >= 0]
    sizes = np.diff(plan.level_start)[::-1]
    node = np.arange(plan.dag.num_nodes - 1, plan.dag.num_inputs - 1, -1, dtype=np.int32)
    edge, start = plan.edges_by_source()
    return Gather(level, np.concatenate(([0], np.cumsum(sizes))), node, start, plan.target[edge])


def _levels(plan: Plan) -> IntArray:
    """(N,) the level of each position, from 0; -1 for inputs."""
    sizes = np.diff(plan.level_start)
    inputs = np.full(plan.dag.num_inputs, -1, np.int32)
    return np.concatenate((inputs, np.repeat(np.arange(plan.num_levels, dtype=np.int32), sizes)))


def build_streams(
    gather: Gather, runs: list[tuple[int, int]], fields: dict[str, IntArray], warps: int, k: int, slots: int
) -> Streams:
    """Schedule fused runs.

    Args:
        gather: What nodes read.
        runs: Levels low to high of each run that is wanted; one ends earlier where slots don't suffice, and another
            begins after the level that can't be fused.
        fields: By node: code, bias_index, node and hidden, as in the packed plan.
        warps: Warps of a block.
        k: Edges of a neuron in a line.
        slots: Number of slots, without the one that is always 0.
    """
    read_start, read_level = _reads(gather.level, gather.node, gather.start, gather.neighbour)
    fused: list[FusedRun] = []
    parts: list[tuple[IntArray, ...]] = []
    headers = lines = 0
    for low, high in runs:
        while low < high:
            schedule = _schedule(*gather, read_start, read_level, low, high, slots)
            end = int(schedule[0])
            if end > low:
                warp_lines, header, line = _emit(gather, schedule, fields, warps, k)
                rounds = len(header) // (warps * GROUPS)
                fused.append(FusedRun(low, end, rounds, headers, lines))
                parts.append((warp_lines, header, line))
                headers, lines = headers + len(header), lines + len(line)
            low = max(end, low) + 1  # the level in between is computed otherwise
            if end == high:
                break
    empty = np.zeros((0, warps), np.int32), np.zeros((0, 8), np.int32), np.zeros((0, 2, GROUPS, k), np.int32)
    joined = [np.concatenate(arrays) for arrays in zip(empty, *parts, strict=True)]
    return Streams(fused, *joined)


def _emit(
    gather: Gather, schedule: Any, fields: dict[str, IntArray], warps: int, k: int
) -> tuple[IntArray, IntArray, IntArray]:
    """The streams of a run: the first line of each warp (1, warps), headers and lines."""
    _, item_start, item_node, item_slot, edge_slot = schedule
    place, rounds, barriers = _place_items(gather.start, item_start, item_node, warps * GROUPS)
    rounds = -(-rounds // ROUNDS_AHEAD) * ROUNDS_AHEAD
    degree = np.where(item_node >= 0, np.diff(gather.start)[np.maximum(item_node, 0)], 0)
    iterations = np.zeros((rounds, warps), np.int64)  # the most that a neuron of the warp needs in a round
    np.maximum.at(iterations.reshape(-1), place // GROUPS, -(-degree // k))
    first = np.concatenate(([0], np.cumsum(iterations.T.ravel())))  # line of each round of each warp, warps outermost
    round_, warp, group = place // (warps * GROUPS), place // GROUPS % warps, place % GROUPS

    headers = np.zeros((warps, rounds, GROUPS, HEADER_WORDS), np.int32)
    headers[..., 1:3] = headers[..., 4] = headers[..., 6] = -1
    headers[..., 0] = iterations.T[:, :, None]
    headers[:, barriers, :, 0] |= BARRIER
    at, copies = (warp, round_, group), item_node < 0
    node = np.where(copies, -1 - item_node, item_node)
    headers[(*at, 0)] |= np.where(copies, COPY, fields["hidden"][node] * HIDDEN)
    headers[(*at, 1)] = np.where(item_slot > 0, item_slot * LANES * 4, -1)
    headers[(*at, 2)] = node
    for word, name in ((3, "code"), (4, "bias_index"), (7, "node")):
        headers[(*at, word)] = fields[name][node]

    lines = np.zeros((int(first[-1]), 2, GROUPS, k), np.int32)
    lines[:, 1] = -1
    _fill_lines(lines, item_node, group, first[warp * rounds + round_], gather.start, edge_slot, LANES * 4)
    return first[: warps * rounds : rounds].astype(np.int32)[None], headers.reshape(-1, HEADER_WORDS), lines


@cached_njit
def _reads(level: IntArray, node: IntArray, start: IntArray, neighbour: IntArray) -> tuple[IntArray, IntArray]:
    """The levels at which each node is read, ascending: those of node q are read_start[q]:read_start[q+1]."""
    nodes = len(level)
    read_start = np.zeros(nodes + 1, np.int64)
    for q in node:
        for e in range(start[q], start[q + 1]):
            read_start[neighbour[e] + 1] += 1
    for q in range(nodes):
        read_start[q + 1] += read_start[q]
    free = read_start[:-1].copy()
    read_level = np.empty(read_start[-1], np.int32)
    for q in node:  # by level
        for e in range(start[q], start[q + 1]):
            read_level[free[neighbour[e]]] = level[q]
            free[neighbour[e]] += 1
    return read_start, read_level


@cached_njit
def _schedule(
    level: IntArray, level_start: IntArray, node: IntArray, start: IntArray, neighbour: IntArray,
    read_start: IntArray, read_level: IntArray, low: int, high: int, slots: int,
) -> tuple[int, IntArray, IntArray, IntArray, IntArray]:  # fmt: skip
    """Slots for the levels low to high.

    Returns:
        The end: the first level that can't be fused, or `high`; then items by level, in the order in which they were
        found: where those of each level start (from level low - 1, which has copies alone), their node (-1 - q for a
        copy of q) and their slot (0: none); and the slot that each edge reads, by edge of the gather lists.
    """
    never = 2**31 - 1
    nodes = len(level)
    slot_of = np.zeros(nodes, np.int32)  # 0: none
    upcoming = read_start[:-1].copy()  # the next read of each node
    free = np.arange(slots, 0, -1).astype(np.int32)
    num_free = slots
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]  # (-next read, node) of nodes in slots, some outdated
    item_start = np.zeros(high - low + 2, np.int64)
    item_node, item_slot = [np.int32(0) for _ in range(0)], [np.int32(0) for _ in range(0)]
    edge_slot = np.zeros(len(neighbour), np.int32)
    end = high
    for now in range(low - 1, high):
        count_before = len(item_node)
        # 1. What the nodes of this level read is in slots: level now - 1 has copied what wasn't.
        if now >= low:
            for q in node[level_start[now] : level_start[now + 1]]:
                for e in range(start[q], start[q + 1]):
                    edge_slot[e] = slot_of[neighbour[e]]
        # 2. Rows that this level or the next one needs, or has, get slots.
        feasible = True
        for phase in range(2):
            if phase == 0:  # copies for the next level
                if now + 1 >= high:
                    continue
                first, last = level_start[now + 1], level_start[now + 2]
            else:  # results of this level
                if now < low:
                    continue
                first, last = level_start[now], level_start[now + 1]
            for i in range(first, last):
                q = node[i]
                begin, stop = (start[q], start[q + 1]) if phase == 0 else (0, 1)
                for e in range(begin, stop):
                    u = neighbour[e] if phase == 0 else q
                    if phase == 0 and (slot_of[u] != 0 or (now >= low and level[u] == now)):
                        continue  # it has a slot, or gets one as a result of this level
                    while upcoming[u] < read_start[u + 1] and read_level[upcoming[u]] <= now:
                        upcoming[u] += 1
                    following = read_level[upcoming[u]] if upcoming[u] < read_start[u + 1] else never
                    if following >= high:
                        following = never
                    optional = phase == 1 and following - 1 - now >= COPY_DISTANCE
                    if phase == 1 and following == never:
                        item_node.append(np.int32(u))
                        item_slot.append(np.int32(0))
                        continue
                    if num_free == 0:
                        # Take the slot of the row that is read last of all, if it can be copied again by then.
                        while len(heap) > 0:
                            key, victim = heap[0]
                            if slot_of[victim] == 0:
                                heappop(heap)
                                continue
                            while upcoming[victim] < read_start[victim + 1] and read_level[upcoming[victim]] < now:
                                upcoming[victim] += 1
                            next_read = (
                                read_level[upcoming[victim]] if upcoming[victim] < read_start[victim + 1] else never
                            )
                            if next_read >= high:
                                next_read = never
                            if next_read != -key:
                                heappop(heap)
                                heappush(heap, (-np.int64(next_read), np.int64(victim)))
                                continue
                            break
                        if len(heap) > 0:
                            key, victim = heap[0]
                            later = -key
                            produced = level[victim] if level[victim] >= low else low - 1 - COPY_DISTANCE
                            if later > now + 1 and later > following and later - 1 - produced >= COPY_DISTANCE:
                                heappop(heap)
                                free[num_free] = slot_of[victim]
                                num_free += 1
                                slot_of[victim] = 0
                    if num_free == 0:
                        if optional:
                            item_node.append(np.int32(u))
                            item_slot.append(np.int32(0))
                            continue
                        feasible = False
                        break
                    num_free -= 1
                    slot_of[u] = free[num_free]
                    heappush(heap, (-np.int64(following), np.int64(u)))
                    item_node.append(np.int32(u if phase == 1 else -1 - u))
                    item_slot.append(slot_of[u])
                if not feasible:
                    break
            if not feasible:
                break
        if not feasible:
            # Level now + 1 can't be fused for its copies, or level now for its results: the run ends before it.
            end = now if now >= low else low
            while len(item_node) > count_before:
                item_node.pop()
                item_slot.pop()
            break
        item_start[now - low + 2] = len(item_node)
        # 3. Slots whose last reader was in this level are free from the next level on.
        if now >= low:
            for q in node[level_start[now] : level_start[now + 1]]:
                for e in range(start[q], start[q + 1]):
                    u = neighbour[e]
                    if slot_of[u] == 0:
                        continue
                    while upcoming[u] < read_start[u + 1] and read_level[upcoming[u]] <= now:
                        upcoming[u] += 1
                    if upcoming[u] >= read_start[u + 1] or read_level[upcoming[u]] >= high:
                        free[num_free] = slot_of[u]
                        num_free += 1
                        slot_of[u] = 0
    for i in range(1, len(item_start)):  # levels beyond the end have no items
        item_start[i] = max(item_start[i], item_start[i - 1])
    return end, item_start, np.array(item_node, np.int32), np.array(item_slot, np.int32), edge_slot


@cached_njit
def _place_items(
    start: IntArray, item_start: IntArray, item_node: IntArray, width: int
) -> tuple[IntArray, int, IntArray]:
    """Place the items of each level in rounds of `width`, those of most edges first, in alternating directions.

    Returns:
        The place of each item, round * width + lane group; the number of rounds; and the last round of each level.
    """
    place = np.empty(len(item_node), np.int64)
    rounds = 0
    barriers = [np.int64(0) for _ in range(0)]
    for i in range(len(item_start) - 1):
        first, last = item_start[i], item_start[i + 1]
        if first == last:
            continue
        degree = np.empty(last - first, np.int64)
        for j in range(first, last):
            q = item_node[j]
            degree[j - first] = start[q + 1] - start[q] if q >= 0 else 0
        order = np.argsort(-degree, kind="mergesort")
        for rank in range(len(order)):
            row, column = rank // width, rank % width
            place[first + order[rank]] = (rounds + row) * width + (column if row % 2 == 0 else width - 1 - column)
        rounds += -(-(last - first) // width)
        barriers.append(np.int64(rounds - 1))
    return place, rounds, np.array(barriers, np.int64)


@cached_njit
def _fill_lines(
    lines: NDArray[Any], item_node: IntArray, group: IntArray, line: IntArray, start: IntArray,
    edge_slot: IntArray, slot_bytes: int,
) -> None:  # fmt: skip
    """Write slots and edges of each item, K to a line, in place."""
    k = lines.shape[3]
    for i in range(len(item_node)):
        q = item_node[i]
        if q < 0:
            continue
        for e in range(start[q], start[q + 1]):
            j = e - start[q]
            lines[line[i] + j // k, 0, group[i], j % k] = edge_slot[e] * slot_bytes
            lines[line[i] + j // k, 1, group[i], j % k] = e

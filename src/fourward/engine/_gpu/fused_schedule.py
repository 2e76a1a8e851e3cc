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

from fourward._arrays import BoolArray, IntArray
from fourward._jit import cached_njit
from fourward.plan._plan import Plan

PREFETCHED_ROUNDS = 4  #: rounds whose copies have begun, AHEAD in fused.cu
#: A copy begins up to PREFETCHED_ROUNDS levels before its own, and a level may have a single round: the row must be
#: stored before that, and a barrier passed.
COPY_DISTANCE = PREFETCHED_ROUNDS + 2
BARRIER, COPY, HIDDEN, PARTIAL = 1 << 20, 1 << 21, 1 << 22, 1 << 23  #: flags of a header
UNIT_WEIGHT = -2  #: in lines, instead of an edge: the weight is 1
HEADER_WORDS = 8
_CHUNKS, _HEADER_CHUNKS = 8, 4  # chunks in the rings of fused.cu
_MIN_CHUNK_EDGES, _MIN_CHUNK_LINES = 64, 2


class BlockShape(NamedTuple):
    """How a thread block computes fused levels."""

    warps: int
    k: int  #: edges of a neuron in a line
    lanes: int  #: samples

    @property
    def groups(self) -> int:
        """Neurons that a warp computes at once."""
        return 32 // self.lanes

    @property
    def width(self) -> int:
        """Neurons that the block computes at once."""
        return self.warps * self.groups

    def ring_bytes(self, itemsize: int) -> int:
        """Bytes of shared memory for what a warp reads ahead, with sums of this size: RING_BYTES in fused.cu."""
        lines = _CHUNKS * max(_MIN_CHUNK_EDGES, _MIN_CHUNK_LINES * self.groups * self.k) * (4 + itemsize)
        return lines + _HEADER_CHUNKS * PREFETCHED_ROUNDS * self.groups * HEADER_WORDS * 4

    def slot_bytes(self, slots: int, itemsize: int) -> int:
        """Bytes of shared memory for slots, with the one that is always 0; what follows them is aligned to 16 bytes."""
        return -(-(slots + 1) * self.lanes * itemsize // 16) * 16

    def shared_bytes(self, slots: int, itemsize: int) -> int:
        """Bytes of shared memory of a block: slots and rings."""
        return self.slot_bytes(slots, itemsize) + self.warps * self.ring_bytes(itemsize)

    def max_slots(self, available: int) -> int:
        """The slots for float32 sums that this many bytes of shared memory have room for."""
        return (available - self.warps * self.ring_bytes(4)) // 16 * 16 // (self.lanes * 4) - 1


class FusedConfig(NamedTuple):
    """Which levels are fused, and how."""

    runs: list[tuple[int, int]]  #: the first level of each run, and one after its last
    block: BlockShape
    slots: int  #: without the one that is always 0


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
    lines: IntArray  #: (lines, 2, groups, k) int32: byte offsets of slots for float32, then edges by their place
    #: in the gather lists; -1: padding, UNIT_WEIGHT: a part of a sum


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
    gather: Gather, runs: list[tuple[int, int]], fields: dict[str, IntArray], block: BlockShape, slots: int
) -> Streams:
    """Schedule fused runs.

    Args:
        gather: What nodes read.
        runs: Levels low to high of each run that is wanted; one ends earlier where slots don't suffice, and another
            begins after the level that can't be fused.
        fields: By node: code, bias_index, node and hidden, as in the packed plan.
        block: How a block computes them.
        slots: Number of slots, without the one that is always 0; two for each lane group are for parts of sums.
    """
    slots -= 2 * block.width
    state = new_state(gather)
    fused: list[FusedRun] = []
    parts: list[tuple[IntArray, ...]] = []
    headers = lines = 0
    for low, high in runs:
        while low < high:
            schedule = _schedule(*gather, *state, low, high, slots)
            end = int(schedule[0])
            if end > low:
                warp_lines, header, line = _emit(gather, schedule, state.edge_slot, fields, block, slots)
                rounds = len(header) // block.width
                fused.append(FusedRun(low, end, rounds, headers, lines))
                parts.append((warp_lines, header, line))
                headers, lines = headers + len(header), lines + len(line)
            low = max(end, low) + 1  # the level in between is computed otherwise
            if end == high:
                break
    empty = (np.zeros((0, size), np.int32) for size in (block.warps, HEADER_WORDS))
    no_lines = np.zeros((0, 2, block.groups, block.k), np.int32)
    joined = [np.concatenate(arrays) for arrays in zip((*empty, no_lines), *parts, strict=True)]
    return Streams(fused, *joined)


class State(NamedTuple):
    """What is kept from one run to the next."""

    read_start: IntArray  #: (N+1,) node q is read at the levels read_level[read_start[q]:read_start[q+1]], ascending
    read_level: IntArray
    upcoming: IntArray  #: (N,) the next read of each node, in read_level
    slot: IntArray  #: (N,) the slot of each node; 0: none, as between runs
    item_index: IntArray  #: (N,) the item that gave a node its slot
    edge_slot: IntArray  #: (E,) the slot that each edge reads, by edge of the gather lists


def new_state(gather: Gather) -> State:
    """The state before the first run."""
    nodes, edges = len(gather.level), len(gather.neighbour)
    read_start, read_level = _reads(gather.level, gather.node, gather.start, gather.neighbour)
    slot, item_index, edge_slot = np.zeros(nodes, np.int32), np.zeros(nodes, np.int64), np.zeros(edges, np.int32)
    return State(read_start, read_level, read_start[:-1].copy(), slot, item_index, edge_slot)


def _emit(
    gather: Gather, schedule: Any, edge_slot: IntArray, fields: dict[str, IntArray], block: BlockShape, slots: int
) -> tuple[IntArray, IntArray, IntArray]:
    """The streams of a run: the first line of each warp (1, warps), headers and lines."""
    _, item_start, item_node, item_slot = schedule
    warps, groups, k, row_bytes = block.warps, block.groups, block.k, block.lanes * 4
    phase_start, node, slot, first_edge, count, partial = _split_items(
        gather.start, item_start, item_node, item_slot, block.width, k, slots + 1
    )
    place, rounds, barriers = _place_items(phase_start, count, block.width)
    rounds = -(-rounds // PREFETCHED_ROUNDS) * PREFETCHED_ROUNDS
    iterations = np.zeros((rounds, warps), np.int64)  # the most that a neuron of the warp needs in a round
    np.maximum.at(iterations.reshape(-1), place // groups, -(-count // k))
    first = np.concatenate(([0], np.cumsum(iterations.T.ravel())))  # line of each round of each warp, warps outermost
    round_, warp, group = place // block.width, place // groups % warps, place % groups

    headers = np.zeros((warps, rounds, groups, HEADER_WORDS), np.int32)
    headers[..., 1:3] = headers[..., 4] = headers[..., 6] = -1
    headers[..., 0] = iterations.T[:, :, None]
    headers[:, barriers, :, 0] |= BARRIER
    at, copies = (warp, round_, group), node < 0
    row = np.where(copies, -1 - node, node)
    flags = np.where(copies, COPY, fields["hidden"][row] * HIDDEN)
    headers[(*at, 0)] |= np.where(partial, PARTIAL, flags)
    headers[(*at, 1)] = np.where(slot > 0, slot * row_bytes, -1)
    for word, values in ((2, row), (3, fields["code"][row]), (4, fields["bias_index"][row]), (7, fields["node"][row])):
        headers[(*at, word)] = np.where(partial, -1, values)

    lines = np.zeros((int(first[-1]), 2, groups, k), np.int32)
    lines[:, 1] = -1
    _fill_lines(lines, first_edge, count, group, first[warp * rounds + round_], edge_slot, row_bytes)
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
    read_start: IntArray, read_level: IntArray, upcoming: IntArray, slot: IntArray, item_index: IntArray,
    edge_slot: IntArray, low: int, high: int, slots: int,
) -> tuple[int, IntArray, IntArray, IntArray]:  # fmt: skip
    """Slots for the levels low to high.

    Returns:
        The end: the first level that can't be fused, or `high`; then items by level, in the order in which they were
        found: where those of each level start (from level low - 1, which has copies alone), their node (-1 - q for a
        copy of q) and their slot (0: none). `edge_slot` has the slots that their edges read.
    """
    never = 2**31 - 1
    free = np.arange(slots, 0, -1).astype(np.int32)
    num_free = slots
    heap = [(np.int64(0), np.int64(0)) for _ in range(0)]  # (-next read, node) of nodes in slots, some outdated
    item_start = np.zeros(high - low + 2, np.int64)
    item_node, item_slot = [np.int32(0) for _ in range(0)], [np.int32(0) for _ in range(0)]
    end = high
    for now in range(low - 1, high):
        count_before = len(item_node)
        # 1. What the nodes of this level read is in slots: level now - 1 has copied what wasn't.
        if now >= low:
            for q in node[level_start[now] : level_start[now + 1]]:
                for e in range(start[q], start[q + 1]):
                    edge_slot[e] = slot[neighbour[e]]
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
                    if phase == 0 and (slot[u] != 0 or (now >= low and level[u] == now)):
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
                            if slot[victim] == 0:
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
                                free[num_free] = slot[victim]
                                num_free += 1
                                slot[victim] = 0
                                if level[victim] == now:  # its slot has another row of this level now
                                    item_slot[item_index[victim]] = np.int32(0)
                    if num_free == 0:
                        if optional:
                            item_node.append(np.int32(u))
                            item_slot.append(np.int32(0))
                            continue
                        feasible = False
                        break
                    num_free -= 1
                    slot[u] = free[num_free]
                    heappush(heap, (-np.int64(following), np.int64(u)))
                    item_index[u] = len(item_node)
                    item_node.append(np.int32(u if phase == 1 else -1 - u))
                    item_slot.append(slot[u])
                if not feasible:
                    break
            if not feasible:
                break
        if not feasible:
            # Level now + 1 can't be fused for its copies, or level now for its results: the run ends before it.
            end = now if now >= low else low
            while len(item_node) > count_before:
                q = item_node.pop()
                slot[q if q >= 0 else -1 - q] = 0
                item_slot.pop()
            break
        item_start[now - low + 2] = len(item_node)
        # 3. Slots whose last reader was in this level are free from the next level on.
        if now >= low:
            for q in node[level_start[now] : level_start[now + 1]]:
                for e in range(start[q], start[q + 1]):
                    u = neighbour[e]
                    if slot[u] == 0:
                        continue
                    while upcoming[u] < read_start[u + 1] and read_level[upcoming[u]] <= now:
                        upcoming[u] += 1
                    if upcoming[u] >= read_start[u + 1] or read_level[upcoming[u]] >= high:
                        free[num_free] = slot[u]
                        num_free += 1
                        slot[u] = 0
    for i in range(1, len(item_start)):  # levels beyond the end have no items
        item_start[i] = max(item_start[i], item_start[i - 1])
    for q in item_node:
        slot[q if q >= 0 else -1 - q] = 0
    return end, item_start, np.array(item_node, np.int32), np.array(item_slot, np.int32)


@cached_njit
def _split_items(
    start: IntArray, item_start: IntArray, item_node: IntArray, item_slot: IntArray, width: int, k: int, first_slot: int
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, BoolArray]:
    """Divide the sums of hubs: lane groups put parts of one into slots, and after a barrier another adds these.

    At best each of the `width` lane groups has an equal share of a level's edges. Parts are at least as large as that,
    and at most half a sum, so that there are fewer than 2 * width of them.

    Returns:
        Where the tasks of each phase start, one or two phases a level; and by task: node, slot, its first edge in the
        gather lists (-1 - slot: it adds up the slots from this one on), its number of edges, and whether it is a part.
    """
    phase_start = [np.int64(0)]
    node, slot = [np.int32(0) for _ in range(0)], [np.int32(0) for _ in range(0)]
    first_edge, count = [np.int64(0) for _ in range(0)], [np.int64(0) for _ in range(0)]
    partial = [False for _ in range(0)]
    for level in range(len(item_start) - 1):
        edges = 0
        for i in range(item_start[level], item_start[level + 1]):
            q = item_node[i]
            edges += start[q + 1] - start[q] if q >= 0 else 0
        for divided in range(2):  # phase 1 has the sums that phase 0 has divided
            free = first_slot
            for i in range(item_start[level], item_start[level + 1]):
                q = item_node[i]
                degree = np.int64(start[q + 1] - start[q] if q >= 0 else 0)
                size = int(max(4 * k, -(-edges // width), np.sqrt(degree)))
                size = -(-size // k) * k
                if degree <= 12 * k or degree <= 2 * size:
                    if divided == 0:
                        node.append(q)
                        slot.append(item_slot[i])
                        first_edge.append(start[q] if q >= 0 else np.int64(0))
                        count.append(degree)
                        partial.append(False)
                    continue
                parts = int(-(-degree // size))
                if divided == 1:
                    node.append(q)
                    slot.append(item_slot[i])
                    first_edge.append(-1 - np.int64(free))
                    count.append(np.int64(parts))
                    partial.append(False)
                    free += parts
                    continue
                for part in range(parts):
                    node.append(q)
                    slot.append(np.int32(free))
                    first_edge.append(start[q] + part * size)
                    count.append(np.int64(size if part + 1 < parts else degree - part * size))
                    partial.append(True)
                    free += 1
            if len(node) > phase_start[-1]:
                phase_start.append(np.int64(len(node)))
    return (
        np.array(phase_start), np.array(node, np.int32), np.array(slot, np.int32), np.array(first_edge),
        np.array(count), np.array(partial, np.bool_),
    )  # fmt: skip


@cached_njit
def _place_items(phase_start: IntArray, count: IntArray, width: int) -> tuple[IntArray, int, IntArray]:
    """Place the tasks of each phase in rounds of `width`, those of most edges first, in alternating directions.

    Returns:
        The place of each task, round * width + lane group; the number of rounds; and the last round of each phase.
    """
    place = np.empty(len(count), np.int64)
    rounds = 0
    barriers = [np.int64(0) for _ in range(0)]
    for i in range(len(phase_start) - 1):
        first, last = phase_start[i], phase_start[i + 1]
        order = np.argsort(-count[first:last], kind="mergesort")
        for rank in range(len(order)):
            row, column = rank // width, rank % width
            place[first + order[rank]] = (rounds + row) * width + (column if row % 2 == 0 else width - 1 - column)
        rounds += -(-(last - first) // width)
        barriers.append(np.int64(rounds - 1))
    return place, rounds, np.array(barriers, np.int64)


@cached_njit
def _fill_lines(
    lines: NDArray[Any], first_edge: IntArray, count: IntArray, group: IntArray, line: IntArray, edge_slot: IntArray,
    slot_bytes: int,
) -> None:  # fmt: skip
    """Write slots and edges of each task, K to a line, in place."""
    k = lines.shape[3]
    for i in range(len(count)):
        for j in range(count[i]):
            e = first_edge[i] + j
            at = line[i] + j // k
            if first_edge[i] < 0:
                lines[at, 0, group[i], j % k] = (-1 - first_edge[i] + j) * slot_bytes
                lines[at, 1, group[i], j % k] = UNIT_WEIGHT
            else:
                lines[at, 0, group[i], j % k] = edge_slot[e] * slot_bytes
                lines[at, 1, group[i], j % k] = e

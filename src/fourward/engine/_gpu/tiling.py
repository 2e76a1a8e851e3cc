"""Cutting a plan into panels of 32 positions and square tiles of weights, for hardware that likes products of blocks.

Positions become slots: inputs first, filled up to whole blocks of 32, then the neurons, likewise. A panel is a block of
neurons. The edges from one block to one panel are a tile, kept if it has any edge; the diagonal one, of edges within
the panel, always is. Which edges exist is noted in bits, so a tile costs 8 bytes for each of its targets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.plan._plan import Plan

SIDE = 32  #: slots in a block: as many as bits in a word, and as threads in a warp


class Tiles(NamedTuple):
    """P panels, R blocks (those of inputs, then one for each panel), M tiles off the diagonal."""

    slot: IntArray  #: (N,) the slot of each position
    start: IntArray  #: (P+1,) the tiles into panel v are start[v]:start[v+1], by block
    block: IntArray  #: (M,) where each tile comes from
    word: IntArray  #: (M*SIDE,) for each target of a tile, bit k: it has an edge from the block's slot k
    base: IntArray  #: (M*SIDE,) the plan's edge that the lowest of these bits stands for
    own_word: IntArray  #: (P*SIDE,) the same for the diagonal tile of each panel
    own_base: IntArray  #: (P*SIDE,)
    back_start: IntArray  #: (R+1,) the tiles out of block u are back_tile[back_start[u]:back_start[u+1]], by panel
    back_tile: IntArray  #: (M,) which tile
    back_panel: IntArray  #: (M,) which panel it leads to


def blocks_of(count: int) -> int:
    """Blocks that hold this many positions."""
    return -(-count // SIDE)


def count_tiles(plan: Plan) -> int:
    """M, without cutting anything."""
    return int(_count(plan.edge_start, plan.source, plan.dag.num_inputs, plan.dag.num_nodes)[-1])


def cut_tiles(plan: Plan) -> Tiles:
    """Cut the plan's edges into tiles."""
    inputs, nodes = plan.dag.num_inputs, plan.dag.num_nodes
    lead, panels = blocks_of(inputs), blocks_of(nodes - inputs)
    slot = np.arange(nodes)
    slot[inputs:] += lead * SIDE - inputs
    start = _count(plan.edge_start, plan.source, inputs, nodes)
    fields = _fill(plan.edge_start, plan.source, inputs, nodes, start)
    block = fields[0]
    panel = np.repeat(np.arange(panels), np.diff(start))
    back_tile = np.lexsort((panel, block))
    back_start = np.concatenate(([0], np.cumsum(np.bincount(block, minlength=lead + panels))))
    return Tiles(slot, start, *fields, back_start, back_tile, panel[back_tile])


@cached_njit
def _block(position: int, inputs: int) -> int:
    return position // 32 if position < inputs else (inputs + 31) // 32 + (position - inputs) // 32


@cached_njit
def _count(edge_start: IntArray, source: IntArray, inputs: int, nodes: int) -> IntArray:
    """Where the tiles of each panel start."""
    lead, panels = (inputs + 31) // 32, (nodes - inputs + 31) // 32
    seen = np.full(lead + panels, -1, np.int32)  # the last panel that took something from a block
    start = np.zeros(panels + 1, np.int64)
    for v in range(panels):
        first, last = inputs + 32 * v, min(nodes, inputs + 32 * v + 32)
        start[v + 1] = start[v]
        for k in range(edge_start[first], edge_start[last]):
            u = _block(source[k], inputs)
            if u < lead + v and seen[u] != v:
                seen[u] = v
                start[v + 1] += 1
    return start


@cached_njit
def _fill(
    edge_start: IntArray, source: IntArray, inputs: int, nodes: int, start: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Block, word, base, own_word and own_base."""
    lead, panels, tiles = (inputs + 31) // 32, (nodes - inputs + 31) // 32, start[-1]
    block = np.zeros(tiles, np.int64)
    word, base = np.zeros(tiles * 32, np.uint32), np.zeros(tiles * 32, np.int64)
    own_word, own_base = np.zeros(panels * 32, np.uint32), np.zeros(panels * 32, np.int64)
    at = np.full(lead + panels, -1, np.int64)  # the tile of each block, in the panel at hand
    for v in range(panels):
        first, last = inputs + 32 * v, min(nodes, inputs + 32 * v + 32)
        at[: lead + v] = -1
        for k in range(edge_start[first], edge_start[last]):
            u = _block(source[k], inputs)
            if u < lead + v:
                at[u] = 1
        tile = start[v]
        for u in range(lead + v):
            if at[u] == 1:
                block[tile], at[u] = u, tile
                tile += 1
        for q in range(first, last):
            t = q - first
            own_base[v * 32 + t] = edge_start[q + 1]
            for k in range(edge_start[q + 1] - 1, edge_start[q] - 1, -1):
                p = source[k]
                u = _block(p, inputs)
                bit = p % 32 if p < inputs else (p - inputs) % 32
                if u < lead + v:
                    word[at[u] * 32 + t] |= np.uint32(1) << np.uint32(bit)
                    base[at[u] * 32 + t] = k
                else:
                    own_word[v * 32 + t] |= np.uint32(1) << np.uint32(bit)
                    own_base[v * 32 + t] = k
    return block, word, base, own_word, own_base

"""Cuts a plan into panels of 32 neurons and 32x32 tiles of weights, for products of dense blocks.

Positions become rows: inputs first, padded to whole blocks of 32, then the neurons, likewise. A panel is a block of
neurons. The edges from one block to one panel are a tile, stored if it has any edge; the diagonal tile, of the edges
within the panel, always is. Which edges exist is a bit mask, so that a tile costs 8 bytes for each of its targets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward._jit import cached_njit
from fourward.plan._plan import Plan

TILE_SIZE = 32  #: rows of a block: as many as bits in an edge mask, and as threads in a warp


class Tiles(NamedTuple):
    """P panels, U blocks (those of inputs, then one for each panel), M tiles off the diagonal."""

    row: IntArray  #: (N,) the row of each position
    tile_start: IntArray  #: (P+1,) the tiles into panel v are tile_start[v]:tile_start[v+1], by block
    tile_block: IntArray  #: (M,) the block where each tile starts
    edge_mask: IntArray  #: (M*32,) for each target of a tile, bit k: it has an edge from row k of the block
    first_edge: IntArray  #: (M*32,) the plan's edge of the lowest of these bits
    diagonal_edge_mask: IntArray  #: (P*32,) the same for the diagonal tile of each panel
    diagonal_first_edge: IntArray  #: (P*32,)
    out_tile_start: IntArray  #: (U+1,) the tiles out of block u are at out_tile_start[u]:out_tile_start[u+1], by panel
    out_tile: IntArray  #: (M,) the index of each of these tiles
    out_panel: IntArray  #: (M,) the panel where it ends


def count_blocks(positions: int) -> int:
    """The number of blocks for this many positions."""
    return -(-positions // TILE_SIZE)


def count_tiles(plan: Plan) -> int:
    """M, without cutting anything."""
    return int(_count_tiles(plan.edge_start, plan.source, plan.dag.num_inputs, plan.dag.num_nodes)[-1])


def cut_tiles(plan: Plan) -> Tiles:
    """Cut the plan's edges into tiles."""
    inputs, nodes = plan.dag.num_inputs, plan.dag.num_nodes
    input_blocks, panels = count_blocks(inputs), count_blocks(nodes - inputs)
    row = np.arange(nodes)
    row[inputs:] += input_blocks * TILE_SIZE - inputs
    tile_start = _count_tiles(plan.edge_start, plan.source, inputs, nodes)
    fields = _fill_tiles(plan.edge_start, plan.source, inputs, nodes, tile_start)
    tile_block = fields[0]
    panel = np.repeat(np.arange(panels), np.diff(tile_start))
    out_tile = np.lexsort((panel, tile_block))
    out_tile_start = np.concatenate(([0], np.cumsum(np.bincount(tile_block, minlength=input_blocks + panels))))
    return Tiles(row, tile_start, *fields, out_tile_start, out_tile, panel[out_tile])


@cached_njit
def _block(position: int, inputs: int) -> int:
    return position // 32 if position < inputs else (inputs + 31) // 32 + (position - inputs) // 32


@cached_njit
def _count_tiles(edge_start: IntArray, source: IntArray, inputs: int, nodes: int) -> IntArray:
    """(P+1,) where the tiles of each panel start."""
    input_blocks, panels = (inputs + 31) // 32, (nodes - inputs + 31) // 32
    seen = np.full(input_blocks + panels, -1, np.int32)  # the last panel with an edge from each block
    start = np.zeros(panels + 1, np.int64)
    for v in range(panels):
        first, last = inputs + 32 * v, min(nodes, inputs + 32 * v + 32)
        start[v + 1] = start[v]
        for k in range(edge_start[first], edge_start[last]):
            u = _block(source[k], inputs)
            if u < input_blocks + v and seen[u] != v:
                seen[u] = v
                start[v + 1] += 1
    return start


@cached_njit
def _fill_tiles(
    edge_start: IntArray, source: IntArray, inputs: int, nodes: int, start: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Block, edge_mask, first_edge, diagonal_edge_mask and diagonal_first_edge."""
    input_blocks, panels, tiles = (inputs + 31) // 32, (nodes - inputs + 31) // 32, start[-1]
    block = np.zeros(tiles, np.int64)
    edge_mask, first_edge = np.zeros(tiles * 32, np.uint32), np.zeros(tiles * 32, np.int64)
    diagonal_edge_mask, diagonal_first_edge = np.zeros(panels * 32, np.uint32), np.zeros(panels * 32, np.int64)
    at = np.full(input_blocks + panels, -1, np.int64)  # tile from each block into this panel; -1: no edge
    for v in range(panels):
        first, last = inputs + 32 * v, min(nodes, inputs + 32 * v + 32)
        at[: input_blocks + v] = -1
        for k in range(edge_start[first], edge_start[last]):
            u = _block(source[k], inputs)
            if u < input_blocks + v:
                at[u] = 1
        tile = start[v]
        for u in range(input_blocks + v):
            if at[u] == 1:
                block[tile], at[u] = u, tile
                tile += 1
        for q in range(first, last):  # edges from the last to the first, so that first_edge ends as the lowest
            t = q - first
            diagonal_first_edge[v * 32 + t] = edge_start[q + 1]
            for k in range(edge_start[q + 1] - 1, edge_start[q] - 1, -1):
                p = source[k]
                u = _block(p, inputs)
                bit = p % 32 if p < inputs else (p - inputs) % 32
                if u < input_blocks + v:
                    edge_mask[at[u] * 32 + t] |= np.uint32(1) << np.uint32(bit)
                    first_edge[at[u] * 32 + t] = k
                else:
                    diagonal_edge_mask[v * 32 + t] |= np.uint32(1) << np.uint32(bit)
                    diagonal_first_edge[v * 32 + t] = k
    return block, edge_mask, first_edge, diagonal_edge_mask, diagonal_first_edge

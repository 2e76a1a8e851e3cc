"""Every edge of a plan is in one tile of the gpu engine."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fourward import generate
from fourward.engine._gpu.tiling import TILE_SIZE, count_tiles, cut_tiles
from fourward.layering import longest_path
from fourward.plan._plan import build_plan


@given(st.integers(2, 90), st.floats(0.02, 1), st.integers(0, 2**31))
def test_tiles_hold_every_edge_once(nodes, p, seed):
    dag = generate.erdos_renyi(nodes, p, seed=seed)
    plan = build_plan(dag, longest_path(dag), np.zeros(nodes, int))
    tiles = cut_tiles(plan)
    assert len(tiles.tile_block) == count_tiles(plan) == tiles.tile_start[-1]
    input_blocks = -(-dag.num_inputs // TILE_SIZE)
    panels = np.arange(len(tiles.tile_start) - 1)
    tile_panel = np.repeat(panels, np.diff(tiles.tile_start))
    seen = np.zeros(dag.num_edges, bool)
    for edge_masks, first_edges, sources, targets in (
        (tiles.edge_mask, tiles.first_edge, tiles.tile_block, tile_panel),
        (tiles.diagonal_edge_mask, tiles.diagonal_first_edge, input_blocks + panels, panels),
    ):
        for tile, (block, panel) in enumerate(zip(sources, targets, strict=True)):
            for t in range(TILE_SIZE):
                edge_mask, edge = int(edge_masks[tile * TILE_SIZE + t]), int(first_edges[tile * TILE_SIZE + t])
                for k in range(TILE_SIZE):
                    if edge_mask >> k & 1:
                        assert not seen[edge]
                        seen[edge] = True
                        assert tiles.row[plan.source[edge]] == block * TILE_SIZE + k
                        assert tiles.row[plan.target[edge]] == (input_blocks + panel) * TILE_SIZE + t
                        edge += 1
    assert seen.all()
    assert np.array_equal(tiles.out_panel, tile_panel[tiles.out_tile])
    assert (np.diff(tiles.tile_block[tiles.out_tile]) >= 0).all()

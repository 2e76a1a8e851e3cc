"""Which way a network is walked, and how work is spread over the card; docs/gpu.md has the evidence."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from fourward.engine._gpu.packing import LISTS, PANELS, STRETCH, Shape
from fourward.engine._gpu.tiling import SIDE, blocks_of, count_tiles
from fourward.errors import pluralize
from fourward.plan._plan import Plan
from fourward.plan.activations import ACTIVATIONS

#: Activations of an instruction or two, as bits.
CHEAP = sum(1 << ACTIVATIONS[name].code for name in ("identity", "relu", "leaky_relu", "abs", "square"))
STEPS = 32  #: of a sweep, written out
BUSY = 1056  #: samples with which an H200 is busy: a slice for each multiprocessor
ROWS = 128  #: of tiles in these steps of a forward pass, at most: more compile too long
WIDTH = {PANELS: 8, LISTS: 32}  #: samples in a slice
SAMPLES = 32  #: at a time, where gradients of weights are computed from tiles
PROGRAMS = 264  #: that keep a card busy with gradients of weights
EDGES = 16  #: edges for each program that computes gradients of weights


class Way(NamedTuple):
    """How a batch is walked."""

    name: str  #: "panels", "stretches", "lists" or "levels"
    width: int  #: BB, samples in a slice
    group: int  #: steps that are written out; or D, edges at a time
    warps: int
    span: int = 0  #: T, neurons at a time, where lists are walked
    fours: bool = False  #: whether four neurons of a panel are handed on at once


def kind_of(plan: Plan) -> int:
    """Panels where their tiles find room, and take less time than lists for a batch of 128; else lists."""
    dag = plan.dag
    if plan.num_levels == 0:
        return LISTS  # inputs alone
    lead, panels = blocks_of(dag.num_inputs), blocks_of(dag.num_nodes - dag.num_inputs)
    tiles = count_tiles(plan) + panels
    room = (tiles + (lead + 2 * panels) * STRETCH) * SIDE**2
    if room > (2**30 if tiles * SIDE**2 <= 16 * dag.num_edges else 2**25):  # 32 bits number what walks take
        return LISTS
    by_tiles = 15 * -(-panels // STRETCH) + 1.6 * lead + 0.026 * tiles  # microseconds on an H200, as below
    by_lists = min(list_times(dag.num_nodes - dag.num_inputs, dag.num_edges, plan.num_levels, 128))
    return PANELS if by_tiles <= max(by_lists, 40) else LISTS  # of what takes little time, that of fewer launches


def list_times(neurons: int, edges: int, levels_: int, batch: int) -> tuple[float, float]:
    """Microseconds of a forward pass over lists: by walking them, and level by level."""
    degree = edges / max(neurons, 1)
    return (levels_ + neurons / 8) * (0.6 + 0.1 * degree), levels_ * (2.0 + 0.02 * degree) + edges * batch * 1.5e-6


@lru_cache(maxsize=256)
def way(kind: int, neurons: int, panel_count: int, edges: int, levels_: int, batch: int) -> Way:
    """The way for a batch."""
    if kind == PANELS:
        name = "panels" if panel_count <= STRETCH else "stretches"
        return Way(name, WIDTH[PANELS], *((STEPS, 4, 0, True) if batch <= BUSY else (16, 2)))
    walk, spread = list_times(neurons, edges, levels_, batch)
    if walk < spread:
        return Way("lists", WIDTH[LISTS], 8, 4, 8)
    few = edges <= 24 * neurons
    return Way("levels", WIDTH[LISTS], *((8, 4, 16) if few and edges * batch > 5e7 else (32, 4, 4)))


def way_of(shape: Shape, batch: int) -> Way:
    """The way for a batch of this size."""
    neurons = shape.nodes - shape.inputs
    return way(shape.kind, neurons, shape.panels, shape.edges, shape.levels, batch)


class Spread(NamedTuple):
    """How the products between stretches are spread over the card."""

    slices: int  #: that share a program, and with it the loads of weights
    shares: int  #: programs that share the tiles of a panel
    group: int  #: tiles at a time
    stages: int  #: groups of tiles under way
    warps: int


def spread_of(slices: int) -> Spread:
    """Few slices share their tiles among several programs, many slices share a program."""
    programs = slices * STRETCH
    if programs >= 512:
        return Spread(4, 1, 4, 1, 4)
    if programs >= 256:
        return Spread(2, 1, 4, 2, 4)
    return Spread(1, 4 if programs <= 32 else 2 if programs <= 64 else 1, 8, 2, 4)


def packers_of(tiles: int, slices: int, holds: int) -> tuple[int, bool]:
    """Programs that lay out the tiles, and whether the launch has more than the card surely holds at once."""
    packers = min(tiles, max(holds - slices, holds // 2))
    return packers, packers + slices > holds


def shares_of(s: Shape, batch: int) -> int:
    """Programs that share the batch, where the gradients of one tile are computed."""
    return max(1, min(-(-batch // SAMPLES), PROGRAMS // max(s.tiles + s.panels, 1)))


def steps(codes: int) -> int:
    """How many steps of a sweep may be written out: fewer if they are long, so that they compile in seconds."""
    if codes & ~CHEAP == 0 and codes.bit_count() <= 2:
        return STEPS
    return 8 if codes.bit_count() == 1 else 4


def describe(shape: Shape) -> str:
    """How a batch of 128 is walked, and why so."""
    how = way_of(shape, 128)
    if shape.kind == PANELS:
        filled = shape.edges / (shape.tiles + shape.panels) / SIDE**2
        tiles = f"{shape.tiles + shape.panels:,} tiles of {SIDE} by {SIDE} weights, {filled:.0%} filled"
        if how.name == "panels":
            return f"walks {pluralize(shape.panels, 'panel')} of {SIDE} neurons in one launch: {tiles}"
        count = -(-shape.panels // STRETCH)
        return f"walks {count} stretches of {STRETCH} panels, products between them spread over the card: {tiles}"
    if shape.levels == 0:
        return "copies: all nodes are inputs"
    why = "tiles would take longer, or more room than is reasonable"
    if how.name == "lists":
        return f"walks lists of edges in one launch, its {shape.levels:,} levels being narrow: {why}"
    return f"walks lists of edges, a launch for each of {shape.levels:,} levels at a batch of 128: {why}"

"""A plan as one tensor of 32-bit numbers that the kernels read, and what the launch must know of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.engine._gpu.tiling import SIDE, blocks_of, cut_tiles
from fourward.plan._plan import Plan

ALIGN = 16  #: numbers; every field starts at a multiple of this
PANELS, LISTS = 1, 2  #: how a program is walked
#: Of packed programs; another number whenever a field changes, or FEW or STRETCH, on which their contents depend. An
#: exported network may meet newer kernels.
LAYOUT = 3
FEW = 8  #: inputs whose weights a walk takes as they are, while all others are laid out
STRETCH = 8  #: panels that a launch walks; more are walked in stretches, with products between them


class Shape(NamedTuple):
    """Sizes, then where each field of the program starts; fields of the other kind of program are 0."""

    layout: int
    kind: int
    nodes: int
    inputs: int
    outputs: int
    edges: int
    codes: int  #: bit c is set if some neuron's activation is c
    z: int  #: 1 if some derivative needs z
    rows: int  #: of the activations
    lead: int  #: blocks of inputs
    tiles: int
    panels: int
    span: int  #: panels that a launch walks: a power of two
    holes: int  #: places for tiles ahead that have no edge
    back_holes: int  #: the same for tiles behind
    levels: int
    # for each row: its activation, its node, whether dropout may take it, its bias (-1: none), its output (-1: none)
    code: int
    node: int
    hidden: int
    bias_at: int
    out_of: int
    all_of: int
    # panels: the fields of tiling.Tiles
    start: int
    mid: int  #: the first tile of each panel from its own stretch
    block: int
    tile_panel: int
    ahead: int  #: where each tile, and then each diagonal one, is among those that a walk takes; -1 if it doesn't
    behind: int  #: the same for a walk from the last panel to the first
    hole: int  #: where there is no tile among the first, then among the second
    word: int
    base: int
    own_word: int
    own_base: int
    in_word: int  #: the words and bases of tiles from few inputs, for each row of the first stretch
    in_base: int
    back_start: int
    back_mid: int  #: the first tile out of each block that leads beyond its stretch
    back_tile: int
    back_panel: int
    # lists: edges into each neuron, edges out of each node
    level_start: int
    edge_start: int
    source: int
    target: int
    out_start: int
    out_target: int
    out_edge: int
    outputs_at: int  #: the rows of the outputs
    nodes_at: int  #: the rows of all nodes

    @property
    def few(self) -> int:
        """Inputs whose weights a walk takes as they are, up to the next power of two; 0 if they are too many."""
        return few_of(self.inputs)

    @property
    def near(self) -> int:
        """Places for tiles ahead."""
        return (self.lead + self.panels) * self.span


def few_of(inputs: int) -> int:
    """See Shape.few."""
    return 1 << (inputs - 1).bit_length() if 0 < inputs <= FEW else 0


def span_of(panels: int) -> int:
    """Panels that a launch walks."""
    return 1 << (min(panels, STRETCH) - 1).bit_length()


def pack(plan: Plan, kind: int) -> tuple[Tensor, Shape]:
    """The program of a plan."""
    sizes, fields = _panel_fields(plan) if kind == PANELS else _list_fields(plan)
    starts, parts, end = {}, [], 0
    for name, field in fields.items():
        starts[name] = end
        room = -(-max(len(field), 1) // ALIGN) * ALIGN
        part = np.zeros(room, np.int32)
        part[: len(field)] = field.view(np.int32) if field.dtype == np.uint32 else field
        parts.append(part)
        end += room
    codes = int(np.bitwise_or.reduce(1 << plan.code[plan.dag.num_inputs :].astype(np.int64), initial=0)) or 1
    dag = plan.dag
    known = {"nodes": dag.num_nodes, "inputs": dag.num_inputs, "outputs": dag.num_outputs, "edges": dag.num_edges}
    z = int(plan.needs_z.any())
    every = dict.fromkeys(Shape._fields, 0) | known | sizes | starts
    shape = Shape(**every | {"layout": LAYOUT, "kind": kind, "codes": codes, "z": z})
    return torch.from_numpy(np.concatenate(parts)), shape


def _row_fields(plan: Plan, slot: IntArray, rows: int) -> dict[str, IntArray]:
    """What is known of each row; rows that no node has compute f(0) and go nowhere."""
    dag = plan.dag
    fields: dict[str, IntArray] = {name: np.zeros(rows, np.int64) for name in ("code", "node", "hidden")}
    fields |= {name: np.full(rows, -1) for name in ("bias_at", "out_of", "all_of")}
    fields["code"][slot] = plan.code
    fields["node"][slot] = fields["all_of"][slot] = plan.order
    fields["hidden"][slot] = plan.hidden
    fields["bias_at"][slot[dag.num_inputs :]] = plan.neuron
    fields["out_of"][slot[plan.outputs]] = np.arange(dag.num_outputs)
    return fields


def _panel_fields(plan: Plan) -> tuple[dict[str, int], dict[str, IntArray]]:
    lead, panels = blocks_of(plan.dag.num_inputs), blocks_of(plan.dag.num_nodes - plan.dag.num_inputs)
    tiles = cut_tiles(plan)
    panel = np.repeat(np.arange(panels), np.diff(tiles.start))
    ends = lead + np.arange(panels) // STRETCH * STRETCH  # the first block of each panel's stretch
    ends[:STRETCH] = 0  # inputs belong to the first stretch
    mid = tiles.start[:-1] + np.bincount(panel[tiles.block < ends[panel]], minlength=panels)
    block = np.repeat(np.arange(lead + panels), np.diff(tiles.back_start))
    beyond = (np.maximum(block - lead, 0) // STRETCH + 1) * STRETCH
    near = np.bincount(block[tiles.back_panel < beyond], minlength=lead + panels)
    rows = (lead + panels) * SIDE
    few = few_of(plan.dag.num_inputs) > 0
    places, counts = _places(tiles.block, panel, lead, panels, few)
    enters = few & (tiles.block == 0) & (panel < STRETCH)
    entry = np.zeros((2, min(panels, STRETCH), SIDE), np.int64)
    entry[:, panel[enters]] = [field.reshape(-1, SIDE)[enters] for field in (tiles.word, tiles.base)]
    sizes = {"rows": rows, "lead": lead, "tiles": len(panel), "panels": panels, **counts}
    ordered = {
        "start": tiles.start, "mid": mid, "block": tiles.block, "tile_panel": panel, "word": tiles.word,
        "base": tiles.base, "own_word": tiles.own_word, "own_base": tiles.own_base, "back_start": tiles.back_start,
        "back_mid": tiles.back_start[:-1] + near, "back_tile": tiles.back_tile, "back_panel": tiles.back_panel,
        "in_word": entry[0].ravel(), "in_base": entry[1].ravel(),
    }  # fmt: skip
    return sizes, _row_fields(plan, tiles.slot, rows) | ordered | places


def _places(
    block: IntArray, panel: IntArray, lead: int, panels: int, few: bool
) -> tuple[dict[str, IntArray], dict[str, int]]:
    """Where walks find tiles: `span` places for each block they walk over, for what it gives to panels of its stretch.

    The first place is for the panel itself, the others for the panels after it (ahead), or before it (behind); places
    of inputs are for the first panel, the second, and so on, and stay empty if these are few.
    """
    span, own = span_of(panels), np.arange(panels)
    source = np.maximum(block - lead, 0)
    taken = lead if few else 0  # blocks of inputs that have none
    near = (panel // STRETCH == source // STRETCH) & (block >= taken)
    ahead = np.append(np.where(near, block * span + panel - source, -1), (lead + own) * span)
    behind = np.append(np.where(near & (block >= lead), panel * span + panel - source, -1), own * span)
    first, step = np.repeat(np.maximum(np.arange(lead + panels) - lead, 0), span), np.arange(span)
    after, before = first + np.tile(step, lead + panels), np.repeat(own, span) - np.tile(step, panels)
    wanted = (after < panels) & (after // STRETCH == first // STRETCH)
    wanted[: taken * span] = False
    hole = np.setdiff1d(np.flatnonzero(wanted), ahead)
    wanted = (before >= 0) & (before // STRETCH == np.repeat(own, span) // STRETCH)
    back_hole = np.setdiff1d(np.flatnonzero(wanted), behind)
    sizes = {"span": span, "holes": len(hole), "back_holes": len(back_hole)}
    back_hole += (lead + panels) * span + len(block)  # places ahead, and all tiles as they are, lie before those behind
    return {"ahead": ahead, "behind": behind, "hole": np.append(hole, back_hole)}, sizes


def _list_fields(plan: Plan) -> tuple[dict[str, int], dict[str, IntArray]]:
    nodes = plan.dag.num_nodes
    edge, out_start = plan.edges_by_source()
    ordered = {
        "level_start": plan.level_start, "edge_start": plan.edge_start, "source": plan.source, "target": plan.target,
        "out_start": out_start, "out_target": plan.target[edge], "out_edge": edge,
    }  # fmt: skip
    at = {"outputs_at": plan.outputs, "nodes_at": plan.position}
    return {"rows": nodes, "levels": plan.num_levels}, _row_fields(plan, np.arange(nodes), nodes) | ordered | at

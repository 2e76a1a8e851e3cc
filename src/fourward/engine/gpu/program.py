"""A plan as one tensor of 32-bit numbers that the kernels read, and what the launch must know of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward.engine.cpu.launch import uses_z
from fourward.graph.convert import IntArray
from fourward.plan.panels import edges_by_source
from fourward.plan.plan import Plan
from fourward.plan.tiles import SIDE, blocks_of, count_tiles, cut_tiles

ALIGN = 16  #: numbers; every field starts at a multiple of this
PANELS, LISTS = 1, 2  #: how a program is walked
#: Of packed programs; another number whenever a field changes. An exported network may meet newer kernels.
LAYOUT = 1
STRETCH = 8  #: panels that are walked between two spreads of products over the card


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
    levels: int
    # for each row: its activation, its node, whether dropout may take it, its bias (-1: none), its output (-1: none)
    code: int
    node: int
    hidden: int
    bias_at: int
    out_of: int
    all_of: int
    outputs_at: int  #: the rows of the outputs
    nodes_at: int  #: the rows of all nodes
    # panels: the fields of plan.tiles.Tiles
    start: int
    mid: int  #: the first tile of each panel from its own stretch
    block: int
    tile_panel: int
    last_of: int  #: the panel whose last tile this is, or -1
    word: int
    base: int
    own_word: int
    own_base: int
    own_back: int
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


def kind_of(plan: Plan) -> int:
    """Panels where their tiles are well filled, or few; else lists."""
    if plan.num_levels == 0:
        return LISTS  # inputs alone
    slots = (count_tiles(plan) + blocks_of(plan.dag.num_nodes - plan.dag.num_inputs)) * SIDE * SIDE
    return PANELS if slots <= min(max(1 << 22, 16 * plan.dag.num_edges), 1 << 30) else LISTS  # 32 bits number them


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
    z = int(any(uses_z(int(code)) for code in np.unique(plan.code[dag.num_inputs :])))
    every = dict.fromkeys(Shape._fields, 0) | known | sizes | starts
    shape = Shape(**every | {"layout": LAYOUT, "kind": kind, "codes": codes, "z": z})
    return torch.from_numpy(np.concatenate(parts)), shape


def _row_fields(plan: Plan, slot: IntArray, rows: int) -> dict[str, IntArray]:
    """What is known of each row; rows that no node has compute f(0) and go nowhere."""
    dag = plan.dag
    fields = {name: np.zeros(rows, np.int64) for name in ("code", "node", "hidden")}
    fields |= {name: np.full(rows, -1) for name in ("bias_at", "out_of", "all_of")}
    fields["code"][slot] = plan.code
    fields["node"][slot] = fields["all_of"][slot] = plan.order
    hidden = ~np.isin(plan.order, dag.outputs)
    hidden[: dag.num_inputs] = False
    fields["hidden"][slot] = hidden
    fields["bias_at"][slot[dag.num_inputs :]] = plan.neuron
    fields["out_of"][slot[plan.outputs]] = np.arange(dag.num_outputs)
    return fields | {"outputs_at": slot[plan.outputs], "nodes_at": slot[plan.position]}


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
    last_of = np.full(len(panel), -1)
    last_of[tiles.start[2:] - 1] = np.arange(1, panels)
    rows = (lead + panels) * SIDE
    sizes = {"rows": rows, "lead": lead, "tiles": len(tiles.block), "panels": panels}
    ordered = {
        "start": tiles.start, "mid": mid, "block": tiles.block, "tile_panel": panel, "last_of": last_of,
        "word": tiles.word, "base": tiles.base, "own_word": tiles.own_word, "own_base": tiles.own_base,
        "own_back": tiles.own_back, "back_start": tiles.back_start, "back_mid": tiles.back_start[:-1] + near,
        "back_tile": tiles.back_tile, "back_panel": tiles.back_panel,
    }  # fmt: skip
    return sizes, _row_fields(plan, tiles.slot, rows) | ordered


def _list_fields(plan: Plan) -> tuple[dict[str, int], dict[str, IntArray]]:
    nodes = plan.dag.num_nodes
    edge, out_start = edges_by_source(plan)
    ordered = {
        "level_start": plan.level_start, "edge_start": plan.edge_start, "source": plan.source, "target": plan.target,
        "out_start": out_start, "out_target": plan.target[edge], "out_edge": edge,
    }  # fmt: skip
    return {"rows": nodes, "levels": plan.num_levels}, _row_fields(plan, np.arange(nodes), nodes) | ordered

"""A plan as one int32 tensor that the kernels read, and the sizes and offsets that launches need of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.engine._gpu.fused_schedule import BlockShape, FusedConfig, backward_gather, build_streams, forward_gather
from fourward.engine._gpu.tiling import TILE_SIZE, Tiles, count_blocks, cut_tiles
from fourward.plan._plan import Plan

ALIGN = 16  #: elements; every field starts at a multiple of this
TILED, CSR = 1, 2  #: layouts of a packed plan
#: Version of both layouts; another number whenever a field of `Shape` changes, or MAX_DIRECT_INPUTS or MAX_SEGMENT, on
#: which the contents of fields depend. An exported network may be run by newer kernels.
LAYOUT_VERSION = 5
MAX_DIRECT_INPUTS = 8  #: up to so many inputs, kernels gather their weights directly, while all others are packed
MAX_SEGMENT = 8  #: panels that one launch computes; more panels are several segments, with products between them


class Shape(NamedTuple):
    """Sizes of a packed plan, then the offset of each of its fields; those of the other layout are 0."""

    layout_version: int
    layout: int
    nodes: int
    inputs: int
    outputs: int
    edges: int
    codes: int  #: bit c is set if some neuron's activation is c
    needs_z: int  #: 1 if some derivative needs z
    rows: int  #: rows of the activations
    input_blocks: int
    tiles: int  #: tiles off the diagonal
    panels: int
    segment: int  #: panels of a segment, a power of two
    empty_tiles: int  #: forward slots without a tile
    backward_empty_tiles: int  #: backward slots without a tile
    levels: int
    fused_warps: int  #: the fields of `BlockShape`; 0 if no levels are fused
    fused_k: int
    fused_lanes: int
    fused_slots: int
    fused_count: int
    fused_levels: int
    fused_header_count: int
    fused_line_count: int
    back_fused_count: int
    back_fused_header_count: int
    back_fused_line_count: int
    # One element for each row:
    code: int  #: its activation
    node: int
    hidden: int  #: 1 if dropout applies
    bias_index: int  #: -1: none
    output_column: int  #: its column of the outputs; -1: none
    node_column: int  #: its column of the activations of all nodes; -1: none
    # Tiled: the fields of `tiling.Tiles`, and
    tile_start: int
    local_tile_start: int  #: for each panel, the first of its tiles that starts in its own segment
    tile_block: int
    tile_panel: int
    forward_slot: int  #: for each tile, then each diagonal tile, its slot in a forward sweep; -1: none
    backward_slot: int  #: the same for a backward sweep
    empty_slot: int  #: forward slots without a tile, then backward slots without a tile
    edge_mask: int
    first_edge: int
    diagonal_edge_mask: int
    diagonal_first_edge: int
    direct_edge_mask: int  #: for each row of the first segment, edge_mask and first_edge of the tile from direct inputs
    direct_first_edge: int
    out_tile_start: int
    remote_out_tile_start: int  #: for each block, the first of its tiles that ends beyond its own segment
    out_tile: int
    out_panel: int
    # CSR: edges into each neuron, then edges out of each node
    level_start: int
    edge_start: int
    source: int
    target: int
    out_edge_start: int
    out_target: int
    out_edge: int
    output_row: int  #: the row of each output
    node_row: int  #: the row of each node
    # CSR, levels that are fused: `fused_schedule.Streams` of each direction
    fused_runs: int  #: 5 numbers for each `FusedRun`
    fused_warp_lines: int
    fused_headers: int
    fused_lines: int
    back_fused_runs: int
    back_fused_warp_lines: int
    back_fused_headers: int
    back_fused_lines: int

    def __hash__(self) -> int:
        """Hash a few fields only, since every call of a network looks up its launches by its shape."""
        return hash((self.nodes, self.edges, self.code, self.codes))

    @property
    def block(self) -> BlockShape:
        """How a block computes fused levels."""
        return BlockShape(self.fused_warps, self.fused_k, self.fused_lanes)

    @property
    def direct_inputs(self) -> int:
        """Inputs whose weights kernels gather directly, up to the next power of two; 0 if there are too many."""
        return count_direct_inputs(self.inputs)

    @property
    def forward_slots(self) -> int:
        """Slots for the tiles of a forward sweep."""
        return (self.input_blocks + self.panels) * self.segment

    @property
    def offsets(self) -> dict[str, int]:
        """The offset of each field by its name in upper case, as kernels call it."""
        return {name.upper(): getattr(self, name) for name in self._fields[self._fields.index("code") :]}


def count_direct_inputs(inputs: int) -> int:
    """See Shape.direct_inputs."""
    return 1 << (inputs - 1).bit_length() if 0 < inputs <= MAX_DIRECT_INPUTS else 0


def pack(plan: Plan, layout: int, fused: FusedConfig | None = None) -> tuple[Tensor, Shape]:
    """Pack a plan, and return the tensor and its shape."""
    sizes, fields = _tiled_fields(plan) if layout == TILED else _csr_fields(plan, fused)
    packed, offsets = join_fields(fields)
    dag = plan.dag
    counts = {"nodes": dag.num_nodes, "inputs": dag.num_inputs, "outputs": dag.num_outputs, "edges": dag.num_edges}
    traits = {"layout": layout, "codes": read_codes(plan), "needs_z": int(plan.needs_z.any())}
    values = dict.fromkeys(Shape._fields, 0) | counts | traits | sizes | offsets
    return torch.from_numpy(packed), Shape(**values | {"layout_version": LAYOUT_VERSION})


def join_fields(fields: Mapping[str, IntArray]) -> tuple[IntArray, dict[str, int]]:
    """One int32 array of all fields, each at a multiple of ALIGN; and the offset of each."""
    padded = [-(-max(len(field), 1) // ALIGN) * ALIGN for field in fields.values()]
    offsets = dict(zip(fields, np.cumsum([0, *padded[:-1]]).tolist(), strict=True))
    packed = np.zeros(sum(padded), np.int32)
    for offset, field in zip(offsets.values(), fields.values(), strict=True):
        packed[offset : offset + len(field)] = field.view(np.int32) if field.dtype == np.uint32 else field
    return packed, offsets


def read_codes(plan: Plan) -> int:
    """The activations of a plan, as bits; never none, so that kernels for a plan without neurons compile."""
    return int(np.bitwise_or.reduce(1 << plan.code[plan.dag.num_inputs :].astype(np.int64), initial=0)) or 1


def row_fields(plan: Plan, row: IntArray, rows: int) -> dict[str, IntArray]:
    """The fields of each row; `row` is that of each position. Rows without a node compute f(0), which nobody reads."""
    dag = plan.dag
    fields: dict[str, IntArray] = {name: np.zeros(rows, np.int64) for name in ("code", "node", "hidden")}
    fields |= {name: np.full(rows, -1) for name in ("bias_index", "output_column", "node_column")}
    fields["code"][row] = plan.code
    fields["node"][row], fields["node_column"][row] = plan.dropout_node, plan.order
    fields["hidden"][row] = plan.hidden
    fields["bias_index"][row[dag.num_inputs :]] = plan.neuron
    fields["output_column"][row[plan.outputs]] = np.arange(dag.num_outputs)
    return fields


def _tiled_fields(plan: Plan) -> tuple[dict[str, int], dict[str, IntArray]]:
    """Sizes, and fields by name."""
    input_blocks = count_blocks(plan.dag.num_inputs)
    panels = count_blocks(plan.dag.num_nodes - plan.dag.num_inputs)
    tiles = cut_tiles(plan)
    tile_panel = np.repeat(np.arange(panels), np.diff(tiles.tile_start))
    rows = (input_blocks + panels) * TILE_SIZE
    has_direct = count_direct_inputs(plan.dag.num_inputs) > 0
    slots, slot_sizes = _assign_slots(tiles.tile_block, tile_panel, input_blocks, panels, has_direct)
    fields = {
        "tile_start": tiles.tile_start, "local_tile_start": _local_tile_start(tiles, tile_panel, input_blocks),
        "tile_block": tiles.tile_block, "tile_panel": tile_panel, "edge_mask": tiles.edge_mask,
        "first_edge": tiles.first_edge, "diagonal_edge_mask": tiles.diagonal_edge_mask,
        "diagonal_first_edge": tiles.diagonal_first_edge, "out_tile_start": tiles.out_tile_start,
        "remote_out_tile_start": _remote_out_tile_start(tiles, input_blocks), "out_tile": tiles.out_tile,
        "out_panel": tiles.out_panel, **_direct_fields(tiles, tile_panel, has_direct),
    }  # fmt: skip
    sizes = {"rows": rows, "input_blocks": input_blocks, "tiles": len(tile_panel), "panels": panels, **slot_sizes}
    return sizes, row_fields(plan, tiles.row, rows) | fields | slots


def _local_tile_start(tiles: Tiles, tile_panel: IntArray, input_blocks: int) -> IntArray:
    """(P,) the first tile of each panel that starts in its own segment; inputs belong to the first segment."""
    panels = len(tiles.tile_start) - 1
    first_block = input_blocks + np.arange(panels) // MAX_SEGMENT * MAX_SEGMENT  # first block of each panel's segment
    first_block[:MAX_SEGMENT] = 0
    remote = np.bincount(tile_panel[tiles.tile_block < first_block[tile_panel]], minlength=panels)
    start: IntArray = tiles.tile_start[:-1] + remote
    return start


def _remote_out_tile_start(tiles: Tiles, input_blocks: int) -> IntArray:
    """(R,) the first tile out of each block that ends beyond its own segment."""
    blocks = len(tiles.out_tile_start) - 1
    block = np.repeat(np.arange(blocks), np.diff(tiles.out_tile_start))
    end_panel = (np.maximum(block - input_blocks, 0) // MAX_SEGMENT + 1) * MAX_SEGMENT  # end of each block's segment
    start: IntArray = tiles.out_tile_start[:-1] + np.bincount(block[tiles.out_panel < end_panel], minlength=blocks)
    return start


def _direct_fields(tiles: Tiles, tile_panel: IntArray, has_direct: bool) -> dict[str, IntArray]:
    """edge_mask and first_edge of the tiles from direct inputs, for each row of the first segment; else zeros."""
    panels = len(tiles.tile_start) - 1
    direct = has_direct & (tiles.tile_block == 0) & (tile_panel < MAX_SEGMENT)
    fields = np.zeros((2, min(panels, MAX_SEGMENT), TILE_SIZE), np.int64)
    fields[:, tile_panel[direct]] = [f.reshape(-1, TILE_SIZE)[direct] for f in (tiles.edge_mask, tiles.first_edge)]
    return {"direct_edge_mask": fields[0].ravel(), "direct_first_edge": fields[1].ravel()}


def _assign_slots(
    block: IntArray, panel: IntArray, input_blocks: int, panels: int, has_direct: bool
) -> tuple[dict[str, IntArray], dict[str, int]]:
    """The slots where sweeps read tiles: `segment` slots for each block, for its tiles into panels of its own segment.

    The first slot of a panel is for its diagonal tile, the others for tiles into the panels after it (forward), or from
    the panels before it (backward). Slots of an input block are for the first panel, the second, and so on; they are
    unused where inputs are direct. Slots that a sweep reads and no tile fills are the empty slots.
    """
    segment, every = 1 << (min(panels, MAX_SEGMENT) - 1).bit_length(), np.arange(panels)
    source = np.maximum(block - input_blocks, 0)  # panel where a tile starts, the first one for inputs
    unused = input_blocks if has_direct else 0
    local = (panel // MAX_SEGMENT == source // MAX_SEGMENT) & (block >= unused)
    forward = np.append(np.where(local, block * segment + panel - source, -1), (input_blocks + every) * segment)
    from_neurons = local & (block >= input_blocks)
    backward = np.append(np.where(from_neurons, panel * segment + panel - source, -1), every * segment)

    step = np.arange(segment)
    first = np.repeat(np.maximum(np.arange(input_blocks + panels) - input_blocks, 0), segment)
    target = first + np.tile(step, input_blocks + panels)
    is_read = (target < panels) & (target // MAX_SEGMENT == first // MAX_SEGMENT)
    is_read[: unused * segment] = False
    empty = np.setdiff1d(np.flatnonzero(is_read), forward)
    origin = np.repeat(every, segment) - np.tile(step, panels)
    is_read = (origin >= 0) & (origin // MAX_SEGMENT == np.repeat(every, segment) // MAX_SEGMENT)
    backward_empty = np.setdiff1d(np.flatnonzero(is_read), backward)
    sizes = {"segment": segment, "empty_tiles": len(empty), "backward_empty_tiles": len(backward_empty)}
    # In memory, all forward slots and the row-major copies of all tiles precede the backward slots.
    backward_empty += (input_blocks + panels) * segment + len(block)
    empty_slot = np.append(empty, backward_empty)
    return {"forward_slot": forward, "backward_slot": backward, "empty_slot": empty_slot}, sizes


def _csr_fields(plan: Plan, fused: FusedConfig | None) -> tuple[dict[str, int], dict[str, IntArray]]:
    """Sizes, and fields by name."""
    nodes = plan.dag.num_nodes
    edge, out_edge_start = plan.edges_by_source()
    fields = {
        "level_start": plan.level_start, "edge_start": plan.edge_start, "source": plan.source, "target": plan.target,
        "out_edge_start": out_edge_start, "out_target": plan.target[edge], "out_edge": edge,
        "output_row": plan.outputs, "node_row": plan.position,
    }  # fmt: skip
    rows = row_fields(plan, np.arange(nodes), nodes)
    sizes = {"rows": nodes, "levels": plan.num_levels}
    if fused is not None:
        fused_sizes, fused_fields = _fused_fields(plan, fused, rows)
        sizes, fields = sizes | fused_sizes, fields | fused_fields
    return sizes, rows | fields


def _fused_fields(
    plan: Plan, config: FusedConfig, row_fields: dict[str, IntArray]
) -> tuple[dict[str, int], dict[str, IntArray]]:
    """Sizes, and fields by name."""
    sizes = {f"fused_{name}": value for name, value in config.block._asdict().items()}
    sizes["fused_slots"] = config.slots
    fields: dict[str, IntArray] = {}
    backwards = [(plan.num_levels - high, plan.num_levels - low) for low, high in reversed(config.runs)]
    for prefix, gather, runs in (
        ("", forward_gather(plan), config.runs),
        ("back_", backward_gather(plan), backwards),
    ):
        streams = build_streams(gather, runs, row_fields, config.block, config.slots)
        sizes[f"{prefix}fused_count"] = len(streams.runs)
        if not prefix:
            sizes["fused_levels"] = sum(run.high - run.low for run in streams.runs)
        sizes[f"{prefix}fused_header_count"] = len(streams.headers)
        sizes[f"{prefix}fused_line_count"] = len(streams.lines)
        fields[f"{prefix}fused_runs"] = np.array(streams.runs, np.int64).ravel()
        fields[f"{prefix}fused_warp_lines"] = streams.warp_lines.ravel()
        fields[f"{prefix}fused_headers"], fields[f"{prefix}fused_lines"] = (
            streams.headers.ravel(),
            streams.lines.ravel(),
        )
    return sizes, fields

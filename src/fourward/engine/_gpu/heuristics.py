"""Which layout and launch configuration a network and a batch get; docs/gpu.md has the measurements behind them."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from fourward.engine._gpu import cuda_kernels
from fourward.engine._gpu.fused_schedule import BlockShape, FusedConfig
from fourward.engine._gpu.packing import CSR, MAX_SEGMENT, TILED, Shape
from fourward.engine._gpu.recurrent_packing import RecurrentShape
from fourward.engine._gpu.tiling import TILE_SIZE, count_blocks, count_tiles
from fourward.errors import pluralize
from fourward.plan._plan import Plan
from fourward.plan._population_plan import PopulationPlan
from fourward.plan.activations import ACTIVATIONS

#: Activations of an instruction or two, as bits.
CHEAP = sum(1 << ACTIVATIONS[name].code for name in ("identity", "relu", "leaky_relu", "abs", "square"))
MAX_UNROLL = 32  #: steps of a sweep
MAX_UNROLLED_ROWS = 128  #: rows of tiles in the unrolled steps of a forward sweep: more take too long to compile
MULTIPROCESSORS = 132  #: how many an H200 has
SLICE_WIDTH = {TILED: 8, CSR: 32}  #: samples in a slice
SATURATING_BATCH = MULTIPROCESSORS * SLICE_WIDTH[TILED]  #: a slice for each
GRAD_BLOCK_K = 32  #: samples at a time, where gradients of weights are computed from tiles
GRAD_PROGRAMS = 264  #: programs that saturate a GPU with gradients of weights
MAX_FUSED_WIDTH = 1024  #: neurons of a level that one block computes in less time than a launch takes
FUSED_SHARED_BYTES = 227 << 10  #: shared memory of a block: all that a block of compute capability 9.0 may have
SMALL_BATCH = 2 * MULTIPROCESSORS  #: the largest batch of which blocks take 2 samples each, instead of 8
#: Networks get a second packed plan for such batches if so many levels are fused, and if so many neurons, or 8 times as
#: many edges, are in the level at the 90th percentile: narrow levels take no less time in blocks of 2.
LEAST_FUSED_LEVELS, LEAST_LOAD = 64, 16
GRAD_BLOCK_E = 16  #: edges for each program, where gradients of weights are computed from CSR


class LaunchConfig(NamedTuple):
    """How a batch is computed."""

    strategy: (
        str  #: "tiled", "tiled_segments", "csr_...": "persistent", "per_level", "fused"; with feedback "recurrent_..."
    )
    block_b: int  #: samples in a slice
    unroll: int  #: tiled: unrolled steps of a sweep; CSR: edges of a neuron that are loaded at once
    num_warps: int
    block_n: int = 0  #: CSR: neurons at a time
    quads: bool = False  #: tiled: the sums of four neurons are broadcast at once


def choose_layout(plan: Plan) -> int:
    """TILED where tiles fit into memory and are estimated to be faster than CSR at a batch of 128, else CSR."""
    dag = plan.dag
    if plan.num_levels == 0:
        return CSR  # inputs alone
    input_blocks, panels = count_blocks(dag.num_inputs), count_blocks(dag.num_nodes - dag.num_inputs)
    tiles = count_tiles(plan) + panels
    packed = (tiles + (input_blocks + 2 * panels) * MAX_SEGMENT) * TILE_SIZE**2
    # Kernels index packed weights in 32 bits. Sparse tiles, under a sixteenth filled, get 128 MiB in float32 at most.
    if packed > (2**30 if tiles * TILE_SIZE**2 <= 16 * dag.num_edges else 2**25):
        return CSR
    tiled_time = 15 * -(-panels // MAX_SEGMENT) + 1.6 * input_blocks + 0.026 * tiles  # microseconds on an H200
    csr_time = min(estimate_csr_times(dag.num_nodes - dag.num_inputs, dag.num_edges, plan.num_levels, 128))
    return TILED if tiled_time <= max(csr_time, 40) else CSR  # below 40, fewer launches matter more than their time


def estimate_csr_times(neurons: int, edges: int, levels: int, batch: int) -> tuple[float, float]:
    """Microseconds of a forward pass in CSR on an H200: persistent, and with a launch per level."""
    degree = edges / max(neurons, 1)
    persistent = (levels + neurons / 8) * (0.6 + 0.1 * degree)
    return persistent, levels * (2.0 + 0.02 * degree) + edges * batch * 1.5e-6


def narrow_runs(plan: Plan, widest: int, shortest: int = 4) -> list[tuple[int, int]]:
    """The runs of at least `shortest` levels of at most `widest` neurons: the first, and one after the last."""
    narrow = np.concatenate(([False], np.diff(plan.level_start) <= widest, [False]))
    (edges,) = np.nonzero(narrow[1:] != narrow[:-1])  # run after run: its first level, and one after its last
    return [(int(low), int(high)) for low, high in edges.reshape(-1, 2) if high - low >= shortest]


def fused_config(runs: list[tuple[int, int]], block: BlockShape) -> FusedConfig:
    """Fused runs of these levels, with all slots that shared memory has room for."""
    return FusedConfig(runs, block, block.max_slots(FUSED_SHARED_BYTES))


def choose_fused(plan: Plan, layout: int) -> list[FusedConfig]:
    """The levels that are fused: for all batches, and then for those of at most SMALL_BATCH if these differ."""
    if layout == TILED or cuda_kernels.why_unavailable() is not None or not _has_shared_memory():
        return []
    runs = narrow_runs(plan, MAX_FUSED_WIDTH)
    if not runs:
        return []
    width = np.diff(plan.level_start)
    neuron_edges = np.diff(plan.edge_start)[plan.dag.num_inputs :]
    level_edges = np.add.reduceat(neuron_edges, plan.level_start[:-1] - plan.dag.num_inputs)
    inside = np.concatenate([np.arange(low, high) for low, high in runs])
    degree = level_edges[inside].sum() / width[inside].sum()
    load = float(np.percentile(width[inside] + level_edges[inside] / 8, 90))
    blocks = [BlockShape(_warps(load / 4, 4, 16), 2 if degree < 3 else 4 if degree < 8 else 8, 8)]
    if load > LEAST_LOAD and len(inside) >= LEAST_FUSED_LEVELS:
        blocks.append(BlockShape(_warps(load / 16, 2, 8), 2 if degree < 3 else 4, 2))
    return [fused_config(runs, block) for block in blocks]


def _has_shared_memory() -> bool:
    """Whether a block of this device may have as much as those that were measured; without a device, it is emulated."""
    if not torch.cuda.is_available():
        return True
    properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    return bool(properties.shared_memory_per_block_optin >= FUSED_SHARED_BYTES)


def _warps(load: float, least: int, most: int) -> int:
    """The next power of two."""
    return min(max(1 << math.ceil(math.log2(max(load, 1))), least), most)


@lru_cache(maxsize=256)
def tuned_config(layout: int, neurons: int, panels: int, edges: int, levels: int, batch: int) -> LaunchConfig:
    """The configuration that was measured to be fastest for such a network and batch, without fused levels."""
    if layout == TILED:
        strategy = "tiled" if panels <= MAX_SEGMENT else "tiled_segments"
        if batch <= SATURATING_BATCH:
            return LaunchConfig(strategy, SLICE_WIDTH[TILED], unroll=MAX_UNROLL, num_warps=4, quads=True)
        return LaunchConfig(strategy, SLICE_WIDTH[TILED], unroll=16, num_warps=2)
    persistent, per_level = estimate_csr_times(neurons, edges, levels, batch)
    if persistent < per_level:
        return LaunchConfig("csr_persistent", SLICE_WIDTH[CSR], unroll=8, num_warps=4, block_n=8)
    return per_level_config(neurons, edges, batch)


def per_level_config(neurons: int, edges: int, batch: int) -> LaunchConfig:
    """A launch for each level."""
    if edges <= 24 * neurons and edges * batch > 5e7:
        return LaunchConfig("csr_per_level", SLICE_WIDTH[CSR], unroll=8, num_warps=4, block_n=16)
    return LaunchConfig("csr_per_level", SLICE_WIDTH[CSR], unroll=32, num_warps=4, block_n=4)


def estimate_fused_time(shape: Shape, batch: int) -> float:
    """Microseconds of a forward pass in CSR with fused levels on an H200."""
    warps, waves = shape.fused_warps, -(-batch // (MULTIPROCESSORS * shape.fused_lanes))
    rounds, lines = shape.fused_header_count / shape.block.width, shape.fused_line_count / warps
    fused = (0.13 + 0.0075 * warps) * rounds + 0.1 * lines + 5.0 * shape.fused_count
    other_levels = shape.levels - shape.fused_levels
    return waves * fused + 3.0 * other_levels + 1.5e-6 * shape.edges * batch * other_levels / max(shape.levels, 1)


def choose_config(shape: Shape, batch: int) -> LaunchConfig:
    """The configuration for a batch of this size."""
    neurons = shape.nodes - shape.inputs
    if shape.fused_warps and estimate_fused_time(shape, batch) < min(
        estimate_csr_times(neurons, shape.edges, shape.levels, batch)
    ):
        return per_level_config(neurons, shape.edges, batch)._replace(strategy="csr_fused")
    return tuned_config(shape.layout, neurons, shape.panels, shape.edges, shape.levels, batch)


def programs_per_member(plan: PopulationPlan) -> bool:
    """Whether a program for each member is estimated to take less time than a launch for each level of their union."""
    most_edges = int(np.diff(plan.edge_start).max())
    one_program = 0.1 * plan.most_neurons + 0.05 * most_edges  # microseconds; the others run beside it
    levels = int(plan.level.max(initial=1))
    return one_program <= estimate_csr_times(plan.num_neurons, plan.num_edges, levels, 128)[1]


class ProductsConfig(NamedTuple):
    """How the products between segments are spread over the GPU."""

    slices_per_program: int  #: they share the loads of weights
    split_k: int  #: programs that share the tiles of a panel
    tile_group: int  #: tiles at a time
    stages: int  #: groups of tiles in flight
    num_warps: int


def choose_products_config(slices: int) -> ProductsConfig:
    """Split the tiles of a panel among programs if slices are few, share programs among slices if they are many."""
    programs = slices * MAX_SEGMENT
    if programs >= 512:
        return ProductsConfig(slices_per_program=4, split_k=1, tile_group=4, stages=1, num_warps=4)
    if programs >= 256:
        return ProductsConfig(slices_per_program=2, split_k=1, tile_group=4, stages=2, num_warps=4)
    split_k = 4 if programs <= 32 else 2 if programs <= 64 else 1
    return ProductsConfig(slices_per_program=1, split_k=split_k, tile_group=8, stages=2, num_warps=4)


def choose_packers(tiles: int, slices: int, resident: int) -> tuple[int, bool]:
    """The number of programs that pack tiles, and whether the launch has more than are guaranteed to be resident."""
    packers = min(tiles, max(resident - slices, resident // 2))
    return packers, packers + slices > resident


def choose_split_k(shape: Shape, batch: int) -> int:
    """The number of programs that share the batch, where the gradients of one tile are computed."""
    return max(1, min(-(-batch // GRAD_BLOCK_K), GRAD_PROGRAMS // max(shape.tiles + shape.panels, 1)))


def max_unroll(codes: int) -> int:
    """The largest unroll factor of a forward sweep; activations of many instructions would compile too long."""
    if codes & ~CHEAP == 0 and codes.bit_count() <= 2:
        return MAX_UNROLL
    return 8 if codes.bit_count() == 1 else 4


def describe(shape: Shape) -> str:
    """The strategy for a batch of 128, and its reason."""
    config = choose_config(shape, 128)
    if shape.layout == TILED:
        filled = shape.edges / (shape.tiles + shape.panels) / TILE_SIZE**2
        tiles = f"{shape.tiles + shape.panels:,} tiles of {TILE_SIZE}x{TILE_SIZE} weights, {filled:.0%} filled"
        if config.strategy == "tiled":
            return f"tiled: {pluralize(shape.panels, 'panel')} of {TILE_SIZE} neurons in one launch; {tiles}"
        segments = -(-shape.panels // MAX_SEGMENT)
        return f"tiled: {segments} segments of {MAX_SEGMENT} panels, with products of tiles between them; {tiles}"
    if shape.levels == 0:
        return "copies x: all nodes are inputs"
    reason = "tiles would take more time or memory"
    if config.strategy == "csr_fused":
        launches = shape.fused_count + shape.levels - shape.fused_levels
        levels = f"{shape.fused_levels:,} of {pluralize(shape.levels, 'level')}, which are narrow, are fused"
        return f"CSR: {levels} with activations in shared memory; {launches:,} launches in all; {reason}"
    if config.strategy == "csr_persistent":
        return f"CSR: all {shape.levels:,} levels, which are narrow, in one persistent launch; {reason}"
    return f"CSR: one launch for each of {shape.levels:,} levels at a batch of 128; {reason}"


def choose_recurrent_config(shape: RecurrentShape, batch: int) -> LaunchConfig:
    """The configuration of a network with feedback, for a batch of this size: by the time of a step."""
    return tuned_recurrent_config(shape.nodes - shape.inputs, shape.edges, shape.levels, batch)


@lru_cache(maxsize=256)
def tuned_recurrent_config(neurons: int, edges: int, levels: int, batch: int) -> LaunchConfig:
    """A launch for each level of each step, or one persistent program for each slice where levels are narrow."""
    degree = edges / max(neurons, 1)
    persistent = (levels + neurons / 16) * (0.8 + 0.05 * degree)
    per_level = levels * (2.0 + 0.02 * degree) + edges * batch * 1.5e-6
    if persistent < per_level:
        return LaunchConfig("recurrent_persistent", 8, unroll=16, num_warps=4, block_n=16)
    return per_level_config(neurons, edges, batch)._replace(strategy="recurrent_per_level")


def describe_recurrent(shape: RecurrentShape) -> str:
    """The strategy for a batch of 128, and its reason."""
    if choose_recurrent_config(shape, 128).strategy == "recurrent_persistent":
        return (
            f"CSR: one persistent program for each slice of the batch takes all steps: {shape.levels:,} levels a step, "
            "which are narrow"
        )
    launches = f"CSR: one launch for each of {pluralize(shape.levels, 'level')} of a step at a batch of 128"
    return launches if shape.levels == 1 else f'{launches}; with every edge delayed (feedback="all") it would be one'

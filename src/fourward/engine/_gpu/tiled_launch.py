"""The launches of the tiled layout: one for all panels, or one for each segment and one for the products between two.

The launch of the first segment writes the addresses of its tensors into a table, where all others load them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fourward.engine._gpu import heuristics
from fourward.engine._gpu.cuda_graphs import find_graphs
from fourward.engine._gpu.kernel_launch import Launch, counters, max_resident_programs, placeholders, precompiling
from fourward.engine._gpu.launch_key import FORWARD_TENSORS, LaunchKey
from fourward.engine._gpu.tiled_backward import (
    tiled_backward_kernel,
    tiled_products_backward_kernel,
    tiled_weight_grad_kernel,
)
from fourward.engine._gpu.tiled_forward import tiled_forward_kernel, tiled_products_kernel

_FORWARD = (*FORWARD_TENSORS, "partials", "table")
_BACKWARD = (
    *("out_grad", "key", "weight", "x_grad", "saved", "deltas", "partials", "weight_grad", "bias_grad"),
    *("packed_plan", "table"),
)


class Forward:
    """A forward pass, apart from tensors."""

    def __init__(self, key: LaunchKey) -> None:
        self.precompiled = False
        self.first, *self.rest = _forward_launches(key)  # alternately of a segment and of products
        self.acc_dtype, self.num_partials = key.acc_dtype, _count_partials(key)

    def __call__(self, tensors: tuple[Tensor, ...]) -> None:
        """Launch with FORWARD_TENSORS."""
        packed_plan = tensors[6]
        if not self.rest:
            self.first((*tensors, tensors[5], counters(packed_plan.device)))  # partials aren't used
            return
        arguments = *tensors, _workspace(tensors[0], self.num_partials, self.acc_dtype)

        def launch_rest(table: Tensor) -> None:
            captured = *placeholders(arguments[:4]), *arguments[4:], table
            for launch in self.rest:
                launch(captured)

        find_graphs(packed_plan).run(
            self, packed_plan.device, lambda table: self.first((*arguments, table)), launch_rest
        )


class Backward:
    """A backward pass, apart from tensors."""

    def __init__(self, key: LaunchKey) -> None:
        self.precompiled = False
        self.first, *self.rest, self.weight_grad = _backward_launches(key)
        self.acc_dtype, self.num_partials = key.acc_dtype, _count_partials(key)
        shape, split_k = key.shape, heuristics.choose_split_k(key.shape, key.batch)
        split_k_workspace = (shape.tiles + shape.panels) * (1 + split_k * 1056) if split_k > 1 else 0
        self.num_deltas = key.slices * shape.rows * key.config.block_b + split_k_workspace

    def __call__(self, tensors: tuple[Tensor, ...]) -> None:
        """Launch with BACKWARD_TENSORS."""
        out_grad, dropout_key, x_grad, saved, weight_grad, bias_grad, packed_plan, weight = tensors
        deltas = _workspace(saved, self.num_deltas, self.acc_dtype)
        partials = _workspace(saved, self.num_partials, self.acc_dtype) if self.rest else deltas
        arguments = out_grad, dropout_key, weight, x_grad, saved, deltas, partials, weight_grad, bias_grad, packed_plan
        if not self.rest:
            self.first((*arguments, packed_plan))  # the table isn't used
            self.weight_grad((*arguments, packed_plan))
            return

        def launch_rest(table: Tensor) -> None:
            captured = *placeholders(arguments[:3]), *arguments[3:], table
            for launch in self.rest:
                launch(captured)
            self.weight_grad(captured)

        find_graphs(packed_plan).run(
            self, packed_plan.device, lambda table: self.first((*arguments, table)), launch_rest
        )


def _workspace(like: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    return like.new_empty(0 if precompiling() else size, dtype=dtype)


def _count_partials(key: LaunchKey) -> int:
    """Partial sums of the contributions of other segments."""
    split_k = heuristics.choose_products_config(key.slices).split_k
    return split_k * key.slices * key.shape.rows * key.config.block_b


def _unroll(key: LaunchKey, largest: int) -> int:
    """The unroll factor of a sweep; half of it in float64, whose rows take twice the registers."""
    return max(4, min(key.config.unroll // (key.acc_dtype.itemsize // 4), largest))


def _forward_launches(key: LaunchKey) -> list[Launch]:
    """One for each segment; before each but the first, one for the products of all tiles from earlier segments."""
    shape, config, slices, launches = key.shape, key.config, key.slices, []
    resident = max_resident_programs(key.device, config.num_warps)
    packers, tickets = heuristics.choose_packers(shape.tiles + shape.panels, slices, resident)
    unroll = _unroll(key, min(heuristics.max_unroll(shape.codes), heuristics.MAX_UNROLLED_ROWS // shape.segment))
    for first in range(0, shape.panels, shape.segment):
        last = min(first + shape.segment, shape.panels)
        if first > 0:
            launches.append(_forward_products(key, first, last))
            packers, tickets = 0, False
        launch = Launch(
            tiled_forward_kernel, (packers + slices,), _FORWARD, key.arguments, num_warps=config.num_warps,
            packers=packers, first_panel=first, last_panel=last, needs_backward=int(key.needs_backward),
            num_empty_tiles=shape.empty_tiles + (shape.backward_empty_tiles if key.needs_backward else 0),
            OUT_COLUMN=shape.node_column if key.all_nodes else shape.output_column, UNROLL=unroll,
            SPLIT_K=heuristics.choose_products_config(slices).split_k if first > 0 else 0,
            FIRST_SEGMENT=shape.panels > shape.segment and first == 0, TICKETS=tickets,
        )  # fmt: skip
        launches.append(launch)
    return launches


def _forward_products(key: LaunchKey, first: int, last: int) -> Launch:
    """What all earlier segments contribute to the panels first:last."""
    shape, products = key.shape, heuristics.choose_products_config(key.slices)
    grid = -(-key.slices // products.slices_per_program), last - first, products.split_k
    return Launch(
        tiled_products_kernel, grid, _FORWARD, key.arguments, num_warps=products.num_warps,
        first_panel=first, FIRST_TILE=shape.tile_start, END_TILE=shape.local_tile_start,
        SLICES_PER_PROGRAM=products.slices_per_program, TILE_GROUP=products.tile_group, STAGES=products.stages,
    )  # fmt: skip


def _backward_launches(key: LaunchKey) -> list[Launch]:
    """One for each segment from the last; before each but the first of these, one for products; then the weights'."""
    shape, slices, launches = key.shape, key.slices, []
    split_k, has_segments = heuristics.choose_split_k(shape, key.batch), shape.panels > shape.segment
    top = (shape.panels - 1) // shape.segment * shape.segment  # first panel of the last segment
    for first in range(top, -1, -shape.segment):
        last = min(first + shape.segment, shape.panels)
        if first < top:
            launches.append(_backward_products(key, first, last))
        launch = Launch(
            tiled_backward_kernel, (slices,), _BACKWARD, key.arguments, num_warps=key.config.num_warps,
            first_panel=first, last_panel=last, num_counters=shape.tiles + shape.panels if split_k > 1 else 0,
            OUT_COLUMN=shape.node_column if key.all_nodes else shape.output_column,
            END_TILE=shape.remote_out_tile_start if has_segments else shape.out_tile_start + 1,
            UNROLL=_unroll(key, heuristics.MAX_UNROLL),
            SPLIT_K=heuristics.choose_products_config(slices).split_k if first < top else 0,
            FIRST_SEGMENT=0 < first == top,
        )  # fmt: skip
        launches.append(launch)
    weight_grad = Launch(
        tiled_weight_grad_kernel, (shape.tiles + shape.panels, split_k), _BACKWARD, key.arguments, num_warps=4,
        BLOCK_K=heuristics.GRAD_BLOCK_K, HAS_SPLIT_K=split_k > 1, FROM_TABLE=has_segments,
    )  # fmt: skip
    return [*launches, weight_grad]


def _backward_products(key: LaunchKey, first: int, last: int) -> Launch:
    """What all later segments contribute to the panels first:last, and to the inputs with the first segment."""
    shape, products = key.shape, heuristics.choose_products_config(key.slices)
    first_block, end_block = shape.input_blocks + first if first > 0 else 0, shape.input_blocks + last
    grid = -(-key.slices // products.slices_per_program), end_block - first_block, products.split_k
    return Launch(
        tiled_products_backward_kernel, grid, _BACKWARD, key.arguments, num_warps=products.num_warps,
        first_block=first_block, FIRST_TILE=shape.remote_out_tile_start, END_TILE=shape.out_tile_start + 1,
        SLICES_PER_PROGRAM=products.slices_per_program, TILE_GROUP=products.tile_group, STAGES=products.stages,
    )  # fmt: skip

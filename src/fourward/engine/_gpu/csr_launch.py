"""The launches of the CSR layout: one for all levels, or one for each or for a fused run, captured as a CUDA graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

from torch import Tensor

from fourward.engine._gpu import heuristics
from fourward.engine._gpu.csr_kernels import (
    BACKWARD_SLOTS,
    FORWARD_SLOTS,
    csr_backward_kernel,
    csr_forward_kernel,
    csr_load_inputs_kernel,
    csr_store_outputs_kernel,
    csr_weight_grad_kernel,
)
from fourward.engine._gpu.cuda_graphs import find_graphs
from fourward.engine._gpu.fused_launch import FusedRuns, fit
from fourward.engine._gpu.fused_schedule import FusedRun
from fourward.engine._gpu.kernel_launch import Launch, placeholders
from fourward.engine._gpu.launch_key import FORWARD_TENSORS, LaunchKey
from fourward.engine._gpu.pointer_table import NUM_SLOTS, write_addresses_kernel

_FORWARD = (*FORWARD_TENSORS, "scratch", "table")
_BACKWARD = (*BACKWARD_SLOTS, "packed_plan", "table")


class _Pass:
    """What both directions share, apart from tensors."""

    precompiled = True  # no need: these kernels compile fast enough one by one

    def __init__(self, key: LaunchKey, slots: Sequence[str]) -> None:
        self.key, self.config, self.shared = key, key.config, key.arguments
        self.persistent = self.config.strategy == "csr_persistent"
        fused = self.config.strategy == "csr_fused" and fit(key)
        self.fused = FusedRuns(key, slots is BACKWARD_SLOTS, slots) if fused else None

    def allocate_scratch(self, like: Tensor) -> Tensor:
        """Memory for the streams of fused runs; another tensor if there are none."""
        return like if self.fused is None else self.fused.allocate(like)

    def read_levels(self, packed_plan: Tensor) -> list[tuple[int, int]]:
        """The positions of each level; read from the GPU once."""
        read, shape = find_graphs(packed_plan).read, self.key.shape
        if "levels" not in read:
            start = packed_plan[shape.level_start : shape.level_start + shape.levels + 1]
            read["levels"] = list(pairwise(start.tolist()))
        levels: list[tuple[int, int]] = read["levels"]
        return levels

    def read_fused_runs(self, packed_plan: Tensor) -> dict[int, tuple[int, FusedRun]]:
        """Each fused run with its index, by its first level; read from the GPU once."""
        if self.fused is None:
            return {}
        read, name = find_graphs(packed_plan).read, "back_fused_runs" if self.fused.backward else "fused_runs"
        if name not in read:
            read[name] = {run.low: (i, run) for i, run in enumerate(self.fused.read(packed_plan))}
        runs: dict[int, tuple[int, FusedRun]] = read[name]
        return runs

    def launch_levels(
        self, levels: Sequence[tuple[int, int]], launch: Launch, tensors: tuple[Tensor, ...], packed_plan: Tensor,
        table: Tensor,
    ) -> None:  # fmt: skip
        """Launch levels, given in the order of the pass by their positions, or fused runs of several."""
        runs, now = self.read_fused_runs(packed_plan), 0
        if self.fused is not None:
            self.fused.launch_fill(packed_plan, table)
        while now < len(levels):
            if self.fused is not None and now in runs:
                index, run = runs[now]
                self.fused.launch(index, run, packed_plan, table)
                now = run.high
                continue
            low, high = levels[now]
            launch.replace(self.grid(high - low, self.config.block_n), low=low, high=high)(tensors)
            now += 1

    def grid(self, nodes: int, block: int) -> tuple[int]:
        """Programs for `block` nodes and a slice each."""
        return (-(-nodes // block) * self.key.slices,)


def address_writer(slots: Sequence[str], tensors: Sequence[str]) -> Launch:
    """Writes the addresses of the tensors that `slots` names into the table; unused slots get that of the last."""
    renamed = {f"t{i}": slots[min(i, len(slots) - 1)] for i in range(NUM_SLOTS)}
    return Launch(write_addresses_kernel, (1,), tensors, {}, num_warps=1, renamed=renamed)


class Forward(_Pass):
    """A forward pass, apart from tensors."""

    def __init__(self, key: LaunchKey) -> None:
        super().__init__(key, FORWARD_SLOTS)
        shape = key.shape
        num_warps, out_row = self.config.num_warps, shape.node_row if key.all_nodes else shape.output_row
        self.write_addresses = address_writer(FORWARD_SLOTS, _FORWARD)
        self.load_inputs = Launch(
            csr_load_inputs_kernel, self.grid(shape.inputs, 32), _FORWARD, self.shared, num_warps=num_warps
        )
        self.levels = Launch(
            csr_forward_kernel, (key.slices,), _FORWARD, self.shared, num_warps=num_warps,
            low=0, high=shape.levels, OUT_ROW=out_row,
            PERSISTENT=self.persistent, BLOCK_N=self.config.block_n, BLOCK_K=self.config.unroll,
        )  # fmt: skip
        self.store_outputs = Launch(
            csr_store_outputs_kernel, self.grid(key.columns, 32), _FORWARD, self.shared, num_warps=num_warps,
            OUT_ROW=out_row,
        )  # fmt: skip

    def __call__(self, tensors: tuple[Tensor, ...]) -> None:
        """Launch with FORWARD_TENSORS."""
        packed_plan = tensors[6]
        if self.persistent:
            self.levels((*tensors, packed_plan, packed_plan))  # neither scratch nor the table are used
            return
        scratch = self.allocate_scratch(packed_plan)

        def write(table: Tensor) -> None:
            self.write_addresses((*tensors, scratch, table))

        find_graphs(packed_plan).run(self, packed_plan.device, write, partial(self._launch_levels, tensors))

    def _launch_levels(self, tensors: tuple[Tensor, ...], table: Tensor) -> None:
        """Copy x to rows, compute each level, copy rows to out."""
        packed_plan = tensors[6]
        arguments = (*placeholders(tensors[:6]), packed_plan, packed_plan, table)
        if self.key.shape.inputs:
            self.load_inputs(arguments)
        self.launch_levels(self.read_levels(packed_plan), self.levels, arguments, packed_plan, table)
        self.store_outputs(arguments)


class Backward(_Pass):
    """A backward pass, apart from tensors."""

    def __init__(self, key: LaunchKey) -> None:
        super().__init__(key, BACKWARD_SLOTS)
        shape, block = key.shape, heuristics.GRAD_BLOCK_E
        self.num_deltas = key.slices * shape.rows * self.config.block_b
        self.write_addresses = address_writer(BACKWARD_SLOTS, _BACKWARD)
        self.levels = Launch(
            csr_backward_kernel, (key.slices,), _BACKWARD, self.shared, num_warps=self.config.num_warps,
            low=0, high=shape.levels, OUT_COLUMN=shape.node_column if key.all_nodes else shape.output_column,
            PERSISTENT=self.persistent, BLOCK_N=self.config.block_n, BLOCK_K=self.config.unroll,
        )  # fmt: skip
        edge_blocks = -(-shape.edges // block)
        neuron_blocks = -(-(shape.nodes - shape.inputs) // block) if key.has_bias else 0
        self.weight_grad = Launch(
            csr_weight_grad_kernel, (edge_blocks + neuron_blocks,), _BACKWARD, self.shared, num_warps=4,
            edge_blocks=edge_blocks, PERSISTENT=self.persistent, BLOCK_E=block, BLOCK_K=64,
        )  # fmt: skip

    def __call__(self, tensors: tuple[Tensor, ...]) -> None:
        """Launch with BACKWARD_TENSORS."""
        out_grad, dropout_key, x_grad, saved, weight_grad, bias_grad, packed_plan, weight = tensors
        shape = self.key.shape
        by_source = weight.index_select(0, packed_plan[shape.out_edge : shape.out_edge + shape.edges])
        deltas = saved.new_empty(self.num_deltas, dtype=self.key.acc_dtype)
        scratch = packed_plan if self.persistent else self.allocate_scratch(packed_plan)
        gradients = out_grad, by_source, dropout_key, x_grad, saved, deltas, weight_grad, bias_grad
        arguments = (*gradients, scratch, packed_plan)
        if self.persistent:
            self.levels((*arguments, packed_plan))  # the table isn't used
            self._launch_weight_grad((*arguments, packed_plan))
            return

        def write(table: Tensor) -> None:
            self.write_addresses((*arguments, table))

        find_graphs(packed_plan).run(self, packed_plan.device, write, partial(self._launch_levels, arguments))

    def _launch_weight_grad(self, arguments: tuple[Tensor, ...]) -> None:
        if self.weight_grad.grid[0]:
            self.weight_grad(arguments)

    def _launch_levels(self, arguments: tuple[Tensor, ...], table: Tensor) -> None:
        """Compute each level from the last, then inputs if x's gradient is needed, then all weights."""
        inputs, packed_plan = self.key.shape.inputs, arguments[9]
        input_level = [(0, inputs)] if self.key.needs_x_grad and inputs else []
        levels = [*input_level, *self.read_levels(packed_plan)][::-1]
        level_arguments = (*placeholders(arguments[:6]), *arguments[6:], table)
        self.launch_levels(levels, self.levels, level_arguments, packed_plan, table)
        self._launch_weight_grad((*arguments, table))

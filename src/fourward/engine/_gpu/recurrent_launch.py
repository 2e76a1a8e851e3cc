"""The launches of networks with feedback: all steps of a pass, captured as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fourward.engine._dropout import float64_bits, threshold
from fourward.engine._gpu.csr_launch import address_writer
from fourward.engine._gpu.cuda_graphs import find_graphs
from fourward.engine._gpu.heuristics import LaunchConfig, choose_recurrent_config
from fourward.engine._gpu.kernel_launch import Launch
from fourward.engine._gpu.launch_key import TRITON_DTYPES, accumulation_dtype
from fourward.engine._gpu.packing import ALIGN
from fourward.engine._gpu.recurrent_kernels import (
    BACKWARD_SLOTS,
    FORWARD_SLOTS,
    recurrent_backward_kernel,
    recurrent_forward_kernel,
    recurrent_load_carry_kernel,
    recurrent_load_inputs_kernel,
    recurrent_load_state_kernel,
    recurrent_start_backward_kernel,
    recurrent_store_outputs_kernel,
    recurrent_store_state_kernel,
    recurrent_weight_grad_kernel,
)
from fourward.engine._gpu.recurrent_packing import RecurrentShape

MAX_CAPTURED = 8192  #: launches of a pass up to which they are captured as a CUDA graph; more take too much memory
GRAD_BLOCK_E = 256  #: edges for each program that adds up the shares of weight gradients
MIN_SHARES = 8  #: shares of the sums that are taken whatever memory they need
_TABLE = ("table", "packed_plan")
_SUMS = ("work", "weight_grad", "bias_grad", "rate_grad", "packed_plan")


class RecurrentKey(NamedTuple):
    """A network with feedback, a batch of sequences, and what is computed of it."""

    shape: RecurrentShape
    steps: int
    batch: int
    dtype: torch.dtype
    device: torch.device
    has_h0: bool
    has_bias: bool
    leaky: bool
    dropout_p: float | None
    all_nodes: bool  #: the result is the activations of all nodes, not of the outputs
    needs_backward: bool  #: a backward pass follows, or this is it
    needs_x_grad: bool = False
    needs_h0_grad: bool = False
    has_h_grad: bool = False

    @property
    def config(self) -> LaunchConfig:
        """Its launch configuration, the same in both directions."""
        return choose_recurrent_config(self.shape, self.batch)

    @property
    def slices(self) -> int:
        """Slices of the batch."""
        return -(-self.batch // self.config.block_b)

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.shape.nodes if self.all_nodes else self.shape.outputs

    @property
    def voltage(self) -> bool:
        """Whether neurons integrate before the activation."""
        return self.leaky and bool(self.shape.voltage)

    @property
    def save_z(self) -> bool:
        """Whether sums are saved for the backward pass."""
        return self.needs_backward and (self.leaky or bool(self.shape.needs_z))

    @property
    def step_size(self) -> int:
        """Elements of the rows of a step."""
        return self.slices * self.config.block_b * self.shape.nodes

    @property
    def saved_size(self) -> int:
        """Elements of what a forward pass saves, h0 included."""
        return (self.steps + 1) * self.step_size * (1 + self.voltage + self.save_z)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments that kernels share, by the names of their parameters."""
        shape, config, p = self.shape, self.config, self.dropout_p
        return dict(
            **{name: getattr(shape, name) for name in ("nodes", "inputs", "edges")},
            **shape.offsets,
            B=self.batch,
            steps=self.steps,
            columns=self.columns,
            slices=self.slices,
            threshold=0 if p is None else threshold(p),
            p_bits=0 if p is None else float64_bits(p),
            PERSISTENT=config.strategy == "recurrent_persistent",
            BLOCK_N=config.block_n,
            BLOCK_B=config.block_b,
            BLOCK_K=config.unroll,
            CODES=shape.codes,
            HAS_H0=self.has_h0,
            HAS_BIAS=self.has_bias,
            LEAKY=self.leaky,
            VOLTAGE=self.voltage,
            HAS_DROPOUT=p is not None,
            SAVE_Z=self.save_z,
            HAS_H_GRAD=self.has_h_grad,
            NEEDS_X_GRAD=self.needs_x_grad,
            NEEDS_H0_GRAD=self.needs_h0_grad,
            PRUNED=not (self.has_h_grad or self.all_nodes) and shape.dead > 0,
            X_DTYPE=TRITON_DTYPES[self.dtype],
            ACC_DTYPE=TRITON_DTYPES[accumulation_dtype(self.dtype)],
        )


class _Pass:
    """What both directions share, apart from tensors."""

    def __init__(self, key: RecurrentKey, slots: tuple[str, ...], **extra: int) -> None:
        self.key, self.config = key, key.config
        self.arguments = key.arguments | extra
        self.persistent = self.config.strategy == "recurrent_persistent"
        self.write_addresses = address_writer(slots, (*slots, "table"))

    def launch(self, kernel: Any, programs: int, **explicit: Any) -> Launch:
        """A kernel with as many programs."""
        return Launch(kernel, (programs,), _TABLE, self.arguments, num_warps=self.config.num_warps, **explicit)

    def blocks(self, nodes: int, block: int = 32) -> int:
        """Blocks of nodes, for each slice."""
        return -(-nodes // block) * self.key.slices

    def read_levels(self, packed_plan: Tensor) -> list[tuple[int, int]]:
        """The positions of each level; read from the GPU once."""
        read, shape = find_graphs(packed_plan).read, self.key.shape
        if "levels" not in read:
            start = packed_plan[shape.level_start : shape.level_start + shape.levels + 1]
            read["levels"] = list(pairwise(start.tolist()))
        levels: list[tuple[int, int]] = read["levels"]
        return levels

    def run(self, tensors: tuple[Tensor, ...], packed_plan: Tensor, launches: Callable[[Tensor], None]) -> None:
        """Write the addresses of tensors into a table, then launch; captured unless there are too many launches."""

        def write(table: Tensor) -> None:
            self.write_addresses((*tensors, table))

        device = packed_plan.device
        if self.persistent or self.key.steps * self.key.shape.levels <= MAX_CAPTURED:
            find_graphs(packed_plan).run(self, device, write, launches)
        else:
            table = torch.zeros(16, dtype=torch.int64, device=device)
            write(table)
            launches(table)


class RecurrentForward(_Pass):
    """A forward pass, apart from tensors."""

    def __init__(self, key: RecurrentKey) -> None:
        super().__init__(key, FORWARD_SLOTS)
        shape = key.shape
        self.load_inputs = self.launch(recurrent_load_inputs_kernel, key.steps * self.blocks(shape.inputs))
        self.load_state = self.launch(recurrent_load_state_kernel, self.blocks(shape.nodes))
        self.levels = self.launch(recurrent_forward_kernel, key.slices, t=0, low=0, high=shape.levels)
        self.store_outputs = self.launch(
            recurrent_store_outputs_kernel, key.steps * self.blocks(key.columns),
            OUT_ROW=shape.node_row if key.all_nodes else shape.output_row,
        )  # fmt: skip
        self.store_state = self.launch(recurrent_store_state_kernel, self.blocks(shape.nodes))

    def __call__(self, tensors: tuple[Tensor, ...], packed_plan: Tensor) -> None:
        """Launch with the tensors of FORWARD_SLOTS."""
        self.run(tensors, packed_plan, lambda table: self._launch(packed_plan, table))

    def _launch(self, packed_plan: Tensor, table: Tensor) -> None:
        """Copy x and h0 to rows, compute each level of each step, copy rows to out and h."""
        arguments = table, packed_plan
        if self.key.shape.inputs:
            self.load_inputs(arguments)
        self.load_state(arguments)
        if self.persistent:
            self.levels(arguments)
        else:
            for t in range(1, self.key.steps + 1):
                for low, high in self.read_levels(packed_plan):
                    programs = self.blocks(high - low, self.config.block_n)
                    self.levels.replace((programs,), t=t, low=low, high=high)(arguments)
        if self.key.columns:
            self.store_outputs(arguments)
        self.store_state(arguments)


def count_shares(slices: int, saved_size: int, stride: int) -> int:
    """Shares of the slices, each with sums of its own, which take no more memory than what is saved."""
    return min(slices, max(MIN_SHARES, saved_size // stride))


class RecurrentBackward(_Pass):
    """A backward pass, apart from tensors."""

    def __init__(self, key: RecurrentKey) -> None:
        shape, slices = key.shape, key.slices
        self.stride = -(-(shape.edges + 2 * shape.nodes) // ALIGN) * ALIGN
        self.shares = count_shares(slices, key.saved_size, self.stride)
        self.sums_size = self.shares * self.stride
        carry_start = self.sums_size + 3 * key.step_size
        self.work_size = carry_start + key.step_size
        super().__init__(
            key, BACKWARD_SLOTS, shares=self.shares, stride=self.stride, deltas_start=self.sums_size,
            carry_start=carry_start,
        )  # fmt: skip
        self.input_blocks = -(-shape.inputs // self.config.block_n)
        self.load_carry = self.launch(recurrent_load_carry_kernel, self.blocks(shape.nodes))
        self.levels = self.launch(
            recurrent_backward_kernel, self.shares, t=0, low=0, high=shape.levels, input_blocks=0,
            OUT_COLUMN=shape.node_column if key.all_nodes else shape.output_column,
        )  # fmt: skip
        self.start = self.launch(
            recurrent_start_backward_kernel, -(-shape.nodes // self.config.block_n) * self.shares
        )  # fmt: skip
        edge_blocks = -(-shape.edges // GRAD_BLOCK_E)
        neuron_blocks = -(-(shape.nodes - shape.inputs) // GRAD_BLOCK_E)
        self.add_shares = Launch(
            recurrent_weight_grad_kernel, (edge_blocks + neuron_blocks,), _SUMS, self.arguments, num_warps=4,
            edge_blocks=edge_blocks, BLOCK_E=GRAD_BLOCK_E,
        )  # fmt: skip

    def __call__(self, tensors: dict[str, Tensor], packed_plan: Tensor, gradients: tuple[Tensor, ...]) -> None:
        """Launch with the tensors of BACKWARD_SLOTS but `work`, by name; and gradients of weights, biases, rates."""
        saved = tensors["saved"]
        work = saved.new_empty(self.work_size, dtype=accumulation_dtype(self.key.dtype))
        work[: self.sums_size].zero_()
        ordered = tuple(work if name == "work" else tensors[name] for name in BACKWARD_SLOTS)
        self.run(ordered, packed_plan, lambda table: self._launch(packed_plan, table))
        if self.add_shares.grid[0]:
            self.add_shares((work, *gradients, packed_plan))

    def _launch(self, packed_plan: Tensor, table: Tensor) -> None:
        """Compute each level of each step from the last; inputs along with the first level of the step before."""
        key, arguments = self.key, (table, packed_plan)
        if key.leaky or key.has_h_grad:
            self.load_carry(arguments)
        if self.persistent:
            self.levels(arguments)
        else:
            self._launch_levels(arguments, self.read_levels(packed_plan)[::-1])
        # Without h0, activations before the first step are 0 (but not with voltage dynamics), and so are its products.
        if key.needs_h0_grad or key.has_h0 or key.voltage:
            self.start(arguments)

    def _launch_levels(self, arguments: tuple[Tensor, Tensor], levels: list[tuple[int, int]]) -> None:
        inputs = self.input_blocks
        for t in range(self.key.steps, 0, -1):
            for i, (low, high) in enumerate(levels):
                next_inputs = inputs if i == 0 and t < self.key.steps else 0  # blocks of the inputs of step t + 1
                self._launch_level(arguments, t, low, high, next_inputs)
            if not levels and t < self.key.steps and inputs:
                self._launch_level(arguments, t, 0, 0, inputs)
        if inputs:
            self._launch_level(arguments, 0, 0, 0, inputs)

    def _launch_level(self, arguments: tuple[Tensor, Tensor], t: int, low: int, high: int, input_blocks: int) -> None:
        blocks = input_blocks - (low - high) // self.config.block_n
        numbers = {"t": t, "low": low, "high": high, "input_blocks": input_blocks}
        self.levels.replace((blocks * self.shares,), **numbers)(arguments)


@lru_cache(maxsize=1024)
def forward_pass(key: RecurrentKey) -> RecurrentForward:
    """The launches of a forward pass."""
    return RecurrentForward(key)


@lru_cache(maxsize=1024)
def backward_pass(key: RecurrentKey) -> RecurrentBackward:
    """The launches of a backward pass."""
    return RecurrentBackward(key)


def clear_passes() -> None:
    """Discard all launches, after a heuristic has been changed."""
    forward_pass.cache_clear()
    backward_pass.cache_clear()

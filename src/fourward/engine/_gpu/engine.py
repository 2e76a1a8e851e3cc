"""The GPU engine: what it supports, and its runner."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import metadata

import torch
from torch import Tensor, nn

from fourward.engine._dropout import Dropout
from fourward.engine._gpu import heuristics
from fourward.engine._gpu.heuristics import SMALL_BATCH, choose_fused, choose_layout, describe, programs_per_member
from fourward.engine._gpu.kernel_launch import interpreting, reserve_rows
from fourward.engine._gpu.packing import pack
from fourward.engine._gpu.population import GpuPopulationRunner
from fourward.engine._gpu.recurrent import GpuRecurrentRunner
from fourward.engine._interface import PopulationRunner, RecurrentRunner, Request, Runner
from fourward.engine._kernel_engine import KernelEngine, KernelRunner
from fourward.engine._pruned import prepare_pruned
from fourward.plan._plan import Plan
from fourward.plan._population_plan import PopulationPlan
from fourward.plan._recurrent_plan import RecurrentPlan

MIN_TRITON = (3, 6)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
#: Kernels add the index of an edge and a number of edges in 32 bits; those of networks with feedback have offsets of
#: 4 E in 32 bits; and all multiply the index of an input and the width of a slice.
MOST_EDGES, MOST_RECURRENT_EDGES, MOST_NODES = 2**30, 2**28, 2**26


def triton_version() -> str:
    """The version of Triton; some torch builds ship it as another distribution, such as pytorch-triton."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module("triton"), "__version__", "0.0"))


class Gpu(KernelEngine):
    """Triton kernels."""

    name = "gpu"
    summary = "Triton kernels on a CUDA device, a program for each slice of the batch"
    launch_module = "fourward.engine._gpu.launch"
    dispatch_keys = ("CUDA", "CPU")  # CPU: Triton's interpreter
    supports_feedback = True
    supports_mixed_precision = True

    def supports(self, request: Request) -> str | None:
        """Built-in activations on a CUDA device that Triton supports."""
        if importlib.util.find_spec("triton") is None:
            return "Triton isn't installed (pip install triton)"
        if tuple(map(int, triton_version().split(".")[:2])) < MIN_TRITON:
            return f"it needs Triton {'.'.join(map(str, MIN_TRITON))} or newer, and {triton_version()} is installed"
        if request.device.type != "cuda" and not (interpreting() and request.device.type == "cpu"):
            return f"the network is on {request.device}, not on a CUDA device (net.to('cuda') moves it there)"
        if request.device.type == "cuda" and torch.cuda.get_device_capability(request.device) < (8, 0):
            return f"{torch.cuda.get_device_name(request.device)} has a compute capability below 8.0"
        if request.device.type == "cuda" and torch.version.hip is not None:
            return "it hasn't been tested on ROCm"
        if request.dtype not in DTYPES:
            return f"it computes in {', '.join(str(d).removeprefix('torch.') for d in DTYPES)}, not in {request.dtype}"
        if request.custom:
            return "an activation is a callable, which its compiled kernels can't call"
        edges, nodes = request.num_edges, request.num_nodes
        most = MOST_EDGES if request.recurrent is None else MOST_RECURRENT_EDGES
        if edges >= most or nodes >= MOST_NODES:
            return f"it indexes in 32 bits, and {edges:,} edges and {nodes:,} nodes are too many"
        return None

    def declines(self, request: Request) -> str | None:
        """Decline Triton's interpreter, which is for tests."""
        return "Triton's interpreter is slow and for tests only" if request.device.type == "cpu" else None

    def prepare(self, plan: Plan) -> Runner:
        """Pack the plan as tiles or as CSR; with fused levels, for small batches and for large ones."""

        def prepare(plan: Plan) -> Runner:
            layout = choose_layout(plan)
            packed = [pack(plan, layout, fused) for fused in choose_fused(plan, layout)] or [pack(plan, layout)]
            runner, *small = (_GpuRunner(plan, *pair, self.ops) for pair in packed)
            if small and heuristics.choose_config(small[0].shape, 128).strategy == "csr_fused":
                return _ByBatch(small[0], runner)
            return runner

        return prepare_pruned(plan, prepare)

    def prepare_recurrent(self, plan: RecurrentPlan) -> RecurrentRunner:
        """Pack the edges of a step, and the feedback edges between two."""
        return GpuRecurrentRunner(plan)

    def prepare_population(self, plan: PopulationPlan) -> PopulationRunner:
        """A program for each member; or the members as one network, where few are large."""
        if programs_per_member(plan):
            return GpuPopulationRunner(plan)
        return super().prepare_population(plan)


class _GpuRunner(KernelRunner):
    def describe(self) -> str:
        """The strategy for a batch of 128, and its reason."""
        return describe(self.shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _GpuRunner:
        super()._apply(fn, recurse)
        device = self.packed_plan.device
        if device.type == "cuda":
            reserve_rows(device)  # counters that a CUDA graph captured later must find
        return self


class _ByBatch(Runner):
    """A runner for batches of at most SMALL_BATCH, and one for larger ones, which exported programs have for all."""

    def __init__(self, small: Runner, large: Runner) -> None:
        super().__init__()
        self.small, self.large = small, large

    def describe(self) -> str:
        """The strategy for a batch of 128, and its reason."""
        return self.small.describe()

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        """Run one of the two."""
        is_small = not torch.compiler.is_exporting() and x.shape[0] <= SMALL_BATCH
        runner = self.small if is_small else self.large
        return runner(x, weight, bias, custom, dropout, all_nodes)  # type: ignore[no-any-return]

"""The CPU engine: what it supports."""

from __future__ import annotations

import torch

from fourward.engine._cpu import launch
from fourward.engine._cpu.population import CpuPopulationRunner
from fourward.engine._cpu.recurrent import CpuRecurrentRunner
from fourward.engine._interface import PopulationRunner, RecurrentRunner, Request, Runner
from fourward.engine._kernel_engine import KernelEngine, KernelRunner
from fourward.plan._plan import Plan
from fourward.plan._population_plan import PopulationPlan
from fourward.plan._recurrent_plan import RecurrentPlan


class Cpu(KernelEngine):
    """Numba kernels that compute the whole network for one slice of the batch after another."""

    name = "cpu"
    summary = "compiled kernels that compute the whole network for a slice of the batch, on the CPU"
    launch_module = "fourward.engine._cpu.launch"
    dispatch_keys = ("CPU",)
    supports_feedback = True

    def supports(self, request: Request) -> str | None:
        """Built-in activations in float32 and float64, on the CPU."""
        if request.device.type != "cpu":
            return f"the network is on {request.device}, not on the CPU"
        if request.dtype not in (torch.float32, torch.float64):
            return f"it supports float32 and float64, not {request.dtype}"
        if request.custom:
            return "an activation is a callable, which compiled kernels can't call"
        if request.num_edges >= 2**31:
            return f"it supports fewer than 2**31 edges, got {request.num_edges:,}"
        return None

    def prepare(self, plan: Plan) -> Runner:
        """Pack the runs of both passes."""
        return _CpuRunner(plan, *launch.pack(plan), self.ops)

    def prepare_recurrent(self, plan: RecurrentPlan) -> RecurrentRunner:
        """Pack the edges of a step, and the feedback edges between two."""
        return CpuRecurrentRunner(plan)

    def prepare_population(self, plan: PopulationPlan) -> PopulationRunner:
        """Pack the members one after another."""
        return CpuPopulationRunner(plan)


class _CpuRunner(KernelRunner):
    def describe(self) -> str:
        """The order of the nodes."""
        return str(self.plan.schedule)

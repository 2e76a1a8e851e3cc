"""The CPU engine: who it serves, and its runner."""

from __future__ import annotations

import torch

from fourward.engine._autograd import BRIDGES, BridgedRunner
from fourward.engine._base import Engine, Request, Runner
from fourward.engine._cpu import launch
from fourward.plan._plan import Plan


class Cpu(Engine):
    """Numba kernels that walk the whole network for a slice of the batch."""

    name = "cpu"
    summary = "kernels that walk the whole network for a slice of the batch: float32 and float64 on the CPU"

    def supports(self, request: Request) -> str | None:
        """Built-in activations, single or double precision, CPU memory."""
        if request.device.type != "cpu":
            return f"the network is on {request.device}, not on the CPU"
        if request.dtype not in (torch.float32, torch.float64):
            return f"it computes in float32 and float64, not in {request.dtype}"
        if request.custom:
            return "an activation is a callable, which its compiled kernels can't call"
        if request.plan.dag.num_edges >= 2**31:
            return f"it numbers edges in 32 bits, and {request.plan.dag.num_edges:,} are too many"
        return None

    def prepare(self, plan: Plan) -> Runner:
        """Runs for both walks, packed."""
        return BridgedRunner(plan, *launch.pack(plan), BRIDGES["cpu"])

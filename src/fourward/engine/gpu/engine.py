"""The GPU engine: who it serves, and its runner."""

from __future__ import annotations

import importlib.util
import os

import torch

from fourward.engine.autograd import BRIDGES, BridgedRunner
from fourward.engine.base import Engine, Request, Runner
from fourward.engine.gpu.program import kind_of, pack
from fourward.plan.plan import Plan

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def interpreting() -> bool:
    """Whether Triton's interpreter stands in for a card, as tests ask for with TRITON_INTERPRET=1."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


class Gpu(Engine):
    """Triton kernels that walk the whole network for a slice of the batch, in one launch."""

    name = "gpu"
    summary = "kernels that walk the whole network for a slice of the batch, on a CUDA card"
    mixes = True

    def supports(self, request: Request) -> str | None:
        """Built-in activations on a CUDA card that Triton knows."""
        if importlib.util.find_spec("triton") is None:
            return "Triton isn't installed (pip install triton)"
        if request.device.type != "cuda" and not (interpreting() and request.device.type == "cpu"):
            return f"the network is on {request.device}, not on a CUDA card"
        if request.device.type == "cuda" and torch.cuda.get_device_capability(request.device) < (8, 0):
            return f"{torch.cuda.get_device_name(request.device)} is older than the cards that Triton compiles for"
        if request.dtype not in DTYPES:
            return f"it computes in {', '.join(str(d).removeprefix('torch.') for d in DTYPES)}, not in {request.dtype}"
        if request.custom:
            return "an activation is a callable, which its compiled kernels can't call"
        if request.plan.dag.num_edges >= 2**28:
            return f"its programs hold under 2^28 edges, and {request.plan.dag.num_edges:,} are too many"
        return None

    def declines(self, request: Request) -> str | None:
        """Triton's interpreter is for tests."""
        return "Triton's interpreter is slow, and runs it only where asked to" if request.device.type == "cpu" else None

    def prepare(self, plan: Plan) -> Runner:
        """Tiles or lists of edges, packed."""
        return BridgedRunner(plan, *pack(plan, kind_of(plan)), BRIDGES["gpu"])

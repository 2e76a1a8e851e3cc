"""The GPU engine: who it serves, and its runner."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from importlib import metadata

import torch
from torch import Tensor

from fourward.engine._base import Request, Runner
from fourward.engine._gpu.heuristics import describe, kind_of
from fourward.engine._gpu.launcher import interpreting, reserve
from fourward.engine._gpu.packing import pack
from fourward.engine._kernel_engine import KernelEngine, KernelRunner
from fourward.plan._plan import Plan

TRITON = (3, 6)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def triton_version() -> str:
    """Of the Triton that would be imported; some torch builds bring it under another name, such as pytorch-triton."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return str(getattr(importlib.import_module("triton"), "__version__", "0.0"))


class Gpu(KernelEngine):
    """Triton kernels that walk a network for a slice of the batch."""

    name = "gpu"
    summary = "kernels that walk the network for a slice of the batch, on a CUDA card"
    launch_module = "fourward.engine._gpu.launch"
    dispatch_keys = ("CUDA", "CPU")  # CPU: Triton's interpreter
    supports_mixed_precision = True

    def supports(self, request: Request) -> str | None:
        """Built-in activations on a CUDA card that Triton knows."""
        if importlib.util.find_spec("triton") is None:
            return "Triton isn't installed (pip install triton)"
        if tuple(map(int, triton_version().split(".")[:2])) < TRITON:
            return f"Triton {triton_version()} is installed, and {'.'.join(map(str, TRITON))} is needed"
        if request.device.type != "cuda" and not (interpreting() and request.device.type == "cpu"):
            return f"the network is on {request.device}, not on a CUDA card (net.to('cuda') brings it there)"
        if request.device.type == "cuda" and torch.cuda.get_device_capability(request.device) < (8, 0):
            return f"{torch.cuda.get_device_name(request.device)} is older than the cards that Triton compiles for"
        if request.device.type == "cuda" and torch.version.hip is not None:
            return "it was never tried on ROCm"
        if request.dtype not in DTYPES:
            return f"it computes in {', '.join(str(d).removeprefix('torch.') for d in DTYPES)}, not in {request.dtype}"
        if request.custom:
            return "an activation is a callable, which its compiled kernels can't call"
        dag = request.plan.dag
        if dag.num_edges >= 2**28 or dag.num_nodes >= 2**26:
            return f"it numbers edges and nodes in 32 bits, and {dag.num_edges:,} and {dag.num_nodes:,} are too many"
        return None

    def declines(self, request: Request) -> str | None:
        """Triton's interpreter is for tests."""
        return "Triton's interpreter is slow, and runs it only where asked to" if request.device.type == "cpu" else None

    def prepare(self, plan: Plan) -> Runner:
        """Tiles or lists of edges, packed."""
        return _GpuRunner(plan, *pack(plan, kind_of(plan)), self.ops)


class _GpuRunner(KernelRunner):
    def describe(self) -> str:
        """How a batch of 128 is computed, and why so."""
        return describe(self.shape)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _GpuRunner:
        super()._apply(fn, recurse)
        device = self.program.device
        if device.type == "cuda":
            reserve(device)  # counters that a CUDA graph captured later must find
        return self

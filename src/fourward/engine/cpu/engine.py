"""The CPU engine: who it serves, and its runner."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from fourward.engine.autograd import walk
from fourward.engine.base import Dropout, Engine, Request, Runner, index_tensor
from fourward.engine.cpu import launch
from fourward.engine.torch_ops import TorchOps
from fourward.plan.plan import Plan


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
        return _CpuRunner(plan)


class _CpuRunner(Runner):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        program, self.shape = launch.pack(plan)
        self.register_buffer("program", program, persistent=False)
        self.register_buffer("edge", None if plan.edge is None else index_tensor(plan.edge), persistent=False)
        self._again: list[Runner] = []  # the torch engine's runner, once it is needed; in a list, so no submodule

    def again(self) -> Runner:
        """The torch engine on the same plan: under torch.func, for forward mode and for second derivatives."""
        if not self._again:
            self._again.append(TorchOps().prepare(self.plan))
        return self._again[0]

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        everything: bool,
    ) -> Tensor:
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            return self.again()(x, weight, bias, custom, dropout, everything)  # type: ignore[no-any-return]
        program, edge = self._buffers["program"], self._buffers["edge"]
        assert program is not None
        if edge is not None:
            weight = weight.index_select(0, edge)
        if torch.compiler.is_compiling() or type(x) not in (Tensor, nn.Parameter):
            key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
            operator = torch.ops.fourward.cpu_forward
            out: Tensor = operator(x, weight, bias, program, list(self.shape), key, p, everything)[0]
            return out
        return walk(x, weight, bias, program, self.shape, dropout, everything, self.again)

"""Populations in engines with compiled kernels: how torch calls them.

In eager mode a torch.autograd.Function calls the kernels. Second derivatives, torch.func, torch.compile and tracing
fall back to the torch engine.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.jit._trace import is_tracing

from fourward.engine._interface import PopulationRunner, is_batched, without_paths
from fourward.engine._torch_engine import TorchOps
from fourward.engine._union import UnionRunner
from fourward.plan._population_plan import PopulationPlan

#: Gradients of x, weight and bias; None where none is needed.
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class KernelPopulationRunner(PopulationRunner):
    """A population packed for an engine with compiled kernels.

    Args:
        plan: The population.
        packed_plan: The plan as the engine's kernels read it, one tensor.
    """

    packed_plan: Tensor

    def __init__(self, plan: PopulationPlan, packed_plan: Tensor) -> None:
        super().__init__()
        self.plan = plan
        self.register_buffer("packed_plan", packed_plan, persistent=False)
        self.fallback = UnionRunner(plan, TorchOps().prepare)

    @abstractmethod
    def compute(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, needs_backward: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Outputs (P, B, O), and what `compute_gradients` needs to be saved."""

    @abstractmethod
    def compute_gradients(self, ctx: Any, out_grad: Tensor) -> Gradients:
        """The gradients.

        Args:
            ctx: Has `saved_tensors`: x, weight, bias and what `compute` saved; `needs_input_grad` in this order.
            out_grad: The gradient of the outputs.
        """

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, custom: nn.ModuleList) -> Tensor:
        """Call the kernels; while torch traces or transforms, the torch engine computes."""
        transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
        traced = torch.compiler.is_compiling() or is_tracing() or type(x) not in (Tensor, nn.Parameter)
        if transformed or traced or x.is_meta:
            return self.fallback(x, weight, bias, custom)  # type: ignore[no-any-return]
        if torch.is_grad_enabled():
            return _Function.apply(x, weight, bias, self)  # type: ignore[no-any-return]
        return self.compute(x, weight, bias, needs_backward=False)[0]


class _Function(torch.autograd.Function):
    """The kernels in eager mode."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, runner: KernelPopulationRunner) -> Tensor:
        out, saved = runner.compute(x, weight, bias, needs_backward=True)
        ctx.save_for_backward(x, weight, bias, *saved)
        ctx.runner = runner
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled() or is_batched(grads[0]):  # create_graph=True, or is_grads_batched=True
            return *_differentiable_grads(ctx, grads[0]), None
        return *ctx.runner.compute_gradients(ctx, grads[0]), None


def _differentiable_grads(ctx: Any, out_grad: Tensor) -> list[Tensor | None]:
    """The gradients as the torch engine computes them, differentiable where grad mode is enabled."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = without_paths(ctx.saved_tensors[:3])
        x, weight, bias = inputs
        out = ctx.runner.fallback(x, weight, bias, nn.ModuleList())
        needs = [tensor is not None and needs for tensor, needs in zip(inputs, ctx.needs_input_grad, strict=False)]
        variables = [tensor for tensor, need in zip(inputs, needs, strict=True) if need and tensor is not None]
        gradients = iter(torch.autograd.grad(out, variables, out_grad, create_graph=create_graph, allow_unused=True))
    return [next(gradients) if need else None for need in needs]

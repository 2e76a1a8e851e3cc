"""Networks with feedback in engines with compiled kernels: how torch calls them.

In eager mode a torch.autograd.Function calls the kernels. Second derivatives, forward mode, torch.func, torch.compile,
torch.export and tracing fall back to the torch engine, which is prepared when it is first needed.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.jit._trace import is_tracing

from fourward.engine._dropout import Dropout
from fourward.engine._interface import RecurrentRunner, exporting_to_onnx, is_batched, without_paths
from fourward.engine._kernel_engine import untraced
from fourward.engine._torch_recurrent import TorchRecurrentRunner
from fourward.plan._recurrent_plan import RecurrentPlan

#: Gradients of x, h0, weight, bias and rate; None where none is needed.
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


class KernelRecurrentRunner(RecurrentRunner):
    """A recurrent plan packed for an engine with compiled kernels.

    Args:
        plan: The plan.
        packed_plan: The plan as the engine's kernels read it, one tensor.
    """

    packed_plan: Tensor

    def __init__(self, plan: RecurrentPlan, packed_plan: Tensor) -> None:
        super().__init__()
        self.plan = plan
        self.register_buffer("packed_plan", packed_plan, persistent=False)
        self._fallbacks: list[TorchRecurrentRunner] = []  # in a list, so that it isn't a submodule

    @abstractmethod
    def compute(
        self, x: Tensor, h0: Tensor | None, weight: Tensor, bias: Tensor | None, rate: Tensor | None,
        dropout: Dropout | None, all_nodes: bool, needs_backward: bool,
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:  # fmt: skip
        """Results of all steps, the last state, and what `compute_gradients` needs to be saved."""

    @abstractmethod
    def compute_gradients(self, ctx: Any, out_grad: Tensor | None, h_grad: Tensor | None) -> Gradients:
        """The gradients; None stands for a gradient that nothing depends on.

        Args:
            ctx: Has `saved_tensors`: x, h0, weight, bias, rate and what `compute` saved; `dropout` and `all_nodes` as
                in `compute`; `needs_input_grad` in the order of `Gradients`.
            out_grad: The gradient of the results.
            h_grad: That of the last state. Without it, neurons that reach no output take no part.
        """

    def torch_fallback(self) -> TorchRecurrentRunner:
        """The torch engine's runner for this plan."""
        self._prepare_fallback()
        return self._fallbacks[0]

    def _prepare_fallback(self) -> bool:
        """Prepare the torch engine's runner; torch.compile calls this when it traces, and doesn't trace it."""
        device = self.packed_plan.device
        if not self._fallbacks or self._fallbacks[0].edge.device != device:
            # Outside of any transform, trace and inference mode: its tensors serve all later passes.
            with torch._C._DisableFuncTorch(), torch.inference_mode(False), untraced():
                self._fallbacks[:] = [TorchRecurrentRunner(self.plan).to(device)]
        return True

    # All that torch.compiler.assume_constant_result does, which would import torch._dynamo: 0.9 s for every user.
    _prepare_fallback.__dict__["_dynamo_marked_constant"] = True

    def forward(
        self,
        x: Tensor,
        h0: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        rate: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> tuple[Tensor, Tensor]:
        """Call the kernels; while torch traces or transforms, the torch engine computes."""
        transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
        traced = torch.compiler.is_compiling() or is_tracing() or exporting_to_onnx()
        if transformed or traced or type(x) not in (Tensor, nn.Parameter) or x.is_meta:
            fallback = self.torch_fallback()
            return fallback(x, h0, weight, bias, rate, custom, dropout, all_nodes)  # type: ignore[no-any-return]
        tensors = (x, h0, weight, bias, rate)
        if torch.is_grad_enabled():
            return _Function.apply(*tensors, dropout, all_nodes, self)  # type: ignore[no-any-return]
        return self.compute(*tensors, dropout, all_nodes, needs_backward=False)[:2]


class _Function(torch.autograd.Function):
    """The kernels in eager mode."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, h0: Tensor | None, weight: Tensor, bias: Tensor | None, rate: Tensor | None,
        dropout: Dropout | None, all_nodes: bool, runner: KernelRecurrentRunner,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        out, h, saved = runner.compute(x, h0, weight, bias, rate, dropout, all_nodes, needs_backward=True)
        ctx.save_for_backward(x, h0, weight, bias, rate, *saved)
        ctx.dropout, ctx.all_nodes, ctx.runner = dropout, all_nodes, runner
        ctx.set_materialize_grads(False)
        return out, h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        if torch.is_grad_enabled() or any(grad is not None and is_batched(grad) for grad in grads):
            gradients = _differentiable_grads(ctx, grads)  # create_graph=True, or is_grads_batched=True
        else:
            gradients = ctx.runner.compute_gradients(ctx, *grads)
        return *gradients, *(None,) * 3


def _differentiable_grads(ctx: Any, grads: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    """The gradients as the torch engine computes them, differentiable where grad mode is enabled."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = without_paths(ctx.saved_tensors[:5])
        results = ctx.runner.torch_fallback()(*inputs, nn.ModuleList(), ctx.dropout, ctx.all_nodes)
        needs_grad = [tensor is not None and tensor.requires_grad for tensor in inputs]
        variables = [tensor for tensor, needs in zip(inputs, needs_grad, strict=True) if tensor is not None and needs]
        pairs = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
        outs, out_grads = zip(*pairs, strict=True)
        gradients = iter(torch.autograd.grad(outs, variables, out_grads, create_graph=create_graph, allow_unused=True))
    return [next(gradients) if needs else None for needs in needs_grad]

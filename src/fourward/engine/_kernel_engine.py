"""Engines with compiled kernels: how torch calls them.

In eager mode a torch.autograd.Function calls the kernels (50 microseconds for both directions of a small network, where
a custom operator takes 100). While torch traces, for torch.compile or torch.export, custom operators represent them.
Second derivatives, forward mode, torch.func, torch.jit.trace and torch.onnx.export fall back to the torch engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.jit._trace import is_tracing

from fourward.engine._dropout import Dropout
from fourward.engine._interface import Engine, Runner, exporting_to_onnx, index_tensor, is_batched, without_paths
from fourward.engine._kernel_ops import KernelOps, kernel_ops
from fourward.engine._torch_engine import TorchOps
from fourward.plan._plan import Plan


class KernelEngine(Engine):
    """An engine with compiled kernels; registering it creates its torch operators."""

    launch_module: ClassVar[str]  #: dotted path of a module that provides what `Launch` describes
    dispatch_keys: ClassVar[tuple[str, ...]]  #: torch's dispatch keys that the kernels serve

    @property
    def ops(self) -> KernelOps:
        """The kernels as torch operators."""
        return kernel_ops(self.name, self.launch_module, self.dispatch_keys)


class KernelFunction(torch.autograd.Function):
    """The kernels in eager mode."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, packed_plan: Tensor, dropout: Dropout | None,
        all_nodes: bool, runner: KernelRunner,
    ) -> Tensor:  # fmt: skip
        """Outputs, or activations of all nodes."""
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        out, saved = runner.ops.launch.forward(x, weight, bias, packed_plan, runner.shape, key, p, all_nodes)
        ctx.save_for_backward(x, weight, bias, packed_plan, saved)
        ctx.dropout, ctx.all_nodes, ctx.runner = dropout, all_nodes, runner
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Gradients of x, weight and bias."""
        (out_grad,) = grads
        x, weight, bias, packed_plan, saved = ctx.saved_tensors
        dropout, all_nodes, runner = ctx.dropout, ctx.all_nodes, ctx.runner
        needs_grad = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled() or is_batched(out_grad):  # create_graph=True, or is_grads_batched=True
            fallback = runner.torch_fallback(plan_order=True)
            values = _differentiable_grads(fallback, (x, weight, bias), needs_grad, dropout, all_nodes, out_grad)
            return *values, *(None,) * 4
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        x_grad, weight_grad, bias_grad = runner.ops.launch.backward(
            out_grad, weight, packed_plan, runner.shape, saved, key, p, all_nodes, needs_grad[0], bias is not None
        )
        return x_grad if needs_grad[0] else None, weight_grad, None if bias is None else bias_grad, *(None,) * 4


def _differentiable_grads(
    runner: Runner, inputs: tuple[Any, ...], needs_grad: tuple[bool, ...], dropout: Dropout | None, all_nodes: bool,
    out_grad: Tensor,
) -> list[Tensor | None]:  # fmt: skip
    """Gradients of the inputs that need one, differentiable where grad mode is enabled; None for the others."""
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = without_paths(inputs)
        out = runner(*inputs, nn.ModuleList(), dropout, all_nodes)
        variables = [tensor for tensor, needs in zip(inputs, needs_grad, strict=True) if needs and tensor is not None]
        grads = iter(torch.autograd.grad(out, variables, out_grad, create_graph=create_graph, allow_unused=True))
    return [next(grads) if needs else None for needs in needs_grad]


@contextmanager
def untraced() -> Iterator[None]:
    """Suspend torch.jit.trace."""
    state, set_state = torch._C._get_tracing_state(), getattr(torch._C, "_set_tracing_state")  # noqa: B009 - it lacks types
    set_state(None)
    try:
        yield
    finally:
        set_state(state)


class KernelRunner(Runner):
    """A plan packed for an engine with compiled kernels.

    Args:
        plan: The plan.
        packed_plan: The plan as the engine's kernels read it, one tensor.
        shape: The sizes that the engine's launches know without reading it, a `Launch.Shape`.
        ops: The engine's operators.
    """

    packed_plan: Tensor
    plan: Plan
    shape: Any
    ops: KernelOps
    _fallbacks: dict[bool, Runner]  #: by plan_order; in a dict, so that they aren't submodules

    def __init__(self, plan: Plan, packed_plan: Tensor, shape: Any, ops: KernelOps) -> None:
        super().__init__()
        # At once: torch's __setattr__ takes a microsecond for each, and small networks are built in 300.
        vars(self).update(plan=plan, shape=shape, ops=ops, _fallbacks={})
        self.register_buffer("packed_plan", packed_plan, persistent=False)
        self.register_buffer("edge", None if plan.edge is None else index_tensor(plan.edge), persistent=False)

    def torch_fallback(self, plan_order: bool = False) -> Runner:
        """The torch engine's runner for this plan; with `plan_order`, for weights that are in plan order already."""
        packed_plan, runner = self._buffers["packed_plan"], self._fallbacks.get(plan_order)
        assert packed_plan is not None
        if runner is None or next(runner.buffers()).device != packed_plan.device:
            # Outside of any transform, trace and inference mode: its tensors serve all later passes.
            with torch._C._DisableFuncTorch(), torch.inference_mode(False), untraced():
                runner = self._fallbacks[plan_order] = TorchOps().prepare(self.plan, plan_order).to(packed_plan.device)
        return runner

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        """Call the kernels: through autograd where grad mode is enabled, as an operator where torch traces."""
        transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
        if transformed or x.is_meta or is_tracing() or exporting_to_onnx():
            return self.torch_fallback()(x, weight, bias, custom, dropout, all_nodes)  # type: ignore[no-any-return]
        packed_plan, edge = self._buffers["packed_plan"], self._buffers["edge"]
        assert packed_plan is not None
        if edge is not None:
            weight = weight.index_select(0, edge)
        traced = torch.compiler.is_compiling() or type(x) not in (Tensor, nn.Parameter)
        if torch.is_grad_enabled() and not traced:
            return KernelFunction.apply(x, weight, bias, packed_plan, dropout, all_nodes, self)  # type: ignore[no-any-return]
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        if traced:
            return self.ops.forward(x, weight, bias, packed_plan, list(self.shape), key, p, all_nodes)[0]
        out, _ = self.ops.launch.forward(
            x, weight, bias, packed_plan, self.shape, key, p, all_nodes, needs_backward=False
        )
        return out

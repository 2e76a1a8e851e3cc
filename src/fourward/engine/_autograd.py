"""The bridge between torch and our kernels.

In eager mode a torch.autograd.Function calls them (50 microseconds for both directions of a small network, where a
custom operator takes 100). While torch traces, for torch.compile or torch.export, custom operators stand for them.
Where a second derivative is asked for, the torch engine computes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from fourward.engine._base import Runner, index_tensor
from fourward.engine._dropout import Dropout
from fourward.engine._torch_ops import TorchOps
from fourward.errors import EngineError
from fourward.plan._plan import Plan

_library = torch.library.Library("fourward", "DEF")


class Bridge:
    """The kernels of one engine as torch operators.

    Args:
        name: Of the engine; the operators are fourward::NAME_forward and fourward::NAME_backward.
        module: Where the launches are, imported when they are first needed: `Shape`, `check_layout`, `forward`,
            `backward`, and `empty_saved`, which says what a forward pass keeps.
        devices: Dispatch keys.
    """

    def __init__(self, name: str, module: str, devices: tuple[str, ...]) -> None:
        self.name, self.module = name, module
        _library.define(
            f"{name}_forward(Tensor x, Tensor weight, Tensor? bias, Tensor program, int[] shape, Tensor? key, "
            "float p, bool all_nodes) -> (Tensor, Tensor)"
        )
        _library.define(
            f"{name}_backward(Tensor out_grad, Tensor weight, Tensor program, int[] shape, Tensor saved, Tensor? key, "
            "float p, bool all_nodes, bool needs_x_grad, bool has_bias) -> (Tensor, Tensor, Tensor)"
        )
        for device in devices:
            _library.impl(f"{name}_forward", self._forward, device)
            _library.impl(f"{name}_backward", self._backward, device)
        forward, backward = f"fourward::{name}_forward", f"fourward::{name}_backward"
        torch.library.register_fake(forward, self._fake_forward, lib=_library)
        torch.library.register_fake(backward, self._fake_backward, lib=_library)
        torch.library.register_autograd(backward, self._no_second, lib=_library)
        torch.library.register_autograd(forward, self._operator_backward, setup_context=_setup, lib=_library)

    def __reduce__(self) -> tuple[Any, ...]:
        return _bridge, (self.name,)

    @cached_property
    def launch(self) -> Any:
        """The module of launches."""
        return importlib.import_module(self.module)

    @property
    def operator(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """The forward operator."""
        found: Callable[..., tuple[Tensor, Tensor]] = getattr(torch.ops.fourward, f"{self.name}_forward")
        return found

    def _forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: list[int], key: Tensor | None,
        p: float, all_nodes: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        self.launch.check_layout(program, shape)
        found: tuple[Tensor, Tensor] = self.launch.forward(
            x, weight, bias, program, self.launch.Shape(*shape), key, p, all_nodes
        )
        return found

    def _backward(
        self, out_grad: Tensor, weight: Tensor, program: Tensor, shape: list[int], saved: Tensor,
        key: Tensor | None, p: float, all_nodes: bool, needs_x_grad: bool, has_bias: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        found: tuple[Tensor, Tensor, Tensor] = self.launch.backward(
            out_grad, weight, program, self.launch.Shape(*shape), saved, key, p, all_nodes, needs_x_grad, has_bias
        )
        return found

    def _known(self, shape: list[int]) -> Any:
        if len(shape) != len(self.launch.Shape._fields):
            raise EngineError(
                "this network was exported by another version of fourward. Export it again with this one."
            )
        return self.launch.Shape(*shape)

    def _fake_forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: list[int], key: Tensor | None,
        p: float, all_nodes: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        known = self._known(shape)
        out = x.new_empty(x.shape[0], known.nodes if all_nodes else known.outputs)
        return out, self.launch.empty_saved(x, known)

    def _fake_backward(
        self, out_grad: Tensor, weight: Tensor, program: Tensor, shape: list[int], saved: Tensor,
        key: Tensor | None, p: float, all_nodes: bool, needs_x_grad: bool, has_bias: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        known = self._known(shape)
        x_grad = out_grad.new_empty(out_grad.shape[0] if needs_x_grad else 0, known.inputs)
        return x_grad, torch.empty_like(weight), weight.new_empty(known.nodes - known.inputs if has_bias else 0)

    def _operator_backward(self, ctx: Any, out_grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
        if out_grad is None:
            return (None,) * 8
        weight, program, key, saved = ctx.saved_tensors
        shape, p, all_nodes, has_bias = ctx.facts
        x_grad, weight_grad, bias_grad = getattr(torch.ops.fourward, f"{self.name}_backward")(
            out_grad, weight, program, shape, saved, key, p, all_nodes, ctx.needs_input_grad[0], has_bias
        )
        return x_grad if ctx.needs_input_grad[0] else None, weight_grad, bias_grad if has_bias else None, *(None,) * 5

    def _no_second(self, ctx: Any, *_: Any) -> Any:
        raise EngineError(
            f"second derivatives of a traced network aren't to be had from the {self.name} engine. Ask for them in "
            "eager mode, or make the network with engine='torch'."
        )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, weight, bias, program, shape, key, p, all_nodes = inputs
    ctx.save_for_backward(weight, program, key, output[1])
    ctx.facts = shape, p, all_nodes, bias is not None
    ctx.set_materialize_grads(False)


#: One for each engine with kernels of its own; an exported network finds its operators here.
BRIDGES = {
    "cpu": Bridge("cpu", "fourward.engine._cpu.launch", ("CPU",)),
    "gpu": Bridge("gpu", "fourward.engine._gpu.launch", ("CUDA", "CPU")),  # CPU: Triton's interpreter
}


def _bridge(name: str) -> Bridge:
    """A copy of a network crosses the same bridge."""
    return BRIDGES[name]


class Walk(torch.autograd.Function):
    """The kernels in eager mode."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: Any,
        dropout: Dropout | None, all_nodes: bool, runner: BridgedRunner,
    ) -> Tensor:  # fmt: skip
        """`runner` knows the launches, and the torch engine's runner for second derivatives."""
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        out, saved = runner.bridge.launch.forward(x, weight, bias, program, shape, key, p, all_nodes)
        ctx.save_for_backward(x, weight, bias, program, saved)
        ctx.facts = shape, dropout, all_nodes, runner
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Gradients of x, weight and bias."""
        (out_grad,) = grads
        x, weight, bias, program, saved = ctx.saved_tensors
        shape, dropout, all_nodes, runner = ctx.facts
        wanted = ctx.needs_input_grad[:3]
        functorch = torch._C._functorch
        many = functorch.is_legacy_batchedtensor(out_grad) or functorch.is_batchedtensor(out_grad)
        if many or torch.is_grad_enabled():  # many gradients at once, or a second derivative, may be asked for
            again = runner.again(walked=True)
            found = _differentiable(again, (x, weight, bias), wanted, dropout, all_nodes, out_grad)
            return *found, *(None,) * 5
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        x_grad, weight_grad, bias_grad = runner.bridge.launch.backward(
            out_grad, weight, program, shape, saved, key, p, all_nodes, wanted[0], bias is not None
        )
        return x_grad if wanted[0] else None, weight_grad, None if bias is None else bias_grad, *(None,) * 5


def _differentiable(
    runner: Runner, values: tuple[Any, ...], wanted: tuple[bool, ...], dropout: Any, all_nodes: bool, out_grad: Tensor
) -> list[Tensor | None]:
    """First derivatives that can be differentiated again."""
    further = torch.is_grad_enabled()
    with torch.enable_grad():
        out = runner(*values, nn.ModuleList(), dropout, all_nodes)
        asked = [value for value, want in zip(values, wanted, strict=True) if want]
        found = iter(torch.autograd.grad(out, asked, out_grad, create_graph=further, allow_unused=True))
    return [next(found) if want else None for want in wanted]


class BridgedRunner(Runner):
    """A plan packed for an engine with kernels of its own."""

    program: Tensor

    def __init__(self, plan: Plan, program: Tensor, shape: Any, bridge: Bridge) -> None:
        super().__init__()
        self.plan, self.shape, self.bridge = plan, shape, bridge
        self.register_buffer("program", program, persistent=False)
        self.register_buffer("edge", None if plan.edge is None else index_tensor(plan.edge), persistent=False)
        self._again: dict[bool, Runner] = {}  # the torch engine's runners, once needed; in a dict, so no submodules

    def again(self, walked: bool = False) -> Runner:
        """The torch engine on the same plan: under torch.func, for forward mode and for second derivatives.

        With `walked`, for weights that stand in the order of walking already.
        """
        program, found = self._buffers["program"], self._again.get(walked)
        assert program is not None
        if found is None or next(found.buffers()).device != program.device:
            # Outside of any transform and of inference mode: its tensors serve all later passes.
            with torch._C._DisableFuncTorch(), torch.inference_mode(False):
                found = self._again[walked] = TorchOps().prepare(self.plan, walked).to(program.device)
        return found

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        """The kernels: through autograd where it has something to do, as an operator where torch traces."""
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            return self.again()(x, weight, bias, custom, dropout, all_nodes)  # type: ignore[no-any-return]
        program, edge = self._buffers["program"], self._buffers["edge"]
        assert program is not None
        if edge is not None:
            weight = weight.index_select(0, edge)
        if torch.compiler.is_compiling() or type(x) not in (Tensor, nn.Parameter):
            key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
            return self.bridge.operator(x, weight, bias, program, list(self.shape), key, p, all_nodes)[0]
        if torch.is_grad_enabled():
            return Walk.apply(x, weight, bias, program, self.shape, dropout, all_nodes, self)  # type: ignore[no-any-return]
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        out: Tensor = self.bridge.launch.forward(
            x, weight, bias, program, self.shape, key, p, all_nodes, needs_backward=False
        )[0]
        return out

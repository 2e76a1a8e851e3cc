"""The kernels of an engine as torch operators, which represent them while torch traces."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from fourward.errors import EngineError

_library = torch.library.Library("fourward", "DEF")


class Launch(Protocol):
    """The launch module of an engine: what it packs, computes and saves.

    `packed_plan` is a plan packed into one tensor, and `shape` a named tuple of the sizes that a launch needs to know
    without reading it. Weights are in plan order, biases in the order of dag.neurons.
    """

    @property
    def Shape(self) -> Callable[..., Any]:  # noqa: N802 - a class
        """The class of `shape`; with the fields `nodes`, `inputs` and `outputs`."""

    def check_layout(self, packed_plan: Tensor, shape: list[int]) -> None:
        """Raise an EngineError if another version of fourward packed the plan."""

    def forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, packed_plan: Tensor, shape: Any, key: Tensor | None,
        p: float, all_nodes: bool, needs_backward: bool = True,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Outputs (B, O), or activations of all nodes (B, N) by node index; and what the backward pass needs of it.

        `key` and `p` are those of Dropout; without dropout, key is None. Unless `needs_backward`, what is saved may be
        anything.
        """

    def backward(
        self, out_grad: Tensor, weight: Tensor, packed_plan: Tensor, shape: Any, saved: Tensor, key: Tensor | None,
        p: float, all_nodes: bool, needs_x_grad: bool, has_bias: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Gradients of x (empty unless needed), of the weights, and of the biases (empty if there are none)."""

    def empty_saved(self, x: Tensor, shape: Any) -> Tensor:
        """A tensor of the size of what `forward` saves for x."""


class KernelOps:
    """The operators `fourward::NAME_forward` and `fourward::NAME_backward`, created once by `kernel_ops`."""

    def __init__(self, name: str, launch_module: str, dispatch_keys: tuple[str, ...]) -> None:
        self.name, self.launch_module, self.dispatch_keys = name, launch_module, dispatch_keys
        _library.define(
            f"{name}_forward(Tensor x, Tensor weight, Tensor? bias, Tensor packed_plan, int[] shape, Tensor? key, "
            "float p, bool all_nodes) -> (Tensor, Tensor)"
        )
        _library.define(
            f"{name}_backward(Tensor out_grad, Tensor weight, Tensor packed_plan, int[] shape, Tensor saved, "
            "Tensor? key, float p, bool all_nodes, bool needs_x_grad, bool has_bias) -> (Tensor, Tensor, Tensor)"
        )
        for dispatch_key in dispatch_keys:
            _library.impl(f"{name}_forward", self._forward, dispatch_key)
            _library.impl(f"{name}_backward", self._backward, dispatch_key)
        forward, backward = f"fourward::{name}_forward", f"fourward::{name}_backward"
        torch.library.register_fake(forward, self._fake_forward, lib=_library)
        torch.library.register_fake(backward, self._fake_backward, lib=_library)
        torch.library.register_autograd(backward, self._double_backward, lib=_library)
        torch.library.register_autograd(forward, self._autograd, setup_context=_save_for_backward, lib=_library)

    def __reduce__(self) -> tuple[Any, ...]:
        return kernel_ops, (self.name, self.launch_module, self.dispatch_keys)

    @cached_property
    def launch(self) -> Launch:
        """The launch module, imported when it is first needed."""
        return cast(Launch, importlib.import_module(self.launch_module))

    @property
    def forward(self) -> Callable[..., tuple[Tensor, Tensor]]:
        """The forward operator."""
        return cast(Callable[..., tuple[Tensor, Tensor]], getattr(torch.ops.fourward, f"{self.name}_forward"))

    @property
    def backward(self) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
        """The backward operator."""
        return cast(Callable[..., tuple[Tensor, Tensor, Tensor]], getattr(torch.ops.fourward, f"{self.name}_backward"))

    def _forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, packed_plan: Tensor, shape: list[int], key: Tensor | None,
        p: float, all_nodes: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        self.launch.check_layout(packed_plan, shape)
        return self.launch.forward(x, weight, bias, packed_plan, self.launch.Shape(*shape), key, p, all_nodes)

    def _backward(
        self, out_grad: Tensor, weight: Tensor, packed_plan: Tensor, shape: list[int], saved: Tensor,
        key: Tensor | None, p: float, all_nodes: bool, needs_x_grad: bool, has_bias: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        return self.launch.backward(
            out_grad, weight, packed_plan, self.launch.Shape(*shape), saved, key, p, all_nodes, needs_x_grad, has_bias
        )

    def _checked_shape(self, shape: list[int]) -> Any:
        try:
            return self.launch.Shape(*shape)
        except TypeError:
            raise EngineError(
                "this network was exported by another version of fourward. Export it again with this version."
            ) from None

    def _fake_forward(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, packed_plan: Tensor, shape: list[int], key: Tensor | None,
        p: float, all_nodes: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        sizes = self._checked_shape(shape)
        out = x.new_empty(x.shape[0], sizes.nodes if all_nodes else sizes.outputs)
        return out, self.launch.empty_saved(x, sizes)

    def _fake_backward(
        self, out_grad: Tensor, weight: Tensor, packed_plan: Tensor, shape: list[int], saved: Tensor,
        key: Tensor | None, p: float, all_nodes: bool, needs_x_grad: bool, has_bias: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        sizes = self._checked_shape(shape)
        x_grad = out_grad.new_empty(out_grad.shape[0] if needs_x_grad else 0, sizes.inputs)
        return x_grad, torch.empty_like(weight), weight.new_empty(sizes.nodes - sizes.inputs if has_bias else 0)

    def _autograd(self, ctx: Any, out_grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
        """The gradient of the forward operator."""
        if out_grad is None:
            return (None,) * 8
        weight, packed_plan, key, saved = ctx.saved_tensors
        needs_x_grad = ctx.needs_input_grad[0]
        x_grad, weight_grad, bias_grad = self.backward(
            out_grad, weight, packed_plan, ctx.shape, saved, key, ctx.p, ctx.all_nodes, needs_x_grad, ctx.has_bias
        )
        return x_grad if needs_x_grad else None, weight_grad, bias_grad if ctx.has_bias else None, *(None,) * 5

    def _double_backward(self, ctx: Any, *_: Any) -> Any:
        raise EngineError(
            f"the {self.name} engine does not support double backward while tracing. Compute second derivatives in "
            "eager mode, or create the network with engine='torch'."
        )


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, weight, bias, packed_plan, ctx.shape, key, ctx.p, ctx.all_nodes = inputs
    ctx.has_bias = bias is not None
    ctx.save_for_backward(weight, packed_plan, key, output[1])
    ctx.set_materialize_grads(False)


@cache
def kernel_ops(name: str, launch_module: str, dispatch_keys: tuple[str, ...]) -> KernelOps:
    """The operators of an engine, created at the first call.

    Args:
        name: The name of the engine.
        launch_module: Dotted path of a module that provides what `Launch` describes.
        dispatch_keys: Torch's dispatch keys that the kernels serve, such as "CPU" or "CUDA".
    """
    return KernelOps(name, launch_module, dispatch_keys)

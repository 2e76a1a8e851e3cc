"""The bridge between torch and our kernels.

In eager mode a torch.autograd.Function calls them (50 microseconds for both directions of a small network, where a
custom operator takes 100). While torch traces, for torch.compile or torch.export, custom operators stand for them.
Where a second derivative is asked for, the torch engine computes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fourward.engine.base import Dropout, Runner
from fourward.engine.cpu import launch
from fourward.engine.cpu.launch import Shape
from fourward.errors import EngineError

_library = torch.library.Library("fourward", "DEF")
_library.define(
    "cpu_forward(Tensor x, Tensor weight, Tensor? bias, Tensor program, int[] shape, Tensor? key, float p, "
    "bool everything) -> (Tensor, Tensor)"
)
_library.define(
    "cpu_backward(Tensor out_grad, Tensor weight, Tensor program, int[] shape, Tensor kept, Tensor? key, "
    "float p, bool everything, bool x_wanted, bool biased) -> (Tensor, Tensor, Tensor)"
)


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: list[int], key: Tensor | None, p: float,
    everything: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    launch.check_layout(program)
    return launch.forward(x, weight, bias, program, Shape(*shape), key, p, everything)


def _backward(
    out_grad: Tensor, weight: Tensor, program: Tensor, shape: list[int], kept: Tensor, key: Tensor | None,
    p: float, everything: bool, x_wanted: bool, biased: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return launch.backward(out_grad, weight, program, Shape(*shape), kept, key, p, everything, x_wanted, biased)


_library.impl("cpu_forward", _forward, "CPU")
_library.impl("cpu_backward", _backward, "CPU")


def _fake_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: list[int], key: Tensor | None, p: float,
    everything: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    nodes, outputs = shape[0], shape[2]
    room = launch.padded(x.shape[0], launch.lanes_of(x.dtype))
    out = x.new_empty(x.shape[0], nodes if everything else outputs)
    return out, x.new_empty(launch.kept_size(Shape(*shape), room))


def _fake_backward(
    out_grad: Tensor, weight: Tensor, program: Tensor, shape: list[int], kept: Tensor, key: Tensor | None,
    p: float, everything: bool, x_wanted: bool, biased: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    nodes, inputs, *_ = shape
    x_grad = out_grad.new_empty(out_grad.shape[0] if x_wanted else 0, inputs)
    return x_grad, torch.empty_like(weight), out_grad.new_empty(nodes - inputs if biased else 0)


torch.library.register_fake("fourward::cpu_forward", _fake_forward, lib=_library)
torch.library.register_fake("fourward::cpu_backward", _fake_backward, lib=_library)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, weight, bias, program, shape, key, p, everything = inputs
    ctx.save_for_backward(weight, program, output[1], key)
    ctx.facts = shape, p, everything, bias is not None
    ctx.set_materialize_grads(False)


def _operator_backward(ctx: Any, out_grad: Tensor | None, *_: Any) -> tuple[Any, ...]:
    if out_grad is None:
        return (None,) * 8
    weight, program, kept, key = ctx.saved_tensors
    shape, p, everything, biased = ctx.facts
    x_grad, weight_grad, bias_grad = torch.ops.fourward.cpu_backward(
        out_grad, weight, program, shape, kept, key, p, everything, ctx.needs_input_grad[0], biased
    )
    return x_grad if ctx.needs_input_grad[0] else None, weight_grad, bias_grad if biased else None, *(None,) * 5


def _no_second(ctx: Any, *_: Any) -> Any:
    raise EngineError(
        "second derivatives of a traced network aren't to be had from the cpu engine. Ask for them in eager mode, or "
        "make the network with engine='torch'."
    )


torch.library.register_autograd("fourward::cpu_backward", _no_second, lib=_library)
torch.library.register_autograd("fourward::cpu_forward", _operator_backward, setup_context=_setup, lib=_library)


class Walk(torch.autograd.Function):
    """The kernels in eager mode."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: Shape,
        dropout: Dropout | None, everything: bool, again: Callable[[], Runner],
    ) -> Tensor:  # fmt: skip
        """`again` gives the torch engine's runner, for second derivatives."""
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        out, kept = launch.forward(x, weight, bias, program, shape, key, p, everything)
        ctx.save_for_backward(x, weight, bias, program, kept)
        ctx.facts = shape, dropout, everything, again
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        """Gradients of x, weight and bias."""
        (out_grad,) = grads
        x, weight, bias, program, kept = ctx.saved_tensors
        shape, dropout, everything, again = ctx.facts
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # a second derivative may be asked for
            found = _differentiable(again(), (x, weight, bias), wanted, dropout, everything, out_grad)
            return *found, *(None,) * 5
        key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
        x_grad, weight_grad, bias_grad = launch.backward(
            out_grad, weight, program, shape, kept, key, p, everything, wanted[0], bias is not None
        )
        return x_grad if wanted[0] else None, weight_grad, None if bias is None else bias_grad, *(None,) * 5


def walk(
    x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: Shape, dropout: Dropout | None,
    everything: bool, again: Callable[[], Runner],
) -> Tensor:  # fmt: skip
    """The kernels in eager mode; autograd is left out where it has nothing to do."""
    if torch.is_grad_enabled():
        return Walk.apply(x, weight, bias, program, shape, dropout, everything, again)  # type: ignore[no-any-return]
    key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
    return launch.forward(x, weight, bias, program, shape, key, p, everything, again=False)[0]


def _differentiable(
    runner: Runner, values: tuple[Any, ...], wanted: tuple[bool, ...], dropout: Any, everything: bool, out_grad: Tensor
) -> list[Tensor | None]:
    """First derivatives that can be differentiated again."""
    out = runner(*values, torch.nn.ModuleList(), dropout, everything)
    asked = [value for value, want in zip(values, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(out, asked, out_grad, create_graph=True, allow_unused=True))
    return [next(found) if want else None for want in wanted]

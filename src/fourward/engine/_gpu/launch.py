"""From tensors to kernels. What launches need besides tensors is computed once for each `LaunchKey`."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fourward.engine._gpu import csr_launch, heuristics, tiled_launch
from fourward.engine._gpu.kernel_launch import interpreting, precompile
from fourward.engine._gpu.launch_key import LaunchKey, accumulation_dtype
from fourward.engine._gpu.packing import LAYOUT_VERSION, TILED, Shape
from fourward.engine._interface import plain
from fourward.errors import EngineError

__all__ = ["Shape", "backward", "check_layout", "empty_saved", "forward"]


def check_layout(packed_plan: Tensor, shape: list[int]) -> None:
    """Raise an EngineError if another version of fourward packed the plan."""
    if shape[0] != LAYOUT_VERSION:
        raise EngineError(
            f"this network was exported by another version of fourward: expected layout {LAYOUT_VERSION}, got "
            f"{shape[0]}. Export it again with this version."
        )


def count_saved(shape: Shape, batch: int, dtype: torch.dtype, needs_backward: bool = True) -> int:
    """Elements that a forward pass saves: activations, z if the backward pass needs it, and weights in tiles."""
    width = heuristics.SLICE_WIDTH[shape.layout]
    tiles = shape.forward_slots + (shape.tiles if needs_backward or shape.panels > shape.segment else 0)
    packed = (tiles + shape.panels * shape.segment * needs_backward) * 1024 if shape.layout == TILED else 0
    activations = -(-batch // width) * width * shape.rows
    packed *= accumulation_dtype(dtype).itemsize // dtype.itemsize
    return activations * (1 + shape.needs_z * needs_backward) + packed


def empty_saved(x: Tensor, shape: Shape) -> Tensor:
    """What a forward pass saves, as torch sees it while tracing."""
    return x.new_empty(count_saved(shape, x.shape[0], x.dtype))


class _ForwardPass(NamedTuple):
    columns: int  #: number of columns of the result
    saved_size: int
    launches: tiled_launch.Forward | csr_launch.Forward


_BackwardPass = tiled_launch.Backward | csr_launch.Backward
MAX_PASSES = 1024  #: passes that are stored in each direction; the oldest is evicted first
_forward_passes: dict[tuple[Any, ...], _ForwardPass] = {}
_backward_passes: dict[tuple[Any, ...], _BackwardPass] = {}


def clear_passes() -> None:
    """Discard all launches, after a heuristic has been changed."""
    _forward_passes.clear()
    _backward_passes.clear()


def _store(passes: dict[tuple[Any, ...], Any], index: tuple[Any, ...], key: LaunchKey, new: Any) -> None:
    """Store a pass by the plain tuple with which calls look it up: a LaunchKey equals it, but takes longer to make."""
    assert index == key, f"a pass of {key} would be looked up as {index}"
    if len(passes) >= MAX_PASSES:
        passes.pop(next(iter(passes)), None)
    passes[index] = new


def _build_forward(key: LaunchKey) -> _ForwardPass:
    if key.device.type != "cuda" and not interpreting():
        raise EngineError(
            f"expected tensors on a CUDA device, for which this network was made, got {key.device}. "
            f"net.to({str(key.device)!r}) chooses another engine; a network that was exported on a GPU has to be "
            "exported again after that."
        )
    saved_size = count_saved(key.shape, key.batch, key.dtype, key.needs_backward)
    launches = tiled_launch.Forward(key) if key.shape.layout == TILED else csr_launch.Forward(key)
    return _ForwardPass(columns=key.columns, saved_size=saved_size, launches=launches)


def _build_backward(key: LaunchKey) -> _BackwardPass:
    return tiled_launch.Backward(key) if key.shape.layout == TILED else csr_launch.Backward(key)


_Call = tuple[Any, tuple[Tensor, ...]]  # the launches of a pass, and their tensors
_precompiling = threading.Lock()


def _precompile(*calls: _Call) -> None:
    """Compile what these passes launch, unless that was done before."""
    with _precompiling:
        new = [(launches, tensors) for launches, tensors in calls if not launches.precompiled]
        precompile(*(partial(launches, tensors) for launches, tensors in new))
        for launches, _ in new:
            launches.precompiled = True


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, packed_plan: Tensor, shape: Shape, key: Tensor | None, p: float,
    all_nodes: bool, needs_backward: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs (B, O) or all activations (B, N), and what the backward pass needs.

    Where no backward pass will follow, pass needs_backward=False.
    """
    device, batch = x.device, x.shape[0]
    if bias is not None and (bias.dtype != weight.dtype or bias.device != weight.device):
        raise EngineError(
            f"expected biases of the weights' dtype and device, {weight.dtype} on {weight.device}, got {bias.dtype} "
            f"on {bias.device}. net.to() brings them together."
        )
    if not device == weight.device == packed_plan.device:
        raise EngineError(
            f"expected all tensors on one device, got x on {device}, weights on {weight.device} and the plan on "
            f"{packed_plan.device}."
        )
    originals = x, weight, bias
    x, weight, bias = plain(x), plain(weight), None if bias is None else plain(bias)
    dropout_p = None if key is None else p
    index = shape, batch, x.dtype, weight.dtype, device, bias is not None, dropout_p, all_nodes, needs_backward, False
    forward_pass = _forward_passes.get(index)
    if forward_pass is None:
        launch_key = LaunchKey(
            shape=shape, batch=batch, dtype=x.dtype, weight_dtype=weight.dtype, device=device,
            has_bias=bias is not None, dropout_p=dropout_p, all_nodes=all_nodes, needs_backward=needs_backward,
            needs_x_grad=False,
        )  # fmt: skip
        forward_pass = _build_forward(launch_key)
        _store(_forward_passes, index, launch_key, forward_pass)
    columns, saved_size, launches = forward_pass
    out, saved = x.new_empty(batch, columns), x.new_empty(saved_size)
    if batch and columns:
        tensors = (
            x,
            weight,
            weight if bias is None else bias,
            packed_plan if key is None else key,
            out,
            saved,
            packed_plan,
        )
        if not launches.precompiled:
            calls: list[_Call] = [(launches, tensors)]
            needs_grad = [tensor is not None and tensor.requires_grad for tensor in originals]
            if needs_backward and any(needs_grad):
                needs_x_grad, has_bias = needs_grad[0], bias is not None
                calls += _prepare_backward(
                    out, weight, packed_plan, shape, saved, key, p, all_nodes, needs_x_grad, has_bias
                )[1:]
            _precompile(*calls)
        launches(tensors)
    return out, saved


def _prepare_backward(
    out_grad: Tensor, weight: Tensor, packed_plan: Tensor, shape: Shape, saved: Tensor, key: Tensor | None, p: float,
    all_nodes: bool, needs_x_grad: bool, has_bias: bool,
) -> tuple[tuple[Tensor, Tensor, Tensor], _Call]:  # fmt: skip
    """Uninitialised gradients, and the call that computes them."""
    batch, device, dropout_p = out_grad.shape[0], out_grad.device, None if key is None else p
    x_grad = out_grad.new_empty(batch if needs_x_grad else 0, shape.inputs)
    weight_grad = torch.empty_like(weight)
    bias_grad = weight.new_empty(shape.nodes - shape.inputs if has_bias else 0)
    index = shape, batch, saved.dtype, weight.dtype, device, has_bias, dropout_p, all_nodes, True, needs_x_grad
    launches = _backward_passes.get(index)
    if launches is None:
        launch_key = LaunchKey(
            shape=shape, batch=batch, dtype=saved.dtype, weight_dtype=weight.dtype, device=device, has_bias=has_bias,
            dropout_p=dropout_p, all_nodes=all_nodes, needs_backward=True, needs_x_grad=needs_x_grad,
        )  # fmt: skip
        launches = _build_backward(launch_key)
        _store(_backward_passes, index, launch_key, launches)
    read_key, written_bias = packed_plan if key is None else key, bias_grad if has_bias else weight_grad
    tensors = out_grad, read_key, x_grad, saved, weight_grad, written_bias, packed_plan, weight
    return (x_grad, weight_grad, bias_grad), (launches, tensors)


def backward(
    out_grad: Tensor, weight: Tensor, packed_plan: Tensor, shape: Shape, saved: Tensor, key: Tensor | None, p: float,
    all_nodes: bool, needs_x_grad: bool, has_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of x (empty unless needed), of the weights, and of the biases (empty if there are none)."""
    out_grad = plain(out_grad)
    grads, (launches, tensors) = _prepare_backward(
        out_grad, plain(weight), packed_plan, shape, saved, key, p, all_nodes, needs_x_grad, has_bias
    )
    if out_grad.numel():
        if not launches.precompiled:
            _precompile((launches, tensors))
        launches(tensors)
        return grads
    for grad in grads:
        grad.zero_()
    return grads

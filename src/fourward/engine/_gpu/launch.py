"""From tensors to kernels. What the launches are given besides tensors is worked out once for a shape of batch."""

from __future__ import annotations

import threading
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from fourward.engine._base import plain
from fourward.engine._gpu import csr_launch, heuristics, tiled_launch
from fourward.engine._gpu.launch_key import Case, wide_of
from fourward.engine._gpu.launcher import interpreting, rehearse
from fourward.engine._gpu.packing import LAYOUT, PANELS, Shape
from fourward.errors import EngineError

__all__ = ["Shape", "backward", "check_layout", "empty_saved", "forward"]


def check_layout(program: Tensor, shape: list[int]) -> None:
    """Refuse a program that another version of fourward packed."""
    if shape[0] != LAYOUT:
        raise EngineError(
            f"this network was exported by another version of fourward (layout {shape[0]}, not {LAYOUT}). "
            "Export it again with this one."
        )


def saved_size(shape: Shape, batch: int, dtype: torch.dtype, needs_backward: bool = True) -> int:
    """Numbers that a forward pass keeps: activations, z if it is needed again, and weights in tiles."""
    width = heuristics.WIDTH[shape.kind]
    tiles = shape.near + (shape.tiles if needs_backward or shape.panels > shape.span else 0)
    packed = (tiles + shape.panels * shape.span * needs_backward) * 1024 if shape.kind == PANELS else 0
    activations = -(-batch // width) * width * shape.rows
    return activations * (1 + shape.z * needs_backward) + packed * (wide_of(dtype).itemsize // dtype.itemsize)


def empty_saved(x: Tensor, shape: Shape) -> Tensor:
    """What a forward pass keeps, as torch sees it while tracing."""
    return x.new_empty(saved_size(shape, x.shape[0], x.dtype))


@lru_cache(maxsize=1024)
def _forward_of(*facts: Any) -> tuple[int, int, tiled_launch.Forward | csr_launch.Forward]:
    """Columns of the result, numbers that are saved, and the launches."""
    case = Case(*facts)
    if case.device.type != "cuda" and not interpreting():
        raise EngineError(
            f"this network was made for a CUDA card, and now it is on {case.device}. net.to({str(case.device)!r}) "
            "chooses an engine anew; an exported network has to be exported again, from there."
        )
    saved = saved_size(case.shape, case.batch, case.dtype, case.more)
    return case.columns, saved, tiled_launch.Forward(case) if case.shape.kind == PANELS else csr_launch.Forward(case)


@lru_cache(maxsize=1024)
def _backward_of(*facts: Any) -> tiled_launch.Backward | csr_launch.Backward:
    case = Case(*facts)
    return tiled_launch.Backward(case) if case.shape.kind == PANELS else csr_launch.Backward(case)


def forget() -> None:
    """Work all launches out anew, for those who change the ways."""
    _forward_of.cache_clear()
    _backward_of.cache_clear()


_Call = tuple[Any, tuple[Any, ...]]  # the launches of a pass, and what they are given
_first = threading.Lock()


def _ready(*calls: _Call) -> None:
    """Compile what these passes launch, unless that was done before."""
    with _first:
        new = [(launches, given) for launches, given in calls if not launches.rehearsed]
        rehearse(*(partial(launches, *given) for launches, given in new))
        for launches, _ in new:
            launches.rehearsed = True


def forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, program: Tensor, shape: Shape, key: Tensor | None, p: float,
    all_nodes: bool, needs_backward: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs (B, O) or all activations (B, N), and what the backward pass needs.

    Where no backward pass will come, pass needs_backward=False.
    """
    device, batch = x.device, x.shape[0]
    if bias is not None and (bias.dtype != weight.dtype or bias.device != weight.device):
        raise EngineError(
            f"the biases are {bias.dtype} on {bias.device}, but the weights are {weight.dtype} on {weight.device}. "
            "Bring them together, for example with net.to()."
        )
    if not device == weight.device == program.device:
        raise EngineError(f"x is on {device}, the weights on {weight.device}, and the plan on {program.device}.")
    learnt = x, weight, bias
    x, weight, bias = plain(x), plain(weight), None if bias is None else plain(bias)
    columns, saved_numbers, launches = _forward_of(
        shape,
        batch,
        x.dtype,
        weight.dtype,
        device,
        bias is not None,
        None if key is None else p,
        all_nodes,
        needs_backward,
    )
    out, saved = x.new_empty(batch, columns), x.new_empty(saved_numbers)
    if batch and columns:
        biases, drawn = weight if bias is None else bias, program if key is None else key
        given = (x, weight, biases, drawn, out, saved), program
        if not launches.rehearsed:
            wanted = [tensor is not None and tensor.requires_grad for tensor in learnt]
            facts = out, weight, program, shape, saved, key, p, all_nodes, wanted[0], bias is not None
            _ready((launches, given), *(_backward_call(*facts)[1:] if needs_backward and any(wanted) else ()))
        launches(*given)
    return out, saved


def _backward_call(
    out_grad: Tensor, weight: Tensor, program: Tensor, shape: Shape, saved: Tensor, key: Tensor | None, p: float,
    all_nodes: bool, needs_x_grad: bool, has_bias: bool,
) -> tuple[tuple[Tensor, Tensor, Tensor], _Call]:  # fmt: skip
    """Room for the gradients, and the call that computes them."""
    batch = out_grad.shape[0]
    x_grad = out_grad.new_empty(batch if needs_x_grad else 0, shape.inputs)
    weight_grad = torch.empty_like(weight)
    bias_grad = weight.new_empty(shape.nodes - shape.inputs if has_bias else 0)
    launches = _backward_of(
        *(shape, batch, saved.dtype, weight.dtype, out_grad.device, has_bias, None if key is None else p, all_nodes),
        needs_x_grad,
    )
    drawn, biases = program if key is None else key, bias_grad if has_bias else weight_grad
    given = (out_grad, drawn, x_grad, saved, weight_grad, biases), program, weight
    return (x_grad, weight_grad, bias_grad), (launches, given)


def backward(out_grad: Tensor, weight: Tensor, *facts: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x (empty unless wanted), of the weights, and of the biases (empty unless there are any)."""
    out_grad = plain(out_grad)
    grads, (launches, given) = _backward_call(out_grad, plain(weight), *facts)
    if out_grad.numel():
        if not launches.rehearsed:
            _ready((launches, given))
        launches(*given)
        return grads
    for grad in grads:
        grad.zero_()
    return grads

"""Effective weights of constrained edges and gradients of their parameters, by compiled loops on the CPU."""

from __future__ import annotations

from typing import Any

from torch import Tensor

#: free_factor, signed_factor, edges and group of `_cpu.constraints`, as tensors.
Buffers = tuple[Tensor, Tensor, Tensor, Tensor]


def compute_weights(free: Tensor, buffers: Buffers, weight: Tensor) -> None:
    """Fill in the weights (E,) of the edges that have a parameter."""
    from fourward.engine._cpu import constraints  # imported here: Numba takes a second

    call: Any = constraints.compute_weights
    call(free.detach().numpy(), *_to_arrays(buffers), weight.numpy())


def compute_grads(weight_grad: Tensor, free: Tensor, buffers: Buffers, free_grad: Tensor) -> None:
    """Fill in the gradients (F,) of the parameters, from those of the weights (E,)."""
    from fourward.engine._cpu import constraints

    call: Any = constraints.compute_grads
    call(weight_grad.contiguous().numpy(), free.detach().numpy(), *_to_arrays(buffers), free_grad.numpy())


def _to_arrays(buffers: Buffers) -> tuple[Any, ...]:
    """As NumPy arrays, indices unsigned: signed ones cost a comparison each."""
    free_factor, signed_factor, edges, group = (buffer.numpy() for buffer in buffers)
    unsigned = f"u{edges.itemsize}"
    return free_factor, signed_factor, edges.view(unsigned), group.view(unsigned)

"""The rows of the activation table as functions of torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward.errors import ActivationError
from fourward.plan._plan import Plan
from fourward.plan.activations import BY_CODE, CUSTOM, VOCABULARY, Activation

Function = Callable[[Tensor], Tensor]


def _torch_function(row: Activation) -> Function:
    names = {n: getattr(nn.functional, n, getattr(torch, n, None)) for n in _parse(row.torch_formula).co_names}
    function: Function = eval(f"lambda z: {row.torch_formula}", names)
    return function


def _defined_function(row: Activation) -> Function:
    return lambda z: _Defined.apply(z, row)


def apply(code: int, z: Tensor, custom: nn.ModuleList, table: Mapping[int, Function]) -> Tensor:
    """Apply an activation of the table, or one of the user's own, to each element of z."""
    if code < CUSTOM:
        return table[code](z)
    a = custom[code - CUSTOM](z)
    if not isinstance(a, Tensor) or a.shape != z.shape:
        came = tuple(a.shape) if isinstance(a, Tensor) else type(a).__name__
        raise ActivationError(
            f"a custom activation must act on each element alone: it was given shape {tuple(z.shape)} and "
            f"returned {came}."
        )
    return a


class LevelActivations(nn.Module):
    """The activations of a plan, applied a level at a time."""

    by_code: Tensor  # (N-I,) places within each level, those with equal activations side by side
    back: Tensor  # (N-I,) its inverse, within each level

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        first, neurons = plan.dag.num_inputs, plan.dag.num_nodes - plan.dag.num_inputs
        code = plan.code[first:]
        start = plan.level_start - first
        level = np.repeat(np.arange(plan.num_levels), np.diff(start))
        sort = np.lexsort((code, level))
        back = np.empty(neurons, np.int64)
        back[sort] = np.arange(neurons)
        self.register_buffer("by_code", torch.from_numpy(sort - start[level]), persistent=False)
        self.register_buffer("back", torch.from_numpy(back - start[level]), persistent=False)
        self.runs: list[list[tuple[int, int]]] = [[] for _ in range(plan.num_levels)]  # (how many, code) by level
        change = np.flatnonzero(np.diff(code[sort], prepend=-1) | np.diff(level, prepend=-1))
        for at, stop in zip(change.tolist(), [*change[1:].tolist(), neurons], strict=False):
            self.runs[level[at]].append((stop - at, int(code[sort[at]])))
        self.start = start.tolist()

    def forward(self, level: int, z: Tensor, custom: nn.ModuleList) -> Tensor:
        """Apply to z (n, B), the neurons of a level in plan order."""
        runs = self.runs[level]
        if len(runs) == 1:
            return apply(runs[0][1], z, custom, TORCH_FUNCTIONS)
        own = slice(self.start[level], self.start[level + 1])
        pieces = z.index_select(0, self.by_code[own]).split([length for length, _ in runs])
        new = [apply(code, piece, custom, TORCH_FUNCTIONS) for piece, (_, code) in zip(pieces, runs, strict=True)]
        return torch.cat(new).index_select(0, self.back[own])


class _Defined(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(z: Tensor, row: Activation) -> Tensor:
        a = _evaluate(row.formula, z=z)
        return a.clone() if a is z else a

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Activation], output: Tensor) -> None:
        z, ctx.row = inputs
        ctx.save_for_backward(z, output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (grad,) = grads
        z, a = ctx.saved_tensors
        return grad * _evaluate(ctx.row.derivative, z=z, a=a), None


def _evaluate(formula: str, **values: Tensor) -> Tensor:
    like = values["z"]

    def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        """torch.where, but two numbers take the type of z and not the default one."""
        x, y = (torch.as_tensor(v, dtype=like.dtype, device=like.device) for v in (x, y))
        return torch.where(condition, x, y)

    names = {name: getattr(torch, name) for name in VOCABULARY} | {"where": where}
    result: Tensor = eval(_parse(formula), names, values)
    return result


@cache
def _parse(formula: str) -> CodeType:
    return compile(formula, f"<activation {formula}>", "eval")


#: By code: each activation as torch itself computes it, fast and differentiable twice.
TORCH_FUNCTIONS: Mapping[int, Function] = {code: _torch_function(row) for code, row in BY_CODE.items()}
#: By code: each activation by the table's own formula and derivative.
DEFINED_FUNCTIONS: Mapping[int, Function] = {code: _defined_function(row) for code, row in BY_CODE.items()}

"""The activation table as functions of torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit._trace import is_tracing

from fourward.errors import ActivationError
from fourward.plan._plan import Plan
from fourward.plan.activations import BY_CODE, CUSTOM, VOCABULARY, Activation

Function = Callable[[Tensor], Tensor]


def _torch_function(row: Activation) -> Function:
    names = {n: getattr(nn.functional, n, getattr(torch, n, None)) for n in _parse(row.torch_formula).co_names}
    function: Function = eval(f"lambda z: {row.torch_formula}", names)
    return function


def _table_function(row: Activation) -> Function:
    traced = _torch_function(row)  # TorchScript can't hold an autograd.Function
    return lambda z: traced(z) if is_tracing() else _TableFunction.apply(z, row)


def apply_activation(code: int, z: Tensor, custom: nn.ModuleList, table: Mapping[int, Function]) -> Tensor:
    """Apply an activation of the table, or a custom one, to each element of z."""
    if code < CUSTOM:
        return table[code](z)
    a = custom[code - CUSTOM](z)
    if not isinstance(a, Tensor) or a.shape != z.shape:
        returned = f"shape {tuple(a.shape)}" if isinstance(a, Tensor) else type(a).__name__
        raise ActivationError(
            f"a custom activation must act elementwise: expected shape {tuple(z.shape)}, got {returned}."
        )
    return a


class LevelActivations(nn.Module):
    """The activations of a plan, applied a level at a time."""

    by_code: Tensor  # (N-I,) indices within each level that bring equal activations side by side
    inverse: Tensor  # (N-I,) indices within each level that restore the order

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        first, neurons = plan.dag.num_inputs, plan.dag.num_nodes - plan.dag.num_inputs
        code = plan.code[first:]
        start = plan.level_start - first
        level = np.repeat(np.arange(plan.num_levels), np.diff(start))
        by_code = np.lexsort((code, level))
        inverse = np.empty(neurons, np.int64)
        inverse[by_code] = np.arange(neurons)
        self.register_buffer("by_code", torch.from_numpy(by_code - start[level]), persistent=False)
        self.register_buffer("inverse", torch.from_numpy(inverse - start[level]), persistent=False)
        self.sections: list[list[tuple[int, int]]] = [[] for _ in range(plan.num_levels)]  # (size, code) of each level
        change = np.flatnonzero(np.diff(code[by_code], prepend=-1) | np.diff(level, prepend=-1))
        for begin, end in zip(change.tolist(), [*change[1:].tolist(), neurons], strict=False):
            self.sections[level[begin]].append((end - begin, int(code[by_code[begin]])))
        self.start = start.tolist()

    def forward(self, level: int, z: Tensor, custom: nn.ModuleList) -> Tensor:
        """Apply to z (n, B), the neurons of a level in plan order."""
        sizes, codes = zip(*self.sections[level], strict=True)
        if len(codes) == 1:
            return apply_activation(codes[0], z, custom, TORCH_FUNCTIONS)
        rows = slice(self.start[level], self.start[level + 1])
        pieces = zip(codes, z.index_select(0, self.by_code[rows]).split(sizes), strict=True)
        a = torch.cat([apply_activation(code, piece, custom, TORCH_FUNCTIONS) for code, piece in pieces])
        return a.index_select(0, self.inverse[rows])


class _TableFunction(torch.autograd.Function):
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
        return _evaluate(ctx.row.backward, z=z, a=a, grad=grad), None


def _evaluate(formula: str, **values: Tensor) -> Tensor:
    like = values["z"]

    def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
        """torch.where, but two numbers take the dtype of z instead of the default one."""
        x, y = (torch.as_tensor(v, dtype=like.dtype, device=like.device) for v in (x, y))
        return torch.where(condition, x, y)

    names = {name: getattr(torch, name) for name in VOCABULARY} | {"where": where}
    result: Tensor = eval(_parse(formula), names, values)
    return result


@cache
def _parse(formula: str) -> CodeType:
    return compile(formula, f"<activation {formula}>", "eval")


#: By code: each activation by its torch_formula, fast and twice differentiable.
TORCH_FUNCTIONS: Mapping[int, Function] = {code: _torch_function(row) for code, row in BY_CODE.items()}
#: By code: each activation by the table's formula and derivative, the definition.
TABLE_FUNCTIONS: Mapping[int, Function] = {code: _table_function(row) for code, row in BY_CODE.items()}

"""The table of activations: name, code, formula, derivative. Every engine and every exporter reads it.

A new activation is one row of this table, and the contract suite then tests it in every engine. Formulas are Python
expressions in z, derivatives in z or in a = f(z), over the functions in `VOCABULARY`. They are evaluated on torch
tensors, and translated to Numba, Triton, ONNX, Python source and LaTeX. A derivative in a alone spares the backward
pass from saving z.

All of them propagate NaN. At kinks and at NaN, derivatives are torch's. Where one is a literal 0, the activation is
flat: no gradient passes, not even an infinite one. Any other derivative is multiplied, even where it happens to be 0.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np

from fourward._arrays import BoolArray, IntArray
from fourward.errors import ActivationError

__all__ = ["ACTIVATIONS", "BY_CODE", "CUSTOM", "VOCABULARY", "Activation", "derivative_needs_z", "lookup"]

#: The functions that a formula may call; `where(c, x, y)` is x where c is true, else y.
VOCABULARY = ("abs", "cos", "erf", "exp", "expm1", "log1p", "sin", "tanh", "where")

#: Code CUSTOM + k is the k-th custom activation of a network, a torch callable.
CUSTOM = 1000


@dataclass(frozen=True)
class Activation:
    """A row of the table."""

    name: str
    code: int  #: the integer that kernels switch on; never reused for another row
    formula: str  #: f(z)
    derivative: str  #: f'(z), in z or in a = f(z)
    torch_formula: str  #: f(z) over the functions of torch and torch.nn.functional, for autograd
    bounds: tuple[float, float] = (-math.inf, math.inf)  #: no f(z) is below the first, or above the second

    @cached_property
    def needs_z(self) -> bool:
        """Whether the derivative is written in z, so that a backward pass needs z and not just a = f(z)."""
        return any(isinstance(n, ast.Name) and n.id == "z" for n in ast.walk(ast.parse(self.derivative)))

    @property
    def backward(self) -> str:
        """The gradient of z: `grad`, that of a, times the derivative; 0 where the derivative is a literal 0."""
        return ast.unparse(_times_grad(ast.parse(self.derivative, mode="eval").body))


def _times_grad(formula: ast.expr) -> ast.expr:
    if isinstance(formula, ast.Call) and isinstance(formula.func, ast.Name) and formula.func.id == "where":
        test, body, orelse = formula.args
        return ast.Call(formula.func, [test, _times_grad(body), _times_grad(orelse)], [])
    if isinstance(formula, ast.Constant) and formula.value in (0, 1):
        return ast.Name("grad") if formula.value == 1 else formula
    return ast.BinOp(ast.Name("grad"), ast.Mult(), formula)


_KINK = "-0"  # torch multiplies by sign(z), which is 0 at 0 and at NaN; not a literal 0
_POSITIVE = (0.0, math.inf)
_SELU_SCALE = "1.0507009873554805"
_SELU_ALPHA_SCALE = "1.7580993408473766"  # alpha 1.6732632423543772 times the scale

_ROWS = (
    Activation("identity", 0, "z", "1", "z"),
    Activation("relu", 1, "where(z <= 0, 0, z)", "where(a <= 0, 0, 1)", "relu(z)", _POSITIVE),
    Activation("leaky_relu", 2, "where(z > 0, z, 0.01 * z)", "where(a > 0, 1, 0.01)", "leaky_relu(z, 0.01)"),
    Activation("elu", 3, "where(z > 0, z, expm1(z))", "where(a > 0, 1, a + 1)", "elu(z)", (-1, math.inf)),
    Activation(
        "selu",
        4,
        f"where(z > 0, {_SELU_SCALE} * z, {_SELU_ALPHA_SCALE} * expm1(z))",
        f"where(a > 0, {_SELU_SCALE}, a + {_SELU_ALPHA_SCALE})",
        "selu(z)",
        (-float(_SELU_ALPHA_SCALE), math.inf),
    ),
    Activation(
        "gelu",
        5,
        "0.5 * z * (1 + erf(0.7071067811865476 * z))",
        "0.5 * (1 + erf(0.7071067811865476 * z)) + 0.3989422804014327 * z * exp(-0.5 * z * z)",
        "gelu(z)",
        (-0.17, math.inf),
    ),
    Activation(
        "silu",
        6,
        "z / (1 + exp(-z))",
        "1 / (1 + exp(-z)) * (1 + z * (1 - 1 / (1 + exp(-z))))",
        "silu(z)",
        (-0.2785, math.inf),
    ),
    Activation("tanh", 7, "tanh(z)", "1 - a * a", "tanh(z)", (-1, 1)),
    Activation("sigmoid", 8, "1 / (1 + exp(-z))", "a * (1 - a)", "sigmoid(z)", (0, 1)),
    Activation("softplus", 9, "where(z > 20, z, log1p(exp(z)))", "-expm1(-a)", "softplus(z)", _POSITIVE),
    Activation("sin", 10, "sin(z)", "cos(z)", "sin(z)", (-1, 1)),
    Activation("gaussian", 11, "exp(-z * z)", "-2 * z * exp(-z * z)", "exp(-z * z)", (0, 1)),
    Activation("abs", 12, "abs(z)", f"where(z > 0, 1, where(z < 0, -1, {_KINK}))", "abs(z)", _POSITIVE),
    Activation("square", 13, "z * z", "2 * z", "square(z)", _POSITIVE),
    Activation(
        "hardtanh", 14, "where(z < -1, -1, where(z > 1, 1, z))", "where(abs(z) >= 1, 0, 1)", "hardtanh(z)", (-1, 1)
    ),
    Activation(
        "hat",
        15,
        "where(abs(z) >= 1, 0, 1 - abs(z))",
        f"where(abs(z) >= 1, 0, where(z > 0, -1, where(z < 0, 1, {_KINK})))",
        "relu(1 - abs(z))",
        (0, 1),
    ),
)

#: The table, by name.
ACTIVATIONS: Mapping[str, Activation] = MappingProxyType({row.name: row for row in _ROWS})
BY_CODE: Mapping[int, Activation] = MappingProxyType({row.code: row for row in _ROWS})
#: By code, whether the derivative needs z; the last entry stands for all codes beyond, which are custom.
_NEEDS_Z = np.array([code in BY_CODE and BY_CODE[code].needs_z for code in range(max(BY_CODE) + 2)])


def derivative_needs_z(code: IntArray) -> BoolArray:
    """Whether the derivatives of activations with these codes need z; False for custom ones."""
    needs_z: BoolArray = _NEEDS_Z[np.minimum(code, len(_NEEDS_Z) - 1)]
    return needs_z


def lookup(name: str) -> Activation:
    """Return the row with this name."""
    try:
        return ACTIVATIONS[name]
    except KeyError:
        raise ActivationError(
            f"unknown activation {name!r}. Choose from {', '.join(ACTIVATIONS)}, or pass a torch callable."
        ) from None

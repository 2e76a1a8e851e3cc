"""What the kernels compute for a single neuron: the rows of the activation table, and the draws of dropout."""

from __future__ import annotations

import ast
import linecache
from types import FunctionType
from typing import Any

import triton
import triton.language as tl

from fourward.engine import _dropout
from fourward.plan.activations import ACTIVATIONS


@triton.jit
def _expm1(x):
    """exp(x) - 1: a series near 0, where the difference would lose digits."""
    ORDER: tl.constexpr = 14 if x.dtype == tl.float64 else 9
    s = x * (1.0 / ORDER) + 1
    for k in tl.static_range(ORDER - 2):
        s = x * (1.0 / (ORDER - 1 - k)) * s + 1
    return tl.where(tl.abs(x) < 0.5, x * s, tl.exp(x) - 1)


@triton.jit
def _log1p(x):
    """log(1 + x) for x >= 0: 2 artanh(x / (2 + x)) near 0, where 1 + x would lose digits."""
    ORDER: tl.constexpr = 9 if x.dtype == tl.float64 else 5
    s = x / (2 + x)
    square = s * s
    series = square * (1.0 / (2 * ORDER + 1)) + 1.0 / (2 * ORDER - 1)
    for k in tl.static_range(ORDER - 1):
        series = series * square + 1.0 / (2 * ORDER - 3 - 2 * k)
    return tl.where(x < 0.3, 2 * s * series, tl.log(1 + x))


@triton.jit
def _tanh(x):
    """From exp(-2|x|) - 1, which neither overflows nor loses digits."""
    e = _expm1(-2 * tl.abs(x))
    a = -e / (e + 2)
    return tl.where(x < 0, -a, a)


# The function that all engines share, among the names of this module: Triton's interpreter looks for `tl` there.
_hash32 = triton.jit(FunctionType(_dropout.hash32.__code__, globals()))
_NODE_FACTOR, _SAMPLE_FACTOR = tl.constexpr(_dropout.NODE_FACTOR), tl.constexpr(_dropout.SAMPLE_FACTOR)


@triton.jit
def hash_node(key, node):
    """The part of a draw that depends on the pass and the node."""
    return _hash32(node.to(tl.uint64) * _NODE_FACTOR + key.to(tl.uint64)) * _SAMPLE_FACTOR


@triton.jit
def dropout_factor(node_hash, sample, threshold, p_bits, hidden, ACC_DTYPE: tl.constexpr):
    """0 where a hidden neuron is dropped for a sample, else 1 / (1 - p); 1 for all other nodes.

    p comes as the bits of a float64, since Triton passes Python floats as float32.
    """
    p = (p_bits + tl.full((1,), 0, tl.int64)).to(tl.float64, bitcast=True)
    retained = _hash32(node_hash + sample.to(tl.uint64)).to(tl.int64) >= threshold
    scale = tl.where(retained, (1 / (1 - p)).to(ACC_DTYPE), 0)
    return tl.where(hidden != 0, scale, 1)


class _ToTriton(ast.NodeTransformer):
    """Rewrites a formula of the table over `triton.language`.

    Numbers that `where` chooses between get the dtype of z, as in torch.
    """

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        assert isinstance(node.func, ast.Name)
        if node.func.id == "where":
            node.args[1:] = [_cast_constant(arg) for arg in node.args[1:]]
        if node.func.id not in ("expm1", "log1p", "tanh"):
            node.func.id = f"tl.{node.func.id}"
        return node


def _cast_constant(formula: ast.expr) -> ast.expr:
    is_constant = isinstance(formula.operand if isinstance(formula, ast.UnaryOp) else formula, ast.Constant)
    return ast.Name(f"tl.full(z.shape, {ast.unparse(formula)}, z.dtype)") if is_constant else formula


def _to_triton(formula: str) -> str:
    return ast.unparse(_cast_constant(_ToTriton().visit(ast.parse(formula, mode="eval")).body))


def _generate_source() -> str:
    """The table as Triton functions; CODES has bit c set if some neuron's activation is c."""
    lines = []
    for row in ACTIVATIONS.values():
        lines += ["@triton.jit", f"def f_{row.name}(z):", f"    return {_to_triton(row.formula)}"]
        lines += ["@triton.jit", f"def d_{row.name}(z, a):", f"    return {_to_triton(row.derivative)}"]
        lines += ["@triton.jit", f"def b_{row.name}(z, a, grad):", f"    return {_to_triton(row.backward)}"]
    functions = ("activate", "f", "z"), ("activation_grad", "d", "z, a"), ("activation_backward", "b", "z, a, grad")
    for name, prefix, parameters in functions:
        lines += ["@triton.jit", f"def {name}({parameters}, code, CODES: tl.constexpr):", "    out = z"]
        for row in ACTIVATIONS.values():
            call = f"{prefix}_{row.name}({parameters})"
            lines += [f"    if CODES == {1 << row.code}:", f"        out = {call}"]
            lines += [f"    elif (CODES >> {row.code}) & 1 == 1:"]
            lines += [f"        out = tl.where(code == {row.code}, {call}, out)"]
        lines += ["    return out"]
    return "\n".join(lines) + "\n"


def _compile_source() -> dict[str, Any]:
    """Compile the functions under a file name from which Triton can read their source back."""
    source, name = _generate_source(), "<fourward activations>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    namespace: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    namespace |= {"expm1": _expm1, "log1p": _log1p, "tanh": _tanh}
    exec(compile(source, name, "exec"), namespace)
    return namespace


_namespace = _compile_source()
#: activate(z, code, CODES) is f(z), activation_grad(z, a, code, CODES) is f'(z), of the activation with that code;
#: activation_backward(z, a, grad, code, CODES) is grad f'(z), where zeros of f' stay zeros even if grad is infinite.
activate, activation_grad = _namespace["activate"], _namespace["activation_grad"]
activation_backward = _namespace["activation_backward"]

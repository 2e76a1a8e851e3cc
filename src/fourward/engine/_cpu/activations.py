"""Activations, their derivatives and dropout for a row of numbers, in Numba.

The functions are generated from the activation table, a branch with a loop for each of its rows. A row of numbers is a
pointer to `width` of them; `zero` is a 0 of their type.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

import ast
import linecache
import math

from numba import njit

from fourward.engine._cpu.simd import cast_like
from fourward.engine._dropout import NODE_FACTOR, SAMPLE_FACTOR, hash32
from fourward.plan.activations import ACTIVATIONS

_jit = njit(nogil=True, error_model="numpy")


class _Translator(ast.NodeTransformer):
    """Translate a formula of the table to Numba.

    Literals take the type of `zero`, since Python's would turn float32 into float64. `where` becomes a conditional
    expression, of which only one side is computed. Where the sign of a is all that matters, it is read from scaled_a:
    that differs from a by the positive factor of dropout, and a multiplication is saved.
    """

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if node.func.id == "where":
            test, body, orelse = node.args
            return ast.IfExp(test, body, orelse)
        if node.func.id != "abs":
            node.func = ast.Attribute(ast.Name("math"), node.func.id)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        if ast.unparse(node.left) == "a" and ast.unparse(node.comparators[0]) == "0":
            node.left = ast.Name("scaled_a")
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name("zero" if node.value == 0 else f"cast_like(zero, {float(node.value)!r})")


def _translate(formula: ast.expr) -> str:
    return ast.unparse(_Translator().visit(formula))


def _times_grad(formula: ast.expr) -> ast.expr:
    """The product of grad and a formula. Zeros stay zeros, where a product with an infinite grad would be NaN."""
    if isinstance(formula, ast.Call) and formula.func.id == "where":
        test, body, orelse = formula.args
        return ast.Call(formula.func, [test, _times_grad(body), _times_grad(orelse)], [])
    if isinstance(formula, ast.Constant) and formula.value in (0, 1):
        return ast.Name("grad") if formula.value == 1 else formula
    return ast.BinOp(ast.Name("grad"), ast.Mult(), formula)


def _parse(formula: str) -> ast.expr:
    return ast.parse(formula, mode="eval").body


def _source() -> str:
    """The table as two functions; identity needs no branch."""
    forward = ["def activate(code, row, width, zero):", "    if code == 0:", "        pass"]
    backward = ["def multiply_by_derivative(code, grads, a_row, z_row, width, unscale, zero):", *forward[1:]]
    for row in ACTIVATIONS.values():
        if row.name == "identity":
            continue
        branch = [f"    elif code == {row.code}:  # {row.name}", "        for j in range(width):"]
        forward += [*branch, "            z = row[j]", f"            row[j] = {_translate(_parse(row.formula))}"]
        values = ["grad = grads[j]", "scaled_a = a_row[j]", "a = scaled_a * unscale", *["z = z_row[j]"] * row.needs_z]
        lines = [*values, f"grads[j] = {_translate(_times_grad(_parse(row.derivative)))}"]
        backward += [*branch, *(f"            {line}" for line in lines)]
    return "\n".join([*forward, "", "", *backward, ""])


def _generate() -> dict[str, object]:
    """Compile the source under a name that tracebacks can read it from."""
    text, name = _source(), "<fourward CPU activations>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    names = {"math": math, "cast_like": cast_like, "__name__": __name__}
    exec(compile(text, name, "exec"), names)
    return names


_generated = _generate()

#: activate(code, row, width, zero): row = f(row).
activate = _jit(_generated["activate"])

#: multiply_by_derivative(code, grads, a_row, z_row, width, unscale, zero): grads *= f'(z), from a_row * unscale = f(z)
#: where that is enough, else from z_row. `unscale` is the reciprocal of what dropout multiplied a with.
multiply_by_derivative = _jit(_generated["multiply_by_derivative"])

_hash32 = _jit(hash32)


@_jit
def apply_dropout(row, width, node, sample, key, threshold, scale, zero):
    """Multiply the row of a node by what dropout draws for it; `sample` is the batch index of its first number."""
    node_draw = _hash32(node * NODE_FACTOR + key) * SAMPLE_FACTOR
    for j in range(width):
        row[j] *= scale if _hash32(node_draw + sample + j) >= threshold else zero

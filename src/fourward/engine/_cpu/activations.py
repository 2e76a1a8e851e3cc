"""Activations, their derivatives and dropout for a row of numbers.

Generated from the activation table: a branch for each of its rows, whose formula `vector_math` turns into vector code.
A row of numbers is a pointer to `width` of them, a power of 2; `zero` is a 0 of their type.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

import ast
import linecache

from numba import njit
from numba.core import types
from numba.extending import intrinsic

from fourward.engine._cpu.simd import for_each_group
from fourward.engine._cpu.vector_math import VectorMath
from fourward.engine._dropout import NODE_FACTOR, SAMPLE_FACTOR, hash32
from fourward.plan.activations import ACTIVATIONS

_jit = njit(nogil=True, error_model="numpy")


def _activation(formula: str):
    """An intrinsic of (row, width): row = f(row)."""
    expression = ast.parse(formula, mode="eval").body

    @intrinsic
    def apply(typingctx, row, width):
        def codegen(context, builder, signature, args):
            def compute(vector, values):
                return VectorMath(builder, vector).evaluate(expression, {"z": values[0]})

            for_each_group(context, builder, row.dtype, args[1], [args[0]], compute)
            return context.get_dummy_value()

        return types.void(row, types.int64), codegen

    return apply


def _backward(formula: str, needs_z: bool):
    """An intrinsic of (grads, a_row, z_row, width, unscale): grads *= f'(z), from a = a_row * unscale or from z."""
    expression = ast.parse(formula, mode="eval").body
    compares_only = all(
        isinstance(node, ast.Compare)
        or not any(isinstance(n, ast.Name) and n.id == "a" for n in ast.iter_child_nodes(node))
        for node in ast.walk(expression)
    )

    @intrinsic
    def apply(typingctx, grads, a_row, z_row, width, unscale):
        def codegen(context, builder, signature, args):
            grads_, a_row_, z_row_, width_, unscale_ = args

            def compute(vector, values):
                math = VectorMath(builder, vector)
                names = {"grad": values[0], "z" if needs_z else "a": values[1]}
                if not needs_z and not compares_only:  # where only its sign matters, that of a_row will do
                    names["a"] = builder.fmul(values[1], math.broadcast(unscale_))
                return math.evaluate(expression, names)

            for_each_group(context, builder, grads.dtype, width_, [grads_, z_row_ if needs_z else a_row_], compute)
            return context.get_dummy_value()

        return types.void(grads, a_row, z_row, types.int64, unscale), codegen

    return apply


def _branches(name: str, make, arguments: str) -> tuple[str, dict[str, object]]:
    """The source of a function that calls the intrinsic of each row of the table; identity needs none."""
    lines, intrinsics = [f"def {name}(code, {arguments}):", "    if code == 0:", "        pass"], {}
    for row in ACTIVATIONS.values():
        if row.name != "identity":
            lines += [f"    elif code == {row.code}:", f"        {row.name}({arguments})"]
            intrinsics[row.name] = make(row)
    return "\n".join([*lines, ""]), intrinsics


def _generate(name: str, make, arguments: str):
    """Compile the branches under a file name that tracebacks can read them from."""
    text, names = _branches(name, make, arguments)
    file = f"<fourward CPU {name}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names["__name__"] = __name__
    exec(compile(text, file, "exec"), names)
    return _jit(names[name])


#: activate(code, row, width): row = f(row).
activate = _generate("activate", lambda row: _activation(row.formula), "row, width")

#: multiply_by_derivative(code, grads, a_row, z_row, width, unscale): grads *= f'(z), from a_row * unscale = f(z) where
#: that is enough, else from z_row. `unscale` is the reciprocal of what dropout multiplied a with.
multiply_by_derivative = _generate(
    "multiply_by_derivative",
    lambda row: _backward(row.backward, row.needs_z),
    "grads, a_row, z_row, width, unscale",
)

_hash32 = _jit(hash32)


@_jit
def apply_dropout(row, width, node, sample, key, threshold, scale, zero):
    """Multiply the row of a node by what dropout draws for it; `sample` is the batch index of its first number."""
    node_draw = _hash32(node * NODE_FACTOR + key) * SAMPLE_FACTOR
    for j in range(width):
        row[j] *= scale if _hash32(node_draw + sample + j) >= threshold else zero

"""What happens to a row of sums: activations by the codes of the table, their derivatives, dropout.

A row is a pointer to `width` numbers; `zero` is a 0 of their type.
"""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

import math

from numba import njit

from fourward.engine._cpu.simd import number
from fourward.engine._dropout import NODE_FACTOR, SAMPLE_FACTOR, hash32
from fourward.plan.activations import ACTIVATIONS

_CODE = {name: row.code for name, row in ACTIVATIONS.items()}
IDENTITY, RELU, LEAKY_RELU, ELU, SELU = (_CODE[n] for n in ("identity", "relu", "leaky_relu", "elu", "selu"))
GELU, SILU, TANH, SIGMOID, SOFTPLUS = (_CODE[n] for n in ("gelu", "silu", "tanh", "sigmoid", "softplus"))
SIN, GAUSSIAN, ABS, SQUARE = (_CODE[n] for n in ("sin", "gaussian", "abs", "square"))
HARDTANH, HAT = _CODE["hardtanh"], _CODE["hat"]


@njit(nogil=True, error_model="numpy")
def activate(code, row, width, zero):
    """Apply f to a row."""
    one = number(zero, 1.0)
    if code == RELU:
        for j in range(width):
            row[j] = zero if row[j] <= zero else row[j]
    elif code == LEAKY_RELU:
        for j in range(width):
            row[j] = row[j] if row[j] > zero else number(zero, 0.01) * row[j]
    elif code == ELU:
        for j in range(width):
            row[j] = row[j] if row[j] > zero else math.expm1(row[j])
    elif code == SELU:
        for j in range(width):
            scaled = number(zero, 1.7580993408473766) * math.expm1(row[j])
            row[j] = number(zero, 1.0507009873554805) * row[j] if row[j] > zero else scaled
    elif code == GELU:
        for j in range(width):
            row[j] = number(zero, 0.5) * row[j] * (one + math.erf(number(zero, 0.7071067811865476) * row[j]))
    elif code == SILU:
        for j in range(width):
            row[j] = row[j] / (one + math.exp(-row[j]))
    elif code == TANH:
        for j in range(width):
            row[j] = math.tanh(row[j])
    elif code == SIGMOID:
        for j in range(width):
            row[j] = one / (one + math.exp(-row[j]))
    elif code == SOFTPLUS:
        for j in range(width):
            row[j] = row[j] if row[j] > number(zero, 20.0) else math.log1p(math.exp(row[j]))
    elif code == SIN:
        for j in range(width):
            row[j] = math.sin(row[j])
    elif code == GAUSSIAN:
        for j in range(width):
            row[j] = math.exp(-row[j] * row[j])
    elif code == ABS:
        for j in range(width):
            row[j] = abs(row[j])
    elif code == SQUARE:
        for j in range(width):
            row[j] = row[j] * row[j]
    elif code == HARDTANH:
        for j in range(width):
            row[j] = -one if row[j] < -one else (one if row[j] > one else row[j])
    elif code == HAT:
        for j in range(width):
            row[j] = zero if abs(row[j]) >= one else one - abs(row[j])


@njit(nogil=True, error_model="numpy")
def descend(code, d, a, z, width, undo, zero):
    """Descend: d *= f'(z), from a * undo = f(z) where that is enough, else from z."""
    one = number(zero, 1.0)
    if code == RELU:
        for j in range(width):
            d[j] = zero if a[j] <= zero else d[j]
    elif code == LEAKY_RELU:
        for j in range(width):
            d[j] = d[j] if a[j] > zero else number(zero, 0.01) * d[j]
    elif code == ELU:
        for j in range(width):
            d[j] = d[j] if a[j] > zero else d[j] * (a[j] * undo + one)
    elif code == SELU:
        for j in range(width):
            slope = a[j] * undo + number(zero, 1.7580993408473766)
            d[j] *= number(zero, 1.0507009873554805) if a[j] > zero else slope
    elif code == GELU:
        for j in range(width):
            below = number(zero, 0.5) * (one + math.erf(number(zero, 0.7071067811865476) * z[j]))
            density = number(zero, 0.3989422804014327) * math.exp(number(zero, -0.5) * z[j] * z[j])
            d[j] *= below + z[j] * density
    elif code == SILU:
        for j in range(width):
            share = one / (one + math.exp(-z[j]))
            d[j] *= (one + z[j] * (one - share)) * share
    elif code == TANH:
        for j in range(width):
            d[j] *= one - a[j] * undo * a[j] * undo
    elif code == SIGMOID:
        for j in range(width):
            d[j] *= a[j] * undo * (one - a[j] * undo)
    elif code == SOFTPLUS:
        for j in range(width):
            d[j] *= -math.expm1(-a[j] * undo)
    elif code == SIN:
        for j in range(width):
            d[j] *= math.cos(z[j])
    elif code == GAUSSIAN:
        for j in range(width):
            d[j] *= number(zero, -2.0) * z[j] * math.exp(-z[j] * z[j])
    elif code == ABS:
        for j in range(width):
            d[j] *= one if z[j] > zero else (-one if z[j] < zero else z[j])
    elif code == SQUARE:
        for j in range(width):
            d[j] *= number(zero, 2.0) * z[j]
    elif code == HARDTANH:
        for j in range(width):
            d[j] = zero if abs(z[j]) >= one else d[j]
    elif code == HAT:
        for j in range(width):
            d[j] *= zero if abs(z[j]) >= one else (-one if z[j] > zero else (one if z[j] < zero else z[j]))


_hash32 = njit(nogil=True, error_model="numpy")(hash32)


@njit(nogil=True, error_model="numpy")
def apply_dropout(row, width, node, sample, key, threshold, scale, zero):
    """Multiply a neuron's row with what dropout draws for it; `sample` is the first of the row in the batch."""
    node_draw = _hash32(node * NODE_FACTOR + key) * SAMPLE_FACTOR
    for j in range(width):
        row[j] *= scale if _hash32(node_draw + sample + j) >= threshold else zero

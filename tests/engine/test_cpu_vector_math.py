"""Activations as vector code: accurate, alike at every width, and with and without SLEEF."""

import ctypes
import math
import re

import numpy as np
import pytest
import torch
from numba import cfunc, types

from fourward import Dag, FourWard
from fourward.engine._cpu import activations, vector_math
from fourward.plan.activations import ACTIVATIONS, VOCABULARY, Activation

TYPES = {np.float32: (types.float32, ctypes.c_float), np.float64: (types.float64, ctypes.c_double)}
FUNCTIONS = [function for function in VOCABULARY if function != "where"]


def compile_formula(formula, dtype):
    """A function of an array of a power of 2 numbers, in place."""
    apply, (numba_type, ctype) = activations._activation(formula), TYPES[dtype]
    compiled = cfunc(types.void(types.CPointer(numba_type), types.int64))(lambda row, width: apply(row, width))
    return lambda row: compiled.ctypes(row.ctypes.data_as(ctypes.POINTER(ctype)), len(row))


def evaluate(formula, z):
    """The formula in torch, in float64."""
    names = {name: getattr(torch, name) for name in FUNCTIONS}
    names["where"] = lambda test, x, y: torch.where(test, *(torch.as_tensor(v, dtype=torch.float64) for v in (x, y)))
    return eval(formula, names, {"z": torch.tensor(z).double()}).numpy()


def samples(dtype, size=4096):
    special = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        1e-30,
        -1e-30,
        1e30,
        -1e30,
        3e38,
        -3e38,
        20.0,
        88.0,
        -88.0,
        1.0,
        -1.0,
    ]
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(size - len(special)) * 10.0 ** rng.uniform(-4, 1, size - len(special))
    return np.concatenate((spread, special)).astype(dtype)


def assert_accurate(got, want, dtype, least):
    """A relative error of 3e-7 in float32 or 1e-15 in float64, of at least `least`."""
    finite = np.isfinite(want) & (np.abs(want) < np.finfo(dtype).max)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    with np.errstate(invalid="ignore"):
        assert np.array_equal(got[~finite], want.astype(dtype)[~finite], equal_nan=True)
    error = np.abs(got[finite].astype(np.float64) - want[finite]) / np.maximum(np.abs(want[finite]), least)
    assert error.max() < (4e-7 if dtype is np.float32 else 2e-15)


@pytest.mark.parametrize("dtype", TYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_functions_are_accurate_relative_to_their_value(function, dtype):
    z = samples(dtype)
    if function in ("sin", "cos"):
        z = z[np.abs(z) < 1e4]  # further out, the argument's own rounding is larger than 1
        z = np.resize(z, 2048)
    got = z.copy()
    compile_formula(f"{function}(z)", dtype)(got)
    # exp(-88) is below the smallest normal number of float32, and 0 here; near multiples of pi, sin is relative to 1
    least = {"exp": 1e-31 if dtype is np.float32 else 1e-300, "sin": 0.1, "cos": 0.1}.get(function, 1e-37)
    assert_accurate(got, evaluate(f"{function}(z)", z), dtype, least)


@pytest.mark.parametrize("dtype", TYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("sleef", ["as found", "256 bits", "none"])
@pytest.mark.parametrize("row", ACTIVATIONS.values(), ids=ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_activations_with_and_without_sleef(row: Activation, sleef, dtype, monkeypatch):
    """Processors with other vectors find other functions, and without any of them each lane calls C's."""
    sizes = {"as found": vector_math._vector_bytes(), "256 bits": (32,), "none": ()}[sleef]
    if sleef == "256 bits" and 64 not in vector_math._vector_bytes():
        pytest.skip("this processor's vectors are no longer than 256 bits")
    monkeypatch.setattr(vector_math, "_vector_bytes", lambda: sizes)
    monkeypatch.setattr(vector_math, "sleef_symbol", vector_math.sleef_symbol.__wrapped__)
    z = samples(dtype)
    got = z.copy()
    compile_formula(row.formula, dtype)(got)
    assert_accurate(got, evaluate(row.formula, z), dtype, least=1.0)
    derivative = re.sub(r"\ba\b", "z", row.derivative)  # a function of one number
    if "z" in derivative:
        z = np.resize(z[np.abs(z) < 30], len(z))  # products of float32 overflow further out
        got = z.copy()
        compile_formula(derivative, dtype)(got)
        least = 3.0 if row.name == "silu" else 1.0  # its derivative multiplies z by 1 minus a sigmoid
        assert_accurate(got, evaluate(derivative, z), dtype, least)


@pytest.mark.parametrize("dtype", TYPES, ids=["float32", "float64"])
@pytest.mark.parametrize("name", ["tanh", "gelu", "elu", "hat"])
def test_all_widths_give_the_same_bits(name, dtype):
    z = samples(dtype, 32)
    call = compile_formula(ACTIVATIONS[name].formula, dtype)
    want = z.copy()
    call(want)
    for width in (1, 2, 4, 8, 16, 32):
        got = z.copy()
        for start in range(0, 32, width):
            call(got[start : start + width])
        assert np.array_equal(got, want, equal_nan=True), width


@pytest.mark.skipif(vector_math._libtorch() is None, reason="torch's library isn't where it is expected")
def test_torch_exports_sleef_on_this_machine():
    """If a newer torch doesn't, everything still works, but slower: then this test says so."""
    if vector_math._vector_bytes():
        assert all(vector_math.sleef_symbol(function, bits) for function in vector_math._SLEEF for bits in (32, 64))


def test_softplus_ends_at_zero():
    net = FourWard(Dag.from_edges([(0, 1)]), "softplus", init=1.0, bias=False, engine="cpu")
    x = torch.tensor([[-1000.0], [-90.0], [-torch.inf]], requires_grad=True)
    y = net(x)
    y.backward(torch.full_like(y, torch.inf))
    exact = FourWard(net.dag, "softplus", init=1.0, bias=False, engine="reference")
    want = x.detach().requires_grad_()
    exact(want).backward(torch.full_like(y, torch.inf))
    assert torch.equal(y, torch.nn.functional.softplus(torch.tensor([[-1000.0], [-torch.inf], [-torch.inf]])))
    assert torch.equal(x.grad.isnan()[[0, 2]], want.grad.isnan()[[0, 2]])

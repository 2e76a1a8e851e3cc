"""Formulas of the activation table as vector code: an expression becomes LLVM instructions on a lane group.

`exp`, `expm1`, `tanh`, `erf` and `log1p` of float32 are polynomials in registers. All other functions, and those of
float64, are SLEEF's, which torch's own library exports for each vector width; where it doesn't, a function is called
lane by lane. Nanoseconds for 16 float32 on one core with AVX-512, where a relu network of mean degree 25 spends 9:

    function      tanh    exp    erf   log1p    sin
    lane by lane   164     39     52     160     38
    SLEEF         18.7    6.3   15.7    11.5    6.2
    here           2.2    1.9    5.3     4.5

Literals take the type of the lanes, and both sides of a `where` are computed.
"""

from __future__ import annotations

import ast
import ctypes
import math
import platform
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import torch
from llvmlite import ir
from numba.core import cgutils
from numba.core.codegen import get_host_cpu_features

from fourward.engine._cpu.simd import broadcast

#: SLEEF's variant of each function, by its largest error in tenths of a unit in the last place.
_SLEEF = {"cos": "u35", "erf": "u10", "exp": "u10", "expm1": "u10", "log1p": "u10", "sin": "u35", "tanh": "u10"}


@cache
def _libtorch() -> Any:
    """The library with torch's operators, which contains SLEEF; None where there is none."""
    for name in ("libtorch_cpu.so", "libtorch_cpu.dylib", "torch_cpu.dll"):
        path = Path(torch.__file__).parent / "lib" / name
        if path.exists():
            return ctypes.CDLL(str(path))
    return None


def _vector_bytes() -> tuple[int, ...]:
    """The widths of the vector registers that functions may be called with, widest first."""
    if platform.machine() in ("aarch64", "arm64"):
        return (16,)
    features = get_host_cpu_features().split(",")
    return tuple(size for feature, size in (("+avx512f", 64), ("+avx2", 32)) if feature in features)


@cache
def sleef_symbol(function: str, bits: int) -> tuple[str, int] | None:
    """SLEEF's name for a function of the vocabulary on floats of so many bits, and its lanes; None where it lacks it.

    The name becomes known to LLVM, so that code which Numba has cached finds the function again.
    """
    for size in _vector_bytes():
        lanes = 8 * size // bits
        name = f"Sleef_{function}{'f' if bits == 32 else 'd'}{lanes}_{_SLEEF[function]}"
        address = getattr(_libtorch(), name, None)
        if address is not None:
            llvm.add_symbol(name, ctypes.cast(address, ctypes.c_void_p).value)
            return name, lanes
    return None


def linked_symbols() -> str:
    """The symbols that compiled code calls, for the key of Numba's cache."""
    return " ".join(str(sleef_symbol(function, bits)) for function in _SLEEF for bits in (32, 64))


class VectorMath:
    """Instructions on vectors of one type, added to a function under construction."""

    def __init__(self, builder: Any, vector: Any) -> None:
        self.builder, self.vector, self.lanes = builder, vector, vector.count
        self.bits = 32 if vector.element == ir.FloatType() else 64
        self.integers = ir.VectorType(ir.IntType(self.bits), self.lanes)

    def number(self, value: float) -> Any:
        """A vector of this number."""
        return ir.Constant(self.vector, [value] * self.lanes)

    def broadcast(self, value: Any) -> Any:
        """A number of the program in all lanes."""
        return broadcast(self.builder, self.vector, value)

    def integer(self, value: int) -> Any:
        """A vector of this integer."""
        return ir.Constant(self.integers, [value] * self.lanes)

    def evaluate(self, formula: ast.expr, names: dict[str, Any]) -> Any:
        """The value of an expression; names stand for vectors."""
        match formula:
            case ast.Name(name):
                return names[name]
            case ast.Constant(int() | float() as value):
                return self.number(float(value))
            case ast.UnaryOp(ast.USub(), operand):
                return self.builder.fneg(self.evaluate(operand, names))
            case ast.BinOp(left, operator, right):
                instruction = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}[type(operator)]
                return getattr(self.builder, instruction)(self.evaluate(left, names), self.evaluate(right, names))
            case ast.Compare(left, [operator], [right]):
                symbol = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}[type(operator)]
                return self.builder.fcmp_ordered(symbol, self.evaluate(left, names), self.evaluate(right, names))
            case ast.Call(ast.Name("where"), [test, body, orelse]):
                cases = (self.intrinsic("arithmetic.fence", self.evaluate(case, names)) for case in (body, orelse))
                return self.builder.select(self.evaluate(test, names), *cases)
            case ast.Call(ast.Name("log1p"), [ast.Call(ast.Name("exp"), [argument])]) if self.bits == 32:
                return self.log1p_exp(self.evaluate(argument, names))
            case ast.Call(ast.Name(function), [argument]):
                return self.call(function, self.evaluate(argument, names))
        raise AssertionError(f"no vector code for {ast.unparse(formula)}")

    def call(self, function: str, x: Any) -> Any:
        """A function of the vocabulary."""
        own = {"erf": self.erf, "exp": self.exp, "expm1": self.expm1, "log1p": self.log1p, "tanh": self.tanh}
        if function == "abs":
            return self.intrinsic("fabs", x)
        if self.bits == 32 and function in own:
            return own[function](x)
        return self.library(function, x)

    def intrinsic(self, name: str, *values: Any) -> Any:
        """One of LLVM's functions that are instructions of the processor."""
        suffix = f"v{self.lanes}f{self.bits}"
        kind = ir.FunctionType(self.vector, [self.vector] * len(values))
        function = cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.{name}.{suffix}")
        return self.builder.call(function, values)

    def library(self, function: str, x: Any) -> Any:
        """SLEEF's function on parts of its width, or C's on each lane."""
        name, lanes = sleef_symbol(function, self.bits) or (function + "f" * (self.bits == 32), 1)
        if lanes == 1:
            return self._lane_by_lane(name, x)
        part = ir.VectorType(self.vector.element, lanes)
        callee = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(part, [part]), name)
        parts = [self._shuffle(x, x, range(i, i + lanes)) for i in range(0, self.lanes, lanes)]
        return self._join([self.builder.call(callee, [value]) for value in parts])

    def _lane_by_lane(self, name: str, x: Any) -> Any:
        scalar = self.vector.element
        callee = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(scalar, [scalar]), name)
        for i in range(self.lanes):
            lane = ir.Constant(ir.IntType(32), i)
            value = self.builder.call(callee, [self.builder.extract_element(x, lane)])
            x = self.builder.insert_element(x, value, lane)
        return x

    def _shuffle(self, x: Any, y: Any, lanes: Sequence[int]) -> Any:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), list(lanes))
        return self.builder.shuffle_vector(x, y, mask)

    def _join(self, parts: list[Any]) -> Any:
        while len(parts) > 1:
            size = 2 * parts[0].type.count
            parts = [self._shuffle(x, y, range(size)) for x, y in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    # float32 in registers. With n = round(x / ln 2) and r = x - n ln 2, |r| <= 0.3466: exp(x) = 2^n exp(r), and
    # exp(r) - 1 is r plus r^2 times a polynomial, whose relative error in exp(r) is at most 4e-9.

    def _reduce(self, x: Any, exponent: int) -> tuple[Any, Any]:
        """2^(n + exponent), which must be below 2^128 and is 0 below 2^-126; and exp(r) - 1."""
        builder = self.builder
        magic = 12582912.0  # 1.5 2^23: the sum's last bits are n, and those of magic itself are 0
        shifted = self.fma(x, self.number(1 / math.log(2)), self.number(magic))
        n = builder.fsub(shifted, self.number(magic))
        r = self.fma(n, self.number(-0.693145751953125), x)  # 16 bits of ln 2, so that n times them is exact
        r = self.fma(n, self.number(-1.428606820309417e-06), r)
        power = builder.shl(builder.bitcast(shifted, self.integers), self.integer(23))
        power = builder.bitcast(builder.add(power, self.integer((127 + exponent) << 23)), self.vector)
        return power, self.fma(self._polynomial(_EXP, r), builder.fmul(r, r), r)

    def _polynomial(self, coefficients: Sequence[float], x: Any) -> Any:
        value = self.number(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            value = self.fma(value, x, self.number(coefficient))
        return value

    def _at_least(self, bound: float, x: Any) -> Any:
        """The larger of x and a bound; NaN stays."""
        least = self.number(bound)
        return self.builder.select(self.builder.fcmp_ordered("<", x, least), least, x)

    def _at_most(self, bound: float, x: Any) -> Any:
        most = self.number(bound)
        return self.builder.select(self.builder.fcmp_ordered(">", x, most), most, x)

    def exp(self, x: Any) -> Any:
        """The exponential; 0 where that is below 2^-125."""
        half, rest = self._reduce(self._at_least(-87.3, self._at_most(89.0, x)), exponent=-1)
        half = self.fma(half, rest, half)
        return self.builder.fadd(half, half)

    def expm1(self, x: Any) -> Any:
        """exp(x) - 1, without cancellation near 0."""
        half, rest = self._reduce(self._at_least(-20.0, self._at_most(89.0, x)), exponent=-1)
        half = self.fma(half, rest, self.builder.fsub(half, self.number(0.5)))
        return self.builder.fadd(half, half)

    def tanh(self, x: Any) -> Any:
        """-u / (u + 2) with u = expm1(-2 abs(x)), and the sign of x."""
        twice = self._at_most(20.0, self.builder.fmul(self.intrinsic("fabs", x), self.number(2.0)))
        u = self._expm1_from_minus_20_to_0(self.builder.fneg(twice))
        return self.intrinsic("copysign", self.builder.fdiv(u, self.builder.fadd(u, self.number(2.0))), x)

    def _expm1_from_minus_20_to_0(self, x: Any) -> Any:
        power, rest = self._reduce(x, exponent=0)
        return self.fma(power, rest, self.builder.fsub(power, self.number(1.0)))

    def erf(self, x: Any) -> Any:
        """1 - erfc(abs(x)) with the sign of x, where -log(erfc(t)) / t is a polynomial."""
        t = self._at_most(4.0, self.intrinsic("fabs", x))  # from there on, erfc is below 2e-8
        u = self._expm1_from_minus_20_to_0(self.builder.fneg(self.builder.fmul(t, self._polynomial(_ERF, t))))
        return self.intrinsic("copysign", u, x)

    def log1p(self, x: Any) -> Any:
        """E log(2) + log(1 + f), where 1 + x = 2^e (1 + f) and 1 + f is between sqrt(1/2) and sqrt(2).

        f comes from x, not from the rounded 1 + x, so that nothing is cancelled near 0.
        """
        builder, unity, argument = self.builder, self.number(1.0), x
        is_large = builder.fcmp_ordered(">", x, self.number(1e30))  # log1p(x) is 2 log(2) + log1p(x / 4) there
        x = builder.select(is_large, builder.fmul(x, self.number(0.25)), x)
        bits = builder.bitcast(builder.fadd(x, unity), self.integers)
        exponent = builder.ashr(builder.sub(bits, self.integer(0x3F3504F3)), self.integer(23))
        scale = builder.sub(self.integer(127 << 23), builder.shl(exponent, self.integer(23)))
        scale = builder.bitcast(scale, self.vector)
        f = self.fma(x, scale, builder.fsub(scale, unity))
        value = self.fma(self._polynomial(_LOG1P, f), builder.fmul(f, f), f)
        value = self.fma(builder.sitofp(exponent, self.vector), self.number(math.log(2)), value)
        value = builder.select(is_large, builder.fadd(value, self.number(2 * math.log(2))), value)
        for symbol, bound, limit in (("==", math.inf, math.inf), ("==", -1.0, -math.inf), ("<", -1.0, math.nan)):
            at_limit = builder.fcmp_ordered(symbol, argument, self.number(bound))
            value = builder.select(at_limit, self.number(limit), value)
        return value

    def log1p_exp(self, x: Any) -> Any:
        """log1p(exp(x)) as max(x, 0) + log1p(exp(-abs(x))), whose second term is a polynomial."""
        # At -88 the power is 2^-127, which is 0: softplus of what is below is 0, also of minus infinity.
        power, rest = self._reduce(self._at_least(-88.0, self.builder.fneg(self.intrinsic("fabs", x))), exponent=0)
        y = self.fma(power, rest, power)
        return self.fma(y, self._polynomial(_LOG1P_TO_1, y), self._at_least(0.0, x))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """X * y + z, rounded once."""
        return self.intrinsic("fma", x, y, z)


#: Coefficients of (exp(r) - 1 - r) / r^2 from that of r^0 on: a minimax fit, weighted with r^2.
_EXP = (0.5000000095166978, 0.16666518849727233, 0.04166620586870887, 0.008368888082933745, 0.0013950486515982193)

#: Coefficients of -log(erfc(t)) / t for t up to 4, weighted so that the relative error in erf is at most 5e-9.
_ERF = (
    1.1283791716098277, 0.6366193820081816, 0.10277783018108444, -0.019153062797617942, -0.00016039798402256444,
    0.001667029292542449, -0.0006328378228612486, 0.00011764153528451282, -9.2562940380847e-06,
)  # fmt: skip

#: Coefficients of (log(1 + f) - f) / f^2, weighted so that the relative error in the logarithm is at most 5e-9.
_LOG1P = (
    -0.4999998914193086, 0.3333330838304412, -0.25001523626328703, 0.20003009628928836, -0.16611103875689634,
    0.14163576377906137, -0.13209332011493555, 0.13004266850223886, -0.07821205946244969,
)  # fmt: skip

#: Coefficients of log1p(y) / y for y from 0 to 1, with a relative error of at most 5e-9.
_LOG1P_TO_1 = (
    0.9999999952885702, -0.499999024298645, 0.3332996252475918, -0.2495413439575654, 0.19675941945684466,
    -0.15305598146213226, 0.1060366157075766, -0.05695957855782248, 0.019851476272514393, -0.003244026402675279,
)  # fmt: skip

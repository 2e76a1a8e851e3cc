"""The formulas of built-in activations, translated to Python, C, LaTeX and ONNX."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

T = TypeVar("T")

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Lt: "<",
    ast.Gt: ">",
    ast.LtE: "<=",
    ast.GtE: ">=",
}


class Translator(ABC, Generic[T]):
    """Visits the syntax tree of a formula; subclasses say what each kind of node becomes."""

    def translate(self, formula: str, z: T) -> T:
        """Translate a formula of `fourward.plan.activations`; `z` is the translation of its argument."""
        return self._visit(ast.parse(formula, mode="eval").body, z)

    def _visit(self, node: ast.AST, z: T) -> T:
        if isinstance(node, ast.Name):
            return z
        if isinstance(node, ast.Constant):
            assert isinstance(node.value, int | float)
            return self.number(node.value)
        if isinstance(node, ast.UnaryOp):
            inner = node.operand
            if isinstance(inner, ast.Constant):
                assert isinstance(inner.value, int | float)
                return self.number(-inner.value)
            return self.negative(self._visit(inner, z))
        if isinstance(node, ast.BinOp):
            return self.binary(_OPERATORS[type(node.op)], self._visit(node.left, z), self._visit(node.right, z))
        if isinstance(node, ast.Compare):
            return self.binary(
                _OPERATORS[type(node.ops[0])], self._visit(node.left, z), self._visit(node.comparators[0], z)
            )
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        return self.call(node.func.id, [self._visit(arg, z) for arg in node.args])

    @abstractmethod
    def number(self, value: float) -> T:
        """A constant."""

    @abstractmethod
    def negative(self, x: T) -> T:
        """-x."""

    @abstractmethod
    def binary(self, operator: str, x: T, y: T) -> T:
        """One of + - * / < > <= >=."""

    @abstractmethod
    def call(self, name: str, args: list[T]) -> T:
        """A function of `fourward.plan.activations.VOCABULARY`."""


class _SourceTranslator(Translator[str]):
    """What Python and C write alike."""

    def negative(self, x: str) -> str:
        """-x."""
        return f"(-{x})"

    def binary(self, operator: str, x: str, y: str) -> str:
        """Always in parentheses."""
        return f"({x} {operator} {y})"


class PythonTranslator(_SourceTranslator):
    """Expressions over the module math; `used_helpers` collects those of `HELPERS` that they call."""

    def __init__(self) -> None:
        self.used_helpers: set[str] = set()

    def number(self, value: float) -> str:
        """The literal, negative ones in parentheses."""
        return f"({value!r})" if value < 0 else repr(value)

    def call(self, name: str, args: list[str]) -> str:
        """`where` becomes a conditional expression, which evaluates one branch only."""
        if name == "where":
            return f"({args[1]} if {args[0]} else {args[2]})"
        self.used_helpers |= {name} & HELPERS.keys()
        return f"{name if name in HELPERS or name == 'abs' else 'math.' + name}({args[0]})"


#: Replacements for functions of math that raise where torch returns inf or NaN.
HELPERS = {
    "exp": "def exp(z):\n    return math.inf if z >= 709 else math.exp(z)",
    "expm1": "def expm1(z):\n    return math.inf if z >= 709 else math.expm1(z)",
    "log1p": "def log1p(z):\n    return math.log1p(z) if z > -1 else -math.inf if z == -1 else math.nan",
    "cos": "def cos(z):\n    return math.cos(z) if math.isfinite(z) else math.nan",
    "sin": "def sin(z):\n    return math.sin(z) if math.isfinite(z) else math.nan",
}


class CTranslator(_SourceTranslator):
    """Expressions of C over math.h, in `real`: "float" or "double"."""

    def __init__(self, real: str) -> None:
        self.digits, self.suffix = (9, "f") if real == "float" else (17, "")

    def literal(self, value: float) -> str:
        """A literal that the compiler reads as the same value."""
        text = f"{value:.{self.digits}g}"
        return f"{text}{'' if '.' in text or 'e' in text else '.0'}{self.suffix}"

    def number(self, value: float) -> str:
        """The literal, negative ones in parentheses."""
        return f"({self.literal(value)})" if value < 0 else self.literal(value)

    def call(self, name: str, args: list[str]) -> str:
        """`where` becomes a conditional expression."""
        if name == "where":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        return f"{'fabs' if name == 'abs' else name}{self.suffix}({args[0]})"


_SIGNS = {"<=": r"\le", ">=": r"\ge"}


class LatexTranslator(Translator[str]):
    """LaTeX math."""

    def number(self, value: float) -> str:
        """Six significant digits."""
        return f"{value:.6g}"

    def negative(self, x: str) -> str:
        """-x."""
        return f"-{x}"

    def binary(self, operator: str, x: str, y: str) -> str:
        """Division as a fraction; sums in parentheses within a product."""
        if operator == "/":
            return rf"\frac{{{x}}}{{{y}}}"
        if operator == "*":
            return rf"{_parenthesize(x)} \, {_parenthesize(y)}"
        return f"{x} {_SIGNS.get(operator, operator)} {y}"

    def call(self, name: str, args: list[str]) -> str:
        """`where` as cases."""
        if name == "where":
            rows = rf"{args[1]} & \text{{if }} {args[0]} \\ {args[2]} & \text{{else}}"
            return rf"\begin{{cases}} {rows} \end{{cases}}"
        inner = args[0]
        if name == "exp":
            return rf"e^{{{inner}}}"
        if name == "expm1":
            return rf"e^{{{inner}}} - 1"
        if name == "abs":
            return rf"\left|{inner}\right|"
        function = {"log1p": r"\ln", "erf": r"\operatorname{erf}"}.get(name, "\\" + name)
        return rf"{function}\left({'1 + ' if name == 'log1p' else ''}{inner}\right)"


def _parenthesize(x: str) -> str:
    return rf"\left({x}\right)" if " + " in x or " - " in x else x

"""Export of small networks as LaTeX equations."""

from __future__ import annotations

import re

from fourward.errors import OptionError
from fourward.exchange._equations import TERMS_PER_LINE, list_equations
from fourward.exchange._formulas import LatexTranslator
from fourward.nn._fourward import FourWard, without_driven_inputs
from fourward.plan.activations import ACTIVATIONS

MAX_EDGES = 500  #: more are not readable
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_{}"},
}


def to_latex(net: FourWard, digits: int = 4) -> str:
    """Export a network as an `align*` environment of amsmath: an equation for each neuron and each activation.

    Args:
        net: The network.
        digits: Significant digits of weights and biases.
    """
    if not 1 <= digits <= 17:
        raise OptionError(f"digits must be an int from 1 to 17, got {digits!r}.")
    net = without_driven_inputs(net)
    labels, rows = net.dag.labels, []
    equations = list_equations(net, "LaTeX", MAX_EDGES)
    for node, activation, bias, terms in equations:
        texts = [] if bias is None else [_number(bias, digits)]
        texts += [rf"{_number(weight, digits)}\, {_symbol(labels[source])}" for weight, source in terms]
        rows.append(_equation(_symbol(labels[node]), activation, texts or ["0"]))
    translator = LatexTranslator()
    names = sorted({equation.activation for equation in equations} - {"identity"})
    rows += [f"{_function(name)}(z) &= {translator.translate(ACTIVATIONS[name].formula, 'z')}" for name in names]
    return "\n".join([r"\begin{align*}", *(row + r" \\" for row in rows[:-1]), *rows[-1:], r"\end{align*}", ""])


def _equation(left: str, name: str, terms: list[str]) -> str:
    lines = [_join_terms(terms[k : k + TERMS_PER_LINE], first=k == 0) for k in range(0, len(terms), TERMS_PER_LINE)]
    inner = " \\\\\n&\\quad ".join(lines)
    if name == "identity":
        return f"{left} &= {inner}"
    # \bigl, not \left: the parentheses may be on different lines
    return rf"{left} &= {_function(name)}\bigl( {inner} \bigr)"


def _join_terms(terms: list[str], first: bool) -> str:
    text = terms[0] if first or terms[0].startswith("-") else f"+ {terms[0]}"
    for term in terms[1:]:
        text += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return text


def _number(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if exponent else text


def _symbol(label: object) -> str:
    escaped = "".join(_SPECIAL.get(char, char) for char in re.sub(r"\s", " ", str(label)))
    return rf"a_{{\text{{{escaped}}}}}"


def _function(name: str) -> str:
    escaped = name.replace("_", r"\_")
    return rf"\operatorname{{{escaped}}}"

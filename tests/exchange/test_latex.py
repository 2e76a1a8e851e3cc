"""Exported LaTeX is well formed, and its equations compute what the network computes."""

import math
import re

import pytest
import torch
from matplotlib import mathtext

from fourward import Dag, FourWard, generate
from fourward.errors import OptionError
from fourward.exchange import to_latex
from fourward.plan.activations import ACTIVATIONS
from tests.exchange.helpers import batch
from tests.tolerance import assert_near

TERM = re.compile(r"([+-]?) ?([\d.]+)(?: \\cdot 10\^\{(-?\d+)\})?(?:\\, (a_\{\\text\{.*?\}\}))?(?= [+\\-]|$)")


def evaluate_latex(text, inputs, x, functions):
    """The activations of all neurons, from the equations alone."""
    values = dict(zip(inputs, x, strict=True))
    body = text.replace(" \\\\\n&\\quad", "").removeprefix("\\begin{align*}\n").removesuffix("\n\\end{align*}\n")
    for row in body.split(" \\\\\n"):
        left, right = row.split(" &= ", 1)
        if "(z)" not in left:
            match = re.fullmatch(r"\\operatorname\{(.*?)\}\\bigl\( (.*) \\bigr\)", right)
            name, inner = match.groups() if match else ("identity", right)
            total = 0.0
            for sign, digits, exponent, symbol in TERM.findall(inner):
                number = float(digits) * 10 ** int(exponent or 0) * (-1 if sign == "-" else 1)
                total += number * (values[symbol] if symbol else 1)
            values[left] = functions[name.replace("\\_", "_")](total)
    return values


@pytest.mark.parametrize("bias", [True, False])
def test_equations_compute_what_the_network_computes(bias):
    dag = generate.erdos_renyi(16, 0.4, seed=1)
    names = ["tanh", "leaky_relu", "identity", "sigmoid"]
    activation = {dag.labels[v]: names[k % 4] for k, v in enumerate(dag.neurons.tolist())}
    net = FourWard(dag, activation, seed=0, bias=bias, dtype=torch.float64, init="kaiming_normal")
    with torch.no_grad():
        net.weight[0] = 1.5e-7
    text = to_latex(net, digits=17)
    symbols = [f"a_{{\\text{{{dag.labels[v]}}}}}" for v in range(dag.num_nodes)]
    functions = {
        "tanh": math.tanh,
        "leaky_relu": lambda z: z if z > 0 else 0.01 * z,
        "identity": lambda z: z,
        "sigmoid": lambda z: 1 / (1 + math.exp(-z)),
    }
    x = batch(net.dag.num_inputs, 1)
    values = evaluate_latex(text, [symbols[v] for v in dag.inputs.tolist()], x[0].tolist(), functions)
    actual = torch.tensor([[values[symbol] for symbol in symbols]], dtype=torch.float64)
    assert_near(actual, net.activations(x).detach())


def test_output_is_well_formed():
    dag = Dag.from_edges(
        [("50%_of {it}", "\\alpha^2"), ("#1 & ~", "\\alpha^2"), *(("#1 & ~", name) for name in ACTIVATIONS)]
    )
    net = FourWard(dag, {name: name for name in ACTIVATIONS} | {"default": "relu"}, seed=0)
    text = to_latex(net)
    plain = re.sub(r"\\[{}&%$#_]", "", text)
    assert plain.count("{") == plain.count("}")
    for opening, closing in ((r"\left", r"\right"), (r"\bigl", r"\bigr"), (r"\begin{", r"\end{")):
        assert text.count(opening) == text.count(closing) > 0
    for line in text.splitlines():
        assert len(re.findall(r"(?<!\\)&", line)) in ((0,) if "align" in line else (1, 3, 5, 7))
    for name in ACTIVATIONS:
        assert name == "identity" or rf"\operatorname{{{name.replace('_', chr(92) + '_')}}}(z) &=" in text
    parser = mathtext.MathTextParser("agg")
    for line in text.splitlines():
        if "align" not in line and "cases" not in line:  # unknown to matplotlib, as is \\big
            math_text = (
                re.sub(r"a_\{\\text\{.*?\}\}(?= |$)", "a", line)
                .replace("&", "")
                .replace(r"\bigl", "")
                .replace(r"\bigr", "")
            )
            parser.parse(f"${math_text.removesuffix(chr(92) * 2)}$")


def test_digits():
    net = FourWard(generate.chain(2), seed=0, init=1 / 3)
    assert r"0.33\," in to_latex(net, digits=2)
    with pytest.raises(OptionError, match="from 1 to 17"):
        to_latex(net, digits=0)

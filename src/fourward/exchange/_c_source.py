"""Export as one file of C99 that needs only libm: arrays of weights and indices, and a flat loop over the neurons."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import torch

from fourward._version import __version__
from fourward.errors import OptionError, WeightError, pluralize
from fourward.exchange._equations import plan_parameters
from fourward.exchange._formulas import CTranslator
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard, builtin_activation_names, check_network, without_driven_inputs
from fourward.plan._plan import Plan
from fourward.plan.activations import BY_CODE

MAX_EDGES = 2_000_000  #: more take a compiler minutes and gigabytes
MAX_NODES = 100_000  #: more need more stack than a thread may have

#: Keywords of C, and what the file itself declares.
_RESERVED = """
auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
INPUTS NODES OUTPUTS activate activation bias output source start weight weighted_sum
"""

_HEADER = """\
/* {title}, written by fourward {version}.
 *
 *     void {name}(const {real} *x, {real} *y);
 *     void {name}_batch(const {real} *x, {real} *y, size_t n);
 *
 * x holds {inputs} and y receives {outputs}, for each of n samples in turn.
 * C99; link with -lm. Safe to call from several threads; takes {stack:,} bytes of stack.
 *
{labels}
 */

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum {{ INPUTS = {num_inputs}, NODES = {num_nodes}, OUTPUTS = {num_outputs} }};
"""

# Four sums, because a single one waits for each addition before the next.
_BODY = """\
static {real} weighted_sum(const {real} *a, size_t k, size_t end)
{{
    {real} s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (; k + 4 <= end; k += 4) {{
        s0 += weight[k] * a[source[k]];
        s1 += weight[k + 1] * a[source[k + 1]];
        s2 += weight[k + 2] * a[source[k + 2]];
        s3 += weight[k + 3] * a[source[k + 3]];
    }}
    for (; k < end; k++)
        s0 += weight[k] * a[source[k]];
    return (s0 + s1) + (s2 + s3);
}}

void {name}(const {real} *x, {real} *y)
{{
    {real} a[NODES]; /* activations in execution order, inputs first */
    for (size_t i = 0; i < INPUTS; i++)
        a[i] = x[i];
    for (size_t i = INPUTS; i < NODES; i++) {{
        size_t j = i - INPUTS;
        a[i] = activate({arguments}weighted_sum(a, start[j], start[j + 1]){bias});
    }}
    for (size_t i = 0; i < OUTPUTS; i++)
        y[i] = a[output[i]];
}}

void {name}_batch(const {real} *x, {real} *y, size_t n)
{{
    for (size_t i = 0; i < n; i++)
        {name}(x + i * INPUTS, y + i * OUTPUTS);
}}
"""


def to_c(net: FourWard, name: str = "network") -> str:
    """Export a network as C source: `void network(const float *x, float *y)`, in double for a float64 network.

    `network_batch(x, y, n)` computes n samples, each a row of x and of y. Half precision becomes float.

    Args:
        net: The network.
        name: The name of the function.
    """
    check_network(net)
    net = without_driven_inputs(net)
    _check(net, name)
    real = "double" if net.weight.dtype == torch.float64 else "float"
    body = _BODY.format(
        name=name,
        real=real,
        arguments="activation[j], " if len(_activation_codes(net.plan)) > 1 else "",
        bias="" if net.bias is None else " + bias[j]",
    )
    return "\n".join([_header(net.dag, name, real), _arrays(net, real), _activate(net.plan, real), body])


def _check(net: FourWard, name: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or re.search(rf"\b{name}\b", _RESERVED):
        raise OptionError(
            "name must be letters, digits and underscores, neither a keyword of C nor a name that the file uses, "
            f"got {name!r}."
        )
    for count, limit, noun in ((net.dag.num_edges, MAX_EDGES, "edges"), (net.dag.num_nodes, MAX_NODES, "nodes")):
        if count > limit:
            raise OptionError(
                f"expected a network of at most {limit:,} {noun} for C source, got {count:,}. Export to .onnx."
            )
    builtin_activation_names(net, "C source", "export to .pt2")
    if not all(p.isfinite().all() for p in net.parameters()):
        raise WeightError("expected finite weights and biases for C source, got inf or NaN.")


def _header(dag: Dag, name: str, real: str) -> str:
    labels = [
        f" * {array}[{i}]: {_comment(dag.labels[v])}"
        for array, nodes in (("x", dag.inputs), ("y", dag.outputs))
        for i, v in enumerate(nodes.tolist())
    ]
    return _HEADER.format(
        title=f"A network of {pluralize(dag.num_nodes, 'node')} and {pluralize(dag.num_edges, 'edge')}",
        version=__version__,
        name=name,
        real=real,
        inputs=pluralize(dag.num_inputs, "input"),
        outputs=pluralize(dag.num_outputs, "output"),
        stack=dag.num_nodes * (8 if real == "double" else 4),
        labels="\n".join(labels),
        num_inputs=dag.num_inputs,
        num_nodes=dag.num_nodes,
        num_outputs=dag.num_outputs,
    )


def _comment(label: object) -> str:
    """A label for a comment, which it can't end: other than letters, digits and a few signs, all becomes "?"."""
    return re.sub(r"[^A-Za-z0-9_ .,:+-]", "?", str(label))[:80]


def _arrays(net: FourWard, real: str) -> str:
    plan, first = net.plan, net.dag.num_inputs
    weight, bias = plan_parameters(net, np.float64 if real == "double" else np.float32)
    translator = CTranslator(real)
    index = "uint16_t" if net.dag.num_nodes <= 2**16 else "uint32_t"
    arrays = [
        _array("uint32_t", "start", "the edges into neuron j are start[j] to start[j + 1]", plan.edge_start[first:]),
        _array(index, "source", "the node that each edge comes from", plan.source),
        _array(real, "weight", "weight of each edge", map(translator.literal, weight.tolist())),
    ]
    if net.bias is not None:
        arrays.append(_array(real, "bias", "bias of each neuron", map(translator.literal, bias.tolist())))
    codes = _activation_codes(plan)
    if len(codes) > 1:
        numbers = np.searchsorted(codes, plan.code[first:])
        arrays.append(_array("uint8_t", "activation", "activation of each neuron, as `activate` numbers them", numbers))
    return "\n".join([*arrays, _array(index, "output", "the node of each output", plan.outputs)])


def _array(kind: str, name: str, comment: str, values: Iterable[object]) -> str:
    texts = [str(value) for value in values] or ["0"]  # C has no empty arrays
    lines = ["    " + ", ".join(texts[k : k + 8]) for k in range(0, len(texts), 8)]
    return f"/* {comment} */\nstatic const {kind} {name}[] = {{\n" + ",\n".join(lines) + "\n};\n"


def _activation_codes(plan: Plan) -> list[int]:
    """The codes of the activations in use, sorted."""
    return sorted(set(plan.code[plan.dag.num_inputs :].tolist()))


def _activate(plan: Plan, real: str) -> str:
    """The function `activate`; if the network has several activations, its first argument says which."""
    translator = CTranslator(real)
    formulas = [translator.translate(BY_CODE[code].formula, "z") for code in _activation_codes(plan)] or ["z"]
    if len(formulas) == 1:
        return f"static {real} activate({real} z)\n{{\n    return {formulas[0]};\n}}\n"
    cases = [f"    case {number}:\n        return {formula};" for number, formula in enumerate(formulas[:-1])]
    last = f"    default:\n        return {formulas[-1]};"
    lines = "\n".join([*cases, last])
    return f"static {real} activate(unsigned number, {real} z)\n{{\n    switch (number) {{\n{lines}\n    }}\n}}\n"

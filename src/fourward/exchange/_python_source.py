"""Export of small networks as Python source that imports nothing but math."""

from __future__ import annotations

from fourward.errors import pluralize
from fourward.exchange._equations import TERMS_PER_LINE, Equation, list_equations
from fourward.exchange._formulas import HELPERS, PythonTranslator
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard, without_driven_inputs
from fourward.plan.activations import ACTIVATIONS

MAX_EDGES = 20_000  #: more take Python long to compile


def to_python(net: FourWard) -> str:
    """Export a network as the source of a function `network(x)`, from a list of floats to a list of floats."""
    net = without_driven_inputs(net)
    dag = net.dag
    equations = list_equations(net, "Python source", MAX_EDGES)
    names = sorted({equation.activation for equation in equations} - {"identity"})
    translator = PythonTranslator()
    formulas = {name: translator.translate(ACTIVATIONS[name].formula, "z") for name in names}
    helpers = [HELPERS[name] for name in sorted(translator.used_helpers)]
    functions = [f"def f_{name}(z):\n    return {formula}" for name, formula in formulas.items()]
    title = f"A network of {pluralize(dag.num_nodes, 'node')} and {pluralize(dag.num_edges, 'edge')}"
    header = f'"""{title}, written by fourward."""\n\nimport math'
    return "\n\n\n".join([header, *helpers, *functions, _network_function(dag, equations)]) + "\n"


def _network_function(dag: Dag, equations: list[Equation]) -> str:
    inputs = [f"a{v}" for v in dag.inputs.tolist()]
    description = f"From {pluralize(len(inputs), 'input')} to {pluralize(dag.num_outputs, 'output')}."
    lines = ["def network(x):", f'    """{description}"""']
    lines.append(f"    {', '.join(inputs)}{',' if len(inputs) == 1 else ''} = x")
    for node, activation, bias, terms in equations:
        products = [f"{weight!r} * a{source}" for weight, source in terms]
        sums = [" + ".join(products[k : k + TERMS_PER_LINE]) for k in range(0, len(products), TERMS_PER_LINE)]
        first = "".join(f" + {part}" for part in sums[:1])
        lines.append(f"    z = {0.0 if bias is None else bias!r}{first}  # {_comment(dag.labels[node])}")
        lines += [f"    z += {part}" for part in sums[1:]]
        lines.append(f"    a{node} = z" if activation == "identity" else f"    a{node} = f_{activation}(z)")
    lines.append(f"    return [{', '.join(f'a{v}' for v in dag.outputs.tolist())}]")
    return "\n".join(lines)


def _comment(label: object) -> str:
    """The repr of a label for a comment, which it can't end: what isn't printable, such as a line break, is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in repr(label))

"""A small network as Python source that imports nothing but math."""

from __future__ import annotations

from fourward.errors import OptionError, WeightError, pluralize
from fourward.exchange._formulas import HELPERS, Python
from fourward.nn._fourward import FourWard, builtin_activation_names
from fourward.plan.activations import ACTIVATIONS

MOST_EDGES = 20_000  #: with more Python takes long to compile the source
_A_LINE = 4  # terms


def to_python(net: FourWard) -> str:
    """Source of a function `network(x)`, from a list of numbers to a list of numbers."""
    dag = net.dag
    check_small(net, MOST_EDGES, "Python source")
    names = builtin_activation_names(net, "Python source", "export to .pt2")
    language = Python()
    formulas = {name: language.spell(ACTIVATIONS[name].formula, "z") for name in sorted({*names} - {"identity"})}
    helpers = [line for name in sorted(language.used) for line in ("", "", HELPERS[name])]
    functions = [
        line for name, text in formulas.items() for line in ("", "", f"def f_{name}(z):", f"    return {text}")
    ]
    nodes, edges = pluralize(dag.num_nodes, "node"), pluralize(dag.num_edges, "edge")
    return "\n".join(
        [
            f'"""A network of {nodes} and {edges}, written by fourward."""',
            "",
            "import math",
            *helpers,
            *functions,
            "",
            "",
            *_network(net, names),
            "",
        ]
    )


def check_small(net: FourWard, most: int, what: str) -> None:
    """Refuse large networks, and weights that can't be written down."""
    if net.dag.num_edges > most:
        raise OptionError(
            f"{what} is for networks of up to {most:,} edges, and this one has {net.dag.num_edges:,}. Export to .onnx, "
            ".pt2 or .safetensors."
        )
    if not all(p.isfinite().all() for p in net.parameters()):
        raise WeightError(f"some weights or biases are infinite or no numbers, and {what} keeps finite ones.")


def _network(net: FourWard, names: list[str]) -> list[str]:
    dag = net.dag
    neuron = {v: i for i, v in enumerate(dag.neurons.tolist())}
    weight = net.weight.detach().double().tolist()
    bias = [0.0] * len(neuron) if net.bias is None else net.bias.detach().double().tolist()
    source = dag.source.tolist()
    inputs = [f"a{v}" for v in dag.inputs.tolist()]
    lines = ["def network(x):", f'    """{len(inputs)} numbers in, {dag.num_outputs} out."""']
    lines.append(f"    {', '.join(inputs)}{',' if len(inputs) == 1 else ''} = x")
    for q, v in enumerate(dag.order.tolist()):
        if v not in neuron:
            continue
        i = neuron[v]
        terms = [f"{weight[k]!r} * a{source[k]}" for k in range(dag.in_start[q], dag.in_start[q + 1])]
        sums = [" + ".join(terms[k : k + _A_LINE]) for k in range(0, len(terms), _A_LINE)]
        lines.append(f"    z = {bias[i]!r}{' + ' + sums[0] if sums else ''}  # {dag.labels[v]!r}")
        lines += [f"    z += {more}" for more in sums[1:]]
        lines.append(f"    a{v} = z" if names[i] == "identity" else f"    a{v} = f_{names[i]}(z)")
    return [*lines, f"    return [{', '.join(f'a{v}' for v in dag.outputs.tolist())}]"]

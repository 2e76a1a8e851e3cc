"""Export of small networks as Python source that imports nothing but math."""

from __future__ import annotations

from fourward.errors import OptionError, WeightError, pluralize
from fourward.exchange._formulas import HELPERS, PythonTranslator
from fourward.nn._fourward import FourWard, builtin_activation_names
from fourward.plan.activations import ACTIVATIONS

MAX_EDGES = 20_000  #: more take Python long to compile
_TERMS_PER_LINE = 4


def to_python(net: FourWard) -> str:
    """Export a network as the source of a function `network(x)`, from a list of floats to a list of floats."""
    dag = net.dag
    check_printable(net, MAX_EDGES, "Python source")
    names = builtin_activation_names(net, "Python source", "export to .pt2")
    translator = PythonTranslator()
    formulas = {name: translator.translate(ACTIVATIONS[name].formula, "z") for name in sorted({*names} - {"identity"})}
    helpers = [line for name in sorted(translator.used_helpers) for line in ("", "", HELPERS[name])]
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


def check_printable(net: FourWard, max_edges: int, format: str) -> None:
    """Check that a network is small enough for a text format, and its parameters finite."""
    if net.dag.num_edges > max_edges:
        raise OptionError(
            f"expected a network of at most {max_edges:,} edges for {format}, got {net.dag.num_edges:,}. Export to "
            ".onnx, .pt2 or .safetensors."
        )
    if not all(p.isfinite().all() for p in net.parameters()):
        raise WeightError(f"expected finite weights and biases for {format}, got inf or NaN.")


def _network(net: FourWard, names: list[str]) -> list[str]:
    dag = net.dag
    neuron = {v: i for i, v in enumerate(dag.neurons.tolist())}
    weight = net.weight.detach().double().tolist()
    bias = [0.0] * len(neuron) if net.bias is None else net.bias.detach().double().tolist()
    source = dag.source.tolist()
    inputs = [f"a{v}" for v in dag.inputs.tolist()]
    lines = ["def network(x):", f'    """From {len(inputs)} inputs to {pluralize(dag.num_outputs, "output")}."""']
    lines.append(f"    {', '.join(inputs)}{',' if len(inputs) == 1 else ''} = x")
    for q, v in enumerate(dag.order.tolist()):
        if v not in neuron:
            continue
        i = neuron[v]
        terms = [f"{weight[k]!r} * a{source[k]}" for k in range(dag.in_start[q], dag.in_start[q + 1])]
        sums = [" + ".join(terms[k : k + _TERMS_PER_LINE]) for k in range(0, len(terms), _TERMS_PER_LINE)]
        lines.append(f"    z = {bias[i]!r}{' + ' + sums[0] if sums else ''}  # {dag.labels[v]!r}")
        lines += [f"    z += {part}" for part in sums[1:]]
        lines.append(f"    a{v} = z" if names[i] == "identity" else f"    a{v} = f_{names[i]}(z)")
    return [*lines, f"    return [{', '.join(f'a{v}' for v in dag.outputs.tolist())}]"]

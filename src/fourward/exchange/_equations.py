"""A network's parameters as exporters need them: one equation per neuron, or flat arrays in execution order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fourward.errors import OptionError, WeightError
from fourward.graph._annotated import FloatArray
from fourward.nn._fourward import FourWard, builtin_activation_names

TERMS_PER_LINE = 4


class Equation(NamedTuple):
    """activation(bias + the sum of weight times the activation of each source)."""

    node: int
    activation: str
    bias: float | None
    terms: list[tuple[float, int]]  #: weights and source nodes


def list_equations(net: FourWard, format: str, max_edges: int) -> list[Equation]:
    """The neurons in topological order; an error if `format` can't store them."""
    if net.dag.num_edges > max_edges:
        raise OptionError(
            f"expected a network of at most {max_edges:,} edges for {format}, got {net.dag.num_edges:,}. Export to "
            ".onnx, .pt2 or .safetensors."
        )
    if not all(p.isfinite().all() for p in net.parameters()):
        raise WeightError(f"expected finite weights and biases for {format}, got inf or NaN.")
    return list(_equations(net, builtin_activation_names(net, format, "export to .pt2")))


def _equations(net: FourWard, activations: list[str]) -> Iterator[Equation]:
    dag = net.dag
    weight, source = net.weight.detach().double().tolist(), dag.source.tolist()
    bias = [None] * len(activations) if net.bias is None else net.bias.detach().double().tolist()
    index = {v: i for i, v in enumerate(dag.neurons.tolist())}
    for q, v in enumerate(dag.order.tolist()):
        if v in index:
            terms = [(weight[k], source[k]) for k in range(dag.in_start[q], dag.in_start[q + 1])]
            yield Equation(v, activations[index[v]], bias[index[v]], terms)


def plan_parameters(net: FourWard, dtype: Any) -> tuple[FloatArray, FloatArray]:
    """Weights (E,) and biases (N-I,) in a dtype of NumPy, in the order of the plan's edges and positions."""
    plan = net.plan
    weight = net.weight.detach().double().cpu().numpy().astype(dtype)
    bias = np.zeros(len(plan.neuron), dtype)
    if net.bias is not None:
        bias = net.bias.detach().double().cpu().numpy().astype(dtype)[plan.neuron]
    return weight if plan.edge is None else weight[plan.edge], bias

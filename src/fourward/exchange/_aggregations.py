"""Aggregations of NEAT libraries as neurons that add up: means are sums with a factor, the rest takes more neurons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fourward.errors import GraphError
from fourward.exchange._from_neurons import Neuron, Stages

#: Aggregations that are computed by neurons besides: max(a, b) = a + relu(b - a), min likewise, and
#: a b = ((a + b)**2 - (a - b)**2) / 4.
FOLDED = ("max", "min", "product")


class Added(NamedTuple):
    """A neuron that a genome lacks: activation(bias + the sum of weight times the activation of each source)."""

    node: int
    activation: str  #: a built-in one
    bias: float
    incoming: Sequence[tuple[int, float]]


def is_folded(aggregation: str, count: int) -> bool:
    """Whether an aggregation of `count` terms is no weighted sum of them; every aggregation of one term is that term.

    neat-python's maximum and minimum of no terms are 0, as is their sum; their product is 1.
    """
    return aggregation in FOLDED and (count > 1 or (count == 0 and aggregation == "product"))


def aggregation_factor(key: int, aggregation: str, count: int) -> float:
    """The factor that turns a sum of `count` terms into this aggregation."""
    if aggregation == "sum" or count == 1 or (count == 0 and aggregation in ("max", "min")):
        return 1.0
    if aggregation == "mean":
        return 1 / max(count, 1)  # the mean of no terms is 0, as is their sum
    raise GraphError(
        f"neuron {key} has the aggregation {aggregation!r} over {count} connections. Expected 'sum', 'mean', 'max', "
        "'min' or 'product': evolve with these aggregations."
    )


def fold_terms(
    aggregation: str, terms: Sequence[int], nodes: Iterator[int]
) -> tuple[list[Added], list[tuple[int, float]]]:
    """Neurons that compute an aggregation, term by term, and the weighted sum of nodes that is its value.

    Args:
        aggregation: One of FOLDED.
        terms: Nodes whose activations are the terms.
        nodes: New nodes.
    """
    if not terms:
        constant = Added(next(nodes), "identity", 1.0, ())
        return [constant], [(constant.node, 1.0)]
    added: list[Added] = []
    value = [(terms[0], 1.0)]  # the aggregation of the terms so far
    for term in terms[1:]:
        if len(value) > 1:
            added.append(Added(next(nodes), "identity", 0.0, value))
            value = [(added[-1].node, 1.0)]
        ((so_far, _),) = value
        if aggregation == "product":
            added += [Added(next(nodes), "square", 0.0, [(so_far, 1.0), (term, sign)]) for sign in (1.0, -1.0)]
            value = [(added[-2].node, 0.25), (added[-1].node, -0.25)]
        else:
            sign = 1.0 if aggregation == "max" else -1.0
            added.append(Added(next(nodes), "relu", 0.0, [(so_far, -sign), (term, sign)]))
            value = [(so_far, 1.0), (added[-1].node, sign)]
    return added, value


def make_neurons(
    key: int,
    stages: Stages,
    aggregation: str,
    bias: float,
    response: float,
    incoming: Sequence[tuple[int, float]],
    nodes: Iterator[int],
) -> list[Neuron]:
    """f(bias + response times the aggregation of weight times the activation of each source), and what it needs.

    Args:
        key: Its label.
        stages: f.
        aggregation: The name of the aggregation.
        bias: The bias.
        response: The response.
        incoming: Sources and weights.
        nodes: Labels of further neurons.
    """
    if not is_folded(aggregation, len(incoming)):
        factor = response * aggregation_factor(key, aggregation, len(incoming))
        return [Neuron(key, stages, bias, [(source, factor * weight) for source, weight in incoming])]
    terms = [Added(next(nodes), "identity", 0.0, [connection]) for connection in incoming]
    added, value = fold_terms(aggregation, [term.node for term in terms], nodes)
    return [
        *(Neuron(node.node, ((1.0, node.activation),), node.bias, node.incoming) for node in (*terms, *added)),
        Neuron(key, stages, bias, [(source, response * weight) for source, weight in value]),
    ]

"""A network and the linear layers around it, as one network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward.errors import WeightError
from fourward.exchange._networkx import choices_of
from fourward.graph import _convert
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard

#: Weights (out, in) and biases (out,) of a linear layer.
Linear = tuple[Tensor, Tensor]


def fold(
    net: FourWard,
    enter: Linear | None = None,
    leave: Linear | None = None,
    *,
    features: list[str] | None = None,
    targets: list[str] | None = None,
    dtype: torch.dtype | None = None,
) -> FourWard:
    """The network with a linear layer before and one after it, each as edges of its own.

    The layers' neurons have the activation "identity"; an edge of weight 0 is left away. So whatever takes a network
    takes a whole model.

    Args:
        net: The network.
        enter: From features to inputs.
        leave: From outputs to targets.
        features: Names of the features, which become labels if the network's labels are text.
        targets: The same for the targets.
        dtype: Of the new network; else that of the network.
    """
    dag = net.dag
    labels = list(dag.labels)
    inputs = [labels[v] for v in dag.inputs.tolist()]
    outputs = [labels[v] for v in dag.outputs.tolist()]
    first = _fresh(labels, enter[0].shape[1], features, "feature") if enter is not None else []
    last = _fresh([*labels, *first], len(leave[0]), targets, "target") if leave is not None else []
    parts = [([(labels[u], labels[v]) for u, v in dag.edges.tolist()], net.weight.detach().double().cpu())]
    bias = dict.fromkeys(labels, 0.0)
    if net.bias is not None:
        bias |= dict(zip((labels[v] for v in dag.neurons.tolist()), net.bias.detach().double().tolist(), strict=True))
    chosen: dict[Any, Any] = dict(zip((labels[v] for v in dag.neurons.tolist()), choices_of(net), strict=True))
    for linear, before, after in ((enter, first, inputs), (leave, outputs, last)):
        if linear is not None:
            parts.append(_edges(linear, before, after))
            bias |= dict(zip(after, linear[1].detach().double().tolist(), strict=True))
            chosen |= dict.fromkeys(after, "identity")
    pairs = [pair for part, _ in parts for pair in part]
    whole = Dag.from_edges(pairs, nodes=[*first, *labels, *last], inputs=first or inputs, outputs=last or outputs)
    dtype = net.weight.dtype if dtype is None else dtype
    folded = FourWard(whole, chosen, init="zeros", seed=0, dtype=dtype, device=net.weight.device)
    weight = whole.align(torch.cat([values for _, values in parts]), pairs)
    biases = torch.tensor([bias[whole.labels[v]] for v in whole.neurons.tolist()], dtype=torch.float64)
    folded.load_edge_weights(weight, biases)
    return folded.train(net.training)


def _edges(linear: Linear, before: list[Any], after: list[Any]) -> tuple[list[tuple[Any, Any]], Tensor]:
    weight = linear[0].detach().double().cpu()
    if weight.shape != (len(after), len(before)) or linear[1].shape != (len(after),):
        raise WeightError(
            f"a linear layer from {len(before)} to {len(after)} numbers was wanted, but weights of shape "
            f"{tuple(weight.shape)} and biases of shape {tuple(linear[1].shape)} came."
        )
    target, source = weight.nonzero(as_tuple=True)
    pairs = [(before[u], after[v]) for u, v in zip(source.tolist(), target.tolist(), strict=True)]
    return pairs, weight[target, source]


def _fresh(taken: list[Any], count: int, names: list[str] | None, kind: str) -> list[Any]:
    """New labels: numbers after the largest if all are numbers, else text."""
    if all(map(_convert.is_integer, taken)):
        start = int(np.max(taken)) + 1
        return list(range(start, start + count))
    used, found = set(taken), []
    for name in names if names is not None else [f"{kind} {k}" for k in range(count)]:
        while name in used:
            name = f"{name} ({kind})"
        used.add(name)
        found.append(name)
    return found

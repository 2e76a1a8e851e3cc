"""Networks that come one neuron at a time, put together as a FourWard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward.errors import ActivationError, FileError
from fourward.graph._dag import Dag
from fourward.nn._activations import ActivationLike
from fourward.nn._fourward import FourWard

#: g_k(s_k ... g_1(s_1 z)): pairs of a factor and an activation, the first applied first. All but the last become
#: neurons of their own, so that functions which the table lacks can be spelled with those it has.
Stages = tuple[tuple[float, ActivationLike], ...]


class Neuron(NamedTuple):
    """f(bias + the sum of weight times source over the links)."""

    label: int
    stages: Stages
    bias: float
    links: Sequence[tuple[int, float]]  #: sources and weights


def stages_of(
    name: str, label: int, table: Mapping[str, Stages], own: Mapping[str, Callable[[Tensor], Tensor]] | None
) -> Stages:
    """How an activation of another library is spelled here; `own` are the user's."""
    if own is not None and name in own:
        return ((1.0, own[name]),)
    if name not in table:
        raise ActivationError(
            f"neuron {label} has the activation {name!r}, which isn't known here. Give a torch function for it: "
            f"activations={{{name!r}: ...}}."
        )
    return table[name]


def build(inputs: Sequence[int], outputs: Sequence[int], neurons: Sequence[Neuron], **options: Any) -> FourWard:
    """The network; options as in FourWard."""
    spelled = _spell(neurons, 1 + max((*inputs, *(one.label for one in neurons)), default=0))
    known = {*inputs, *(one.label for one in spelled)}
    pairs, weights = [], []
    for one in spelled:
        for source, weight in one.links:
            if source not in known:
                raise FileError(f"neuron {one.label} is fed by {source}, which is no neuron and no input.")
            pairs.append((source, one.label))
            weights.append(weight)
    dag = Dag.from_edges(pairs, nodes=[*inputs, *(one.label for one in spelled)], inputs=inputs, outputs=outputs)
    activations = {one.label: one.stages[0][1] for one in spelled}
    net = FourWard(dag, activations, init="zeros", **options)
    weight, bias = dag.align(np.array(weights), pairs), np.zeros(len(dag.neurons))
    place = {dag.labels[v]: i for i, v in enumerate(dag.neurons.tolist())}
    for one in spelled:
        bias[place[one.label]] = one.bias
    net.load_edge_weights(torch.from_numpy(weight), torch.from_numpy(bias))
    return net


def _spell(neurons: Sequence[Neuron], fresh: int) -> list[Neuron]:
    """One neuron for each stage, the factors in the weights and biases; the last stage keeps the label."""
    spelled = []
    for one in neurons:
        links, bias = list(one.links), one.bias
        for k, (factor, activation) in enumerate(one.stages):
            last = k == len(one.stages) - 1
            label = one.label if last else fresh
            fed = [(source, factor * weight) for source, weight in links]
            spelled.append(Neuron(label, ((1.0, activation),), factor * bias, fed))
            links, bias = [(label, 1.0)], 0.0
            fresh += not last
    return spelled

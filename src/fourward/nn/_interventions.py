"""Experiments on a network: neurons silenced or clamped, and probes at their activations."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.errors import GraphError, OptionError
from fourward.graph._dag import Dag
from fourward.nn._activations import ActivationLike
from fourward.nn._fourward import FourWard, from_parameters


def clamp(net: FourWard, values: Mapping[Hashable, float]) -> FourWard:
    """A copy of a network whose neurons with these labels have constant activations; see `FourWard.clamped`."""
    dag, weight = net.dag, net.weight.detach().clone()
    bias = weight.new_zeros(len(dag.neurons)) if net.bias is None else net.bias.detach().clone()
    activations: list[ActivationLike] = net.neuron_activations()
    rank = np.full(dag.num_nodes, -1, np.int64)  # index among the neurons; -1 for an input
    rank[dag.neurons] = np.arange(len(dag.neurons))
    with torch.no_grad():
        for label, value in values.items():
            node, number = dag.index(label), _check_number(label, value)
            if rank[node] >= 0 and node not in dag.inputs:
                weight[_edges(dag.target == node, weight)] = 0
                bias[rank[node]], activations[rank[node]] = number, "identity"
            else:
                _clamp_input(dag, node, number, weight, bias, rank)
    return _copy_with(net, weight, bias, activations)


def probe(net: FourWard) -> FourWard:
    """A copy of a network that adds inputs to activations; see `FourWard.probed`."""
    dag, count = net.dag, len(net.dag.neurons)
    added, probes = dag.num_nodes + np.arange(count), dag.num_nodes + count + np.arange(count)
    shown = np.arange(dag.num_nodes)  # the node that has the activation of each node, probe included
    shown[dag.neurons] = added
    pairs = np.concatenate(
        (
            np.stack((shown[dag.source], dag.target), -1),
            np.stack((dag.neurons, added), -1),
            np.stack((probes, added), -1),
        )
    )
    labels = [dag.labels[v] for v in dag.neurons.tolist()]
    probed = Dag.from_arrays(
        pairs,
        labels=[*dag.labels, *(("probed", label) for label in labels), *(("probe", label) for label in labels)],
        inputs=np.concatenate((dag.inputs, probes)),
        outputs=shown[dag.outputs],
    )
    weight = torch.cat((net.weight.detach(), net.weight.new_ones(2 * count)))
    bias = weight.new_zeros(probed.num_nodes)
    if net.bias is not None:
        bias[_edges(dag.neurons, weight)] = net.bias.detach()
    activations: list[ActivationLike] = ["identity"] * probed.num_nodes
    for v, activation in zip(dag.neurons.tolist(), net.neuron_activations(), strict=True):
        activations[v] = activation
    return from_parameters(
        probed,
        probed.align(weight, pairs, by="index"),
        bias[_edges(probed.neurons, weight)],
        [activations[v] for v in probed.neurons.tolist()],
        seed=0,
        dtype=weight.dtype,
        device=weight.device,
    ).eval()


def _edges(index: Any, like: Tensor) -> Tensor:
    """Indices, or a mask, of NumPy on the device of a tensor."""
    array: IntArray = np.flatnonzero(index) if index.dtype == np.bool_ else np.array(index, np.int64)
    return torch.from_numpy(array).to(like.device)


def _clamp_input(dag: Dag, node: int, value: float, weight: Tensor, bias: Tensor, rank: IntArray) -> None:
    """Replace what an input sends by what it would send with this activation, as part of biases."""
    if node in dag.outputs:
        repair = "Omit it from the outputs" if rank[node] >= 0 else "Change that column of x"
        raise GraphError(f"the input {dag.labels[node]!r} is an output, too, so x sets it. {repair}.")
    edges = _edges(dag.source == node, weight)
    targets = _edges(rank[dag.target[dag.source == node]], weight)
    bias[targets] += value * weight[edges]
    weight[edges] = 0


def _copy_with(net: FourWard, weight: Tensor, bias: Tensor, activations: list[ActivationLike]) -> FourWard:
    options: dict[str, Any] = {"layering": net.layering, "dropout": net.dropout, "engine": net.requested_engine}
    copied = from_parameters(
        net.dag, weight, bias, activations, dtype=weight.dtype, device=weight.device, seed=0, **options
    )
    copied.seed = net.seed
    return copied.train(net.training)


def _check_number(label: Hashable, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not np.isfinite(number):
        raise OptionError(f"expected a finite number as activation of {label!r}, got {value!r}.")
    return number

"""A network with the linear layers and scalings around it, folded into one network."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.errors import OptionError, WeightError
from fourward.graph import _annotated, _convert
from fourward.graph._dag import Dag
from fourward.nn._activations import ActivationLike
from fourward.nn._fourward import FourWard, check_network, from_parameters

#: Mean and standard deviation of each column.
Scaling = tuple[Any, Any]
_Affine = tuple[Tensor, Tensor]  # weight (out, in) and bias (out,), float64


def fold(
    net: FourWard,
    input_layer: nn.Module | None = None,
    output_layer: nn.Module | None = None,
    *,
    input_scaling: Scaling | None = None,
    output_scaling: Scaling | None = None,
    feature_names: list[str] | None = None,
    target_names: list[str] | None = None,
    dtype: torch.dtype | None = None,
) -> FourWard:
    """Fold linear layers and scalings around a network into its graph.

    The result computes `output_layer(net(input_layer((x - mean) / std))) * std + mean`. The layers become edges, those
    of weight 0 omitted, and neurons with the activation "identity", so that every exporter can write the model.

    Args:
        net: The network.
        input_layer: An nn.Linear from features to inputs; None or nn.Identity if the features are the inputs.
        output_layer: An nn.Linear from outputs to targets; likewise.
        input_scaling: Mean and standard deviation that standardise each feature before the input layer.
        output_scaling: Mean and standard deviation of each target, undone after the output layer.
        feature_names: Labels of the features, if the network's labels aren't integers.
        target_names: Labels of the targets, likewise.
        dtype: Dtype of the new network; default: that of `net`. Features whose mean is large beside their standard
            deviation need torch.float64.
    """
    check_network(net)
    before = _affine(input_layer, net.dag.num_inputs, input_scaling)
    if before is not None and input_scaling is not None:
        mean, std = (torch.as_tensor(values).double().cpu() for values in input_scaling)
        before = before[0] / std, before[1] - before[0] @ (mean / std)
    after = _affine(output_layer, net.dag.num_outputs, output_scaling)
    if after is not None and output_scaling is not None:
        mean, std = (torch.as_tensor(values).double().cpu() for values in output_scaling)
        after = after[0] * std.unsqueeze(1), after[1] * std + mean
    labels = list(net.dag.labels)
    features = [] if before is None else _new_labels(labels, before[0].shape[1], feature_names, "feature")
    targets = [] if after is None else _new_labels([*labels, *features], len(after[0]), target_names, "target")
    folded = _join(net, before, after, features, targets, net.weight.dtype if dtype is None else dtype)
    return folded.train(net.training)


def _affine(layer: nn.Module | None, width: int, scaling: Scaling | None) -> _Affine | None:
    """Weight and bias of a layer; the identity for a scaling without a layer, None without either."""
    if isinstance(layer, nn.Linear):
        weight: Tensor = layer.weight.detach().double().cpu()
        bias: Tensor | None = layer.bias
        return weight, weight.new_zeros(len(weight)) if bias is None else bias.detach().double().cpu()
    if layer is not None and not isinstance(layer, nn.Identity):
        raise OptionError(f"expected nn.Linear, nn.Identity or None as a layer, got a {type(layer).__name__}.")
    if layer is None and scaling is None:
        return None
    return torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)


def _join(
    net: FourWard,
    before: _Affine | None,
    after: _Affine | None,
    features: Sequence[Hashable],
    targets: Sequence[Hashable],
    dtype: torch.dtype,
) -> FourWard:
    """The network between two affine maps; its nodes are numbered features, nodes of `net`, targets."""
    dag, offset = net.dag, len(features)
    first, last = np.arange(offset), offset + dag.num_nodes + np.arange(len(targets))
    inputs, outputs, neurons = dag.inputs + offset, dag.outputs + offset, dag.neurons + offset
    edges, weights = [dag.edges + offset], [net.weight.detach().double().cpu()]
    bias = np.zeros(offset + dag.num_nodes + len(targets))
    if net.bias is not None:
        bias[neurons] = net.bias.detach().double().cpu().numpy()
    activations: list[ActivationLike] = ["identity"] * len(bias)
    for v, activation in zip(neurons.tolist(), net.neuron_activations(), strict=True):
        activations[v] = activation
    for affine, sources, ends in ((before, first, inputs), (after, outputs, last)):
        if affine is not None:
            pairs, values = _edges(affine, sources, ends)
            edges.append(pairs)
            weights.append(values)
            bias[ends] += affine[1].numpy()  # driven inputs have one already
    joined = Dag.from_arrays(
        np.concatenate(edges),
        labels=[*features, *dag.labels, *targets],
        inputs=inputs if before is None else first,
        outputs=outputs if after is None else last,
    )
    if dag.attributes:
        pad = (None,) * len(features), (None,) * len(targets)
        joined = joined.with_attributes({name: (*pad[0], *v, *pad[1]) for name, v in dag.attributes.items()})
    pairs = np.concatenate(edges)
    return from_parameters(
        joined,
        joined.align(torch.cat(weights), pairs, by="index"),
        bias[joined.neurons],
        [activations[v] for v in joined.neurons.tolist()],
        seed=0,
        dtype=dtype,
        device=net.weight.device,
        **_extend_constraints(net, joined, pairs),
    )


def _extend_constraints(net: FourWard, joined: Dag, pairs: IntArray) -> dict[str, Any]:
    """The constraints of the network's edges, the first of `pairs`, as options; the other edges are free."""
    if net.constraints is None:
        return {}
    options, count = {}, len(pairs) - net.dag.num_edges
    for name, array in net.constraints.arrays._asdict().items():
        if array is not None:
            extended = np.concatenate((array, np.full(count, _annotated.CONSTRAINTS[name], array.dtype)))
            options[name] = joined.align(extended, pairs, by="index")
    return options


def _edges(affine: _Affine, sources: IntArray, targets: IntArray) -> tuple[IntArray, Tensor]:
    """(E, 2) the edges of an affine map between these nodes, and their weights."""
    weight = affine[0]
    if weight.shape != (len(targets), len(sources)):
        raise WeightError(
            f"expected a layer from {len(sources)} to {len(targets)} features, got one with weights of shape "
            f"{tuple(weight.shape)}."
        )
    v, u = weight.nonzero(as_tuple=True)
    return np.stack((sources[u.numpy()], targets[v.numpy()]), -1), weight[v, u]


def _new_labels(taken: list[Any], count: int, names: list[str] | None, kind: str) -> list[Any]:
    """Labels that aren't taken: integers after the largest if all are integers, else text."""
    if all(map(_convert.is_integer, taken)):
        start = int(np.max(taken)) + 1
        return list(range(start, start + count))
    used, labels = set(taken), []
    for name in names if names is not None else [f"{kind} {k}" for k in range(count)]:
        while name in used:
            name = f"{name} ({kind})"
        used.add(name)
        labels.append(name)
    return labels

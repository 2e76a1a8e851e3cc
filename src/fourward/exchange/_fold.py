"""A network with the linear layers and scalings around it, folded into one network."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward.errors import OptionError, WeightError
from fourward.graph import _convert
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard

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
    of weight 0 left out, and neurons with the activation "identity", so that every exporter can write the model.

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
    dag, labels = net.dag, list(net.dag.labels)
    before = _affine(input_layer, dag.num_inputs, input_scaling)
    if before is not None and input_scaling is not None:
        mean, std = (torch.as_tensor(values).double().cpu() for values in input_scaling)
        before = before[0] / std, before[1] - before[0] @ (mean / std)
    after = _affine(output_layer, dag.num_outputs, output_scaling)
    if after is not None and output_scaling is not None:
        mean, std = (torch.as_tensor(values).double().cpu() for values in output_scaling)
        after = after[0] * std.unsqueeze(1), after[1] * std + mean
    features = _new_labels(labels, before[0].shape[1], feature_names, "feature") if before is not None else []
    targets = _new_labels([*labels, *features], len(after[0]), target_names, "target") if after is not None else []
    parts = [(before, features, [labels[v] for v in dag.inputs.tolist()])] if before is not None else []
    parts += [(after, [labels[v] for v in dag.outputs.tolist()], targets)] if after is not None else []
    return _join(net, parts, features, targets, net.weight.dtype if dtype is None else dtype)


def _affine(layer: nn.Module | None, width: int, scaling: Scaling | None) -> _Affine | None:
    """Weight and bias of a layer in double precision; the identity if there is a scaling alone, None without either."""
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
    parts: list[tuple[_Affine, list[Any], list[Any]]],
    features: list[Any],
    targets: list[Any],
    dtype: Any,
) -> FourWard:
    """The network with affine parts (map, sources, targets) as edges and biases."""
    dag, labels = net.dag, list(net.dag.labels)
    neurons = [labels[v] for v in dag.neurons.tolist()]
    pairs = [(labels[u], labels[v]) for u, v in dag.edges.tolist()]
    weights = [net.weight.detach().double().cpu()]
    bias = dict.fromkeys(labels, 0.0)
    if net.bias is not None:
        bias |= dict(zip(neurons, net.bias.detach().double().tolist(), strict=True))
    activation: dict[Any, Any] = dict(zip(neurons, net.neuron_activations(), strict=True))
    for affine, sources, ends in parts:
        new_pairs, new_weights = _edges(affine, sources, ends)
        pairs += new_pairs
        weights.append(new_weights)
        bias |= dict(zip(ends, affine[1].tolist(), strict=True))
        activation |= dict.fromkeys(ends, "identity")
    inputs, outputs = ([labels[v] for v in nodes.tolist()] for nodes in (dag.inputs, dag.outputs))
    joined = Dag.from_edges(
        pairs, nodes=[*features, *labels, *targets], inputs=features or inputs, outputs=targets or outputs
    )
    folded = FourWard(joined, activation, init="zeros", seed=0, dtype=dtype, device=net.weight.device)
    weight = joined.align(torch.cat(weights), pairs)
    biases = torch.tensor([bias[joined.labels[v]] for v in joined.neurons.tolist()], dtype=torch.float64)
    folded.load_edge_weights(weight, biases)
    return folded.train(net.training)


def _edges(affine: _Affine, sources: list[Any], targets: list[Any]) -> tuple[list[tuple[Any, Any]], Tensor]:
    weight = affine[0]
    if weight.shape != (len(targets), len(sources)):
        raise WeightError(
            f"expected a layer from {len(sources)} to {len(targets)} features, got one with weights of shape "
            f"{tuple(weight.shape)}."
        )
    v, u = weight.nonzero(as_tuple=True)
    pairs = [(sources[i], targets[j]) for i, j in zip(u.tolist(), v.tolist(), strict=True)]
    return pairs, weight[v, u]


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

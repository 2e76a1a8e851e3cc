"""A trained MLP of torch, edge by edge."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeGuard, TypeVar

import numpy as np
import torch
from torch import nn

from fourward._arrays import IntArray
from fourward.errors import ActivationError, GraphError
from fourward.graph._dag import Dag
from fourward.nn._activations import ActivationLike
from fourward.nn._fourward import FourWard

Kind = TypeVar("Kind", bound=nn.Module)
_LAYERS = (nn.Sequential, nn.Linear, nn.Dropout, nn.Flatten)  # no function of each number by itself
_PLAIN: Mapping[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.SELU: "selu",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
}


def from_mlp(model: nn.Sequential, *, prune: bool = False, **options: Any) -> FourWard:
    """An nn.Sequential of Linear layers and activations, as a network with the same outputs, which trains.

    Nodes are numbered layer by layer. Dropout layers are left away, for they do nothing in eval mode; so is a Flatten
    in front, so x comes flattened. Activations that aren't in the table, such as nn.Mish, are taken as callables.

    Args:
        model: The MLP.
        prune: Leave edges away whose weight is 0.
        options: As in FourWard.

    >>> mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> net, x = from_mlp(mlp), torch.ones(5, 4)
    >>> net.dag, torch.allclose(net(x), mlp(x), atol=1e-6)
    (Dag(15 nodes, 56 edges, 4 inputs, 3 outputs), True)
    """
    layers, activations = _layers(model)
    first = np.cumsum([0, layers[0].in_features, *(layer.out_features for layer in layers)]).tolist()
    blocks = [_edges(layer, start, prune) for layer, start in zip(layers, pairwise(first), strict=False)]
    edges = np.concatenate([pairs for pairs, _ in blocks])
    dag = Dag.from_edges(edges, nodes=first[-1], inputs=range(first[1]), outputs=range(first[-2], first[-1]))
    names = {v: f for f, a, b in zip(activations, first[1:], first[2:], strict=False) for v in range(a, b)}
    like, biased = layers[0].weight, any(layer.bias is not None for layer in layers)
    made: dict[str, Any] = {"dtype": like.dtype, "device": like.device, "bias": biased, "init": "zeros"}
    net = FourWard(dag, names, **(made | options))
    weight = dag.align(torch.cat([values for _, values in blocks]), edges)
    net.load_edge_weights(weight, torch.cat([_bias(layer) for layer in layers]) if biased else None)
    return net


def _layers(model: nn.Sequential) -> tuple[list[nn.Linear], list[ActivationLike]]:
    """The linear layers, and the activation after each."""
    if not _is(model, nn.Sequential):
        raise GraphError(f"a torch.nn.Sequential was wanted, but a {type(model).__name__} came.")
    layers: list[nn.Linear] = []
    activations: list[ActivationLike | None] = []
    for module in _flat(model):
        if _is(module, nn.Linear):
            if layers and layers[-1].out_features != module.in_features:
                sizes = f"{layers[-1].out_features} outputs before {module.in_features} inputs"
                raise GraphError(f"these layers don't fit: {sizes}.")
            layers.append(module)
            activations.append(None)
        elif not (_is(module, nn.Identity) or _is(module, nn.Dropout) or (_is(module, nn.Flatten) and not layers)):
            if not layers or activations[-1] is not None:
                raise ActivationError(
                    f"{module} doesn't follow a Linear layer. An MLP here is Linear layers, each with one activation "
                    "after it or none; Dropout, Identity and a Flatten in front are left away."
                )
            activations[-1] = _activation(module)
    if not layers:
        raise GraphError("this model has no Linear layer.")
    return layers, ["identity" if one is None else one for one in activations]


def _is(module: nn.Module, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether a module is of this kind and computes what the kind computes."""
    if not isinstance(module, kind) or type(module).forward is kind.forward:
        return isinstance(module, kind)
    if kind in _LAYERS:
        raise GraphError(
            f"{type(module).__name__} is a {kind.__name__} with a forward of its own, which no edges can "
            f"stand for. Put a plain torch.nn.{kind.__name__} in its place."
        )
    return False


def _flat(model: nn.Sequential) -> list[nn.Module]:
    return [inner for module in model for inner in (_flat(module) if _is(module, nn.Sequential) else [module])]


def _activation(module: nn.Module) -> ActivationLike:
    """The name of the row that a module equals, or else the module itself."""
    if type(module) in _PLAIN:
        return _PLAIN[type(module)]
    same = {
        "leaky_relu": _is(module, nn.LeakyReLU) and module.negative_slope == 0.01,
        "elu": _is(module, nn.ELU) and module.alpha == 1,
        "gelu": _is(module, nn.GELU) and module.approximate == "none",
        "softplus": _is(module, nn.Softplus) and (module.beta, module.threshold) == (1, 20),
        "hardtanh": isinstance(module, nn.Hardtanh) and (module.min_val, module.max_val) == (-1, 1),
    }
    return next((name for name, holds in same.items() if holds), module)


def _bias(layer: nn.Linear) -> torch.Tensor:
    bias: torch.Tensor | None = layer.bias
    return layer.weight.new_zeros(layer.out_features) if bias is None else bias


def _edges(layer: nn.Linear, bounds: tuple[int, int], prune: bool) -> tuple[IntArray, torch.Tensor]:
    """(E, 2) edges of a layer and their weights."""
    weight = layer.weight.detach()
    chosen = weight != 0 if prune else torch.ones_like(weight, dtype=torch.bool)
    target, source = (index.cpu().numpy() for index in chosen.nonzero(as_tuple=True))
    return np.stack((source + bounds[0], target + bounds[1]), -1), weight[chosen]

"""MLPs of torch as networks, edge by edge."""

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
from fourward.nn._fourward import FourWard, from_parameters

Kind = TypeVar("Kind", bound=nn.Module)
_LAYERS = (nn.Sequential, nn.Linear, nn.Dropout, nn.Flatten)  # not elementwise functions
_WITHOUT_OPTIONS: Mapping[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.SELU: "selu",
    nn.SiLU: "silu",
    nn.Tanh: "tanh",
    nn.Sigmoid: "sigmoid",
}


def from_mlp(model: nn.Sequential, *, prune: bool = False, **options: Any) -> FourWard:
    """Convert an nn.Sequential of Linear layers and activations to a network with the same outputs.

    Nodes are numbered layer by layer. Dropout layers, which do nothing in eval mode, and a leading Flatten are dropped:
    x has to be flat. Activations that aren't built in, such as nn.Mish, stay torch callables.

    Args:
        model: The MLP.
        prune: Omit edges whose weight is 0.
        options: Further keywords of FourWard.

    >>> mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> net, x = from_mlp(mlp), torch.ones(5, 4)
    >>> net.dag, torch.allclose(net(x), mlp(x), atol=1e-6)
    (Dag(15 nodes, 56 edges, 4 inputs, 3 outputs), True)
    """
    layers, activations = _split_layers(model)
    start = np.cumsum([0, layers[0].in_features, *(layer.out_features for layer in layers)]).tolist()
    blocks = [_edges(layer, bounds, prune) for layer, bounds in zip(layers, pairwise(start), strict=False)]
    edges = np.concatenate([pairs for pairs, _ in blocks])
    dag = Dag.from_arrays(edges, labels=start[-1], inputs=range(start[1]), outputs=range(start[-2], start[-1]))
    bias = None
    if any(layer.bias is not None for layer in layers):
        bias = torch.cat([_bias(layer) for layer in layers])
    return from_parameters(
        dag,
        dag.align(torch.cat([weight for _, weight in blocks]), edges, by="index"),
        bias,
        [activation for activation, layer in zip(activations, layers, strict=True) for _ in range(layer.out_features)],
        **{"dtype": layers[0].weight.dtype, "device": layers[0].weight.device} | options,
    )


def _split_layers(model: nn.Sequential) -> tuple[list[nn.Linear], list[ActivationLike]]:
    """The linear layers, and the activation after each."""
    if not _is(model, nn.Sequential):
        raise GraphError(f"expected a torch.nn.Sequential, got a {type(model).__name__}.")
    layers: list[nn.Linear] = []
    activations: list[ActivationLike | None] = []
    for module in _flatten(model):
        if _is(module, nn.Linear):
            if layers and layers[-1].out_features != module.in_features:
                raise GraphError(
                    f"expected a Linear layer with {layers[-1].out_features} inputs, as many as the layer before it "
                    f"has outputs, got {module}."
                )
            layers.append(module)
            activations.append(None)
        elif not (_is(module, nn.Identity) or _is(module, nn.Dropout) or (_is(module, nn.Flatten) and not layers)):
            if not layers or activations[-1] is not None:
                raise ActivationError(
                    f"expected an activation directly after a Linear layer, got {module}. An MLP consists of Linear "
                    "layers, each with at most one activation; Dropout, Identity and a leading Flatten are dropped."
                )
            activations[-1] = _activation(module)
    if not layers:
        raise GraphError("expected a model with at least one Linear layer, got none.")
    return layers, ["identity" if activation is None else activation for activation in activations]


def _is(module: nn.Module, kind: type[Kind]) -> TypeGuard[Kind]:
    """Whether a module is of this class and has its forward method."""
    if not isinstance(module, kind) or type(module).forward is kind.forward:
        return isinstance(module, kind)
    if kind in _LAYERS:
        raise GraphError(
            f"{type(module).__name__} overrides the forward method of {kind.__name__}, so it can't be converted to "
            f"edges. Replace it by a plain torch.nn.{kind.__name__}."
        )
    return False


def _flatten(model: nn.Sequential) -> list[nn.Module]:
    return [inner for module in model for inner in (_flatten(module) if _is(module, nn.Sequential) else [module])]


def _activation(module: nn.Module) -> ActivationLike:
    """The built-in activation that a module computes, by name, or else the module itself."""
    if type(module) in _WITHOUT_OPTIONS:
        return _WITHOUT_OPTIONS[type(module)]
    equal = {
        "leaky_relu": _is(module, nn.LeakyReLU) and module.negative_slope == 0.01,
        "elu": _is(module, nn.ELU) and module.alpha == 1,
        "gelu": _is(module, nn.GELU) and module.approximate == "none",
        "softplus": _is(module, nn.Softplus) and (module.beta, module.threshold) == (1, 20),
        "hardtanh": isinstance(module, nn.Hardtanh) and (module.min_val, module.max_val) == (-1, 1),
    }
    return next((name for name, is_equal in equal.items() if is_equal), module)


def _bias(layer: nn.Linear) -> torch.Tensor:
    bias: torch.Tensor | None = layer.bias
    return layer.weight.new_zeros(layer.out_features) if bias is None else bias


def _edges(layer: nn.Linear, bounds: tuple[int, int], prune: bool) -> tuple[IntArray, torch.Tensor]:
    """(E, 2) edges of a layer and their weights."""
    weight = layer.weight.detach()
    mask = weight != 0 if prune else torch.ones_like(weight, dtype=torch.bool)
    target, source = (index.cpu().numpy() for index in mask.nonzero(as_tuple=True))
    return np.stack((source + bounds[0], target + bounds[1]), -1), weight[mask]

"""The activation of each neuron, from what the user passed to one code per node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.errors import ActivationError, pluralize, summarize
from fourward.graph._base import BaseGraph
from fourward.plan.activations import BY_CODE, CUSTOM, lookup

#: The name of a built-in activation, or an elementwise torch callable.
ActivationLike = str | Callable[[Tensor], Tensor]
#: One activation for all neurons, or a mapping from label to activation, with "default" for all other neurons.
Activations = ActivationLike | Mapping[Any, ActivationLike]


class Elementwise(nn.Module):
    """Wraps a function as an nn.Module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(z)

    def extra_repr(self) -> str:
        """The name of the function."""
        return activation_name(self.function)


def resolve_activations(
    graph: BaseGraph, activation: Activations, output_activation: ActivationLike | None
) -> tuple[IntArray, nn.ModuleList]:
    """(N,) activation codes by node index, and the modules behind the codes from CUSTOM on.

    A neuron's own entry takes precedence over `output_activation`, and that over the default.
    """
    custom: dict[Any, int] = {}
    by_label: dict[Any, ActivationLike] = (
        dict(activation) if isinstance(activation, Mapping) else {"default": activation}
    )
    default = by_label.pop("default", None)
    if default is None:
        _check_complete(graph, by_label, output_activation)
        default = "identity"
    code = np.full(graph.num_nodes, _encode(default, custom), np.int32)
    if output_activation is not None:
        code[graph.outputs] = _encode(output_activation, custom)
    inputs = set(graph.inputs.tolist()) - set(graph.driven.tolist()) if by_label else set()
    for label, neuron_activation in by_label.items():
        node = graph.index(label)
        if node in inputs:
            raise ActivationError(
                f"node {label!r} is an input: x sets its value, and no activation applies. Remove its entry."
            )
        code[node] = _encode(neuron_activation, custom)
    return code, as_modules(custom)


def as_modules(custom: Iterable[Any]) -> nn.ModuleList:
    """The modules behind the codes from CUSTOM on, from the callables that a user passed."""
    modules = nn.ModuleList(key if isinstance(key, nn.Module) else Elementwise(key) for key in custom)
    for module in modules:
        _check_elementwise(module)
    return modules


def decode_activation(code: int, custom: nn.ModuleList) -> ActivationLike:
    """The activation behind a code: the name of a built-in one, or the callable that the user passed."""
    if code < CUSTOM:
        return BY_CODE[code].name
    module = custom[code - CUSTOM]
    return module.function if isinstance(module, Elementwise) else module


def activation_name(activation: ActivationLike) -> str:
    """An activation in print."""
    if isinstance(activation, str | nn.Module):
        return str(activation)
    return getattr(activation, "__name__", repr(activation))


def _encode(activation: ActivationLike, custom: dict[Any, int]) -> int:
    if isinstance(activation, str):
        return lookup(activation).code
    if isinstance(activation, type):
        raise ActivationError(
            f"activation must be a name or a torch callable, got the class {activation.__name__}. Pass an instance, "
            f"{activation.__name__}()."
        )
    if not callable(activation):
        raise ActivationError(f"activation must be a name or a torch callable, got {activation!r}.")
    return custom.setdefault(activation, CUSTOM + len(custom))


def _check_complete(
    graph: BaseGraph, by_label: Mapping[Hashable, ActivationLike], output_activation: ActivationLike | None
) -> None:
    named = {graph.index(label) for label in by_label}
    if output_activation is not None:
        named |= set(graph.outputs.tolist())
    missing = [graph.labels[v] for v in graph.neurons.tolist() if v not in named]
    if missing:
        raise ActivationError(
            f"no activation for {pluralize(len(missing), 'neuron')}: {summarize(missing)}. "
            "Add entries for these labels, or one for 'default'."
        )


def _check_elementwise(module: nn.Module) -> None:
    """Compare a module's output for a small tensor with its outputs for single elements, unless it is random."""
    like = next(module.parameters(), torch.zeros((), device="cpu"))
    z = torch.tensor([[-1.5, -0.4, 0.3], [0.7, 1.1, 2.0]], dtype=like.dtype, device=like.device)
    name = module.extra_repr() if isinstance(module, Elementwise) else str(module)
    message = (
        f"activation {name} must act elementwise. A softmax or a normalisation mixes neurons or samples: "
        "apply it to the output of the network."
    )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            first, second = module(z), module(z)
            alone = torch.stack([module(value.reshape(1, 1)).reshape(()) for value in z.flatten()]).reshape(2, 3)
        except Exception as error:
            raise ActivationError(f"{message} For a tensor of shape (2, 3) it raised: {error}") from error
    if torch.equal(first, second) and not torch.allclose(first, alone, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ActivationError(message)

"""A user's choice of activations, resolved to one code a node."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.errors import ActivationError, pluralize, summarize
from fourward.graph._dag import Dag
from fourward.plan.activations import BY_CODE, CUSTOM, lookup

#: A name of the table, or any torch callable that acts on each element alone.
One = str | Callable[[Tensor], Tensor]
#: One for all neurons, or a mapping from label to one, in which "default" stands for all others.
Activations = One | Mapping[Any, One]


class Elementwise(nn.Module):
    """A plain function in a module's clothes."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, z: Tensor) -> Tensor:
        """The function."""
        return self.function(z)

    def extra_repr(self) -> str:
        """Its name."""
        return getattr(self.function, "__name__", repr(self.function))


def resolve(dag: Dag, activation: Activations, output_activation: One | None) -> tuple[IntArray, nn.ModuleList]:
    """(N,) codes by node index, and the callables behind the codes from CUSTOM on.

    What is said of a single neuron wins over `output_activation`, and that over the default.
    """
    custom: dict[Any, int] = {}
    single: dict[Any, One] = dict(activation) if isinstance(activation, Mapping) else {"default": activation}
    default = single.pop("default", None)
    if default is None:
        _check_complete(dag, single, output_activation)
        default = "identity"
    code = np.full(dag.num_nodes, _code(default, custom), np.int32)
    if output_activation is not None:
        code[dag.outputs] = _code(output_activation, custom)
    inputs = set(dag.inputs.tolist())
    for label, one in single.items():
        node = dag.index(label)
        if node in inputs:
            raise ActivationError(
                f"node {label!r} is an input: x sets its value, and no activation is applied. Leave it away."
            )
        code[node] = _code(one, custom)
    modules = nn.ModuleList(key if isinstance(key, nn.Module) else Elementwise(key) for key in custom)
    for module in modules:
        _check_elementwise(module)
    return code, modules


def _check_elementwise(module: nn.Module) -> None:
    """Try a callable on a few numbers, together and one by one; functions that draw random numbers pass untried."""
    like = next(module.parameters(), torch.zeros((), device="cpu"))
    z = torch.tensor([[-1.5, -0.4, 0.3], [0.7, 1.1, 2.0]], dtype=like.dtype, device=like.device)
    name = module.extra_repr() if isinstance(module, Elementwise) else str(module)
    wrong = (
        f"the activation {name} must act on each element alone. A softmax or a normalisation mixes neurons or samples: "
        "apply it to what the network returns."
    )
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            together, again = module(z), module(z)
            alone = torch.stack([module(one.reshape(1, 1)).reshape(()) for one in z.flatten()]).reshape(2, 3)
        except Exception as error:
            raise ActivationError(f"{wrong} Tried on a tensor of shape (2, 3), it raised: {error}") from error
    if torch.equal(together, again) and not torch.allclose(together, alone, rtol=1e-3, atol=1e-5, equal_nan=True):
        raise ActivationError(wrong)


def name_of(code: int, custom: nn.ModuleList) -> str:
    """What to call an activation."""
    if code < CUSTOM:
        return BY_CODE[code].name
    module = custom[code - CUSTOM]
    return module.extra_repr() if isinstance(module, Elementwise) else str(module)


def _code(one: One, custom: dict[Any, int]) -> int:
    if isinstance(one, str):
        return lookup(one).code
    if not callable(one):
        raise ActivationError(f"{one!r} came as an activation, but it must be a name or a torch callable.")
    if isinstance(one, type):
        raise ActivationError(f"the class {one.__name__} came as an activation: make one of it, {one.__name__}().")
    return custom.setdefault(one, CUSTOM + len(custom))


def _check_complete(dag: Dag, single: Mapping[Hashable, One], output_activation: One | None) -> None:
    named = {dag.index(label) for label in single} | (
        set(dag.outputs.tolist()) if output_activation is not None else set()
    )
    missing = [dag.labels[v] for v in dag.neurons.tolist() if v not in named]
    if missing:
        raise ActivationError(
            f"no activation came for {pluralize(len(missing), 'neuron')}: {summarize(missing)}. "
            "Name them, or add a 'default'."
        )

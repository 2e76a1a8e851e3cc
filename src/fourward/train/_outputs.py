"""A warning where the activation of a network's outputs keeps it from learning its targets."""

from __future__ import annotations

import math
import warnings

from torch import Tensor, nn

from fourward.errors import summarize
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.plan.activations import ACTIVATIONS
from fourward.train._data import Task
from fourward.train._model import Model


def warn_of_bounded_outputs(model: nn.Module, task: Task, y: Tensor, stacklevel: int) -> None:
    """Warn if a model ends in a FourWard whose outputs can't take the values that the task asks for.

    Logits may be any numbers; targets (n, targets) are those given. A callable's range is unknown, and trusted.
    """
    net = _last_network(model)
    if net is None:
        return
    neurons = {v: k for k, v in enumerate(net.graph.neurons.tolist())}
    activations, limited = net.neuron_activations(), []
    for j, v in enumerate(net.graph.outputs.tolist()):
        activation = activations[neurons[v]] if v in neurons else None  # None: an input that is an output
        if not isinstance(activation, str):
            continue
        lower, upper = ACTIVATIONS[activation].bounds
        least, greatest = -math.inf, math.inf
        if task == "regression" and j < y.shape[-1]:
            least, greatest = y[..., j].min().item(), y[..., j].max().item()
        if least < lower or greatest > upper:
            limited.append(activation)
    if limited:
        values = "logits may be any numbers" if task == "classification" else "some targets are outside of its range"
        warnings.warn(
            f"{len(limited)} of {net.graph.num_outputs} outputs of the network have the activation "
            f"{summarize(dict.fromkeys(limited))}, but {values}, so it can't learn them. Create the network with "
            'output_activation="identity", or put a linear layer behind it.',
            stacklevel=stacklevel + 1,
        )


def _last_network(model: nn.Module) -> FourWard | Recurrent | None:
    """The network whose outputs are the model's; None where something follows it, or where that is unknown."""
    if isinstance(model, FourWard | Recurrent):
        return model
    if isinstance(model, Model):
        return None if model.adapters else model.net
    if isinstance(model, nn.Sequential):
        layers = [layer for layer in model if not isinstance(layer, nn.Identity)]
        return _last_network(layers[-1]) if layers else None
    return None

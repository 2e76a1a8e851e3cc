"""What the three methods share: keywords, flat weights in and out, and lists of tensors that cost nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._base import index_tensor
from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._torch_activations import LevelActivations
from fourward.graph._dag import Dag
from fourward.layering import Layering
from fourward.nn._activations import ActivationLike, Activations
from fourward.nn._dag_module import DagModule
from fourward.nn._init import Init


class Level(NamedTuple):
    """The neurons of a layer, and the edges into them."""

    nodes: IntArray  # node indices, ascending
    edge: IntArray  # which edges of the Dag lead here
    slot: IntArray  # the place of each edge's target among nodes
    source: IntArray  # the node where each edge starts


class Place(NamedTuple):
    """Where the numbers of one parameter stand in the flat vectors of weights or biases."""

    parameter: Tensor
    within: IntArray  # flat places in the parameter
    flat: IntArray  # the edges, or for biases the neurons, that they belong to


class TensorList(nn.Module):
    """Tensors that move with the module and that no state_dict holds."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        for i, tensor in enumerate(tensors):
            self.register_buffer(str(i), tensor, persistent=False)

    def tensors(self) -> list[Tensor]:
        """All of them, without the lookup by name that torch does for each."""
        return list(self._buffers.values())  # type: ignore[arg-type]


def parameters_of(module: nn.ParameterList) -> list[nn.Parameter]:
    """All of them, without the lookup by name that torch does for each, and as functional_call puts them."""
    return list(module._parameters.values())  # type: ignore[arg-type]


class PaperMethod(DagModule):
    """A method of the paper, with FourWard's keywords; it has no engine to choose."""

    like: Tensor  # () of the parameters' dtype and device
    inputs: Tensor
    outputs: Tensor
    hidden: Tensor  # (N,) neither input nor output

    def __init__(
        self,
        dag: Dag,
        activation: Activations = "relu",
        output_activation: ActivationLike | None = None,
        bias: bool = True,
        init: Init = "kaiming_uniform",
        dropout: float = 0.0,
        seed: int | None = None,
        *,
        layering: Layering | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dag, activation, output_activation, dropout, seed, layering, device, dtype)
        self.has_bias = bias
        self.level_activations = LevelActivations(self.plan)
        with torch.device("cpu"):
            self._build(self._dtype)
        self.load_edge_weights(*self._initial_parameters(init, bias))
        self.register_buffer("like", torch.empty(0, dtype=self._dtype), persistent=False)
        hidden = self.plan.hidden[self.plan.position]
        self.register_buffer("hidden", torch.from_numpy(hidden), persistent=False)
        self.register_buffer("outputs", index_tensor(dag.outputs), persistent=False)
        self.register_buffer("inputs", index_tensor(dag.inputs), persistent=False)
        self.to(self._device)

    @abstractmethod
    def _build(self, dtype: torch.dtype) -> None:
        """Make the parameters, of any values, and the index tensors."""

    @abstractmethod
    def _places(self) -> tuple[Iterator[Place], Iterator[Place]]:
        """Where the parameters' numbers stand among the weights, and among the biases."""

    def load_edge_weights(self, weight: Any, bias: Any = None) -> None:
        """Copy weights (E,) and biases (N-I,), as FourWard has them, into the method's own parameters."""
        flat = self._check_edge_weights(weight, bias, self.has_bias)
        with torch.no_grad():
            for values, places in zip(flat, self._places(), strict=True):
                if values is None:
                    continue
                for place in places:
                    target = place.parameter.view(-1)
                    target[index_tensor(place.within)] = values[index_tensor(place.flat)].to(target)

    def edge_weights(self, *, grad: bool = False) -> tuple[Tensor, Tensor | None]:
        """The weights (E,) and biases (N-I,) as FourWard has them; with grad=True their gradients."""
        like = self.like
        weight, bias = like.new_zeros(self.dag.num_edges), like.new_zeros(len(self.dag.neurons))
        for values, places in zip((weight, bias), self._places(), strict=True):
            for place in places:
                tensor = place.parameter.grad if grad else place.parameter.detach()
                if tensor is not None:
                    values[index_tensor(place.flat)] = tensor.reshape(-1)[index_tensor(place.within)]
        return weight, bias if self.has_bias else None

    def _levels(self) -> list[Level]:
        """The layers that hold neurons, from first to last."""
        plan = self.plan
        edge = np.arange(plan.dag.num_edges) if plan.edge is None else plan.edge
        levels = []
        for start, stop in pairwise(plan.level_start.tolist()):
            into = slice(plan.edge_start[start], plan.edge_start[stop])
            source = plan.dag.source[edge[into]]
            levels.append(Level(plan.order[start:stop], edge[into], plan.target[into] - start, source))
        return levels

    def _neuron(self) -> IntArray:
        """(N,) which bias belongs to each node."""
        neuron = np.full(self.dag.num_nodes, -1)
        neuron[self.dag.neurons] = np.arange(len(self.dag.neurons))
        return neuron

    def _scale(self, dropout: Dropout | None, batch: int) -> Tensor | None:
        """(N, B) what dropout multiplies each node with, by node index."""
        if dropout is None:
            return None
        node = torch.arange(self.dag.num_nodes, device=self.like.device)
        return torch.where(self.hidden.unsqueeze(1), dropout_scale(dropout, node, batch, self.like.dtype), 1)

    def _dtype_and_device(self) -> tuple[torch.dtype, torch.device]:
        return self.like.dtype, self.like.device

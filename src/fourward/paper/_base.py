"""What the three methods share: keywords, conversion from and to flat weights, and lists of tensors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout, dropout_scale
from fourward.engine._interface import index_tensor
from fourward.engine._torch_activations import LevelActivations
from fourward.errors import GraphError, Repair
from fourward.graph._dag import Dag
from fourward.layering import Layering
from fourward.nn._activations import ActivationLike, Activations
from fourward.nn._dag_module import DagModule, check_graph
from fourward.nn._init import Init


class Layer(NamedTuple):
    """The neurons of a layer, and the edges into them."""

    nodes: IntArray  # node indices, ascending
    edge: IntArray  # indices of the edges in dag.edges
    target_index: IntArray  # index of each edge's target in `nodes`
    source: IntArray  # source node of each edge


class ParameterMap(NamedTuple):
    """Which entries of a parameter are which weights of edges, or which biases of neurons."""

    parameter: Tensor
    entry: IntArray  # indices into the flattened parameter
    flat: IntArray  # indices into the weights (E,), or into the biases (N-I,)


class TensorList(nn.Module):
    """Tensors that move with the module, but aren't in its state_dict."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__()
        for i, tensor in enumerate(tensors):
            self.register_buffer(str(i), tensor, persistent=False)

    def tensors(self) -> list[Tensor]:
        """The tensors as a list; torch would look each up by name."""
        return list(self._buffers.values())  # type: ignore[arg-type]


def list_parameters(module: nn.ParameterList) -> list[nn.Parameter]:
    """The parameters as a list, those of functional_call included; torch would look each up by name."""
    return list(module._parameters.values())  # type: ignore[arg-type]


class PaperMethod(DagModule):
    """A method of the paper, with the keywords of FourWard except `engine`."""

    like: Tensor  # empty, of the parameters' dtype and device
    inputs: Tensor
    outputs: Tensor
    hidden: Tensor  # (N,) True for nodes that are neither inputs nor outputs

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
        check_graph(dag, Dag)
        if len(dag.driven):
            raise GraphError(
                f"expected a Dag whose inputs have no incoming edges, got {dag!r}: the paper has no driven inputs. "
                "Make it with driven=False.",
                Repair("into_inputs", "cut", "remove these edges where it is read from a file"),
            )
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
        """Create the parameters, of any values, and the index tensors."""

    @abstractmethod
    def _parameter_maps(self) -> tuple[Iterator[ParameterMap], Iterator[ParameterMap]]:
        """The maps of the weights, and those of the biases."""

    def load_edge_weights(self, weight: Any, bias: Any = None) -> None:
        """Copy weights (E,) and biases (N-I,), as FourWard has them, into this method's parameters."""
        flat = self._check_edge_weights(weight, bias, self.has_bias)
        with torch.no_grad():
            for values, maps in zip(flat, self._parameter_maps(), strict=True):
                if values is None:
                    continue
                for parameter, entry, index in maps:
                    target = parameter.view(-1)
                    target[index_tensor(entry)] = values[index_tensor(index)].to(target)

    def edge_weights(self, *, grad: bool = False) -> tuple[Tensor, Tensor | None]:
        """The weights (E,) and biases (N-I,) as FourWard has them, or with grad=True their gradients."""
        like = self.like
        weight, bias = like.new_zeros(self.dag.num_edges), like.new_zeros(len(self.dag.neurons))
        for values, maps in zip((weight, bias), self._parameter_maps(), strict=True):
            for parameter, entry, index in maps:
                tensor = parameter.grad if grad else parameter.detach()
                if tensor is not None:
                    values[index_tensor(index)] = tensor.reshape(-1)[index_tensor(entry)]
        return weight, bias if self.has_bias else None

    def _list_layers(self) -> list[Layer]:
        """The layers that contain neurons, from first to last."""
        plan = self.plan
        edge = np.arange(plan.dag.num_edges) if plan.edge is None else plan.edge
        layers = []
        for start, stop in pairwise(plan.level_start.tolist()):
            incoming = slice(plan.edge_start[start], plan.edge_start[stop])
            source = plan.dag.source[edge[incoming]]
            layers.append(Layer(plan.order[start:stop], edge[incoming], plan.target[incoming] - start, source))
        return layers

    def _bias_index(self) -> IntArray:
        """(N,) index of each node's bias; -1 for inputs."""
        index = np.full(self.dag.num_nodes, -1)
        index[self.dag.neurons] = np.arange(len(self.dag.neurons))
        return index

    def _dropout_scale(self, dropout: Dropout | None, batch: int) -> Tensor | None:
        """(N, B) the factors of dropout, by node index."""
        if dropout is None:
            return None
        node = torch.arange(self.dag.num_nodes, device=self.like.device)
        return torch.where(self.hidden.unsqueeze(1), dropout_scale(dropout, node, batch, self.like.dtype), 1)

    def _dtype_and_device(self) -> tuple[torch.dtype, torch.device]:
        return self.like.dtype, self.like.device

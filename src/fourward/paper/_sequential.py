"""SequentialBaseline: one neuron after another, Algorithms 3 and 4."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine._base import index_tensor
from fourward.engine._dropout import Dropout
from fourward.engine._torch_activations import TORCH_FUNCTIONS, apply_activation
from fourward.paper._base import PaperMethod, Place, TensorList, parameters_of


class SequentialBaseline(PaperMethod):
    """For each neuron: gather its predecessors' activations, multiply with its weight vector.

    The bias is the last entry of the weight vector, met by a row of ones. The layering plays no part.
    """

    def _build(self, dtype: torch.dtype) -> None:
        dag = self.dag
        is_neuron = np.zeros(dag.num_nodes, np.bool_)
        is_neuron[dag.neurons] = True
        self.nodes: list[int] = dag.order[is_neuron[dag.order]].tolist()
        code = self.plan.node_code
        self.codes: list[int] = code[self.nodes].tolist()
        ones = [dag.num_nodes] if self.has_bias else []
        self.first = dag.in_start[dag.position[self.nodes]]  # where each neuron's edges start, and stop
        self.last = dag.in_start[dag.position[self.nodes] + 1]
        known = [dag.source[first:last] for first, last in zip(self.first, self.last, strict=True)]
        self.predecessors = TensorList([index_tensor(np.append(u, ones)) for u in known])
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(len(u) + len(ones), dtype=dtype)) for u in known])

    def _places(self) -> tuple[Iterator[Place], Iterator[Place]]:
        neuron = self._neuron()
        own = list(zip(self.weights, self.nodes, self.first, self.last, strict=True))
        weights = (Place(p, np.arange(last - first), np.arange(first, last)) for p, _, first, last in own)
        biases = (Place(p, np.array([len(p) - 1]), neuron[[v]]) for p, v, _, _ in own if self.has_bias)
        return weights, biases

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        a = x.new_empty(self.dag.num_nodes + 1, len(x))
        a.index_copy_(0, self.inputs, x.t())
        a[-1] = 1
        # Rows taken apart once are quicker to write to, but autograd can't follow that.
        rows = [] if torch.is_grad_enabled() else a.unbind(0)
        scale = self._scale(dropout, len(x))
        neurons = zip(
            self.nodes,
            self.codes,
            parameters_of(self.weights),
            self.predecessors.tensors(),
            strict=True,
        )
        for v, code, weight, predecessors in neurons:
            z = weight @ a.index_select(0, predecessors)
            new = apply_activation(code, z, self.custom_activations, TORCH_FUNCTIONS)
            if scale is not None:
                new = new * scale[v]
            if rows:
                rows[v].copy_(new)
            else:
                a[v] = new
        return a[:-1].t() if all_nodes else a.index_select(0, self.outputs).t()

"""SequentialBaseline: one neuron after another, Algorithms 3 and 4."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine._dropout import Dropout
from fourward.engine._interface import index_tensor
from fourward.engine._torch_activations import TORCH_FUNCTIONS, apply_activation
from fourward.paper._base import PaperMethod, ParameterMap, TensorList, list_parameters


class SequentialBaseline(PaperMethod):
    """For each neuron: gather its predecessors' activations, multiply by its weight vector.

    The bias is the last entry of the weight vector, multiplied by a row of ones. The layering is not used.
    """

    def _build(self, dtype: torch.dtype) -> None:
        dag = self.dag
        self.nodes: list[int] = dag.order[dag.num_inputs :].tolist()  # the neurons, in topological order
        self.codes: list[int] = self.plan.node_code[self.nodes].tolist()
        bias_row = [dag.num_nodes] if self.has_bias else []
        self.start = dag.in_start[dag.position[self.nodes]]  # the edges into node i of `nodes` are start[i]:stop[i]
        self.stop = dag.in_start[dag.position[self.nodes] + 1]
        sources = [dag.source[start:stop] for start, stop in zip(self.start, self.stop, strict=True)]
        self.predecessors = TensorList([index_tensor(np.append(u, bias_row)) for u in sources])
        self.weights = nn.ParameterList(
            [nn.Parameter(torch.zeros(len(u) + len(bias_row), dtype=dtype)) for u in sources]
        )

    def _parameter_maps(self) -> tuple[Iterator[ParameterMap], Iterator[ParameterMap]]:
        bias_index = self._bias_index()
        rows = list(zip(self.weights, self.nodes, self.start, self.stop, strict=True))
        weights = (ParameterMap(p, np.arange(stop - start), np.arange(start, stop)) for p, _, start, stop in rows)
        biases = (ParameterMap(p, np.array([len(p) - 1]), bias_index[[v]]) for p, v, _, _ in rows if self.has_bias)
        return weights, biases

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        a = x.new_empty(self.dag.num_nodes + 1, len(x))
        a.index_copy_(0, self.inputs, x.t())
        a[-1] = 1
        # Writing to unbound rows is faster, but autograd can't differentiate it.
        rows = [] if torch.is_grad_enabled() else a.unbind(0)
        scale = self._dropout_scale(dropout, len(x))
        neurons = zip(
            self.nodes,
            self.codes,
            list_parameters(self.weights),
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

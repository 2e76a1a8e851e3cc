"""Masked4Ward: the paper's own method, Algorithms 1 and 2."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine._dropout import Dropout
from fourward.engine._interface import index_tensor
from fourward.paper._base import PaperMethod, ParameterMap, TensorList, list_parameters


class Masked4Ward(PaperMethod):
    """For each layer: gather its predecessors, multiply by masked dense weights, scatter.

    The bias is an extra column of the weights, multiplied by a row of ones. Activations are stored as (N + 1, B), so
    that gathers and scatters copy contiguous rows: at N=1024, p=1.0, B=512 that takes 66 ms where (B, N + 1) takes 138
    (2 cores). `index_copy_` into node order and slices of a renumbered order take the same time.
    """

    def _build(self, dtype: torch.dtype) -> None:
        bias_column = [self.dag.num_nodes] if self.has_bias else []
        weights, masks, predecessors, members = [], [], [], []
        self.layers = self._list_layers()
        self.entries: list[tuple[np.ndarray, int]] = []  # each edge's index into the flattened weights; their columns
        for layer in self.layers:
            sources, column = np.unique(layer.source, return_inverse=True)
            columns = len(sources) + len(bias_column)
            mask = torch.zeros(len(layer.nodes), columns, dtype=dtype)
            entry = layer.target_index * columns + column
            mask.view(-1)[index_tensor(entry)] = 1
            if self.has_bias:
                mask[:, -1] = 1
            self.entries.append((entry, columns))
            masks.append(mask)
            weights.append(nn.Parameter(torch.zeros_like(mask)))
            predecessors.append(index_tensor(np.append(sources, bias_column)))
            members.append(index_tensor(layer.nodes))
        self.weights = nn.ParameterList(weights)
        self.masks, self.predecessors, self.members = map(TensorList, (masks, predecessors, members))

    def _parameter_maps(self) -> tuple[Iterator[ParameterMap], Iterator[ParameterMap]]:
        bias_index = self._bias_index()
        layers = list(zip(self.weights, self.layers, self.entries, strict=True))
        weights = (ParameterMap(p, entry, layer.edge) for p, layer, (entry, _) in layers)
        biases = (
            ParameterMap(p, np.arange(1, len(layer.nodes) + 1) * columns - 1, bias_index[layer.nodes])
            for p, layer, (_, columns) in layers
            if self.has_bias
        )
        return weights, biases

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        a = x.new_empty(self.dag.num_nodes + 1, len(x))
        a.index_copy_(0, self.inputs, x.t())
        a[-1] = 1
        scale = self._dropout_scale(dropout, len(x))
        layers = zip(
            list_parameters(self.weights),
            self.masks.tensors(),
            self.predecessors.tensors(),
            self.members.tensors(),
            strict=True,
        )
        for i, (weight, mask, predecessors, members) in enumerate(layers):
            z = (mask * weight) @ a.index_select(0, predecessors)
            new = self.level_activations.forward(i, z, self.custom_activations)
            a.index_copy_(0, members, new if scale is None else new * scale.index_select(0, members))
        return a[:-1].t() if all_nodes else a.index_select(0, self.outputs).t()

"""DeepStruct: a matrix product for each pair of layers, the paper's equation and Algorithm 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout
from fourward.engine._interface import index_tensor
from fourward.paper._base import PaperMethod, ParameterMap, TensorList, list_parameters


class _Pair(NamedTuple):
    """The edges between two layers; pairs of layers without edges are skipped, as in the paper."""

    earlier: int  # 0 for the inputs, l + 1 for layer l of neurons
    edge: IntArray  # indices of the edges in dag.edges
    entry: IntArray  # their indices into the flattened weights between the layers


class DeepStruct(PaperMethod):
    """For each layer: sum masked dense products with every earlier layer that it has edges from."""

    position: Tensor
    output_position: Tensor

    def _build(self, dtype: torch.dtype) -> None:
        plan = self.plan
        self.layers = self._list_layers()
        bounds = np.concatenate(([0], plan.level_start))  # positions where the inputs and the layers start
        weights, masks = [], []
        self.pairs: list[list[_Pair]] = []
        for layer in self.layers:
            position = plan.position[layer.source]
            source_layer = np.searchsorted(bounds, position, side="right") - 1
            by_layer = np.argsort(source_layer, kind="stable")
            earlier, first = np.unique(source_layer[by_layer], return_index=True)
            pairs = []
            for j, start, stop in zip(earlier.tolist(), first, [*first[1:], len(source_layer)], strict=False):
                edges = by_layer[start:stop]
                width = int(bounds[j + 1] - bounds[j])
                entry = layer.target_index[edges] * width + position[edges] - bounds[j]
                mask = torch.zeros(len(layer.nodes), width, dtype=dtype)
                mask.view(-1)[index_tensor(entry)] = 1
                masks.append(mask)
                weights.append(nn.Parameter(torch.zeros_like(mask)))
                pairs.append(_Pair(j, layer.edge[edges], entry))
            self.pairs.append(pairs)
        self.weights, self.masks = nn.ParameterList(weights), TensorList(masks)
        columns = [nn.Parameter(torch.zeros(len(layer.nodes), 1, dtype=dtype)) for layer in self.layers]
        self.biases = nn.ParameterList(columns if self.has_bias else [])
        members = [index_tensor(layer.nodes) for layer in self.layers]
        self.members = TensorList(members)
        self.register_buffer("position", index_tensor(plan.position), persistent=False)
        self.register_buffer("output_position", index_tensor(plan.outputs), persistent=False)

    def _parameter_maps(self) -> tuple[Iterator[ParameterMap], Iterator[ParameterMap]]:
        bias_index = self._bias_index()
        pairs = [pair for layer in self.pairs for pair in layer]
        weights = (ParameterMap(p, pair.entry, pair.edge) for p, pair in zip(self.weights, pairs, strict=True))
        biases = (
            ParameterMap(p, np.arange(len(layer.nodes)), bias_index[layer.nodes])
            for p, layer in zip(self.biases, self.layers, strict=False)
        )
        return weights, biases

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        a = [x.t()]
        scale = self._dropout_scale(dropout, len(x))
        weights = iter(list_parameters(self.weights))
        masks = iter(self.masks.tensors())
        biases = list_parameters(self.biases)
        for i, (layer, pairs, members) in enumerate(zip(self.layers, self.pairs, self.members.tensors(), strict=True)):
            z: Tensor | None = biases[i] if self.has_bias else None
            for pair in pairs:
                masked = next(masks) * next(weights)
                z = masked @ a[pair.earlier] if z is None else torch.addmm(z, masked, a[pair.earlier])
            if z is None:
                z = x.new_zeros(len(layer.nodes), len(x))
            new = self.level_activations.forward(i, z.expand(-1, len(x)), self.custom_activations)
            a.append(new if scale is None else new * scale.index_select(0, members))
        return torch.cat(a).index_select(0, self.position if all_nodes else self.output_position).t()

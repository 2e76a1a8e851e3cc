"""DeepStruct: a product for each pair of layers, by the paper's equation and Algorithm 5."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._base import index_tensor
from fourward.engine._dropout import Dropout
from fourward.paper._base import PaperMethod, Place, TensorList, parameters_of


class _Pair(NamedTuple):
    """The edges between two layers; pairs without any are skipped, as the paper says."""

    earlier: int  # 0 for the inputs, l + 1 for the neurons of level l
    edge: IntArray  # the edges of the Dag
    within: IntArray  # their flat places in the weights between the layers


class DeepStruct(PaperMethod):
    """For each layer: add up masked dense products with every earlier layer that it has edges from."""

    position: Tensor
    last: Tensor

    def _build(self, dtype: torch.dtype) -> None:
        plan = self.plan
        self.levels = self._levels()
        bounds = np.concatenate(([0], plan.level_start))  # positions where the inputs and the levels start
        weights, masks = [], []
        self.pairs: list[list[_Pair]] = []
        for level in self.levels:
            position = plan.position[level.source]
            layer = np.searchsorted(bounds, position, side="right") - 1
            by_layer = np.argsort(layer, kind="stable")
            earlier, first = np.unique(layer[by_layer], return_index=True)
            pairs = []
            for j, start, stop in zip(earlier.tolist(), first, [*first[1:], len(layer)], strict=False):
                chosen = by_layer[start:stop]
                width = int(bounds[j + 1] - bounds[j])
                within = level.slot[chosen] * width + position[chosen] - bounds[j]
                mask = torch.zeros(len(level.nodes), width, dtype=dtype)
                mask.view(-1)[index_tensor(within)] = 1
                masks.append(mask)
                weights.append(nn.Parameter(torch.zeros_like(mask)))
                pairs.append(_Pair(j, level.edge[chosen], within))
            self.pairs.append(pairs)
        self.weights, self.masks = nn.ParameterList(weights), TensorList(masks)
        columns = [nn.Parameter(torch.zeros(len(level.nodes), 1, dtype=dtype)) for level in self.levels]
        self.biases = nn.ParameterList(columns if self.has_bias else [])
        members = [index_tensor(level.nodes) for level in self.levels]
        self.members = TensorList(members)
        self.register_buffer("position", index_tensor(plan.position), persistent=False)
        self.register_buffer("last", index_tensor(plan.outputs), persistent=False)

    def _places(self) -> tuple[Iterator[Place], Iterator[Place]]:
        neuron = self._neuron()
        pairs = [pair for level in self.pairs for pair in level]
        weights = (Place(p, pair.within, pair.edge) for p, pair in zip(self.weights, pairs, strict=True))
        biases = (
            Place(p, np.arange(len(level.nodes)), neuron[level.nodes])
            for p, level in zip(self.biases, self.levels, strict=False)
        )
        return weights, biases

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        a = [x.t()]
        scale = self._scale(dropout, len(x))
        weights = iter(parameters_of(self.weights))
        masks = iter(self.masks.tensors())
        biases = parameters_of(self.biases)
        for i, (level, pairs, members) in enumerate(zip(self.levels, self.pairs, self.members.tensors(), strict=True)):
            z: Tensor | None = biases[i] if self.has_bias else None
            for pair in pairs:
                masked = next(masks) * next(weights)
                z = masked @ a[pair.earlier] if z is None else torch.addmm(z, masked, a[pair.earlier])
            if z is None:
                z = x.new_zeros(len(level.nodes), len(x))
            new = self.level_activations.forward(i, z.expand(-1, len(x)), self.custom_activations)
            a.append(new if scale is None else new * scale.index_select(0, members))
        return torch.cat(a).index_select(0, self.position if all_nodes else self.last).t()

"""Driven inputs for any engine: its plan has D input nodes more, and D edges of weight 1 out of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout
from fourward.engine._interface import RecurrentRunner, Runner, index_tensor


class DrivenRunner(Runner):
    """Gives an engine's runner the weights of all edges of its plan, and its caller the nodes of the graph alone.

    Args:
        runner: The runner.
        edge: The edge of the graph for each edge that the runner has a weight for; E for edges of weight 1.
        num_nodes: Number of nodes of the graph.
    """

    edge: Tensor

    def __init__(self, runner: Runner, edge: IntArray, num_nodes: int) -> None:
        super().__init__()
        self.runner, self.num_nodes = runner, num_nodes
        self.register_buffer("edge", index_tensor(edge), persistent=False)

    def describe(self) -> str:
        """The strategy of the engine's runner."""
        return self.runner.describe()

    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        """Compute a batch."""
        out: Tensor = self.runner(x, _expand(weight, self.edge), bias, custom, dropout, all_nodes)
        return out[:, : self.num_nodes] if all_nodes else out


class DrivenRecurrentRunner(RecurrentRunner):
    """The same for networks with feedback; `num_features` is the number D of nodes that the plan has more."""

    edge: Tensor

    def __init__(self, runner: RecurrentRunner, edge: IntArray, num_nodes: int, num_features: int) -> None:
        super().__init__()
        self.runner, self.num_nodes, self.num_features = runner, num_nodes, num_features
        self.register_buffer("edge", index_tensor(edge), persistent=False)

    def describe(self) -> str:
        """The strategy of the engine's runner."""
        return self.runner.describe()

    def forward(
        self,
        x: Tensor,
        h0: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        rate: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> tuple[Tensor, Tensor]:
        """Compute a batch of sequences."""
        if h0 is not None:
            h0 = pad(h0, (0, self.num_features))  # read by nothing
        weight = _expand(weight, self.edge)
        out, state = self.runner(x, h0, weight, bias, rate, custom, dropout, all_nodes)
        return out[..., : self.num_nodes] if all_nodes else out, state[:, : self.num_nodes]


def _expand(weight: Tensor, edge: Tensor) -> Tensor:
    """The weights of the edges, and 1 after the last."""
    return torch.cat((weight, weight.new_ones(1))).index_select(0, edge)

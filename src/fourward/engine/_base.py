"""The interface of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout
from fourward.plan._plan import Plan


@dataclass(frozen=True)
class Request:
    """What an engine would have to run."""

    plan: Plan
    dtype: torch.dtype
    device: torch.device
    custom: bool  #: some neuron has a callable of the user's as activation


class Runner(nn.Module, ABC):
    """A plan made ready for one engine; its index tensors are buffers that no state_dict holds."""

    def describe(self) -> str:
        """The execution strategy for this plan, a line of `net.explain()`; empty by default."""
        return ""

    @abstractmethod
    def forward(
        self,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        custom: nn.ModuleList,
        dropout: Dropout | None,
        all_nodes: bool,
    ) -> Tensor:
        """Compute a batch.

        Args:
            x: (B, I) values of the inputs, in feature order.
            weight: (E,) in the order of dag.edges, of x's dtype.
            bias: (N-I,) in the order of dag.neurons, or None.
            custom: The user's own activations; code CUSTOM + k means custom[k].
            dropout: Draw of this pass, or None.
            all_nodes: Return (B, N) activations of all nodes, by node index, instead of (B, O) outputs.
        """


class Engine(ABC):
    """One way to compute a network."""

    name: ClassVar[str]
    summary: ClassVar[str]
    supports_mixed_precision: ClassVar[bool] = False  #: takes x in half precision with float32 weights (autocast)

    @abstractmethod
    def supports(self, request: Request) -> str | None:
        """Why this engine can't run the request, or None if it can."""

    def declines(self, request: Request) -> str | None:
        """Why "auto" should pass it by, though it can run the request."""
        return None

    @abstractmethod
    def prepare(self, plan: Plan) -> Runner:
        """Make a plan ready to run."""


def index_tensor(array: IntArray) -> Tensor:
    """Node or edge numbers for torch to index with; a copy, since plans are read-only."""
    return torch.from_numpy(np.array(array, np.int64))


def plain(tensor: Tensor) -> Tensor:
    """Numbers as they lie in memory: contiguous, and negated where torch has only noted that."""
    return tensor.resolve_neg().contiguous() if tensor.is_neg() or not tensor.is_contiguous() else tensor

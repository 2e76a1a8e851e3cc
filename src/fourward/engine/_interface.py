"""The interface of an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit._trace import is_tracing

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout
from fourward.plan._plan import Plan


@dataclass(frozen=True)
class Request:
    """A network that an engine is to run."""

    plan: Plan
    dtype: torch.dtype
    device: torch.device
    custom: bool  #: some activation is a torch callable, not a row of the table


class Runner(nn.Module, ABC):
    """A plan prepared for one engine. Its index tensors are buffers that are not part of the state_dict."""

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
            custom: The custom activations; code CUSTOM + k means custom[k].
            dropout: The draw of this pass, or None.
            all_nodes: Return (B, N) activations of all nodes, by node index, instead of (B, O) outputs.
        """


class Engine(ABC):
    """Base class of engines: says which networks it supports, and prepares their plans."""

    name: ClassVar[str]  #: what users pass as engine=
    summary: ClassVar[str]  #: a line for `net.explain()`
    supports_mixed_precision: ClassVar[bool] = False  #: takes x in half precision with float32 weights (autocast)

    @abstractmethod
    def supports(self, request: Request) -> str | None:
        """Return why this engine can't run the request, or None if it can."""

    def declines(self, request: Request) -> str | None:
        """Return why "auto" should skip this engine though it supports the request, or None."""
        return None

    @abstractmethod
    def prepare(self, plan: Plan) -> Runner:
        """Prepare a plan: all that depends on the graph alone is computed here."""


def index_tensor(array: IntArray) -> Tensor:
    """Copy an index array, which is read-only in a plan, to an int64 tensor."""
    return torch.from_numpy(np.array(array, np.int64))


def plain(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor without a pending negation, so that a kernel can read its memory."""
    return tensor.resolve_neg().contiguous() if tensor.is_neg() or not tensor.is_contiguous() else tensor


def exporting_to_onnx() -> bool:
    """Whether torch.onnx.export traces this pass, with either of its exporters."""
    return (is_tracing() or torch.compiler.is_exporting()) and torch.onnx.is_in_onnx_export()

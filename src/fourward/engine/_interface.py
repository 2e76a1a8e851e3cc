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
from fourward.errors import EngineError
from fourward.plan._plan import Plan
from fourward.plan._population_plan import PopulationPlan
from fourward.plan._recurrent_plan import RecurrentPlan


@dataclass(frozen=True)
class Request:
    """A network that an engine is to run."""

    plan: Plan  #: the plan of a pass, or of a step of a network with feedback
    dtype: torch.dtype
    device: torch.device
    custom: bool  #: some activation is a torch callable, not a row of the table
    recurrent: RecurrentPlan | None = None  #: the feedback edges and dynamics of a network that has them

    @property
    def num_nodes(self) -> int:
        """Nodes of the network."""
        return self.plan.dag.num_nodes

    @property
    def num_edges(self) -> int:
        """Edges of the network, feedback included."""
        return self.plan.dag.num_edges + (0 if self.recurrent is None else self.recurrent.num_feedback)


class PopulationRequest(Request):
    """A population that an engine is to run. Its union is only planned if an engine reads `plan`."""

    def __init__(self, population: PopulationPlan, dtype: torch.dtype, device: torch.device, custom: bool) -> None:
        fields = {"population": population, "dtype": dtype, "device": device, "custom": custom, "recurrent": None}
        vars(self).update(fields)

    @property
    def plan(self) -> Plan:
        """The members as one network."""
        return self.population.union

    @property
    def num_nodes(self) -> int:
        """Nodes of all members, and of inputs of their own for each."""
        return self.population.num_neurons + self.population.num_inputs * self.population.num_members

    @property
    def num_edges(self) -> int:
        """Edges of all members."""
        return self.population.num_edges

    population: PopulationPlan


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


class RecurrentRunner(nn.Module, ABC):
    """A recurrent plan prepared for one engine; its index tensors are buffers that are not part of the state_dict."""

    def describe(self) -> str:
        """The execution strategy for this plan, a line of `net.explain()`; empty by default."""
        return ""

    @abstractmethod
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
        """Compute all steps of a batch of sequences.

        In each step, z_v is the bias, plus the sum over edges within the step, plus the sum over feedback edges of
        activations of the step before. With s the state of the step before,

            dynamics "rate"       a_v = s_v + (d_v f_v(z_v) - s_v) rate_v, the new state
            dynamics "voltage"    the new state is u_v = s_v + (z_v - s_v) rate_v, and a_v = d_v f_v(u_v)

        where d_v is the factor of dropout, the same in all steps. The state and the activation of an input is its
        feature. Activations before the first step are h0, but with "voltage" d_v f_v(h0_v) for neurons.

        Args:
            x: (T, B, I) values of the inputs, in feature order; T is at least 1.
            h0: (B, N) the state before the first step, by node index; None means zeros.
            weight: (E + F,) the weights of plan.step.dag.edges, then those of the feedback edges; of x's dtype.
            bias: (N-I,) in the order of plan.step.dag.neurons, or None.
            rate: (N-I,) 1 / tau in the same order, in (0, 1]; None unless plan.leaky.
            custom: The custom activations; code CUSTOM + k means custom[k].
            dropout: The draw of this pass, or None.
            all_nodes: Return activations of all nodes, (T, B, N) by node index, instead of (T, B, O) outputs.

        Returns:
            Outputs or activations of all steps, and (B, N) the state after the last step, by node index.
        """


class PopulationRunner(nn.Module, ABC):
    """A population prepared for one engine; its index tensors are buffers that are not part of the state_dict."""

    def describe(self) -> str:
        """The execution strategy for this plan, a line of `pop.explain()`; empty by default."""
        return ""

    @abstractmethod
    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None, custom: nn.ModuleList) -> Tensor:
        """Compute a batch for all members: (P, B, O).

        Nothing of a member reaches another: a NaN in one leaves the others' outputs and gradients as they are.

        Args:
            x: (B, I) values of the inputs, in feature order, for all members, or (P, B, I).
            weight: (E,) in the order of plan.source, of x's dtype.
            bias: (M,) in the order of each member's node indices, or None.
            custom: The custom activations; code CUSTOM + k means custom[k].
        """


class Engine(ABC):
    """Base class of engines: says which networks it supports, and prepares their plans."""

    name: ClassVar[str]  #: what users pass as engine=
    summary: ClassVar[str]  #: a line for `net.explain()`
    supports_feedback: ClassVar[bool] = False  #: has `prepare_recurrent`; else networks with feedback are declined
    supports_mixed_precision: ClassVar[bool] = False  #: takes x in half precision with float32 weights (autocast)

    @abstractmethod
    def supports(self, request: Request) -> str | None:
        """Return why this engine can't run the request, or None if it can."""

    def why_not(self, request: Request) -> str | None:
        """Return why this engine can't run the request, one with feedback included, or None if it can."""
        if request.recurrent is not None and not self.supports_feedback:
            return "it doesn't run networks with feedback"
        return self.supports(request)

    def declines(self, request: Request) -> str | None:
        """Return why "auto" should skip this engine though it supports the request, or None."""
        return None

    @abstractmethod
    def prepare(self, plan: Plan) -> Runner:
        """Prepare a plan: all that depends on the graph alone is computed here."""

    def prepare_recurrent(self, plan: RecurrentPlan) -> RecurrentRunner:
        """Prepare the plan of a network with feedback, if this engine supports such networks."""
        raise EngineError(f"the {self.name} engine doesn't run networks with feedback. Choose engine='auto'.")

    def prepare_population(self, plan: PopulationPlan) -> PopulationRunner:
        """Prepare a population; by default as one network, the union of its members."""
        from fourward.engine._union import UnionRunner  # which builds on this module

        return UnionRunner(plan, self.prepare)


def index_tensor(array: IntArray) -> Tensor:
    """Copy an index array, which is read-only in a plan, to an int64 tensor."""
    return torch.from_numpy(np.array(array, np.int64))


def plain(tensor: Tensor) -> Tensor:
    """Return a contiguous tensor without a pending negation, so that a kernel can read its memory."""
    return tensor.resolve_neg().contiguous() if tensor.is_neg() or not tensor.is_contiguous() else tensor


def is_batched(tensor: Tensor) -> bool:
    """Whether torch.func or is_grads_batched=True hides a dimension of the tensor."""
    functorch = torch._C._functorch
    return bool(functorch.is_legacy_batchedtensor(tensor) or functorch.is_batchedtensor(tensor))


def without_paths(tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """Views of tensors: a gradient with respect to one of them doesn't follow how another was computed from it."""
    return tuple(None if tensor is None else tensor.view_as(tensor) for tensor in tensors)


def exporting_to_onnx() -> bool:
    """Whether torch.onnx.export traces this pass, with either of its exporters."""
    return (is_tracing() or torch.compiler.is_exporting()) and torch.onnx.is_in_onnx_export()

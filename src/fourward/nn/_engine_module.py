"""EngineModule: what FourWard and Recurrent share, from flat parameters to the engine that computes with them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self

import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine import _registry
from fourward.engine._driven import DrivenRunner
from fourward.engine._interface import RecurrentRunner, Request, Runner
from fourward.errors import WeightError
from fourward.graph._base import BaseGraph
from fourward.layering import Layering, longest_path, push_sources
from fourward.nn._activations import ActivationLike, Activations, activation_name, decode_activation
from fourward.nn._constraint_options import EdgeConstraints
from fourward.nn._dag_module import DagModule
from fourward.nn._init import Init


class EngineModule(DagModule):
    """A network with one weight for each edge and one bias for each neuron, which an engine computes."""

    weight: Tensor  #: (E,) weight[k] belongs to edge k of the graph; computed from parameters under constraints
    bias: nn.Parameter | None  #: one for each neuron of the graph, in the order of its `neurons`
    runner: Runner | RecurrentRunner

    def __init__(
        self,
        graph: BaseGraph,
        activation: Activations,
        output_activation: ActivationLike | None,
        bias: bool,
        init: Init,
        dropout: float,
        engine: str,
        seed: int | None,
        layering: Layering | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        constraints: EdgeConstraints | None = None,
    ) -> None:
        _registry.check_name(engine)
        super().__init__(graph, activation, output_activation, dropout, seed, layering, device, dtype)
        self.requested_engine = engine
        weight, biases = self._initial_parameters(init, bias, constraints)
        self._register_weight(graph, weight, constraints)
        self.register_parameter("bias", None if biases is None else nn.Parameter(biases.to(self._device)))
        self._sizes = (graph.num_edges,), (len(graph.neurons),)

    def _start_engine(self) -> None:
        """Choose an engine and prepare the plan, once all parameters are there."""
        self.choice = self._choose_engine()
        self.runner = self._prepare_runner()

    def _choose_engine(self) -> _registry.Choice:
        like = next(self.parameters())  # not `weight`: if pruned, it keeps its device until the next pass
        return _registry.choose(self.requested_engine, self._make_request(like.dtype, like.device))

    def _make_request(self, dtype: torch.dtype, device: torch.device) -> Request:
        return Request(self.plan, dtype, device, len(self.custom_activations) > 0)

    def _prepare_runner(self) -> Runner | RecurrentRunner:
        runner = self.choice.engine.prepare(self.plan)
        if self.plan_edge is not None:
            runner = DrivenRunner(runner, self.plan_edge, self.graph.num_nodes)
        device = next(self.parameters()).device
        return runner if device.type == "cpu" else runner.to(device)

    def _with_graph(self, graph: BaseGraph, code: IntArray) -> Self:
        """A copy with the same parameters, planned for another graph, whose numbers of edges and neurons they lack.

        Args:
            graph: The graph.
            code: (N,) the activation code of each of its nodes.
        """
        other = copy(self)
        vars(other).update({name: dict(vars(self)[name]) for name in ("_parameters", "_buffers", "_modules")})
        other.graph, other.dag = graph, graph.dag
        other.layering = push_sources(other.dag, longest_path(other.dag))
        other.plan, other.plan_edge = other._build_plan(code)
        other._sizes = (graph.num_edges,), (len(graph.neurons),)
        other._start_engine()
        return other

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if next(self.parameters()).is_meta:
            return self  # a skeleton for torch.func.functional_call, which fills in the buffers of this same engine
        before, self.choice = self.choice.engine.name, self._choose_engine()  # it depends on device and dtype
        if self.choice.engine.name != before:
            self.runner = self._prepare_runner()
        return self

    def to_empty(self, *, device: torch.device | str | int | None, recurse: bool = True) -> Self:
        """Move parameters without copying them, as nn.Module does; the engine's index tensors are rebuilt."""
        super().to_empty(device=device, recurse=recurse)
        self.passes.zero_()
        if self.constraints is not None:
            self.constraints.rebuild()
        self.runner = self._prepare_runner()
        return self

    def _plan_parameters(self) -> tuple[Tensor, Tensor | None]:
        """The weights and biases of this pass, their shapes checked."""
        weight, bias = self._lookup_parameter("weight"), self._lookup_parameter("bias")
        assert weight is not None
        if weight.shape != self._sizes[0] or (bias is not None and bias.shape != self._sizes[1]):
            self._check_edge_weights(weight, bias, bias is not None)  # raises the error
        return weight, bias

    def _supports_mixed_precision(self) -> bool:
        return self.choice.engine.supports_mixed_precision

    def _dtype_and_device(self) -> tuple[torch.dtype, torch.device]:
        like = self._lookup_parameter("weight") if self.constraints is None else self.constraints.free_weight
        assert like is not None
        return like.dtype, like.device

    def _lookup_parameter(self, name: str) -> Tensor | None:
        """A parameter from the module's own dict: torch's lookup by attribute takes half a microsecond.

        A pruned or parametrised one is an attribute that torch computes from others.
        """
        parameters = self._parameters
        return parameters[name] if name in parameters else getattr(self, name)

    @property
    def engine(self) -> str:
        """Name of the engine that runs this network."""
        return self.choice.engine.name

    def explain(self) -> str:
        """Explain which engine runs, why it was chosen, and its execution strategy for this graph."""
        return "\n".join(line for line in (self.choice.explain(), self.runner.describe()) if line)

    def load_edge_weights(self, weight: Any, bias: Any = None) -> None:
        """Copy weights (E,) and, for a network with biases, one for each neuron into the parameters."""
        check_parameters(self)
        weight, bias = self._check_edge_weights(weight, bias, self.bias is not None)
        with torch.no_grad():
            if self.constraints is None:
                self.weight.copy_(weight)
            else:
                self.constraints.set_weight(weight.to(self.constraints.free_weight))
            if self.bias is not None and bias is not None:
                self.bias.copy_(bias)

    def extra_repr(self) -> str:
        """The graph, the activations and the engine."""
        codes = sorted(set(self.plan.code[self.graph.num_inputs :].tolist()))
        names = ", ".join(activation_name(decode_activation(code, self.custom_activations)) for code in codes)
        return (
            f"{self.graph!r}, height={self.layering.height}, activation={names or None}, bias={self.bias is not None}, "
            f"{f'dropout={self.dropout}, ' if self.dropout else ''}"
            f"{'' if self.constraints is None else f'weights: {self.constraints.extra_repr()}, '}engine={self.engine!r}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"  # on one line, without submodules


def check_parameters(net: EngineModule) -> None:
    """Check that weight and bias are parameters, or weight under constraints of the network's own.

    Values that torch computes in each pass (pruned, parametrised) would be lost when loaded, and stale when saved.
    """
    for name in ("weight", "bias"):
        if name not in net._parameters and (name == "bias" or net.constraints is None):
            raise WeightError(
                f"net.{name} is pruned or parametrised, so torch computes it in every pass. Make it permanent with "
                f"torch.nn.utils.prune.remove(net, {name!r}) or "
                f"torch.nn.utils.parametrize.remove_parametrizations(net, {name!r})."
            )

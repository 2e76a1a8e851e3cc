"""Recurrent: any Digraph as a torch module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit._trace import is_tracing
from torch.utils.checkpoint import checkpoint as recompute

from fourward.engine._driven import DrivenRecurrentRunner
from fourward.engine._dropout import Dropout
from fourward.engine._interface import RecurrentRunner, Request
from fourward.errors import InputError, OptionError, pluralize, summarize
from fourward.graph._base import BaseGraph
from fourward.graph._digraph import Digraph
from fourward.nn._activations import ActivationLike, Activations
from fourward.nn._constraint_options import resolve_constraints
from fourward.nn._dag_module import check_graph, constant_checks
from fourward.nn._engine_module import EngineModule
from fourward.nn._fourward import name_activations, weighted_networkx
from fourward.nn._init import Init
from fourward.plan._recurrent_plan import Dynamics, build_recurrent_plan

if TYPE_CHECKING:
    import networkx as nx

#: A number for all neurons, a mapping from label to number, one number for each neuron, or a Parameter of these.
Tau = float | Mapping[Any, float] | Tensor | np.ndarray[Any, Any] | None


class Recurrent(EngineModule):
    """A network of single neurons wired as a Digraph, feedback included, as a torch module.

    In each step every neuron v, in the order of the Dag, computes z_v: its bias, plus the sum of weight_uv a_u over the
    edges within the step, plus the same sum over its feedback edges with the a_u of the step before, plus its feature
    if it is a driven input. Its activation then moves towards f_v(z_v):

        a_v[t] = a_v[t-1] + (f_v(z_v) - a_v[t-1]) / tau_v

    and with dynamics="voltage" it is its voltage u that moves, before the nonlinearity:

        u_v[t] = u_v[t-1] + (z_v - u_v[t-1]) / tau_v,    a_v[t] = f_v(u_v[t])

    The state of the network is a, or u; that of an input without incoming edges is its feature.

    Args:
        graph: The graph.
        activation: As in `FourWard`.
        output_activation: As in `FourWard`.
        bias: Whether neurons have a bias.
        init: As in `FourWard`; degrees count feedback edges, too.
        tau: Time constants in steps, at least 1: a number for all neurons, a mapping from label to number, with
            "default" for all other neurons, or a vector in the order of graph.neurons, which is learned if it is a
            torch.nn.Parameter; below 1 it counts as 1. None: 1 for all, so that "rate" and "voltage" are the same.
        dynamics: "rate" or "voltage".
        dropout: Probability that a hidden neuron is dropped for all steps of a sequence in training mode; otherwise as
            in `FourWard`.
        engine: "auto", or the name of an engine; see `explain`.
        seed: Seed of initialisation and dropout; None draws one from the system's entropy.
        batch_first: Whether sequences are (B, T, features) instead of (T, B, features).
        sign: As in `FourWard`, here and below; edges are those of graph.edges, feedback included.
        frozen: Edges that keep their initial weights.
        tied: Edges that share a parameter.
        scale: What parameters are multiplied by.
        device: Device of the parameters.
        dtype: Floating point dtype of the parameters.

    >>> g = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "y")])
    >>> net = Recurrent(g, seed=0)
    >>> y, h = net(torch.zeros(10, 5, 1))
    >>> y.shape, h.shape
    (torch.Size([10, 5, 1]), torch.Size([5, 4]))
    """

    tau: Tensor | None  #: time constants in the order of graph.neurons: a parameter, a buffer or None
    runner: RecurrentRunner

    def __init__(
        self,
        graph: Digraph,
        activation: Activations = "tanh",
        output_activation: ActivationLike | None = None,
        bias: bool = True,
        init: Init = "kaiming_uniform",
        tau: Tau = None,
        dynamics: Dynamics = "rate",
        dropout: float = 0.0,
        engine: str = "auto",
        seed: int | None = None,
        batch_first: bool = False,
        *,
        sign: Any = None,
        frozen: Any = None,
        tied: Any = None,
        scale: Any = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_graph(graph, Digraph)
        if dynamics not in get_args(Dynamics):
            raise OptionError(f"dynamics must be 'rate' or 'voltage', got {dynamics!r}.")
        if not isinstance(batch_first, bool):
            raise OptionError(f"batch_first must be True or False, got {batch_first!r}.")
        options = (dropout, engine, seed, None, device, dtype)
        constraints = resolve_constraints(graph, sign, frozen, tied, scale)
        super().__init__(graph, activation, output_activation, bias, init, *options, constraints=constraints)
        self.graph: Digraph = graph
        self.dynamics, self.batch_first = dynamics, batch_first
        self._register_tau(tau)
        self._start_engine()

    def _start_engine(self) -> None:
        leaky = self.tau is not None
        dynamics = self.dynamics if leaky else "rate"
        self.recurrent_plan = build_recurrent_plan(self.plan, self.graph.feedback, dynamics, leaky)
        super()._start_engine()

    def _register_tau(self, tau: Tau) -> None:
        values = None if tau is None else tau_vector(tau, self.graph).to(self._device, self._dtype)
        if isinstance(tau, nn.Parameter):
            assert values is not None
            self.tau = nn.Parameter(values, requires_grad=tau.requires_grad)
        else:
            self.register_buffer("tau", values)

    def _make_request(self, dtype: torch.dtype, device: torch.device) -> Request:
        return Request(self.plan, dtype, device, len(self.custom_activations) > 0, self.recurrent_plan)

    def _prepare_runner(self) -> RecurrentRunner:
        runner = self.choice.engine.prepare_recurrent(self.recurrent_plan)
        if self.plan_edge is not None:
            within, graph = self.dag.num_edges, self.graph
            edge = np.where(self.plan_edge == within, graph.num_edges, self.plan_edge)
            edge = np.concatenate((edge, np.arange(within, graph.num_edges)))
            runner = DrivenRecurrentRunner(runner, edge, graph.num_nodes, len(graph.driven))
        return runner.to(next(self.parameters()).device)

    def forward(  # type: ignore[override]
        self, x: Tensor, h0: Tensor | None = None, *, checkpoint: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Compute the outputs of all steps, and the state after the last.

        Args:
            x: (T, B, num_inputs), or (B, T, num_inputs) with batch_first; or (T, num_inputs), a single sequence.
            h0: (B, num_nodes) the state before the first step, or (num_nodes,) for a single sequence. Default: zeros.
            checkpoint: Keep the state of every k-th step alone for the backward pass, which computes the others anew.

        Returns:
            Outputs, of the shape of x but with num_outputs in the last dimension; and the state, of the shape of h0.
        """
        return self._run_sequence(x, h0, checkpoint, all_nodes=False)

    def activations(self, x: Tensor, h0: Tensor | None = None, *, checkpoint: int | None = None) -> Tensor:
        """Compute the activations of all nodes in all steps, by node index: (T, B, num_nodes); see `forward`."""
        return self._run_sequence(x, h0, checkpoint, all_nodes=True)[0]

    def steps(self, x: Tensor, T: int, h0: Tensor | None = None, *, checkpoint: int | None = None) -> Tensor:
        """Compute the outputs of the last of T steps with the same features: (..., num_inputs) -> (..., num_outputs).

        Args:
            x: (B, num_inputs), or (num_inputs,) for a single sample.
            T: Number of steps.
            h0: As in `forward`.
            checkpoint: As in `forward`.
        """
        if isinstance(T, bool) or not isinstance(T, int) or T < 1:
            raise OptionError(f"T, the number of steps, must be an int of at least 1, got {T!r}.")
        if not isinstance(x, Tensor) or x.dim() not in (1, 2):
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise InputError(f"expected x of shape (B, {self.graph.num_inputs}) without steps, got {got}.")
        time = int(self.batch_first and x.dim() == 2)
        y, _ = self(x.unsqueeze(time).expand(*x.shape[:time], T, *x.shape[time:]), h0, checkpoint=checkpoint)
        last: Tensor = y.select(time, -1)
        return last

    def _run_sequence(
        self, x: Tensor, h0: Tensor | None, checkpoint: int | None, all_nodes: bool
    ) -> tuple[Tensor, Tensor]:
        if not is_tracing():
            return self._run_checked_sequence(x, h0, checkpoint, all_nodes)
        with constant_checks():
            return self._run_checked_sequence(x, h0, checkpoint, all_nodes)

    def _run_checked_sequence(
        self, x: Tensor, h0: Tensor | None, checkpoint: int | None, all_nodes: bool
    ) -> tuple[Tensor, Tensor]:
        dtype, device = self._dtype_and_device()
        autocast = self._is_autocast(dtype, device)
        self._check_input(x, dtype, device, autocast)
        self._check_sequence(x, h0, dtype, device)
        _check_checkpoint(checkpoint)
        single, swap = x.dim() == 2, self.batch_first and x.dim() == 3
        steps = x.unsqueeze(1) if single else x.transpose(0, 1) if swap else x
        state = h0 if h0 is None or not single else h0.unsqueeze(0)
        half = torch.get_autocast_dtype(device.type) if autocast else dtype
        with torch.autocast(device.type, enabled=False) if autocast else nullcontext():
            y, h = self._compute_sequence(steps.to(dtype), state, self._next_dropout(), checkpoint, all_nodes)
        y = y.squeeze(1) if single else y.transpose(0, 1) if swap else y
        return y.to(half), h.squeeze(0) if single else h

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        return self._compute_sequence(x.unsqueeze(0), None, dropout, None, all_nodes)[0][0]

    def _compute_sequence(
        self, x: Tensor, h0: Tensor | None, dropout: Dropout | None, checkpoint: int | None, all_nodes: bool
    ) -> tuple[Tensor, Tensor]:
        weight, bias = self._plan_parameters()
        rate = None if self.tau is None else 1 / self.tau.clamp(min=1)
        runner, custom = self._modules["runner"], self._modules["custom_activations"]
        assert runner is not None
        if checkpoint is None or checkpoint >= len(x) or not torch.is_grad_enabled():
            result: tuple[Tensor, Tensor] = runner(x, h0, weight, bias, rate, custom, dropout, all_nodes)
            return result
        segments, state = [], h0
        for part in x.split(checkpoint):
            arguments = (part, state, weight, bias, rate, custom, dropout, all_nodes)
            y, state = recompute(runner, *arguments, use_reentrant=False)
            segments.append(y)
        assert state is not None
        return torch.cat(segments), state

    def _check_sequence(self, x: Tensor, h0: Tensor | None, dtype: torch.dtype, device: torch.device) -> None:
        """Check the number of steps, and h0; `_check_input` has checked the rest of x."""
        layout = "(B, T, {0}) or (T, {0})" if self.batch_first else "(T, B, {0}) or (T, {0})"
        if x.dim() not in (2, 3):
            raise InputError(
                f"expected x of shape {layout.format(self.graph.num_inputs)}, got {tuple(map(int, x.shape))}. For "
                "features that stay the same, call net.steps(x, T)."
            )
        time = int(self.batch_first and x.dim() == 3)
        if x.shape[time] == 0:
            raise InputError(f"expected at least one step, got x of shape {tuple(map(int, x.shape))} with T=0.")
        if h0 is None:
            return
        shape = (self.graph.num_nodes,) if x.dim() == 2 else (x.shape[1 - time], self.graph.num_nodes)
        if not isinstance(h0, Tensor) or h0.shape != shape:
            got = tuple(map(int, h0.shape)) if isinstance(h0, Tensor) else type(h0).__name__
            raise InputError(
                f"expected h0 of shape {tuple(map(int, shape))}, a number for each of {self.graph.num_nodes:,} nodes, "
                f"as net(x)[1] has it, got {got}."
            )
        if h0.dtype != dtype or h0.device != device:
            raise InputError(
                f"expected h0 of dtype {dtype} on {device}, as the weights, got {h0.dtype} on {h0.device}. Try "
                "h0.to(net.weight)."
            )

    def to_networkx(self) -> nx.DiGraph:
        """A DiGraph as `FourWard.to_networkx` makes it, in which feedback edges are marked; tau isn't part of it."""
        return weighted_networkx(self)

    def extra_repr(self) -> str:
        """The graph, the activations, the dynamics and the engine."""
        tau = self.tau
        constants = "" if tau is None else f", tau={'learned' if tau.requires_grad else 'fixed'}"
        return f"{super().extra_repr()}, dynamics={self.dynamics!r}{constants}"


def recurrent_from_parameters(
    graph: Digraph, weight: Any, bias: Any, activations: Sequence[ActivationLike], **options: Any
) -> Recurrent:
    """A Recurrent with these parameters instead of initial ones; arguments as in `from_parameters`."""
    defaults: dict[str, Any] = {"bias": bias is not None, "init": "zeros"}
    net = Recurrent(graph, name_activations(graph, activations), **defaults | options)
    net.load_edge_weights(weight, bias)
    return net


def check_without_tau(net: Recurrent, destination: str) -> None:
    """Raise for time constants, for a `destination` that can't store them."""
    if net.tau is not None:
        raise OptionError(
            f"{destination} can't store time constants. Save the network with fourward.save, as .safetensors."
        )


def _check_checkpoint(checkpoint: Any) -> None:
    if checkpoint is not None and (isinstance(checkpoint, bool) or not isinstance(checkpoint, int) or checkpoint < 1):
        raise OptionError(f"checkpoint must be a number of steps of at least 1, or None, got {checkpoint!r}.")


def tau_vector(tau: Any, graph: BaseGraph) -> Tensor:
    """(n,) float64 the time constant of each neuron of a graph, checked."""
    count = len(graph.neurons)
    if isinstance(tau, Mapping):
        values = _tau_by_label(tau, graph)
    else:
        values = _as_real_tensor(tau)
        values = values.expand(count).clone() if values.dim() == 0 else values
    if values.shape != (count,):
        raise OptionError(
            f"expected tau of shape ({count},), one for each neuron in the order of graph.neurons, got shape "
            f"{tuple(values.shape)}."
        )
    small = (~(values >= 1) | ~values.isfinite()).nonzero().flatten().tolist()
    if small:
        neurons = [graph.labels[v] for v in graph.neurons[small].tolist()]
        raise OptionError(
            f"expected finite time constants of at least 1 step, got {values[small[0]].item():g} for "
            f"{summarize(neurons)}. Time constants are in steps: divide them by the duration of a step."
        )
    return values


def _as_real_tensor(tau: Any) -> Tensor:
    try:
        values = torch.as_tensor(tau).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        values = torch.empty(0, dtype=torch.bool)
    if values.dtype == torch.bool or values.is_complex():
        raise OptionError(f"tau must be a number, a mapping from label to number or a vector, got {tau!r}.")
    return values.double()


def _tau_by_label(tau: Mapping[Any, float], graph: BaseGraph) -> Tensor:
    by_label = dict(tau)
    for label, value in by_label.items():
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise OptionError(f"expected a number of steps as the time constant of {label!r}, got {value!r}.")
    default = by_label.pop("default", None)
    is_neuron = np.zeros(graph.num_nodes, np.bool_)
    is_neuron[graph.neurons] = True
    values = np.full(graph.num_nodes, np.nan if default is None else default, np.float64)
    named = [graph.index(label) for label in by_label]
    carriers = [graph.labels[v] for v in named if not is_neuron[v]]
    if carriers:
        raise OptionError(f"tau has entries for inputs, whose values x sets: {summarize(carriers)}. Remove them.")
    values[named] = list(by_label.values())
    missing = [] if default is not None else np.setdiff1d(graph.neurons, named).tolist()
    if missing:
        raise OptionError(
            f"tau has no entry for {pluralize(len(missing), 'neuron')}: {summarize(graph.labels[v] for v in missing)}. "
            "Add entries for these labels, or one for 'default'."
        )
    return torch.from_numpy(values[graph.neurons])

"""DagModule: what FourWard and the paper's methods share, from the validation of x to the shape of the result."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning, is_tracing

from fourward._arrays import IntArray
from fourward.engine._dropout import Dropout, pass_key
from fourward.errors import GraphError, InputError, OptionError, WeightError, pluralize
from fourward.graph._base import BaseGraph
from fourward.graph._dag import Dag
from fourward.layering import Layering, longest_path, push_sources
from fourward.nn._activations import ActivationLike, Activations, decode_activation, resolve_activations
from fourward.nn._constraint_options import EdgeConstraints, EdgeGraph
from fourward.nn._constraints import Constraints
from fourward.nn._init import Init, balance_signs, initialise
from fourward.plan._plan import Plan, build_driven_plan

#: Device types that support autocast; for others torch.is_autocast_enabled raises.
_AUTOCAST = frozenset(kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind))


def is_autocast(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether autocast is enabled; it doesn't apply to float64."""
    if not torch._C._is_any_autocast_enabled():  # a tenth of the time of what follows
        return False
    return device.type in _AUTOCAST and torch.is_autocast_enabled(device.type) and dtype != torch.float64


class DagModule(nn.Module, ABC):
    """A module over a Dag: ordered features in, activations of the outputs out."""

    weight: Tensor  #: (E,)
    graph: BaseGraph
    dag: Dag  #: what a pass, or a step of one, follows
    layering: Layering
    dropout: float
    seed: int
    passes: Tensor
    _dtype: torch.dtype
    _device: torch.device
    _features: tuple[int, ...]

    def __init__(
        self,
        graph: BaseGraph,
        activation: Activations,
        output_activation: ActivationLike | None,
        dropout: float,
        seed: int | None,
        layering: Layering | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        dtype = torch.get_default_dtype() if dtype is None else dtype
        device = torch.get_default_device() if device is None else torch.device(device)
        check_options(dropout, layering, device, dtype)
        if layering is None:
            layering = push_sources(graph.dag, longest_path(graph.dag))
        else:
            layering.verify()
        # At once: torch's __setattr__ takes a microsecond for each, and small networks are built in 300.
        vars(self).update(
            _dtype=dtype, _device=device, graph=graph, dag=graph.dag, layering=layering, seed=expand_seed(seed),
            dropout=float(dropout), _features=(graph.num_inputs,),
        )  # fmt: skip
        code, self.custom_activations = resolve_activations(graph, activation, output_activation)
        self.plan, self.plan_edge = self._build_plan(code)
        if self.custom_activations:
            self.custom_activations.to(device=self._device, dtype=self._dtype)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64, device=self._device), persistent=False)

    def _build_plan(self, code: IntArray) -> tuple[Plan, IntArray | None]:
        """The plan, and with driven inputs the edge of the Dag for each of its edges."""
        return build_driven_plan(self.dag, self.layering, code, self.graph.driven)

    def _initial_parameters(
        self, init: Init, bias: bool, constraints: EdgeConstraints | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Weights (E,), balanced by sign, and, with bias, biases (N-I,), drawn from the seed, on the CPU."""
        weight = torch.empty(self.graph.num_edges, device="cpu", dtype=self._dtype)
        biases = torch.empty(len(self.graph.neurons), device="cpu", dtype=self._dtype) if bias else None
        initialise(init, self.graph, weight, biases, torch.Generator("cpu").manual_seed(self.seed))
        drawn = isinstance(init, str) and init not in ("zeros", "constant")
        if drawn and constraints is not None and constraints.sign is not None:
            balance_signs(self.graph.target, weight, constraints.sign)
        return weight, biases

    def _register_weight(self, graph: EdgeGraph, weight: Tensor, constraints: EdgeConstraints | None) -> None:
        """Make `self.weight`: a parameter, or under constraints what the module `self.constraints` computes."""
        self.constraints: Constraints | None = None
        if constraints is not None:
            self.constraints = Constraints(graph, constraints, weight).to(self._device)
        else:
            self.weight = nn.Parameter(weight.to(self._device))

    def __getattr__(self, name: str) -> Any:
        if name == "weight" and (constraints := self.__dict__["_modules"].get("constraints")) is not None:
            return constraints()
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "weight" and self.__dict__.get("_modules", {}).get("constraints") is not None:
            raise WeightError(
                "weight can't be assigned: under constraints, weights follow from the parameters. Set both with "
                "net.load_edge_weights(weight, bias), which checks signs and ties."
            )
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the activations of the outputs: (..., num_inputs) -> (..., num_outputs)."""
        return self._run(x, all_nodes=False)

    def activations(self, x: Tensor) -> Tensor:
        """Compute the activations of all nodes, by node index: (..., num_inputs) -> (..., num_nodes).

        Differentiable with respect to x and the parameters. Outputs don't depend on the returned tensor: gradients with
        respect to hidden activations are those of `FourWard.probed`.
        """
        return self._run(x, all_nodes=True)

    @abstractmethod
    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        """(B, I) -> (B, O), or with all_nodes (B, N)."""

    def _supports_mixed_precision(self) -> bool:
        """Whether activations may be stored in another dtype than the weights."""
        return False

    @abstractmethod
    def _dtype_and_device(self) -> tuple[torch.dtype, torch.device]:
        """Dtype and device of the parameters."""

    def neuron_activations(self) -> list[ActivationLike]:
        """The activation of each neuron, in the order of dag.neurons: a name, or the callable that was passed."""
        code = self.plan.node_code[self.graph.neurons].tolist()
        table = {number: decode_activation(number, self.custom_activations) for number in set(code)}
        return [table[number] for number in code]

    def _run(self, x: Tensor, all_nodes: bool) -> Tensor:
        if not is_tracing():
            return self._run_checked(x, all_nodes)
        with constant_checks():
            return self._run_checked(x, all_nodes)

    def _run_checked(self, x: Tensor, all_nodes: bool) -> Tensor:
        dtype, device = self._dtype_and_device()
        autocast = self._is_autocast(dtype, device)
        dense = type(x) is Tensor and x.layout is torch.strided and not x.is_nested
        if not (dense and x.dtype == dtype and x.device == device and x.shape[-1:] == self._features):
            self._check_input(x, dtype, device, autocast)
        flat = x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        if autocast:  # accumulate in the weights' dtype, return autocast's
            half = torch.get_autocast_dtype(x.device.type)
            with torch.autocast(x.device.type, enabled=False):
                result = self._compute(
                    flat.to(half if self._supports_mixed_precision() else dtype), self._next_dropout(), all_nodes
                )
            result = result.to(half)
        else:
            result = self._compute(flat, self._next_dropout(), all_nodes)
        return result if x.dim() == 2 else result.reshape(*x.shape[:-1], result.shape[-1])

    _is_autocast = staticmethod(is_autocast)

    def _next_dropout(self) -> Dropout | None:
        """The dropout of this pass; in training mode each pass has its own."""
        if not self.training or self.dropout == 0:
            return None
        if not torch.compiler.is_compiling():
            _check_repeatable()
        self.passes += 1
        return Dropout(self.dropout, pass_key(self.seed, self.passes))

    def _check_input(self, x: Tensor, dtype: torch.dtype, device: torch.device, autocast: bool) -> None:
        check_dense(x, dtype)
        if x.dim() == 0 or x.shape[-1] != self.graph.num_inputs:
            raise InputError(
                f"expected x with {pluralize(self.graph.num_inputs, 'feature')} in its last dimension, one for each "
                f"input of the graph, got shape {tuple(map(int, x.shape))}."
            )
        check_place(x, dtype, device, autocast)

    def _check_edge_weights(self, weight: Any, bias: Any, with_bias: bool) -> tuple[Tensor, Tensor | None]:
        """Weights (E,) and biases (N-I,) as tensors detached from autograd, their shapes checked."""
        weight = torch.as_tensor(weight).detach()
        if weight.is_complex():
            raise WeightError(f"expected weights of a real dtype, got {weight.dtype}.")
        if weight.shape != (self.graph.num_edges,):
            raise WeightError(
                f"expected weights of shape ({self.graph.num_edges},), one for each edge in the order of its graph's "
                f"edges, got shape {tuple(weight.shape)}."
            )
        if (bias is not None) != with_bias:
            raise WeightError(
                "expected biases, as this network has them, got None."
                if with_bias
                else "expected bias=None, as this network has no biases, got biases."
            )
        if bias is None:
            return weight, None
        bias = torch.as_tensor(bias).detach()
        if bias.shape != (len(self.graph.neurons),):
            raise WeightError(
                f"expected biases of shape ({len(self.graph.neurons)},), one for each neuron in the order of "
                f"its graph's neurons, got shape {tuple(bias.shape)}."
            )
        return weight, bias


def check_dense(x: Any, dtype: torch.dtype) -> None:
    """Raise unless x is a dense tensor of a real floating point dtype."""
    if not isinstance(x, Tensor):
        raise InputError(
            f"expected x to be a torch.Tensor, got {type(x).__name__}. Try torch.as_tensor(x, dtype={dtype})."
        )
    if x.is_nested:
        raise InputError(
            "expected x to be a dense tensor, got a nested tensor. Join its parts, e.g. with torch.cat(x.unbind())."
        )
    if x.layout != torch.strided:
        raise InputError(f"expected x to be a dense tensor, got layout {x.layout}. Try x.to_dense().")
    if not x.is_floating_point():
        raise InputError(f"expected x of a real floating point dtype, got {x.dtype}. Try x.to({dtype}).")


def check_place(x: Tensor, dtype: torch.dtype, device: torch.device, autocast: bool) -> None:
    """Raise unless x is where the weights are, and of their dtype."""
    if x.device != device:
        raise InputError(
            f"expected x on {device}, where the network is, got x on {x.device}. Move one of them with .to()."
        )
    if x.dtype != dtype and (not autocast or x.dtype == torch.float64):
        raise InputError(
            f"expected x of dtype {dtype}, as the weights, got {x.dtype}. Try x.to({dtype}) or net.to({x.dtype})."
        )


@contextmanager
def constant_checks() -> Iterator[None]:
    """Let checks of shapes become constants of a trace, without warnings: they don't read the batch."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=TracerWarning, module=r"fourward\.(nn|engine)\.")
        yield


def check_graph(graph: Any, kind: type[BaseGraph]) -> None:
    """Raise unless it is a graph of this class."""
    name, attribute = kind.__name__, {"Dag": "dag", "Digraph": "graph"}[kind.__name__]
    if not isinstance(graph, kind):
        raise GraphError(
            f"expected a {name}, got a {type(graph).__name__}. Build one with {name}.from_edges, {name}.from_networkx "
            f"and the like; a connectome's is its attribute .{attribute}."
        )


def check_options(dropout: Any, layering: Any, device: torch.device, dtype: Any) -> None:
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise OptionError(f"dropout must be a number in [0, 1), got {dropout!r}.")
    if layering is not None and not isinstance(layering, Layering):
        raise OptionError(
            f"layering must be a Layering or None, got a {type(layering).__name__}. Try Layering(dag, level)."
        )
    if device.type == "cuda" and not torch.cuda.is_available():
        raise OptionError(
            f"device='{device}' is not available: torch finds no CUDA device. Omit it to use the CPU, or install a "
            "CUDA build of torch on a machine with a CUDA device."
        )
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise OptionError(f"dtype must be a floating point dtype such as torch.float32, got {dtype!r}.")


def expand_seed(seed: int | list[int] | None) -> int:
    """63 bits from a seed, or from the system's entropy."""
    try:
        return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
    except (TypeError, ValueError):
        raise OptionError(f"seed must be a non-negative int or None, got {seed!r}.") from None


def _check_repeatable() -> None:
    """Reject recomputation, which would draw another dropout mask, and vmap, which would share one."""
    if torch._C._current_graph_task_id() != -1:
        raise OptionError(
            "dropout is not supported in recomputed forward passes, such as those of torch.utils.checkpoint: the "
            "second pass would draw another mask. Set dropout=0, or leave this network out of the checkpoint."
        )
    functorch = torch._C._functorch
    stack = functorch.peek_interpreter_stack()
    if stack is not None and stack.key() == functorch.TransformType.Vmap:
        raise OptionError(
            "dropout is not supported under vmap, where all samples would share one mask. Call net.eval(), or pass "
            "the whole batch."
        )

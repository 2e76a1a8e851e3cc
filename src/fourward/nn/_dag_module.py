"""DagModule: what FourWard and the paper's methods share, from the check of x to the shape of the result."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine._base import Dropout, pass_key
from fourward.errors import GraphError, InputError, OptionError, WeightError, pluralize
from fourward.graph._dag import Dag
from fourward.layering import Layering, longest_path, push_sources
from fourward.nn._activations import Activations, One, resolve
from fourward.nn._init import Init, initialise
from fourward.plan._plan import build_plan

#: Devices on which autocast exists; torch refuses to say of others that it is off.
_AUTOCAST = frozenset(kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind))


class DagModule(nn.Module, ABC):
    """A module over a Dag: ordered features in, activations of the outputs out."""

    def __init__(
        self,
        dag: Dag,
        activation: Activations,
        output_activation: One | None,
        dropout: float,
        seed: int | None,
        layering: Layering | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        if not isinstance(dag, Dag):
            raise GraphError(
                f"a network is made from a Dag, but a {type(dag).__name__} came. Make one with Dag.from_edges, "
                "Dag.from_networkx and the like; a connectome has one as its .dag."
            )
        if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            raise OptionError(f"dropout={dropout!r} came, but it must be a number of at least 0 and under 1.")
        if layering is not None and not isinstance(layering, Layering):
            raise OptionError(f"a {type(layering).__name__} came as layering. Try Layering(dag, levels).")
        self._dtype = torch.get_default_dtype() if dtype is None else dtype
        self._device = torch.get_default_device() if device is None else torch.device(device)
        if self._device.type == "cuda" and not torch.cuda.is_available():
            raise OptionError(
                f"device '{self._device}' came, but torch sees no CUDA card here. Leave it out for the CPU; for a "
                "card, install a CUDA build of torch."
            )
        if not isinstance(self._dtype, torch.dtype) or not self._dtype.is_floating_point:
            raise OptionError(f"dtype={dtype!r} came, but a floating point type was wanted, such as torch.float32.")
        self.dag = dag
        self.layering = push_sources(dag, longest_path(dag)) if layering is None else layering
        self.layering.verify()
        code, self.custom_activations = resolve(dag, activation, output_activation)
        self.plan = build_plan(dag, self.layering, code)
        self._features = (dag.num_inputs,)
        self.custom_activations.to(device=self._device, dtype=self._dtype)
        self.dropout = float(dropout)
        self.seed = _seed(seed)
        self.passes: Tensor
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64), persistent=False)

    def _initial(self, init: Init, bias: bool) -> tuple[Tensor, Tensor | None]:
        """Weights (E,) and, if wanted, biases (N-I,), drawn from the seed, on the CPU."""
        weight = torch.empty(self.dag.num_edges, device="cpu", dtype=self._dtype)
        biases = torch.empty(len(self.dag.neurons), device="cpu", dtype=self._dtype) if bias else None
        initialise(init, self.dag, weight, biases, torch.Generator("cpu").manual_seed(self.seed))
        return weight, biases

    def forward(self, x: Tensor) -> Tensor:
        """The outputs' activations: (..., num_inputs) -> (..., num_outputs)."""
        return self._run(x, all_nodes=False)

    def activations(self, x: Tensor) -> Tensor:
        """The activations of all nodes, by node index: (..., num_inputs) -> (..., num_nodes)."""
        return self._run(x, all_nodes=True)

    @abstractmethod
    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        """(B, I) -> (B, O), or (B, N) with `all_nodes`."""

    def _supports_mixed_precision(self) -> bool:
        """Whether activations may be kept in another type than the weights."""
        return False

    @abstractmethod
    def _weights_like(self) -> tuple[torch.dtype, torch.device]:
        """Dtype and device of the parameters."""

    def _run(self, x: Tensor, all_nodes: bool) -> Tensor:
        dtype, device = self._weights_like()
        # Autocast leaves float64 alone.
        autocast = device.type in _AUTOCAST and torch.is_autocast_enabled(device.type) and dtype != torch.float64
        dense = type(x) is Tensor and x.layout is torch.strided and not x.is_nested
        if not (dense and x.dtype == dtype and x.device == device and x.shape[-1:] == self._features):
            self._check(x, dtype, device, autocast)
        flat = x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        if autocast:  # sums in the weights' type, the result in autocast's
            half = torch.get_autocast_dtype(x.device.type)
            with torch.autocast(x.device.type, enabled=False):
                result = self._compute(
                    flat.to(half if self._supports_mixed_precision() else dtype), self._draw(), all_nodes
                )
            result = result.to(half)
        else:
            result = self._compute(flat, self._draw(), all_nodes)
        return result if x.dim() == 2 else result.reshape(*x.shape[:-1], result.shape[-1])

    def _draw(self) -> Dropout | None:
        if not self.training or self.dropout == 0:
            return None
        if not torch.compiler.is_compiling():
            _check_repeatable()
        self.passes += 1
        return Dropout(self.dropout, pass_key(self.seed, self.passes))

    def _check(self, x: Tensor, dtype: torch.dtype, device: torch.device, autocast: bool) -> None:
        if not isinstance(x, Tensor):
            raise InputError(
                f"x must be a torch tensor, but this came: {type(x).__name__}. Try torch.as_tensor(x, dtype={dtype})."
            )
        if x.is_nested:
            raise InputError("x is a nested tensor. Bring its parts together, for example with torch.cat(x.unbind()).")
        if x.layout != torch.strided:
            raise InputError(f"x is stored as {x.layout}, but neurons take dense rows. Try x.to_dense().")
        if not x.is_floating_point():
            kind = "complex numbers, which neurons don't take" if x.is_complex() else "no real numbers"
            raise InputError(f"x is {x.dtype}: {kind}. Convert it, for example with x.to({dtype}).")
        if x.dim() == 0 or x.shape[-1] != self.dag.num_inputs:
            raise InputError(
                f"x has shape {tuple(x.shape)}, but its last dimension must hold "
                f"{pluralize(self.dag.num_inputs, 'feature')}, one for each input of the graph."
            )
        if x.device != device:
            raise InputError(f"x is on {x.device}, but the network is on {device}. Move one with .to().")
        if x.dtype != dtype and (not autocast or x.dtype == torch.float64):
            raise InputError(f"x is {x.dtype}, but the weights are {dtype}. Try x.to({dtype}) or net.to({x.dtype}).")

    def _check_edge_weights(self, weight: Any, bias: Any, with_bias: bool) -> tuple[Tensor, Tensor | None]:
        """Weights for each edge and biases for each neuron, checked for length, cut off from autograd."""
        weight = torch.as_tensor(weight).detach()
        if weight.is_complex():
            raise WeightError(f"the weights are {weight.dtype}, but neurons take real numbers.")
        if weight.shape != (self.dag.num_edges,):
            raise WeightError(
                f"the weights have shape {tuple(weight.shape)}, but the graph has "
                f"{pluralize(self.dag.num_edges, 'edge')}: give one number for each, in the order of dag.edges."
            )
        if (bias is not None) != with_bias:
            raise WeightError(
                "biases are missing: this network has them." if with_bias else "this network has no biases."
            )
        if bias is None:
            return weight, None
        bias = torch.as_tensor(bias).detach()
        if bias.shape != (len(self.dag.neurons),):
            raise WeightError(
                f"the biases have shape {tuple(bias.shape)}, but the graph has "
                f"{pluralize(len(self.dag.neurons), 'neuron')} apart from its inputs: give one number for each, "
                "in node order."
            )
        return weight, bias


def _seed(seed: int | None) -> int:
    """63 bits from a seed, or from the system."""
    try:
        return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0]) >> 1
    except (TypeError, ValueError):
        raise OptionError(f"seed={seed!r} came, but a whole number from 0 on, or None, was wanted.") from None


def _check_repeatable() -> None:
    """Refuse dropout where one draw would have to serve twice, or two draws would have to be the same."""
    if torch._C._current_graph_task_id() != -1:
        raise OptionError(
            "this pass is repeated within a backward pass, as torch.utils.checkpoint does, and would draw another "
            "dropout than the first. Set dropout=0, or leave this network out of the checkpoint."
        )
    functorch = torch._C._functorch
    stack = functorch.peek_interpreter_stack()
    if stack is not None and stack.key() == functorch.TransformType.Vmap:
        raise OptionError(
            "under vmap all samples would share one draw of dropout. Call net.eval(), or pass the batch as it is."
        )

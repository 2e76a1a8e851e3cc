"""Constraints: effective weights, one for each edge, from fewer or bounded parameters, as torch's parametrizations.

torch.nn.utils.parametrize itself isn't used: it gives a module a class of its own at run time, which can't be pickled,
and each look-up of a weight takes 13 microseconds before any arithmetic.

Compiled loops compute weights and gradients on the CPU (`benchmarks.constraints` measures what they cost); torch's
operations serve other devices, second derivatives, torch.func and tracing.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.jit._trace import is_tracing

from fourward._arrays import IntArray
from fourward.engine._constraints import compute_grads, compute_weights
from fourward.engine._interface import exporting_to_onnx, is_batched
from fourward.errors import WeightError, pluralize, summarize
from fourward.nn._constraint_options import EdgeConstraints, EdgeGraph

_NO_INDEX = torch.empty(0, dtype=torch.int32)


class Constraints(nn.Module):
    """The weights of a module's edges under constraints. Calling it computes them.

    An edge with a sign s has the weight s |p| scale, another one p scale, where p is its parameter or that of its
    group; a frozen edge has the weight stored in `fixed`. A gradient of p = 0 is that of a small positive p.

    Args:
        graph: The graph, for error messages.
        constraints: What is constrained.
        weight: (E,) initial weights: those of signed edges get their sign, those of a group their quadratic mean.
    """

    free_weight: nn.Parameter  #: (F,) a parameter for each edge that is neither frozen nor tied, and for each group
    fixed: Tensor | None  #: (E,) weights of frozen edges; 0 for the others

    def __init__(self, graph: EdgeGraph, constraints: EdgeConstraints, weight: Tensor) -> None:
        super().__init__()
        #: (N,) int8, the sign that new edges out of each node get; None without signs
        self.node_sign = None if constraints.sign is None else common_signs(graph, constraints.sign)
        self._set_arrays(graph, constraints)
        self.free_weight = nn.Parameter(weight.new_empty(len(self._first)))
        self.register_buffer("fixed", None if len(self._edges) == len(weight) else torch.zeros_like(weight))
        self.rebuild()
        self._project(weight)

    def _set_arrays(self, graph: EdgeGraph, constraints: EdgeConstraints) -> None:
        self.graph, self.arrays = graph, constraints
        free = np.ones(len(graph.edges), np.bool_) if constraints.frozen is None else ~constraints.frozen
        self._edges: IntArray = np.flatnonzero(free)  # (K,) edges that have a parameter
        self._group, self._first = _group_edges(constraints, self._edges)

    @property
    def num_parameters(self) -> int:
        """F, the number of parameters that the constraints need."""
        return len(self._first)

    def with_graph(self, graph: EdgeGraph, edge: IntArray, node: IntArray) -> tuple[Self, IntArray]:
        """These constraints after an edit of the graph, as a copy with the same parameters, whose number it lacks.

        New edges get the sign of their source; they are neither frozen nor tied nor scaled.

        Args:
            graph: The graph after the edit.
            edge: (E',) the index that each edge had; E and above for new edges.
            node: (N',) the index that each node had; N and above for new nodes.

        Returns:
            The constraints, and (F',) the index that each parameter had; F + k for that of the new edge E + k.
        """
        num_edges, is_new = len(self.graph.edges), edge >= len(self.graph.edges)
        parameter = np.empty(num_edges, np.int64)  # the parameter of each edge; that of frozen edges isn't read
        parameter[self._edges] = np.arange(len(self._edges)) if self._group is None else self._group
        node_sign = self.node_sign
        if node_sign is not None:
            node_sign = np.append(node_sign, np.int8(0))[np.minimum(node, len(node_sign))]
        new_values = (None if node_sign is None else node_sign[graph.edges[is_new, 0]], False, -1, 1.0)
        listed = zip(self.arrays, new_values, strict=True)
        arrays = EdgeConstraints(*(_carry(values, edge, is_new, new) for values, new in listed))
        other = self.with_arrays(graph, arrays, node_sign)
        if other.fixed is not None and self.fixed is not None:
            fixed = torch.cat((self.fixed, self.fixed.new_zeros(1)))
            other.fixed = fixed.index_select(0, torch.from_numpy(np.minimum(edge, num_edges)).to(fixed.device))
        representative = edge[other._edges[other._first]]
        known = representative < num_edges
        origin = representative - num_edges + self.num_parameters
        origin[known] = parameter[representative[known]]
        return other, origin

    def with_arrays(self, graph: EdgeGraph, arrays: EdgeConstraints, node_sign: IntArray | None) -> Self:
        """A copy with the same parameters and other constraints; frozen weights are 0."""
        other = copy(self)
        vars(other).update({name: dict(vars(self)[name]) for name in ("_parameters", "_buffers")})
        other._set_arrays(graph, arrays)
        other.node_sign = node_sign
        all_free = len(other._edges) == len(graph.edges)
        other.fixed = None if all_free else self.free_weight.detach().new_zeros(len(graph.edges))
        other.rebuild()
        return other

    def rebuild(self) -> None:
        """Compute the buffers that follow from the constraints, on the device and in the dtype of the parameters."""
        like, arrays, edges = self.free_weight, self.arrays, self._edges
        scale = np.ones(len(edges)) if arrays.scale is None else arrays.scale[edges]
        sign = np.zeros(len(edges)) if arrays.sign is None else arrays.sign[edges].astype(np.float64)
        # The factor of a parameter p is free_factor + signed_factor sgn(p), where sgn(0) = 1.
        free = np.where(sign == 0, scale, 0.0) if arrays.sign is not None else scale
        factors = {
            "unit": np.ones(()),
            "free_factor": np.ones(1) if arrays.sign is None and arrays.scale is None else free,
            "signed_factor": np.zeros(0) if arrays.sign is None else sign * scale,
        }
        buffers = {name: torch.from_numpy(values).to(like.dtype) for name, values in factors.items()}
        if self.fixed is not None or self._group is not None:
            index = np.int32 if len(self.graph.edges) < 2**31 else np.int64
            group = np.arange(len(edges)) if self._group is None else self._group
            buffers |= {"edges": torch.from_numpy(edges.astype(index)), "group": torch.from_numpy(group.astype(index))}
        for name in ("edges", "group"):
            self._buffers.pop(name, None)  # those of a copy, before an edit
        for name, values in buffers.items():
            self.register_buffer(name, values.to(like.device), persistent=False)

    def forward(self) -> Tensor:
        """The effective weights (E,), differentiable with respect to the parameters."""
        free = self.free_weight
        if not _runs_compiled(free):
            return self.compose(free)
        if torch.is_grad_enabled() and free.requires_grad:
            weight: Tensor = _ComputeWeights.apply(free, self)
            return weight
        return self.compute(free)

    def compose(self, free: Tensor) -> Tensor:
        """The weights as torch's operations compute them."""
        buffers: Any = self._buffers
        values = free if self._group is None else free.index_select(0, buffers["group"])
        if self.arrays.sign is not None:
            sign = _signs(buffers["unit"], values.detach())
            values = values * torch.addcmul(buffers["free_factor"], buffers["signed_factor"], sign)
        elif self.arrays.scale is not None:
            values = values * buffers["free_factor"]
        if buffers["fixed"] is not None:
            values = buffers["fixed"].index_copy(0, buffers["edges"].long(), values)
        return values

    def compute(self, free: Tensor) -> Tensor:
        """The weights as compiled loops compute them."""
        fixed = self._buffers["fixed"]
        weight = torch.empty(len(self.graph.edges), dtype=free.dtype) if fixed is None else fixed.clone()
        compute_weights(free, self._loop_buffers(), weight)
        return weight

    def compute_grad(self, grad: Tensor, free: Tensor) -> Tensor:
        """The gradient of the parameters, from that of the weights."""
        free_grad = torch.empty_like(free)
        compute_grads(grad, free, self._loop_buffers(), free_grad)
        return free_grad

    def _loop_buffers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        buffers: Any = self._buffers
        index = buffers.get("edges", _NO_INDEX), buffers.get("group", _NO_INDEX)
        return buffers["free_factor"], buffers["signed_factor"], *index

    def set_weight(self, weight: Tensor) -> None:
        """Set parameters and frozen weights so that these are the effective weights; raises where none give them."""
        self._check_signs(weight)
        with torch.no_grad():
            parameter = self._parameter_by_edge(weight)
            values = parameter[torch.from_numpy(self._first).to(weight.device)]
            if self._group is not None:
                self._check_ties(parameter, values)
            self.free_weight.copy_(values)
            if self.fixed is not None:
                self._freeze(weight)

    def _project(self, weight: Tensor) -> None:
        """Set parameters to give weights near these; values of opposite sign are reflected."""
        with torch.no_grad():
            parameter = self._parameter_by_edge(weight)
            parameter = self._reflect(parameter)
            values = parameter[self._first]
            if self._group is not None:
                square = torch.zeros_like(values).index_add_(0, self._buffers["group"], parameter.square())  # type: ignore[arg-type]
                count = torch.from_numpy(np.bincount(self._group, minlength=len(values))).to(values)
                values = torch.copysign((square / count).sqrt(), values)
            self.free_weight.copy_(values)
            if self.fixed is not None:
                sign = None if self.arrays.sign is None else torch.from_numpy(self.arrays.sign).to(weight)
                self._freeze(weight if sign is None else torch.where(sign == 0, weight, weight.abs() * sign))

    def _freeze(self, weight: Tensor) -> None:
        assert self.fixed is not None
        assert self.arrays.frozen is not None
        frozen = torch.from_numpy(self.arrays.frozen).to(self.fixed.device)
        self.fixed.copy_(torch.where(frozen, weight.to(self.fixed), 0))

    def _parameter_by_edge(self, weight: Tensor) -> Tensor:
        """(K,) the parameter that each edge of `edges` would need alone."""
        values = weight[torch.from_numpy(self._edges).to(weight.device)]
        factor: Any = self._buffers["free_factor"]
        if self.arrays.sign is not None:
            factor = factor + self._buffers["signed_factor"]
        parameter: Tensor = values / factor.to(values)
        return parameter

    def _reflect(self, parameter: Tensor) -> Tensor:
        """(K,) the parameters of edges with a sign without their own."""
        if self.arrays.sign is None:
            return parameter
        signed = torch.from_numpy(self.arrays.sign[self._edges] != 0).to(parameter.device)
        return torch.where(signed, parameter.abs(), parameter)

    def _check_signs(self, weight: Tensor) -> None:
        if self.arrays.sign is None:
            return
        wrong = np.flatnonzero(weight.detach().double().cpu().numpy() * self.arrays.sign < 0)
        if len(wrong):
            raise WeightError(
                f"{pluralize(len(wrong), 'weight')} {'contradict' if len(wrong) > 1 else 'contradicts'} the sign of "
                f"the edge: {self._describe(wrong)}. Pass weights of these signs, or make a network without them."
            )

    def _check_ties(self, parameter: Tensor, values: Tensor) -> None:
        expected = self._reflect(values.index_select(0, self._buffers["group"].to(values.device)))  # type: ignore[union-attr]
        tolerance = 16 * torch.finfo(self.free_weight.dtype).eps
        wrong = (
            torch.isclose(parameter, expected, rtol=tolerance, atol=0.0, equal_nan=True).logical_not().nonzero()[:, 0]
        )
        if len(wrong):
            raise WeightError(
                "tied edges need equal weights (beside their scale and sign), but these differ from the first of their "
                f"group: {self._describe(self._edges[wrong.cpu().numpy()])}."
            )

    def _describe(self, edges: IntArray) -> str:
        labels = self.graph.labels
        return summarize((labels[u], labels[v]) for u, v in self.graph.edges[edges].tolist())

    def extra_repr(self) -> str:
        """How many edges are constrained."""
        return self.arrays.describe()


class _ComputeWeights(torch.autograd.Function):
    """Compiled loops in both directions."""

    @staticmethod
    def forward(ctx: Any, free: Tensor, constraints: Constraints) -> Tensor:
        """The weights (E,)."""
        ctx.save_for_backward(free)
        ctx.constraints = constraints
        return constraints.compute(free)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """The gradient of the parameters (F,)."""
        (free,) = ctx.saved_tensors
        if not torch.is_grad_enabled() and not is_batched(grads[0]):
            return ctx.constraints.compute_grad(grads[0], free), None
        create_graph = torch.is_grad_enabled()
        with torch.enable_grad():  # create_graph=True, or is_grads_batched=True
            weight = ctx.constraints.compose(free)
            return torch.autograd.grad(weight, free, grads[0], create_graph=create_graph)[0], None


def _signs(unit: Tensor, values: Tensor) -> Tensor:
    """1 or -1 for each value, by its sign bit; ONNX has no copysign, and a zero gives a weight of zero either way."""
    if exporting_to_onnx():
        return torch.where(values < 0, -unit, unit)
    return torch.copysign(unit, values)


def _runs_compiled(free: Tensor) -> bool:
    """Whether compiled loops can compute with these parameters: outside of transforms and traces, on the CPU."""
    if free.device.type != "cpu" or free.dtype not in (torch.float32, torch.float64) or not len(free):
        return False
    if type(free) not in (Tensor, nn.Parameter) or torch.compiler.is_compiling() or is_tracing():
        return False
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return not transformed and not exporting_to_onnx()


def common_signs(graph: EdgeGraph, sign: IntArray) -> IntArray:
    """(N,) the sign of all edges out of each node; 0 where they differ, and for nodes without any."""
    signs, source = np.zeros(len(graph.labels), np.int8), graph.edges[:, 0]
    signs[source] = sign
    signs[source[signs[source] != sign]] = 0
    return signs


def _carry(values: Any, edge: IntArray, is_new: Any, new: Any) -> Any:
    """(E',) an array over edges after an edit, with `new` at new edges; None stays."""
    if values is None:
        return None
    carried = np.empty(len(edge), values.dtype)
    carried[~is_new], carried[is_new] = values[edge[~is_new]], new
    return carried


def _group_edges(constraints: EdgeConstraints, edges: IntArray) -> tuple[IntArray | None, IntArray]:
    """(K,) the parameter of each edge, None if each has its own, and (F,) an edge of each parameter.

    It is the first of its group, if possible without a sign: its weight then tells the sign of the parameter.
    """
    tied, sign = constraints.tied, constraints.sign
    if tied is None or not (tied[edges] >= 0).any():
        return None, np.arange(len(edges))
    ends = tied[edges]
    keys = np.where(ends < 0, ends.max() + 1 + np.arange(len(edges)), ends)
    by_preference = np.arange(len(edges)) if sign is None else np.argsort(sign[edges] != 0, kind="stable")
    _, first, group = np.unique(keys[by_preference], return_index=True, return_inverse=True)
    rank: Any = np.empty(len(edges), np.int64)
    rank[by_preference] = group
    return rank, by_preference[first]

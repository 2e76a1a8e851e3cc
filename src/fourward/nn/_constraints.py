"""Constraints: effective weights, one for each edge, from fewer or bounded parameters, as torch's parametrizations.

torch.nn.utils.parametrize itself isn't used: it gives a module a class of its own at run time, which can't be pickled,
and each look-up of a weight takes 13 microseconds before any arithmetic.
"""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.errors import WeightError, pluralize, summarize
from fourward.nn._constraint_options import EdgeConstraints, EdgeGraph


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
        sign = None if arrays.sign is None else arrays.sign[edges].astype(np.float64)
        free = scale if sign is None else np.where(sign == 0, scale, 0.0)
        arrays_by_name = {
            "unit": None if sign is None else np.ones(()),
            # The factor of a parameter p is free + signed sgn(p), where sgn(0) = 1.
            "free_factor": None if sign is None and arrays.scale is None else free,
            "signed_factor": None if sign is None else sign * scale,
        }
        buffers = {
            "group": None if self._group is None else torch.from_numpy(self._group),
            "edges": None if self.fixed is None else torch.from_numpy(edges),
        } | {name: None if a is None else torch.from_numpy(a).to(like.dtype) for name, a in arrays_by_name.items()}
        for name, values in buffers.items():
            self.register_buffer(name, None if values is None else values.to(like.device), persistent=False)

    def forward(self) -> Tensor:
        """The effective weights (E,), differentiable with respect to the parameters."""
        buffers = self._buffers
        values: Tensor = self.free_weight
        if (group := buffers["group"]) is not None:
            values = values.index_select(0, group)
        if (factor := buffers["free_factor"]) is not None:
            if (signed := buffers["signed_factor"]) is not None:
                unit = buffers["unit"]
                assert unit is not None
                factor = torch.addcmul(factor, signed, torch.copysign(unit, values.detach()))
            values = values * factor
        if (fixed := buffers["fixed"]) is not None:
            edges = buffers["edges"]
            assert edges is not None
            values = fixed.index_copy(0, edges, values)
        return values

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
        factor, signed = self._buffers["free_factor"], self._buffers["signed_factor"]
        if factor is None:
            return values
        return values / (factor if signed is None else factor + signed).to(values)

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

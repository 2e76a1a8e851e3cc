"""Initialisation of weights and biases from node degrees, vectorised over edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward.errors import InitError
from fourward.graph._base import BaseGraph

#: A name, a number for all weights, or a function of (graph, weight, bias) that fills the tensors in place.
Init = str | float | Callable[[BaseGraph, Tensor, Tensor | None], Any]


def initialise(init: Init, graph: BaseGraph, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Fill weight (E,) and bias (N-I,), both on the CPU; a seed gives the same numbers in every dtype."""
    with torch.no_grad():
        if callable(init):
            for tensor in (weight, bias):
                if tensor is not None:
                    tensor.fill_(math.nan)
            init(graph, weight, bias)
            if weight.isnan().any() or (bias is not None and bias.isnan().any()):
                raise InitError(
                    "the init callable left some weights or biases unset or NaN. It receives (graph, weight, bias) and "
                    "must fill the tensors in place, e.g. with weight.normal_(); its return value is ignored."
                )
            return
        wide = torch.empty_like(weight, dtype=torch.float64)
        wide_bias = None if bias is None else torch.empty_like(bias, dtype=torch.float64)
        if isinstance(init, str):
            _lookup(init)(graph, wide, wide_bias, generator)
        elif isinstance(init, int | float) and math.isfinite(init) and not isinstance(init, bool):
            _fill(wide, wide_bias, float(init))
        else:
            raise InitError(f"init must be a name, a finite number or a callable, got {init!r}.")
        weight.copy_(wide)
        if bias is not None and wide_bias is not None:
            bias.copy_(wide_bias)


def _kaiming_uniform(graph: BaseGraph, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """As torch.nn.Linear: weights and bias uniform in +-1 / sqrt(in-degree)."""
    bound = _inverse_sqrt(graph.in_degree)
    weight.uniform_(-1, 1, generator=generator).mul_(torch.from_numpy(bound[graph.target]))
    if bias is not None:
        bias.uniform_(-1, 1, generator=generator).mul_(torch.from_numpy(bound[graph.neurons]))


def _kaiming_normal(graph: BaseGraph, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Variance 2 / in-degree, bias 0."""
    _normal(weight, bias, 2**0.5 * _inverse_sqrt(graph.in_degree)[graph.target], generator)


def _xavier_uniform(graph: BaseGraph, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Uniform in +-sqrt(6 / (in-degree of the target + out-degree of the source)), bias 0."""
    weight.uniform_(-1, 1, generator=generator)
    weight.mul_(torch.from_numpy(6**0.5 * _inverse_sqrt(_fans(graph))))
    _zero(bias)


def _xavier_normal(graph: BaseGraph, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Variance 2 / (in-degree of the target + out-degree of the source), bias 0."""
    _normal(weight, bias, 2**0.5 * _inverse_sqrt(_fans(graph)), generator)


def _zeros(graph: BaseGraph, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    _fill(weight, bias, 0.0)


def _constant(graph: BaseGraph, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Weights 1, bias 0; pass a number as init for another constant."""
    _fill(weight, bias, 1.0)


_NAMED = {
    "kaiming_uniform": _kaiming_uniform,
    "kaiming_normal": _kaiming_normal,
    "xavier_uniform": _xavier_uniform,
    "xavier_normal": _xavier_normal,
    "zeros": _zeros,
    "constant": _constant,
}


def _lookup(name: str) -> Callable[[BaseGraph, Tensor, Tensor | None, torch.Generator], None]:
    if name not in _NAMED:
        raise InitError(
            f"unknown init {name!r}. Choose from {', '.join(_NAMED)}, or pass a number for all weights, or a callable "
            "that receives (graph, weight, bias) and fills the tensors in place."
        )
    return _NAMED[name]


def _fans(graph: BaseGraph) -> Any:
    return graph.in_degree[graph.target] + graph.out_degree[graph.source]


def _inverse_sqrt(degree: Any) -> Any:
    """1 / sqrt(degree), and 0 for degree 0."""
    return np.divide(1.0, np.sqrt(degree), out=np.zeros(len(degree)), where=degree > 0)


def _normal(weight: Tensor, bias: Tensor | None, deviation: Any, generator: torch.Generator) -> None:
    weight.normal_(generator=generator).mul_(torch.from_numpy(deviation))
    _zero(bias)


def _fill(weight: Tensor, bias: Tensor | None, value: float) -> None:
    weight.fill_(value)
    _zero(bias)


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        bias.zero_()

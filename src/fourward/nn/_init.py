"""Initialisation of weights and biases from node degrees, vectorised over edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward.errors import InitError
from fourward.graph._dag import Dag

#: A name, a number for all weights, or a function of (dag, weight, bias) that fills the tensors in place.
Init = str | float | Callable[[Dag, Tensor, Tensor | None], Any]


def initialise(init: Init, dag: Dag, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Fill weight (E,) and bias (N-I,), both on the CPU; a seed gives the same numbers in every dtype."""
    with torch.no_grad():
        if callable(init):
            for tensor in (weight, bias):
                if tensor is not None:
                    tensor.fill_(math.nan)
            init(dag, weight, bias)
            if weight.isnan().any() or (bias is not None and bias.isnan().any()):
                raise InitError(
                    "the init callable left some weights or biases unset or NaN. It receives (dag, weight, bias) and "
                    "must fill the tensors in place, e.g. with weight.normal_(); its return value is ignored."
                )
            return
        wide = torch.empty_like(weight, dtype=torch.float64)
        wide_bias = None if bias is None else torch.empty_like(bias, dtype=torch.float64)
        if isinstance(init, str):
            _lookup(init)(dag, wide, wide_bias, generator)
        elif isinstance(init, int | float) and math.isfinite(init) and not isinstance(init, bool):
            _fill(wide, wide_bias, float(init))
        else:
            raise InitError(f"init must be a name, a finite number or a callable, got {init!r}.")
        weight.copy_(wide)
        if bias is not None and wide_bias is not None:
            bias.copy_(wide_bias)


def _kaiming_uniform(dag: Dag, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """As torch.nn.Linear: weights and bias uniform in +-1 / sqrt(in-degree)."""
    bound = _inverse_sqrt(dag.in_degree)
    weight.uniform_(-1, 1, generator=generator).mul_(torch.from_numpy(bound[dag.target]))
    if bias is not None:
        bias.uniform_(-1, 1, generator=generator).mul_(torch.from_numpy(bound[dag.neurons]))


def _kaiming_normal(dag: Dag, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Variance 2 / in-degree, bias 0."""
    _normal(weight, bias, 2**0.5 * _inverse_sqrt(dag.in_degree)[dag.target], generator)


def _xavier_uniform(dag: Dag, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Uniform in +-sqrt(6 / (in-degree of the target + out-degree of the source)), bias 0."""
    weight.uniform_(-1, 1, generator=generator)
    weight.mul_(torch.from_numpy(6**0.5 * _inverse_sqrt(_fans(dag))))
    _zero(bias)


def _xavier_normal(dag: Dag, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    """Variance 2 / (in-degree of the target + out-degree of the source), bias 0."""
    _normal(weight, bias, 2**0.5 * _inverse_sqrt(_fans(dag)), generator)


def _zeros(dag: Dag, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
    _fill(weight, bias, 0.0)


def _constant(dag: Dag, weight: Tensor, bias: Tensor | None, generator: torch.Generator) -> None:
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


def _lookup(name: str) -> Callable[[Dag, Tensor, Tensor | None, torch.Generator], None]:
    if name not in _NAMED:
        raise InitError(
            f"unknown init {name!r}. Choose from {', '.join(_NAMED)}, or pass a number for all weights, or a callable "
            "that receives (dag, weight, bias) and fills the tensors in place."
        )
    return _NAMED[name]


def _fans(dag: Dag) -> Any:
    return dag.in_degree[dag.target] + dag.out_degree[dag.source]


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

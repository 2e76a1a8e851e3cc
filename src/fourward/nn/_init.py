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

#: A name, a number for all weights, one for each (E,), or a function of (graph, weight, bias) that fills the tensors.
Init = str | float | Callable[[BaseGraph, Tensor, Tensor | None], Any] | Tensor | np.ndarray[Any, Any]


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
        elif isinstance(init, Tensor | np.ndarray):
            _copy(init, wide, wide_bias)
        elif isinstance(init, int | float) and math.isfinite(init) and not isinstance(init, bool):
            _fill(wide, wide_bias, float(init))
        else:
            raise InitError(f"init must be a name, a finite number, an array (E,) or a callable, got {init!r}.")
        weight.copy_(wide)
        if bias is not None and wide_bias is not None:
            bias.copy_(wide_bias)


def balance_signs(target: Any, weight: Tensor, sign: Any) -> None:
    """Give random weights (E,) their signs in place, so that excitation and inhibition of each neuron cancel.

    Of a neuron with edges of both signs, the two sums of its signed weights become equal and opposite; of one with a
    single sign, the sum becomes as large as a sum of as many weights of random signs. The sum of squares stays in the
    first case. Without it each sum grows with the in-degree: networks of either sign alone saturate or die.

    Args:
        target: (E,) the neuron that each edge leads to.
        weight: (E,) weights of random signs.
        sign: (E,) 1, -1, or 0 for edges that stay as they are.
    """
    if not len(weight):
        return
    size, signs = weight.double().abs().numpy(), np.asarray(sign)
    excitatory, inhibitory = (_sums(target, size * (signs == s)) for s in (1, -1))
    power_e, power_i = (_sums(target, size**2 * (signs == s)) for s in (1, -1))
    both = (excitatory > 0) & (inhibitory > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        common = np.sqrt((power_e + power_i) / (inhibitory**2 * power_e + excitatory**2 * power_i))
        alone = np.sqrt(power_e + power_i) / (excitatory + inhibitory)
        gain_e = np.where(both, common * inhibitory, alone)[target]
        gain_i = np.where(both, common * excitatory, alone)[target]
    gain = np.where(signs == 1, gain_e, gain_i)
    values = np.where(signs == 0, weight.double().numpy(), np.where(size == 0, 0.0, signs * gain * size))
    weight.copy_(torch.from_numpy(values))


def _sums(target: Any, values: Any) -> Any:
    return np.bincount(target, values, minlength=int(target.max()) + 1)


def scale_by_in_degree(dag: BaseGraph, strength: Any) -> Any:
    """Initial weights (E,) from strengths such as numbers of synapses: each neuron's have quadratic sum 1.

    So activations keep their size from layer to layer, where the strengths themselves, up to thousands, end in nan.
    Pass the result as `init`, with `sign=` for the signs.

    Args:
        dag: The graph.
        strength: (E,) a finite number for each edge, in the order of dag.edges.

    >>> from fourward import generate
    >>> scale_by_in_degree(generate.layered_mlp([2, 1]), [30, 40])
    array([0.6, 0.8])
    """
    values = np.asarray(strength, np.float64)
    if values.shape != (dag.num_edges,) or not np.isfinite(values).all():
        raise InitError(f"expected {dag.num_edges:,} finite strengths, one per edge, got shape {values.shape}.")
    norm = np.sqrt(np.bincount(dag.target, values**2, minlength=dag.num_nodes))[dag.target]
    return np.divide(values, norm, out=np.zeros(len(values)), where=norm > 0)


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


def _copy(values: Any, weight: Tensor, bias: Tensor | None) -> None:
    values = torch.as_tensor(values).detach()
    if values.shape != weight.shape or values.is_complex() or not values.isfinite().all():
        raise InitError(
            f"expected init as {len(weight):,} finite numbers, one for each edge in the order of dag.edges, got "
            f"{values.dtype} of shape {tuple(values.shape)}."
        )
    weight.copy_(values)
    _zero(bias)


def _zero(bias: Tensor | None) -> None:
    if bias is not None:
        bias.zero_()

"""What a population is made of, from graphs, networks or arrays: its members, and those parameters that are known."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import BoolArray, IntArray, readonly
from fourward.errors import ActivationError, GraphError, OptionError, WeightError, pluralize
from fourward.graph import _members
from fourward.graph._dag import Dag
from fourward.graph._members import Members
from fourward.nn._activations import ActivationLike, Activations, decode_activation, resolve_activations
from fourward.nn._fourward import FourWard, check_network
from fourward.nn._init import Init, initialise
from fourward.plan._population_plan import PopulationPlan, build_population_plan
from fourward.plan.activations import CUSTOM, lookup

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]


class Custom(dict[Any, int]):
    """Codes of the callables among a population's activations."""

    def code(self, activation: Any) -> int:
        """The code of a callable, a new one if it isn't known."""
        return self.setdefault(activation, CUSTOM + len(self))


class Planned(NamedTuple):
    """Members in execution order, with parameters on the CPU."""

    plan: PopulationPlan
    members: Members  #: their edges are in the order of the plan
    edge: IntArray  #: (E,) index of each edge among those that were passed
    weight: Tensor
    bias: Tensor | None


class Parts(NamedTuple):
    """Members, and the values of their parameters."""

    members: Members
    code: IntArray  #: (M,) activation codes, by node index within each member
    weight: FloatArray | None  #: (E,) in the order of members.edges; None: all are drawn
    bias: FloatArray | None  #: (M,) by node index within each member; None: all are drawn
    drawn: BoolArray  #: (P,) members whose parameters are drawn, whatever weight and bias hold


def from_networks(
    networks: Sequence[Dag | FourWard],
    activation: Activations,
    output_activation: ActivationLike | None,
    inputs: Sequence[Hashable] | None,
    outputs: Sequence[Hashable] | None,
    with_bias: bool,
    custom: Custom,
) -> Parts:
    """Members from graphs, whose parameters are to be drawn, and from networks, which bring theirs.

    Args:
        networks: Graphs and networks.
        activation: The activations of graphs, as in FourWard.
        output_activation: Likewise.
        inputs: As in `Members`.
        outputs: Likewise.
        with_bias: Whether the population has biases.
        custom: Codes of callables; new ones are added.
    """
    for p, network in enumerate(networks):
        if not isinstance(network, Dag):
            _check_member(p, network, with_bias)
    dags = [network if isinstance(network, Dag) else network.dag for network in networks]
    members = _members.from_dags(dags, inputs, outputs)
    drawn = np.array([isinstance(network, Dag) for network in networks])
    code = np.concatenate([_codes(network, activation, output_activation, custom) for network in networks])
    if drawn.all():
        return Parts(members, code, None, None, drawn)
    weight = np.concatenate([_weight(network) for network in networks])
    bias = np.concatenate([_bias(network) for network in networks]) if with_bias else None
    return Parts(members, code, weight, bias, drawn)


def _check_member(p: int, network: Any, with_bias: bool) -> None:
    """Raise unless a population can compute what this network does, and keep what it has."""
    if not isinstance(network, FourWard):
        raise OptionError(f"member {p}: expected a Dag or a FourWard, got a {type(network).__name__}.")
    check_network(network)
    if network.constraints is not None or network.dropout:
        feature = "dropout" if network.constraints is None else "constraints on its weights"
        raise OptionError(
            f"member {p} has {feature}, which a population lacks. Pass its graph, net.dag, or a copy without."
        )
    if (network.bias is not None) != with_bias:
        raise OptionError(
            f"member {p} has {'biases' if network.bias is not None else 'no biases'}, and the population "
            f"{'has' if with_bias else 'has none'}. Pass bias={not with_bias}, or networks that agree."
        )


def _codes(
    network: Dag | FourWard, activation: Activations, output_activation: ActivationLike | None, custom: Custom
) -> IntArray:
    """The codes of a member's neurons, with those of callables in common with other members."""
    if isinstance(network, FourWard):
        code, modules = network.plan.node_code, network.custom_activations
    elif isinstance(activation, str) and output_activation is None:
        return np.full(len(network.neurons), lookup(activation).code, np.int32)
    else:
        code, modules = resolve_activations(network, activation, output_activation)
    code, dag = np.array(code), network if isinstance(network, Dag) else network.dag
    for k in range(len(modules)):
        shared = custom.code(decode_activation(CUSTOM + k, modules))
        code[code == CUSTOM + k] = -shared
    result: IntArray = np.abs(code[dag.neurons])
    return result


def _weight(network: Dag | FourWard) -> FloatArray:
    return np.zeros(network.num_edges) if isinstance(network, Dag) else _as_array(network.weight)


def _bias(network: Dag | FourWard) -> FloatArray:
    if isinstance(network, Dag):
        return np.zeros(len(network.neurons))
    assert network.bias is not None
    return _as_array(network.bias)


def _as_array(tensor: Tensor) -> FloatArray:
    """Numbers as NumPy has them, in which torch's threads, which a busy machine delays, take no part."""
    tensor = tensor.detach().cpu()
    return (tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.double()).numpy()


def from_arrays(members: Members, activation: Any, weight: Any, bias: Any, custom: Custom) -> Parts:
    """Members from arrays.

    Args:
        members: The members.
        activation: As in `Population.from_arrays`.
        weight: (E,) in the order of members.edges, or None.
        bias: (M,) by node index within each member, or None.
        custom: Codes of callables; new ones are added.
    """
    neurons = int(members.num_neurons.sum())
    code = _array_codes(activation, neurons, custom)
    weight = None if weight is None else _numbers(weight, len(members.edges), "weight", "edge")
    bias = None if bias is None else _numbers(bias, neurons, "bias", "neuron")
    return Parts(members, code, weight, bias, np.zeros(len(members), np.bool_))


def _array_codes(activation: Any, neurons: int, custom: Custom) -> IntArray:
    if isinstance(activation, str):
        return np.full(neurons, lookup(activation).code, np.int32)
    if callable(activation):
        return np.full(neurons, custom.code(activation), np.int32)
    is_pair = isinstance(activation, tuple) and len(activation) == 2 and np.ndim(activation[1]) == 1
    names, index = activation if is_pair else np.unique(np.asarray(activation), return_inverse=True)
    index = np.asarray(index)
    if (
        index.shape != (neurons,)
        or index.dtype.kind not in "iu"
        or not all(isinstance(n, str) or callable(n) for n in names)
    ):
        raise ActivationError(
            f"expected one activation, a name for each of {neurons:,} neurons, or a pair of activations and indices "
            f"among them, got {type(activation).__name__} of length {np.size(activation)}."
        )
    if neurons and (index.min() < 0 or index.max() >= len(names)):
        raise ActivationError(f"expected indices among {len(names)} activations, got {index.min()} to {index.max()}.")
    table = [lookup(str(name)).code if isinstance(name, str) else custom.code(name) for name in names]
    code: IntArray = np.array(table, np.int32)[index]
    return code


def _numbers(values: Any, count: int, name: str, per: str) -> FloatArray:
    tensor = torch.as_tensor(values)
    if tensor.shape != (count,) or tensor.is_complex() or tensor.dtype == torch.bool:
        raise WeightError(
            f"expected {name} as {count:,} real numbers, one for each {per} of all members, got {tensor.dtype} of "
            f"shape {tuple(tensor.shape)}."
        )
    return _as_array(tensor)


def plan_parts(parts: Parts, init: Init, with_bias: bool, dtype: torch.dtype, seed: int) -> Planned:
    """Plan members, and draw the parameters that they lack."""
    plan, edge = build_population_plan(parts.members, parts.code)
    weight = torch.empty(plan.num_edges, dtype=dtype, device="cpu")
    bias = torch.empty(plan.num_neurons, dtype=dtype, device="cpu") if with_bias else None
    if parts.drawn.any() or parts.weight is None or (with_bias and parts.bias is None):
        initialise(init, plan.dag, weight, bias, torch.Generator("cpu").manual_seed(seed))
    if parts.weight is not None:
        _fill(weight, parts.weight[edge], parts.drawn, plan.edge_start)
    if bias is not None and parts.bias is not None:
        _fill(bias, parts.bias, parts.drawn, plan.neuron_start)
    return Planned(plan, parts.members.in_order(edge), readonly(edge), weight, bias)


def _fill(parameter: Tensor, values: FloatArray, drawn: BoolArray, start: IntArray) -> None:
    """Copy the values of members that aren't drawn."""
    known = torch.from_numpy(values)
    if not drawn.any():
        parameter.copy_(known)
    else:
        mask = torch.from_numpy(np.repeat(~drawn, np.diff(start)))
        parameter[mask] = known[mask].to(parameter.dtype)


def check_ends(plan: PopulationPlan, members: Members) -> None:
    """Raise unless members have as many inputs and outputs as a population."""
    for role, want, ends in (("input", plan.num_inputs, members.inputs), ("output", plan.num_outputs, members.outputs)):
        if ends.shape[1] != want:
            raise GraphError(
                f"expected members with {pluralize(want, role)}, as the population has, got {ends.shape[1]:,}."
            )


def check_optimizer(optimizer: torch.optim.Optimizer | None, parameters: Sequence[nn.Parameter]) -> None:
    """Raise unless an optimiser, if there is one, has these parameters."""
    known = [] if optimizer is None else [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer is not None and not all(any(p is parameter for p in known) for parameter in parameters):
        raise OptionError("expected the optimiser of this population, got one without its weight or bias.")


def splice_parameter(
    parameter: nn.Parameter,
    new: Tensor,
    places: tuple[IntArray, Sequence[int], IntArray],
    optimizer: torch.optim.Optimizer | None,
) -> None:
    """Put the values of new members into a parameter, and zeros into what an optimiser keeps for it.

    Args:
        parameter: The parameter.
        new: The values of the new members, one after another.
        places: Where the old members start, which of them are replaced, and where the new ones start.
        optimizer: The optimiser.
    """
    start, where, new_start = places
    shape = parameter.shape
    if optimizer is not None:
        for name, value in optimizer.state[parameter].items():
            if isinstance(value, Tensor) and value.shape == shape:
                optimizer.state[parameter][name] = _splice(value, start, where, new.new_zeros(len(new)), new_start)
    parameter.data = _splice(parameter.data, start, where, new, new_start)
    parameter.grad = None


def _splice(values: Tensor, start: IntArray, where: Sequence[int], new: Tensor, new_start: IntArray) -> Tensor:
    """As that of `Members`, for tensors; the new values take dtype and device of the others."""
    index = _members.splice(np.arange(len(values)), start, where, len(values) + np.arange(len(new)), new_start)
    return torch.cat((values, new.to(values)))[torch.from_numpy(index).to(values.device)]


def decode_neurons(code: IntArray, custom: nn.ModuleList) -> list[ActivationLike]:
    """The activation behind each code."""
    table = {number: decode_activation(number, custom) for number in set(code.tolist())}
    return [table[number] for number in code.tolist()]


def check_networks(networks: Any) -> list[Dag | FourWard]:
    """The members of a population as a list."""
    if isinstance(networks, Dag | FourWard | str) or not hasattr(networks, "__iter__"):
        raise OptionError(
            f"expected a sequence of graphs or networks, got a {type(networks).__name__}. Pass a list, as in "
            "Population([dag, net])."
        )
    listed = list(networks)
    if not listed:
        raise GraphError("a population needs at least one member, got none.")
    return listed

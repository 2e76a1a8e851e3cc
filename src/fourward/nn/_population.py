"""Population: many networks as one torch module."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import IntArray
from fourward.engine import _registry
from fourward.engine._interface import PopulationRequest, PopulationRunner
from fourward.errors import FourwardError, InputError, OptionError, pluralize
from fourward.graph import _members
from fourward.graph._dag import Dag
from fourward.graph._members import Members, Names
from fourward.nn._activations import ActivationLike, Activations, as_modules
from fourward.nn._dag_module import check_dense, check_options, check_place, expand_seed, is_autocast
from fourward.nn._fourward import FourWard, from_parameters
from fourward.nn._init import Init
from fourward.nn._population_parts import (
    Custom,
    Parts,
    check_ends,
    check_networks,
    check_optimizer,
    decode_neurons,
    from_arrays,
    from_networks,
    plan_parts,
    splice_parameter,
)


class Population(nn.Module):
    """Many networks, each with its own graph, as one torch module: one call computes all of them.

    Members may differ in nodes, edges and activations, and have as many inputs and outputs. Their weights lie one after
    another in `weight`, their biases in `bias`: each member trains as if it had an optimiser of its own, if the loss
    is the sum of those of its members.

    Args:
        networks: A Dag or a FourWard for each member. Networks bring their parameters, which are copied, and their
            activations; parameters of graphs are drawn.
        activation: The activations of graphs, as in `FourWard`.
        output_activation: As in `FourWard`.
        bias: Whether neurons have a bias.
        init: The parameters of graphs, as in `FourWard`; a callable receives the union of all members.
        engine: "auto", or the name of an engine; see `explain`.
        seed: Seed of initialisation; None draws one from the system's entropy.
        inputs: A label for each feature of x, where members have some of these inputs each, or in another order.
        outputs: A label for each output, which may be any node of a member; default: those of each graph.
        device: Device of the parameters; default: that of the networks.
        dtype: Floating point dtype of the parameters; default: that of the networks.

    >>> from fourward import generate
    >>> dags = [generate.layered_mlp([2, hidden, 1]) for hidden in (1, 5, 3)]
    >>> pop = Population(dags, activation="tanh", seed=0)
    >>> pop(torch.zeros(7, 2)).shape, pop(torch.zeros(3, 7, 2)).shape
    (torch.Size([3, 7, 1]), torch.Size([3, 7, 1]))
    """

    weight: nn.Parameter  #: (E,) member p's are weight[edge_start[p]:edge_start[p+1]], in the order of pop[p].dag.edges
    bias: nn.Parameter | None  #: (M,) member p's are bias[neuron_start[p]:neuron_start[p+1]], as in pop[p].bias
    #: (E,) index of each weight's edge among those that were passed, graph after graph; None once members are replaced
    edge: IntArray | None
    runner: PopulationRunner

    def __init__(
        self,
        networks: Sequence[Dag | FourWard],
        activation: Activations = "tanh",
        output_activation: ActivationLike | None = None,
        bias: bool = True,
        init: Init = "kaiming_uniform",
        engine: str = "auto",
        seed: int | None = None,
        *,
        inputs: Sequence[Hashable] | None = None,
        outputs: Sequence[Hashable] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        listed = check_networks(networks)
        like = next((network.weight for network in listed if isinstance(network, FourWard)), None)
        if like is not None:
            device, dtype = like.device if device is None else device, like.dtype if dtype is None else dtype
        names, custom = (inputs, outputs), Custom()
        parts = from_networks(listed, activation, output_activation, *names, bias, custom)
        self._start(parts, names, custom, bias, init, engine, seed, device, dtype)

    @classmethod
    def from_arrays(
        cls,
        edges: Any,
        edge_start: Any,
        num_nodes: Any,
        *,
        inputs: Any,
        outputs: Any,
        weight: Any = None,
        bias: Any = None,
        activation: Any = "tanh",
        labels: Sequence[Sequence[Hashable]] | None = None,
        init: Init = "kaiming_uniform",
        engine: str = "auto",
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Self:
        """From concatenated arrays, without an object for each member: 10,000 members of 50 nodes in 0.1 s.

        Args:
            edges: (E, 2) node indices within each member, source then target, one member after another.
            edge_start: (P+1,) the edges of member p are edges[edge_start[p]:edge_start[p+1]].
            num_nodes: Number of nodes of each member (P,), or one for all.
            inputs: A number: the first nodes are inputs; node indices (I,) of all members; or (P, I).
            outputs: A number: the nodes behind the inputs are outputs; node indices (O,); or (P, O).
            weight: (E,) in the order of `edges`; None: they are drawn.
            bias: (M,) one for each node that is no input, by node index within each member; None: they are drawn as
                weights are; False, or None where weights are passed: neurons have none.
            activation: A name or a callable for all neurons; (M,) names, as biases; or a pair of a list of names and
                callables, and (M,) indices in it.
            labels: The labels of each member's nodes; default: 0 to N-1.
            init: As in `Population`, as all below.
            engine: "auto", or the name of an engine.
            seed: Seed of initialisation.
            device: Device of the parameters.
            dtype: Floating point dtype of the parameters.

        >>> edges = [(0, 2), (1, 2), (0, 3), (1, 3), (3, 2)]  # two of member 0, three of member 1
        >>> pop = Population.from_arrays(edges, [0, 2, 5], [3, 4], inputs=2, outputs=1, seed=0)
        >>> pop(torch.zeros(7, 2)).shape
        torch.Size([2, 7, 1])
        """
        members = _members.from_arrays(edges, edge_start, num_nodes, inputs, outputs, labels)
        custom, has_bias = Custom(), bias is not False and (bias is not None or weight is None)
        parts = from_arrays(members, activation, weight, None if isinstance(bias, bool) else bias, custom)
        self = cls.__new__(cls)
        self._start(parts, (None, None), custom, has_bias, init, engine, seed, device, dtype)
        return self

    @classmethod
    def from_members(
        cls, members: Members, activation: Any, weight: Tensor, bias: Tensor | None, names: Sequence[Names],
        **options: Any,
    ) -> Self:  # fmt: skip
        """From checked arrays and the labels of features and outputs, as `fourward.load` reads them."""
        custom, self = Custom(), cls.__new__(cls)
        parts = from_arrays(members, activation, weight, bias, custom)
        inputs, outputs = names
        defaults: dict[str, Any] = {"init": "zeros", "engine": "auto", "seed": 0, "device": None, "dtype": weight.dtype}
        self._start(parts, (inputs, outputs), custom, bias is not None, **defaults | options)
        return self

    def _start(
        self, parts: Parts, names: tuple[Names, Names], custom: Custom, bias: bool, init: Init, engine: str,
        seed: int | None, device: Any, dtype: torch.dtype | None,
    ) -> None:  # fmt: skip
        """Plan the members, make the parameters, choose an engine."""
        _registry.check_name(engine)
        super().__init__()
        dtype = torch.get_default_dtype() if dtype is None else dtype
        place = torch.get_default_device() if device is None else torch.device(device)
        check_options(0.0, None, place, dtype)
        self.requested_engine, self.seed = engine, expand_seed(seed)
        self.names = names  # labels of features and outputs, or None
        self._custom, self.custom_activations = custom, as_modules(custom).to(device=place, dtype=dtype)
        self.plan, self.members, self.edge, weight, biases = plan_parts(parts, init, bias, dtype, self.seed)
        self.weight = nn.Parameter(weight.to(place))
        self.register_parameter("bias", None if biases is None else nn.Parameter(biases.to(place)))
        self._start_engine()

    def _start_engine(self) -> None:
        like = self.weight
        request = PopulationRequest(self.plan, like.dtype, like.device, len(self.custom_activations) > 0)
        self.choice = _registry.choose(self.requested_engine, request)
        self.runner = self.choice.engine.prepare_population(self.plan).to(like.device)

    @property
    def engine(self) -> str:
        """Name of the engine that runs this population."""
        return self.choice.engine.name

    def explain(self) -> str:
        """Explain which engine runs, why it was chosen, and its execution strategy."""
        return "\n".join(line for line in (self.choice.explain(), self.runner.describe()) if line)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.weight.dtype, self.weight.device
        super()._apply(fn, recurse)
        if not self.weight.is_meta and before != (self.weight.dtype, self.weight.device):
            self._start_engine()
        return self

    def to_empty(self, *, device: torch.device | str | int | None, recurse: bool = True) -> Self:
        """Move parameters without copying them, as nn.Module does; the engine's index tensors are rebuilt."""
        super().to_empty(device=device, recurse=recurse)
        self._start_engine()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs of all members, (P, B, O).

        Args:
            x: (B, I) for all members, whose gradient is the sum of those of the members; or (P, B, I), a batch for
                each.
        """
        weight, bias = self.weight, self.bias
        dtype, device = weight.dtype, weight.device
        autocast = is_autocast(dtype, device)
        check_dense(x, dtype)
        members, features = len(self), self.plan.num_inputs
        if x.dim() not in (2, 3) or x.shape[-1] != features or (x.dim() == 3 and x.shape[0] != members):
            raise InputError(
                f"expected x of shape (B, {features}) for all members, or ({members}, B, {features}), got shape "
                f"{tuple(map(int, x.shape))}."
            )
        check_place(x, dtype, device, autocast)
        if not autocast:
            return self.runner(x, weight, bias, self.custom_activations)  # type: ignore[no-any-return]
        with torch.autocast(device.type, enabled=False):
            result = self.runner(x.to(dtype), weight, bias, self.custom_activations)
        return result.to(torch.get_autocast_dtype(device.type))  # type: ignore[no-any-return]

    def __len__(self) -> int:
        """P, the number of members."""
        return self.plan.num_members

    def __getitem__(self, p: int) -> FourWard:
        """Member p as a FourWard of its own, with copies of its parameters: training one leaves the other as it is."""
        p = self._index(p)
        edges, neurons = (slice(*start[p : p + 2].tolist()) for start in (self.edge_start, self.neuron_start))
        code = np.empty(neurons.stop - neurons.start, np.int32)
        code[self.plan.neuron[neurons]] = self.plan.code[neurons]
        bias = None if self.bias is None else self.bias[neurons]
        options = {"device": self.weight.device, "dtype": self.weight.dtype, "seed": 0}
        activations = decode_neurons(code, self.custom_activations)
        return from_parameters(self.dag(p), self.weight[edges], bias, activations, **options)

    def __iter__(self) -> Iterator[FourWard]:
        return (self[p] for p in range(len(self)))

    def _index(self, p: int) -> int:
        if not isinstance(p, int | np.integer) or isinstance(p, bool):
            raise OptionError(f"a member has an integer index, got {p!r}.")
        if not -len(self) <= p < len(self):
            raise IndexError(f"member {p} of {len(self)}")
        return int(p) % len(self)

    def neuron_codes(self) -> IntArray:
        """(M,) the activation code of each neuron, in the order of `bias`; callables have those from CUSTOM on."""
        code = np.empty(self.plan.num_neurons, np.int32)
        code[self.plan.neuron_nodes] = self.plan.code
        return code

    def dag(self, p: int) -> Dag:
        """The graph of member p, with the population's inputs (as far as it has them) and outputs."""
        return self.members.dag(self._index(p))

    @property
    def edge_start(self) -> IntArray:
        """(P+1,) the weights of member p are weight[edge_start[p]:edge_start[p+1]]."""
        return self.plan.edge_start

    @property
    def neuron_start(self) -> IntArray:
        """(P+1,) the biases of member p are bias[neuron_start[p]:neuron_start[p+1]]."""
        return self.plan.neuron_start

    def replace(
        self,
        networks: Mapping[int, Dag | FourWard],
        optimizer: torch.optim.Optimizer | None = None,
        *,
        activation: Activations = "tanh",
        output_activation: ActivationLike | None = None,
        init: Init = "kaiming_uniform",
        seed: int | None = None,
    ) -> None:
        """Replace members in place. The others keep their parameters, and their moments in an optimiser.

        `weight` and `bias` remain the same Parameters, of another size, without gradients.

        Args:
            networks: A Dag or a FourWard by the index of the member that it replaces.
            optimizer: The optimiser of the population, whose moments move with the parameters; those of new members
                are 0. One that was made before, and isn't passed, fails at its next step.
            activation: As in `Population`, here and below.
            output_activation: The activations of outputs.
            init: The parameters of graphs.
            seed: Seed of initialisation.
        """
        if not isinstance(networks, Mapping):
            raise OptionError(f"expected a dict from index to network, got a {type(networks).__name__}.")
        where = [self._index(p) for p in networks]
        if not where:
            return
        if len(set(where)) < len(where):
            raise OptionError(f"expected each member once, got {list(networks)}.")
        with_bias = self.bias is not None
        custom = Custom(self._custom)
        listed = check_networks(networks.values())
        try:
            parts = from_networks(listed, activation, output_activation, *self.names, with_bias, custom)
            check_ends(self.plan, parts.members)
            plan, members, _, weight, bias = plan_parts(parts, init, with_bias, self.weight.dtype, expand_seed(seed))
        except FourwardError as error:
            error.prepend(f"replacing {', '.join(map(str, networks))}, where member 0 is the first of these")
            raise
        pairs = [(self.weight, weight, self.edge_start, plan.edge_start)]
        if self.bias is not None and bias is not None:
            pairs.append((self.bias, bias, self.neuron_start, plan.neuron_start))
        check_optimizer(optimizer, [pair[0] for pair in pairs])
        for parameter, new, start, new_start in pairs:
            splice_parameter(parameter, new, (start, where, new_start), optimizer)
        self.plan, self.members = self.plan.replaced(where, plan), self.members.replaced(where, members)
        self.edge = None
        if len(custom) > len(self._custom):
            self._custom, self.custom_activations = custom, as_modules(custom).to(self.weight)
        self._start_engine()

    @contextmanager
    def scale_updates(self, factors: Any) -> Iterator[None]:
        """Within this context, what changes the parameters changes those of member p by factors[p] times as much.

        With any optimiser, that is a learning rate for each member:

            with pop.scale_updates(rates):
                optimizer.step()

        Args:
            factors: (P,) numbers; 0 leaves a member as it is.
        """
        factors = torch.as_tensor(factors, dtype=self.weight.dtype, device=self.weight.device)
        if factors.shape != (len(self),) or not bool(factors.isfinite().all()):
            raise OptionError(
                f"expected {pluralize(len(self), 'finite factor')}, one for each member, got shape "
                f"{tuple(factors.shape)}{'' if factors.shape != (len(self),) else ' with inf or NaN'}."
            )
        pairs = [(self.weight, self.edge_start), (self.bias, self.neuron_start)]
        before = [(p, p.detach().clone(), start) for p, start in pairs if p is not None]
        yield
        with torch.no_grad():
            for parameter, values, start in before:
                count = torch.tensor(np.diff(start), device=values.device)
                factor = factors.repeat_interleave(count)
                # lerp would turn an infinite update times 0 into NaN
                parameter.copy_(torch.where(factor == 0, values, values + factor * (parameter - values)))

    def extra_repr(self) -> str:
        """Sizes and the engine."""
        plan = self.plan
        sizes = (
            pluralize(len(self), "member"),
            pluralize(plan.num_neurons, "neuron"),
            pluralize(plan.num_edges, "edge"),
        )
        ends = pluralize(plan.num_inputs, "input"), pluralize(plan.num_outputs, "output")
        return f"{', '.join((*sizes, *ends))}, bias={self.bias is not None}, engine={self.engine!r}"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"  # on one line, without submodules

"""FourWard: any Dag as a torch module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

import networkx as nx
import torch
from torch import Tensor, nn

from fourward.engine import _registry
from fourward.engine._dropout import Dropout
from fourward.engine._interface import Request, Runner
from fourward.errors import ActivationError, OptionError, WeightError
from fourward.graph import _annotated
from fourward.graph._annotated import AnnotatedDag
from fourward.graph._convert import label_list
from fourward.graph._dag import Dag
from fourward.layering import Layering
from fourward.nn._activations import ActivationLike, Activations, activation_name, decode_activation
from fourward.nn._constraint_options import resolve_constraints
from fourward.nn._dag_module import DagModule
from fourward.nn._init import Init


class FourWard(DagModule):
    """A network of single neurons wired as a Dag, as a torch module.

    Each neuron v, a node that isn't an input, computes f_v(bias_v + the sum of weight_uv a_u over its incoming edges);
    one without incoming edges computes f_v(bias_v).

    Args:
        dag: The graph.
        activation: A name ("relu", "tanh", ...; see fourward.plan.activations), an elementwise torch callable, or a
            mapping from label to either, with "default" for all other neurons.
        output_activation: A name or a callable for the outputs; None: as all others. A neuron's own entry in
            `activation` takes precedence.
        bias: Whether neurons have a bias.
        init: "kaiming_uniform" (as torch.nn.Linear), "kaiming_normal", "xavier_uniform", "xavier_normal",
            "zeros", "constant", a number for all weights, one for each (E,), or a callable that receives (dag, weight,
            bias) and fills the tensors in place. With signs, excitation and inhibition of the first four are balanced.
        dropout: Probability that a hidden neuron is dropped for a sample in training mode; inputs and outputs never
            are. Masks are a function of `seed` and of `passes`, the number of training passes, which isn't in the
            state_dict; torch's generators aren't used. torch.utils.checkpoint, which repeats passes, raises an error.
        engine: "auto", or the name of an engine; see `explain`.
        seed: Seed of initialisation and dropout; None draws one from the system's entropy.
        sign: Signs that weights keep: 1, -1, or 0 for both. Either by neuron, for all edges out of it (Dale's
            principle), or by edge: a mapping from label or pair of labels, an array (N,) or (E,), or the name of an
            attribute such as "transmitter", with a table of signs that aren't known: ("transmitter",
            {"glutamate": -1}).
        frozen: Edges that keep their initial weights: pairs of labels, a mask (E,), or True for all.
        tied: Edges that share a parameter: an attribute such as "type", for edges between the same two types, or a
            number for each edge (E,), -1 for those that share none.
        scale: What parameters are multiplied by, such as numbers of synapses: (E,) positive numbers, or one.
        layering: The layering to compute with; default: the paper's longest path, with sources moved to layer 0.
        device: Device of the parameters.
        dtype: Floating point dtype of the parameters.

    >>> dag = Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
    >>> net = FourWard(dag, activation="tanh", seed=0)
    >>> net(torch.zeros(5, 2)).shape
    torch.Size([5, 1])
    """

    #: (E,) weight[k] belongs to dag.edges[k]. Under constraints it is computed from `constraints.free_weight`, the
    #: parameters; `load_edge_weights` sets them.
    weight: Tensor
    bias: nn.Parameter | None  #: (N-I,) in the order of dag.neurons

    def __init__(
        self,
        dag: Dag,
        activation: Activations = "relu",
        output_activation: ActivationLike | None = None,
        bias: bool = True,
        init: Init = "kaiming_uniform",
        dropout: float = 0.0,
        engine: str = "auto",
        seed: int | None = None,
        *,
        sign: Any = None,
        frozen: Any = None,
        tied: Any = None,
        scale: Any = None,
        layering: Layering | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        _registry.check_name(engine)
        super().__init__(dag, activation, output_activation, dropout, seed, layering, device, dtype)
        self.requested_engine = engine
        constraints = resolve_constraints(dag, sign, frozen, tied, scale)
        weight, biases = self._initial_parameters(init, bias, constraints)
        self._register_weight(dag, weight, constraints)
        self.register_parameter("bias", None if biases is None else nn.Parameter(biases.to(self._device)))
        self._sizes = (dag.num_edges,), (len(dag.neurons),)
        self.choice = self._choose_engine()
        self.runner = self._prepare_runner()

    def _choose_engine(self) -> _registry.Choice:
        custom = len(self.custom_activations) > 0
        like = next(self.parameters())  # not `weight`: if pruned, it keeps its device until the next pass
        return _registry.choose(self.requested_engine, Request(self.plan, like.dtype, like.device, custom))

    def _prepare_runner(self) -> Runner:
        return self.choice.engine.prepare(self.plan).to(next(self.parameters()).device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FourWard:
        super()._apply(fn, recurse)
        if next(self.parameters()).is_meta:
            return self  # a skeleton for torch.func.functional_call, which fills in the buffers of this same engine
        before, self.choice = self.choice.engine.name, self._choose_engine()  # it depends on device and dtype
        if self.choice.engine.name != before:
            self.runner = self._prepare_runner()
        return self

    def to_empty(self, *, device: torch.device | str | int | None, recurse: bool = True) -> FourWard:
        """Move parameters without copying them, as nn.Module does; the engine's index tensors are rebuilt."""
        super().to_empty(device=device, recurse=recurse)
        self.passes.zero_()
        if self.constraints is not None:
            self.constraints.rebuild()
        self.runner = self._prepare_runner()
        return self

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        weight, bias = self._lookup_parameter("weight"), self._lookup_parameter("bias")
        assert weight is not None
        if weight.shape != self._sizes[0] or (bias is not None and bias.shape != self._sizes[1]):
            self._check_edge_weights(weight, bias, bias is not None)  # raises the error
        runner, custom = self._modules["runner"], self._modules["custom_activations"]
        assert runner is not None
        result: Tensor = runner.forward(x, weight, bias, custom, dropout, all_nodes)
        return result

    def _supports_mixed_precision(self) -> bool:
        return self.choice.engine.supports_mixed_precision

    def _dtype_and_device(self) -> tuple[torch.dtype, torch.device]:
        like = self._lookup_parameter("weight") if self.constraints is None else self.constraints.free_weight
        assert like is not None
        return like.dtype, like.device

    def _lookup_parameter(self, name: str) -> Tensor | None:
        """A parameter from the module's own dict: torch's lookup by attribute takes half a microsecond.

        A pruned or parametrised one is an attribute that torch computes from others.
        """
        parameters = self._parameters
        return parameters[name] if name in parameters else getattr(self, name)

    @property
    def engine(self) -> str:
        """Name of the engine that runs this network."""
        return self.choice.engine.name

    def explain(self) -> str:
        """Explain which engine runs, why it was chosen, and its execution strategy for this graph."""
        return "\n".join(line for line in (self.choice.explain(), self.runner.describe()) if line)

    def load_edge_weights(self, weight: Any, bias: Any = None) -> None:
        """Copy weights (E,) and, for a network with biases, biases (N-I,) into the parameters."""
        check_network(self)
        weight, bias = self._check_edge_weights(weight, bias, self.bias is not None)
        with torch.no_grad():
            if self.constraints is None:
                self.weight.copy_(weight)
            else:
                self.constraints.set_weight(weight.to(self.constraints.free_weight))
            if self.bias is not None and bias is not None:
                self.bias.copy_(bias)

    def silenced(self, labels: Iterable[Hashable]) -> FourWard:
        """A copy in which the neurons with these labels have the activation 0; see `clamped`."""
        return self.clamped(dict.fromkeys(label_list(labels, "labels"), 0.0))

    def clamped(self, values: Mapping[Hashable, float]) -> FourWard:
        """A copy of the network in which neurons have constant activations, whatever their inputs.

        The copy has the same graph, a bias, and the effective weights without constraints: those into clamped neurons
        are 0. A clamped input sends its value instead of its feature.

        Args:
            values: The activation of each clamped neuron, by label.

        >>> net = FourWard(Dag.from_edges([("a", "b"), ("b", "c")]), "identity", init=2.0)
        >>> net(torch.ones(1, 1)).item(), net.clamped({"b": 5.0})(torch.ones(1, 1)).item()
        (4.0, 10.0)
        """
        from fourward.nn._interventions import clamp  # imported here: it needs this class

        return clamp(self, values)

    def probed(self) -> FourWard:
        """A copy with one more input per neuron, in the order of dag.neurons, which is added to its activation.

        With zeros there, it returns what this network returns, and the gradient with respect to them is that with
        respect to the neurons' activations: what `activations(x)` returns has no path to the outputs.

        >>> net = FourWard(Dag.from_edges([("a", "b"), ("b", "c")]), "identity", init=2.0)
        >>> x = torch.tensor([[1.0, 0.0, 0.0]], requires_grad=True)
        >>> net.probed()(x).backward()
        >>> x.grad
        tensor([[4., 2., 1.]])
        """
        from fourward.nn._interventions import probe

        return probe(self)

    def to_networkx(self) -> nx.DiGraph:
        """A DiGraph with the attribute `weight` on edges, and `bias` and `activation` on neurons; also constraints."""
        weight, bias = (None if p is None else p.detach().double().cpu().numpy() for p in (self.weight, self.bias))
        names = tuple(map(activation_name, self.neuron_activations()))
        annotated = AnnotatedDag(self.dag, weight, bias, names, constraints=constraint_arrays(self))
        return _annotated.to_networkx(annotated)

    def extra_repr(self) -> str:
        """The graph, the activations and the engine."""
        codes = sorted(set(self.plan.code[self.dag.num_inputs :].tolist()))
        names = ", ".join(activation_name(decode_activation(code, self.custom_activations)) for code in codes)
        return (
            f"{self.dag!r}, height={self.layering.height}, activation={names or None}, bias={self.bias is not None}, "
            f"{f'dropout={self.dropout}, ' if self.dropout else ''}"
            f"{'' if self.constraints is None else f'weights: {self.constraints.extra_repr()}, '}engine={self.engine!r}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"  # on one line, without submodules


def check_network(net: nn.Module) -> None:
    """Check that `net` is a FourWard whose weight and bias are parameters, or its weight under constraints of its own.

    Values that torch computes in each pass (pruned, parametrised) would be lost when loaded, and stale when saved.
    """
    if not isinstance(net, FourWard):
        raise OptionError(
            f"expected a FourWard, got a {type(net).__name__}. FourWard(dag) builds one from a Dag; a fitted "
            "estimator's is model_.net."
        )
    for name in ("weight", "bias"):
        if name not in net._parameters and (name == "bias" or net.constraints is None):
            raise WeightError(
                f"net.{name} is pruned or parametrised, so torch computes it in every pass. Make it permanent with "
                f"torch.nn.utils.prune.remove(net, {name!r}) or "
                f"torch.nn.utils.parametrize.remove_parametrizations(net, {name!r})."
            )


def constraint_arrays(net: FourWard) -> dict[str, Any]:
    """(E,) the constraints of a network, by the names of FourWard's options; {} for one without."""
    arrays = {} if net.constraints is None else net.constraints.arrays._asdict()
    return {name: array.astype(float) for name, array in arrays.items() if array is not None}


def from_parameters(
    dag: Dag, weight: Any, bias: Any, activations: Sequence[ActivationLike], **options: Any
) -> FourWard:
    """A FourWard with these parameters instead of initial ones.

    Args:
        dag: The graph.
        weight: (E,) in the order of dag.edges.
        bias: (N-I,) in the order of dag.neurons, or None.
        activations: (N-I,) in the order of dag.neurons.
        options: Further keywords of FourWard.
    """
    by_label = {dag.labels[v]: activation for v, activation in zip(dag.neurons.tolist(), activations, strict=True)}
    # A neuron labelled "default" would shadow that key: then its activation is the default.
    names = Counter(activation for activation in activations if isinstance(activation, str))
    default = by_label.get("default", names.most_common(1)[0][0] if names else "identity")
    rest = {label: activation for label, activation in by_label.items() if activation != default}
    defaults: dict[str, Any] = {"bias": bias is not None, "init": "zeros"}
    net = FourWard(dag, rest | {"default": default}, **defaults | options)
    net.load_edge_weights(weight, bias)
    return net


def builtin_activation_names(net: FourWard, destination: str, alternative: str) -> list[str]:
    """(N-I,) the names of the neurons' activations, for a `destination` that can't store callables."""
    activations = net.neuron_activations()
    for v, activation in zip(net.dag.neurons.tolist(), activations, strict=True):
        if not isinstance(activation, str):
            raise ActivationError(
                f"neuron {net.dag.labels[v]!r} has the activation {activation_name(activation)}, a callable, which "
                f"{destination} can't store. Use a built-in activation by name, or {alternative}."
            )
    return cast("list[str]", activations)

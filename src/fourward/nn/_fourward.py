"""FourWard: any Dag as a torch module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

import networkx as nx
import torch
from torch import Tensor, nn

from fourward.engine._dropout import Dropout
from fourward.errors import ActivationError, OptionError
from fourward.graph import _annotated
from fourward.graph._annotated import annotate
from fourward.graph._base import BaseGraph
from fourward.graph._convert import label_list
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.graph._driven import add_feature_nodes
from fourward.layering import Layering
from fourward.nn._activations import ActivationLike, Activations, activation_name
from fourward.nn._constraint_options import resolve_constraints
from fourward.nn._dag_module import check_graph
from fourward.nn._engine_module import EngineModule, check_parameters
from fourward.nn._init import Init


class FourWard(EngineModule):
    """A network of single neurons wired as a Dag, as a torch module.

    Each neuron v, a node that isn't an input, computes f_v(bias_v + the sum of weight_uv a_u over its incoming edges);
    one without incoming edges computes f_v(bias_v). An input with incoming edges is a neuron, too, to whose sum x adds
    its feature; all others carry theirs.

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

    graph: Dag
    #: (E,) weight[k] belongs to dag.edges[k]. Under constraints it is computed from `constraints.free_weight`, the
    #: parameters; `load_edge_weights` sets them.
    weight: Tensor
    bias: nn.Parameter | None  #: one for each neuron, in the order of dag.neurons

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
        check_graph(dag, Dag)
        options = (dropout, engine, seed, layering, device, dtype)
        constraints = resolve_constraints(dag, sign, frozen, tied, scale)
        super().__init__(dag, activation, output_activation, bias, init, *options, constraints=constraints)
        self._start_engine()

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        weight, bias = self._plan_parameters()
        runner, custom = self._modules["runner"], self._modules["custom_activations"]
        assert runner is not None
        result: Tensor = runner.forward(x, weight, bias, custom, dropout, all_nodes)
        return result

    def silenced(self, labels: Iterable[Hashable]) -> FourWard:
        """A copy in which the neurons with these labels have the activation 0; see `clamped`."""
        return self.clamped(dict.fromkeys(label_list(labels, "labels"), 0.0))

    def clamped(self, values: Mapping[Hashable, float]) -> FourWard:
        """A copy of the network in which neurons have constant activations, whatever their inputs.

        The copy has the same graph, a bias, and the effective weights without constraints: those into clamped neurons
        are 0. A clamped input sends its value instead of its feature, or instead of its activation if it is driven.

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
        return weighted_networkx(self)


def weighted_networkx(net: EngineModule) -> nx.DiGraph:
    """A network's graph with its weights, biases, activations and constraints as attributes."""
    weight, bias = (None if p is None else p.detach().double().cpu().numpy() for p in (net.weight, net.bias))
    names = tuple(map(activation_name, net.neuron_activations()))
    graph = cast(Dag | Digraph, net.graph)
    return _annotated.to_networkx(annotate(graph, weight, bias, names, constraints=constraint_arrays(net)))


def check_network(net: nn.Module) -> None:
    """Check that `net` is a FourWard whose weight and bias are parameters, or its weight under constraints."""
    if isinstance(net, EngineModule) and not isinstance(net, FourWard):
        raise OptionError(
            f"expected a FourWard, got a {type(net).__name__}, whose feedback isn't supported here. To store it, use "
            "fourward.save, or fourward.exchange.export(net, path): graph files and, with steps=..., ONNX."
        )
    if not isinstance(net, FourWard):
        raise OptionError(
            f"expected a FourWard, got a {type(net).__name__}. FourWard(dag) builds one from a Dag; a fitted "
            "estimator's is model_.net, a population's are pop[0], pop[1] and so on."
        )
    check_parameters(net)


def constraint_arrays(net: EngineModule) -> dict[str, Any]:
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
        bias: One for each neuron, in the order of dag.neurons, or None.
        activations: Likewise.
        options: Further keywords of FourWard.
    """
    defaults: dict[str, Any] = {"bias": bias is not None, "init": "zeros"}
    net = FourWard(dag, name_activations(dag, activations), **defaults | options)
    net.load_edge_weights(weight, bias)
    return net


def name_activations(graph: BaseGraph, activations: Sequence[ActivationLike]) -> dict[Any, ActivationLike]:
    """Activations in the order of graph.neurons as a mapping from label, with "default" for the most common one."""
    by_label = {graph.labels[v]: activation for v, activation in zip(graph.neurons.tolist(), activations, strict=True)}
    # A neuron labelled "default" would shadow that key: then its activation is the default.
    names = Counter(activation for activation in activations if isinstance(activation, str))
    default = by_label.get("default", names.most_common(1)[0][0] if names else "identity")
    rest = {label: activation for label, activation in by_label.items() if activation != default}
    return rest | {"default": default}


def without_driven_inputs(net: FourWard) -> FourWard:
    """The network itself, or one that computes the same, in which each driven input has a node for its feature.

    For exporters: the new nodes are inputs without incoming edges, and the edges out of them have the weight 1.
    """
    if not len(net.dag.driven):
        return net
    dag, edge = add_feature_nodes(net.dag, name_nodes=True)
    weight = torch.cat((net.weight.detach(), net.weight.new_ones(1)))[torch.from_numpy(edge).to(net.weight.device)]
    options = {"device": net.weight.device, "dtype": net.weight.dtype, "dropout": net.dropout, "seed": 0}
    return from_parameters(dag, weight, net.bias, net.neuron_activations(), **options).train(net.training)


def builtin_activation_names(net: EngineModule, destination: str, alternative: str) -> list[str]:
    """The names of the neurons' activations, for a `destination` that can't store callables."""
    activations = net.neuron_activations()
    for v, activation in zip(net.graph.neurons.tolist(), activations, strict=True):
        if not isinstance(activation, str):
            raise ActivationError(
                f"neuron {net.graph.labels[v]!r} has the activation {activation_name(activation)}, a callable, which "
                f"{destination} can't store. Use a built-in activation by name, or {alternative}."
            )
    return cast("list[str]", activations)

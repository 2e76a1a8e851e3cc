"""FourWard: any Dag as a torch module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import networkx as nx
import torch
from torch import Tensor, nn

from fourward.engine._dropout import Dropout
from fourward.errors import ActivationError, OptionError
from fourward.graph import _annotated
from fourward.graph._annotated import AnnotatedDag
from fourward.graph._base import BaseGraph
from fourward.graph._dag import Dag
from fourward.graph._driven import add_feature_nodes
from fourward.layering import Layering
from fourward.nn._activations import ActivationLike, Activations, activation_name
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
            "zeros", "constant", a number for all weights, or a callable that receives (dag, weight, bias) and
            fills the tensors in place.
        dropout: Probability that a hidden neuron is dropped for a sample in training mode; inputs and outputs never
            are. Masks are a function of `seed` and of `passes`, the number of training passes, which isn't in the
            state_dict; torch's generators aren't used. torch.utils.checkpoint, which repeats passes, raises an error.
        engine: "auto", or the name of an engine; see `explain`.
        seed: Seed of initialisation and dropout; None draws one from the system's entropy.
        layering: The layering to compute with; default: the paper's longest path, with sources moved to layer 0.
        device: Device of the parameters.
        dtype: Floating point dtype of the parameters.

    >>> dag = Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
    >>> net = FourWard(dag, activation="tanh", seed=0)
    >>> net(torch.zeros(5, 2)).shape
    torch.Size([5, 1])
    """

    weight: nn.Parameter  #: (E,) weight[k] belongs to dag.edges[k]
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
        layering: Layering | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_graph(dag, Dag)
        options = (dropout, engine, seed, layering, device, dtype)
        super().__init__(dag, activation, output_activation, bias, init, *options)
        self._start_engine()

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        weight, bias = self._plan_parameters()
        runner, custom = self._modules["runner"], self._modules["custom_activations"]
        assert runner is not None
        result: Tensor = runner.forward(x, weight, bias, custom, dropout, all_nodes)
        return result

    def to_networkx(self) -> nx.DiGraph:
        """A DiGraph with the attribute `weight` on edges, and `bias` and `activation` on neurons."""
        weight, bias = (None if p is None else p.detach().double().cpu().numpy() for p in (self.weight, self.bias))
        names = tuple(map(activation_name, self.neuron_activations()))
        return _annotated.to_networkx(AnnotatedDag(self.dag, weight, bias, names))


def check_network(net: nn.Module) -> None:
    """Check that `net` is a FourWard whose weight and bias are parameters."""
    if isinstance(net, EngineModule) and not isinstance(net, FourWard):
        raise OptionError(
            f"expected a FourWard, got a {type(net).__name__}, whose feedback this format can't hold. Save it with "
            "fourward.save, or export it to .onnx with fourward.exchange.export(net, path, steps=...)."
        )
    if not isinstance(net, FourWard):
        raise OptionError(
            f"expected a FourWard, got a {type(net).__name__}. FourWard(dag) builds one from a Dag; a fitted "
            "estimator's is model_.net."
        )
    check_parameters(net)


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

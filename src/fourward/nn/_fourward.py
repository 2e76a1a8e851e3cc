"""FourWard: any Dag as a torch module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import torch
from torch import Tensor, nn

from fourward.engine import _registry
from fourward.engine._base import Dropout, Request, Runner
from fourward.errors import OptionError, WeightError
from fourward.graph._dag import Dag
from fourward.layering import Layering
from fourward.nn._activations import Activations, One, name_of
from fourward.nn._dag_module import DagModule
from fourward.nn._init import Init


class FourWard(DagModule):
    """A network of single neurons wired as a Dag; trains like any torch module.

    Each neuron v that isn't an input computes f_v(bias_v + the sum of weight_uv a_u over its incoming edges);
    one without incoming edges computes f_v(bias_v).

    Args:
        dag: The graph.
        activation: A name ("relu", "tanh", ...; see fourward.plan.activations), a torch callable that acts on
            each element alone, or a mapping from label to either, with "default" for all others.
        output_activation: The same for the outputs; None means as the rest. A neuron's own entry in
            `activation` wins.
        bias: Whether neurons have a bias.
        init: "kaiming_uniform" (as torch.nn.Linear), "kaiming_normal", "xavier_uniform", "xavier_normal",
            "zeros", "constant", a number for all weights, or a callable that receives (dag, weight, bias) and
            fills the tensors in place.
        dropout: Probability that a hidden neuron is dropped for a sample in a training pass. Inputs and
            outputs never are. Draws come from `seed` and `passes`, a count of training passes that isn't part of
            the state_dict, not from torch's generators. So torch.utils.checkpoint, which repeats a pass, is refused.
        engine: "auto", or the name of one; see `explain`.
        seed: Seed of initialisation and dropout; None takes a fresh one from the system.
        layering: A layering to compute by; default: the paper's longest path with sources pushed to layer 0.
        device: Of the parameters, as in torch's own modules.
        dtype: Of the parameters, likewise.

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
        output_activation: One | None = None,
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
        _registry.check_name(engine)
        super().__init__(dag, activation, output_activation, dropout, seed, layering, device, dtype)
        self.requested_engine = engine
        weight, biases = self._initial(init, bias)
        self.weight = nn.Parameter(weight.to(self._device))
        self.register_parameter("bias", None if biases is None else nn.Parameter(biases.to(self._device)))
        self.passes = self.passes.to(self._device)
        self._sizes = (dag.num_edges,), (len(dag.neurons),)
        self.choice = self._choose()
        self.runner = self._prepare()

    def _choose(self) -> _registry.Choice:
        custom = len(self.custom_activations) > 0
        like = next(self.parameters())  # not `weight`: pruned, that is left where it was until the next pass
        return _registry.choose(self.requested_engine, Request(self.plan, like.dtype, like.device, custom))

    def _prepare(self) -> Runner:
        return self.choice.engine.prepare(self.plan).to(next(self.parameters()).device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> FourWard:
        super()._apply(fn, recurse)
        before, self.choice = self.choice.engine.name, self._choose()  # another device or dtype, another engine
        if self.choice.engine.name != before:
            self.runner = self._prepare()
        return self

    def to_empty(self, *, device: torch.device | str | int | None, recurse: bool = True) -> FourWard:
        """As torch has it for parameters; what the engine reads of the graph is filled in again."""
        super().to_empty(device=device, recurse=recurse)
        self.passes.zero_()
        self.runner = self._prepare()
        return self

    def _compute(self, x: Tensor, dropout: Dropout | None, all_nodes: bool) -> Tensor:
        weight, bias = self._learnt("weight"), self._learnt("bias")
        assert weight is not None
        if weight.shape != self._sizes[0] or (bias is not None and bias.shape != self._sizes[1]):
            self._check_edge_weights(weight, bias, bias is not None)  # says what is wrong
        runner, custom = self._modules["runner"], self._modules["custom_activations"]
        assert runner is not None
        result: Tensor = runner.forward(x, weight, bias, custom, dropout, all_nodes)
        return result

    def _supports_mixed_precision(self) -> bool:
        return self.choice.engine.supports_mixed_precision

    def _weights_like(self) -> tuple[torch.dtype, torch.device]:
        weight = self._learnt("weight")
        assert weight is not None
        return weight.dtype, weight.device

    def _learnt(self, name: str) -> Tensor | None:
        """A parameter, straight from the module's table, since torch's lookup by attribute takes half a microsecond.

        Pruned or parametrised, it is an attribute that torch computes from others.
        """
        own = self._parameters
        return own[name] if name in own else getattr(self, name)

    @property
    def engine(self) -> str:
        """The name of the engine that runs."""
        return self.choice.engine.name

    def explain(self) -> str:
        """Which engine runs, why that one, and how it goes about this graph."""
        return "\n".join(line for line in (self.choice.explain(), self.runner.describe()) if line)

    def load_edge_weights(self, weight: Any, bias: Any = None) -> None:
        """Copy weights (E,) and, if the network has them, biases (N-I,) into the parameters."""
        check_own(self)
        weight, bias = self._check_edge_weights(weight, bias, self.bias is not None)
        with torch.no_grad():
            self.weight.copy_(weight)
            if self.bias is not None and bias is not None:
                self.bias.copy_(bias)

    def to_networkx(self) -> nx.DiGraph:
        """The graph with `weight` on edges, and `bias` and `activation` on the nodes that have them."""
        graph, dag = self.dag.to_networkx(), self.dag
        weights = self.weight.detach().double().tolist()
        for (u, v), weight in zip(dag.edges.tolist(), weights, strict=True):
            graph.edges[dag.labels[u], dag.labels[v]]["weight"] = weight
        code = self.plan.node_code
        biases = None if self.bias is None else self.bias.detach().double().tolist()
        for i, v in enumerate(dag.neurons.tolist()):
            graph.nodes[dag.labels[v]]["activation"] = name_of(int(code[v]), self.custom_activations)
            if biases is not None:
                graph.nodes[dag.labels[v]]["bias"] = biases[i]
        return graph

    def extra_repr(self) -> str:
        """The graph, the activations and the engine."""
        codes = dict.fromkeys(self.plan.code[self.dag.num_inputs :].tolist())
        names = ", ".join(name_of(code, self.custom_activations) for code in sorted(codes))
        return (
            f"{self.dag!r}, height={self.layering.height}, activation={names or None}, bias={self.bias is not None}, "
            f"{f'dropout={self.dropout}, ' if self.dropout else ''}engine={self.engine!r}"
        )

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"  # on one line: what it is made of says nothing to a user


def check_own(net: FourWard) -> None:
    """Refuse what is no network, and weights that torch computes from others.

    AnnotatedDag, these would be lost; saved, they would be a pass too old.
    """
    if not isinstance(net, FourWard):
        raise OptionError(
            f"a network was wanted, but this came: {type(net).__name__}. FourWard(dag) makes one of a Dag, and a "
            "fitted estimator has one as model_.net."
        )
    for name in ("weight", "bias"):
        if name not in net._parameters:
            raise WeightError(
                f"net.{name} is pruned or parametrised, so torch computes it anew in every pass. Make it permanent "
                f"first, with torch.nn.utils.prune.remove(net, {name!r}) or "
                f"torch.nn.utils.parametrize.remove_parametrizations(net, {name!r})."
            )

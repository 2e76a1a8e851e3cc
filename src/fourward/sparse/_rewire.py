"""rewire: change the wiring of a network in place, and keep what it learned."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from fourward._arrays import BoolArray, IntArray, readonly
from fourward.errors import GraphError, OptionError, WeightError, pluralize, summarize
from fourward.graph import _convert
from fourward.graph._base import BaseGraph
from fourward.graph._convert import label_list
from fourward.graph._dag import Dag
from fourward.graph._digraph import Digraph
from fourward.graph._edit import Changed, Edited, edit_graph
from fourward.nn._constraint_options import EdgeConstraints
from fourward.nn._engine_module import EngineModule, check_parameters
from fourward.nn._fourward import FourWard
from fourward.nn._recurrent import Recurrent
from fourward.plan.activations import lookup
from fourward.sparse._optimizers import (
    Move,
    Optimizers,
    check_optimizers,
    check_resize,
    list_optimizers,
    move_all,
    resize,
)

Network = FourWard | Recurrent


@dataclass(frozen=True, eq=False, repr=False)
class Edit:
    """What an edit changed: where the edges and nodes of a network were before."""

    edge: IntArray  #: (E,) the index that each edge had before; -1 for a new edge
    node: IntArray  #: (N,) the index that each node had before; -1 for a new node
    neuron: IntArray  #: the index that each entry of the bias had before; -1 for a new neuron
    added: IntArray  #: (A,) the edge that each pair of `add` is now
    removed: IntArray  #: (R,) the indices of the edges that went, ascending

    def carry(self, values: Any, new: Any = 0) -> Any:
        """One value for each edge before, (E, ...) an array or a tensor, as one for each edge now.

        Args:
            values: The values.
            new: The value of new edges.

        >>> from fourward import Dag
        >>> net = FourWard(Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")]))
        >>> edit = rewire(net, remove=[("a", "c")], add=[("a", "d")])
        >>> edit.carry(np.array([10, 20, 30]))
        array([20,  0, 30])
        """
        before = len(self.removed) + int(np.count_nonzero(self.edge >= 0))
        if len(values) != before:
            raise OptionError(f"expected a value for each of {before:,} edges before the edit, got {len(values):,}.")
        if isinstance(values, Tensor):
            index = torch.from_numpy(np.where(self.edge < 0, before, self.edge).astype(np.int64)).to(values.device)
            return torch.cat((values, values.new_full((1, *values.shape[1:]), new))).index_select(0, index)
        array = np.asarray(values)
        carried = np.full((len(self.edge), *array.shape[1:]), new, array.dtype)
        carried[self.edge >= 0] = array[self.edge[self.edge >= 0]]
        return carried

    def __repr__(self) -> str:
        new_nodes, stayed = int(np.count_nonzero(self.node < 0)), int(np.count_nonzero(self.edge >= 0))
        nodes = f", {pluralize(new_nodes, 'node')} added" if new_nodes else ""
        return (
            f"Edit({pluralize(len(self.added), 'edge')} added, {len(self.removed):,} removed, {stayed:,} kept{nodes})"
        )


def rewire(
    net: Network,
    optimizer: Optimizers = None,
    *,
    add: Any = (),
    remove: Any = (),
    add_nodes: Mapping[Hashable, str | None] | Iterable[Hashable] = (),
    remove_nodes: Iterable[Hashable] = (),
    weight: Any = 0.0,
    feedback: Any = None,
) -> Edit:
    """Add and remove edges and neurons of a network, in place.

    Weights, biases, time constants, activations and constraints stay with their edges and neurons, and so do gradients
    and the states of optimisers, such as moments; parameters stay the same objects. The network is then as if it had
    been built on its new graph with these weights, with the default layering. An error leaves it as it was.

    New edges have no constraints but the sign of their source, if all edges out of it had the same.

    Args:
        net: A FourWard or a Recurrent.
        optimizer: The optimiser of its parameters, or a list of several, whose state follows; None if there is none.
        add: Pairs (source, target) of labels.
        remove: Pairs (source, target) of labels; they go before others are added.
        add_nodes: Labels of new neurons, or a mapping from label to the name of its activation. Default: the one that
            most neurons have.
        remove_nodes: Labels of hidden neurons, whose edges go, too.
        weight: Initial weights of added edges: a number, or one for each.
        feedback: For a Recurrent: which pairs of `add` carry the value of the step before, as bools; True for all.
            Default: those on a cycle of edges within a step; all, if every edge of the network is feedback.

    Returns:
        Where edges and neurons were before.

    >>> from fourward import Dag
    >>> net = FourWard(Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")]), seed=0)
    >>> rewire(net, add=[("b", "d")], remove=[("a", "c")])
    Edit(1 edge added, 1 removed, 2 kept)
    >>> net.dag
    Dag(4 nodes, 3 edges, 2 inputs, 1 output)
    """
    net = unwrap(net)
    graph, names = net.graph, _as_activations(add_nodes)
    new_labels = list(names)
    known = [label for label in new_labels if graph._find_node(label) is not None]
    if known:
        raise GraphError(f"nodes to add are there already: {summarize(known)}. Choose other labels.")
    nodes = np.array([graph.index(label) for label in label_list(remove_nodes, "remove_nodes")], np.int64)
    pairs = _look_up_pairs(graph, new_labels, add)
    change = Changed(
        pairs, _look_up_edges(graph, remove), new_labels, np.unique(nodes), _as_feedback(net, feedback, len(pairs))
    )
    return rewire_indices(net, optimizer, change, weight, tuple(names.values()))


@torch.inference_mode(False)  # or else autograd would refuse the parameters from then on
def rewire_indices(
    net: Network,
    optimizer: Optimizers,
    change: Changed,
    weight: Any = 0.0,
    activations: tuple[str | None, ...] = (),
) -> Edit:
    """`rewire` with indices of nodes and edges instead of labels; `activations` are those of added nodes."""
    optimizers, graph = list_optimizers(optimizer), net.graph
    check_parameters(net)
    new_weight = _as_weights(weight, change, net)
    edited = edit_graph(graph, change)
    other = net._with_graph(edited.graph, _carry_codes(net, activations)[edited.node])
    neuron = _carry_neurons(graph, edited)
    moves = _list_moves(net, other, edited, neuron, new_weight)
    check_optimizers(optimizers, moves)
    check_resize(net, moves)
    move_all(optimizers, moves)
    if net.constraints is not None and other.constraints is not None:  # the same object, as all of its parameters
        vars(net.constraints).update(vars(other.constraints))
        other.constraints = net.constraints
    if (tau := net._buffers.get("tau")) is not None:
        origin = torch.from_numpy(neuron).to(tau.device)
        other._buffers["tau"] = torch.cat((tau, _new_neurons(net, neuron, 1.0))).index_select(0, origin)
    vars(net).update(vars(other))
    return _describe(graph, change, edited, neuron)


class Wiring(NamedTuple):
    """The graph of a network with what its constraints say of edges, apart from its parameters."""

    graph: Dag | Digraph
    constraints: EdgeConstraints | None
    node_sign: IntArray | None


def get_wiring(net: Network) -> Wiring:
    """The wiring of a network."""
    if net.constraints is None:
        return Wiring(net.graph, None, None)
    return Wiring(net.graph, net.constraints.arrays, net.constraints.node_sign)


def set_wiring(net: Network, wiring: Wiring) -> None:
    """Give a network an earlier wiring, with the same nodes; its weights must then be loaded."""
    if wiring.graph is net.graph:
        return
    other = net._with_graph(wiring.graph, net.plan.node_code[: wiring.graph.num_nodes])
    parameter = net._parameters.get("weight")
    if net.constraints is not None and wiring.constraints is not None:
        constraints = net.constraints.with_arrays(wiring.graph, wiring.constraints, wiring.node_sign)
        parameter = net.constraints.free_weight
        vars(net.constraints).update(vars(constraints))
    assert parameter is not None
    count = wiring.graph.num_edges if net.constraints is None else net.constraints.num_parameters
    if len(parameter) != count:
        resize(parameter, parameter.detach().new_zeros(count))
    other.constraints = net.constraints
    vars(net).update(vars(other))


def unwrap(net: Any) -> Network:
    """The network itself, of what torch.compile or DistributedDataParallel made of it."""
    while (inner := _inner_module(net)) is not None:
        net = inner
    if not isinstance(net, EngineModule):
        raise OptionError(
            f"expected a FourWard or a Recurrent, got a {type(net).__name__}. Pass the network itself, without the "
            "layers around it."
        )
    return cast(Network, net)


def _inner_module(net: Any) -> Any:
    return net.module if isinstance(net, nn.parallel.DistributedDataParallel) else getattr(net, "_orig_mod", None)


def _list_moves(net: Network, other: Network, edited: Edited, neuron: IntArray, new_weight: Tensor) -> list[Move]:
    """Where the entries of all parameters come from; `other` gets the constraints of its graph."""
    parameter, origin = net._parameters.get("weight"), edited.edge
    if net.constraints is not None:
        other.constraints, origin = net.constraints.with_graph(edited.graph, edited.edge, edited.node)
        parameter = net.constraints.free_weight
    assert parameter is not None
    moves = [Move(parameter, torch.from_numpy(origin).to(parameter.device), new_weight)]
    for name, value in (("bias", 0.0), ("tau", 1.0)):
        parameter = net._parameters.get(name)
        if parameter is not None:
            listed = torch.from_numpy(neuron).to(parameter.device)
            moves.append(Move(parameter, listed, _new_neurons(net, neuron, value)))
    return moves


def _new_neurons(net: Network, neuron: IntArray, value: float) -> Tensor:
    """A value for each new neuron."""
    dtype, device = net._dtype_and_device()
    return torch.full((int(np.count_nonzero(neuron >= len(net.graph.neurons))),), value, dtype=dtype, device=device)


def _carry_codes(net: Network, activations: tuple[str | None, ...]) -> IntArray:
    """(N + new nodes,) the activation code of each node before, and of added ones."""
    code = net.plan.node_code[: net.graph.num_nodes]
    if not activations:
        return code
    codes, counts = np.unique(code[net.graph.neurons], return_counts=True)
    usual = codes[np.argmax(counts)] if len(codes) else lookup("identity").code
    return np.append(code, [usual if name is None else lookup(name).code for name in activations]).astype(np.int32)


def _carry_neurons(graph: BaseGraph, edited: Edited) -> IntArray:
    """The index that each neuron had among the neurons; that of new ones starts after the last."""
    count = len(graph.neurons)
    rank = np.empty(graph.num_nodes, np.int64)
    rank[graph.neurons] = np.arange(count)
    node = edited.node[edited.graph.neurons]
    is_new = node >= graph.num_nodes
    return np.where(is_new, node - graph.num_nodes + count, rank[np.where(is_new, 0, node)])


def _describe(graph: BaseGraph, change: Changed, edited: Edited, neuron: IntArray) -> Edit:
    num_edges, num_nodes, is_new = graph.num_edges, graph.num_nodes, edited.edge >= graph.num_edges
    added = np.empty(len(change.add), np.int64)
    added[edited.edge[is_new] - num_edges] = np.flatnonzero(is_new)
    removed = np.sort(change.remove)
    if len(change.removed_nodes):  # their edges went, too
        went = np.ones(num_edges, np.bool_)
        went[edited.edge[~is_new]] = False
        removed = np.flatnonzero(went)
    arrays = (
        np.where(is_new, -1, edited.edge),
        np.where(edited.node >= num_nodes, -1, edited.node),
        np.where(neuron >= len(graph.neurons), -1, neuron),
        added,
        removed,
    )
    return Edit(*map(readonly, arrays))


def _as_weights(weight: Any, change: Changed, net: Network) -> Tensor:
    """(A,) the parameters of added edges, from a number or one for each; under a sign they are its absolute values."""
    dtype, device = net._dtype_and_device()
    values = weight.detach() if isinstance(weight, Tensor) else torch.as_tensor(np.asarray(weight))
    count = len(change.add)
    if values.shape not in ((), (count,)) or values.is_complex() or not values.isfinite().all():
        raise WeightError(
            f"expected weight as a finite number, or as {count:,} of them, one for each added edge, got "
            f"{values.dtype} of shape {tuple(values.shape)}."
        )
    values = values.to(device=device, dtype=dtype).expand(count)
    if net.constraints is None or net.constraints.node_sign is None or not count:
        return values
    signs = np.append(net.constraints.node_sign, np.zeros(len(change.new_labels), np.int8))[change.add[:, 0]]
    sign = torch.from_numpy(signs).to(values)
    if (values * sign < 0).any():
        raise WeightError(
            "weights of added edges contradict the signs of their sources, whose other edges have them. Pass weights "
            "of these signs."
        )
    return torch.where(sign == 0, values, values.abs())


def _as_activations(add_nodes: Any) -> dict[Hashable, str | None]:
    """The activation of each added node, None for the usual one."""
    listed = dict(add_nodes) if isinstance(add_nodes, Mapping) else dict.fromkeys(label_list(add_nodes, "add_nodes"))
    for name in listed.values():
        if name is not None and not isinstance(name, str):
            raise OptionError(f"activations of added nodes must be names such as 'tanh', got {name!r}.")
    if not isinstance(add_nodes, Mapping) and len(listed) != len(label_list(add_nodes, "add_nodes")):
        raise GraphError("duplicate labels in add_nodes. List each node once.")
    return listed


def _as_feedback(net: Network, feedback: Any, count: int) -> BoolArray | None:
    if feedback is None:
        return None
    if not isinstance(net, Recurrent):
        raise OptionError("feedback is for networks with feedback, a Recurrent. Omit it.")
    array = np.asarray(feedback)
    if array.dtype != np.bool_ or array.shape not in ((), (count,)):
        raise OptionError(
            f"feedback must be True, False or {count:,} bools, one for each added edge, got {array.dtype} of shape "
            f"{array.shape}."
        )
    return np.broadcast_to(array, (count,))


def _look_up_edges(graph: BaseGraph, pairs: Any) -> IntArray:
    """Distinct indices of edges that are to go."""
    index = graph.find_edges(pairs if _has_length(pairs) else list(pairs))
    went = np.zeros(graph.num_edges, np.bool_)
    went[index] = True
    if np.count_nonzero(went) < len(index):
        values, counts = np.unique(index, return_counts=True)
        twice = summarize((graph.labels[u], graph.labels[v]) for u, v in graph.edges[values[counts > 1]].tolist())
        raise GraphError(f"duplicate edges to remove: {twice}. Pass each pair once.")
    return index


def _look_up_pairs(graph: BaseGraph, new_labels: list[Hashable], pairs: Any) -> IntArray:
    """(A, 2) node indices of pairs of labels; added nodes come after all others."""
    pairs = pairs if _has_length(pairs) else list(pairs)
    if not len(pairs):
        return np.empty((0, 2), np.int64)
    labels = [*graph.labels, *new_labels] if new_labels else graph.labels
    try:
        listed = _convert.from_pairs(pairs, labels)
    except GraphError:
        listed = _convert.from_pairs(pairs)
        known = {*labels}
        unknown = [label for label in listed.labels if label not in known]
        if not unknown:
            raise
        raise GraphError(
            f"unknown labels in add: {summarize(unknown)}. Choose labels of the graph, or list new neurons in "
            "add_nodes."
        ) from None
    return np.stack((listed.source, listed.target), -1)


def _has_length(pairs: Any) -> bool:
    return hasattr(pairs, "__len__")

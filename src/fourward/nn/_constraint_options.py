"""Constraints on weights, from what the user passed to arrays over edges: signs, frozen and tied edges, scale."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import GraphError, OptionError, Repair, WeightError, pluralize, summarize
from fourward.graph._attributes import Attributes, find_attribute, group_nodes
from fourward.graph._convert import as_numpy
from fourward.graph._tables import is_table

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
#: The sign of each transmitter, in lower case: 1 excites, -1 inhibits, 0 can do both. Glutamate isn't listed: it
#: excites in vertebrates and in the worm, and mostly inhibits in the brains of flies.
TRANSMITTER_SIGNS: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("acetylcholine", "ach", "cholinergic"), 1)
    | dict.fromkeys(("gaba", "gabaergic", "glycine"), -1)
    | dict.fromkeys(("dopamine", "da", "serotonin", "5ht", "5-ht", "octopamine", "oct", "tyramine", "histamine"), 0)
    | {"unknown": 0, "": 0}
)


class EdgeGraph(Protocol):
    """What constraints need of a graph; a Dag and a Digraph have it."""

    @property
    def labels(self) -> Sequence[Hashable]: ...
    @property
    def edges(self) -> IntArray: ...
    @property
    def attributes(self) -> Attributes: ...
    def index(self, label: Hashable) -> int: ...
    def find_edges(self, pairs: Any) -> IntArray: ...


class EdgeConstraints(NamedTuple):
    """Constraints on the weights of E edges; None for those without."""

    sign: IntArray | None = None  #: (E,) int8: 1, -1, or 0 for an edge of any sign
    frozen: np.ndarray[Any, np.dtype[np.bool_]] | None = None  #: (E,) True for edges that keep their weight
    tied: IntArray | None = None  #: (E,) int64: edges of equal numbers share a parameter; -1 for the others
    scale: FloatArray | None = None  #: (E,) float64: what the parameter is multiplied by

    def is_empty(self) -> bool:
        """Whether nothing is constrained."""
        return all(values is None for values in self)

    def describe(self) -> str:
        """Which constraints there are: "12 signed, 3 frozen, 4 tied in 2 groups, scaled"."""
        texts = []
        if self.sign is not None:
            texts.append(f"{np.count_nonzero(self.sign):,} signed")
        if self.frozen is not None:
            texts.append(f"{np.count_nonzero(self.frozen):,} frozen")
        if self.tied is not None:
            tied = self.tied[self.tied >= 0]
            texts.append(f"{len(tied):,} tied in {pluralize(len(np.unique(tied)), 'group')}")
        return ", ".join(texts + ["scaled"] * (self.scale is not None))


def resolve_constraints(graph: EdgeGraph, sign: Any, frozen: Any, tied: Any, scale: Any) -> EdgeConstraints | None:
    """The constraints as arrays over edges, or None if all options are None; see FourWard for the options."""
    constraints = EdgeConstraints(
        None if sign is None else _edge_signs(graph, sign),
        None if frozen is None or frozen is False else _frozen_edges(graph, frozen),
        None if tied is None else _edge_groups(graph, tied),
        None if scale is None else _edge_scales(graph, scale),
    )
    return None if constraints.is_empty() else constraints


def _edge_signs(graph: EdgeGraph, sign: Any) -> IntArray:
    """(E,) signs by edge, from an attribute, from labels or pairs, or from one number for each neuron or edge."""
    if isinstance(sign, str):
        return _node_signs(graph, sign, {})[graph.edges[:, 0]]
    if isinstance(sign, tuple) and len(sign) == 2 and isinstance(sign[0], str) and isinstance(sign[1], Mapping):
        table = {_fold_case(value): number for value, number in sign[1].items()}
        return _node_signs(graph, sign[0], table)[graph.edges[:, 0]]
    if isinstance(sign, Mapping):
        return _signs_by_label(graph, sign)
    num_nodes, num_edges = len(graph.labels), len(graph.edges)
    array = _as_array(sign, "sign")
    if array.shape not in ((num_nodes,), (num_edges,)):
        raise OptionError(
            "sign must be the name of an attribute, a mapping from label or pair of labels to sign, or an array of "
            f"shape ({num_nodes},) by neuron or ({num_edges},) by edge, got shape {array.shape}."
        )
    _check_signs(array.tolist())
    if num_nodes == num_edges and not np.array_equal(array, array[graph.edges[:, 0]]):
        raise OptionError(
            f"this graph has as many nodes as edges, {num_nodes:,}, so it is unclear which of them the {num_nodes:,} "
            "signs belong to. Pass a mapping from label, or from pair of labels, to sign."
        )
    signs: IntArray = array.astype(np.int8)
    return signs[graph.edges[:, 0]] if len(array) == num_nodes else signs


def _node_signs(graph: EdgeGraph, name: str, own: Mapping[Any, int]) -> IntArray:
    """(N,) the signs of the nodes by an attribute, the user's own signs first; a node without a value has sign 0."""
    table = {**TRANSMITTER_SIGNS, **own}
    values = [None if value is None else _fold_case(value) for value in find_attribute(graph.attributes, name)]
    unknown = list(dict.fromkeys(value for value in values if value is not None and value not in table))
    if unknown:
        raise OptionError(
            f"no sign for these values of the attribute {name!r}: {summarize(unknown)}.",
            Repair("sign", (name, {**own, **dict.fromkeys(unknown, -1)}), "give them signs: 1, -1, or 0 for both"),
        )
    _check_signs(table.values())
    return np.array([0 if value is None else table[value] for value in values], np.int8)


def _signs_by_label(graph: EdgeGraph, signs: Mapping[Any, int]) -> IntArray:
    """(E,) from a mapping whose keys are labels, for all edges out of a neuron, or pairs of labels, for edges."""
    _check_signs(signs.values())
    by_node = {key: number for key, number in signs.items() if _is_label(graph, key)}
    by_pair = {key: number for key, number in signs.items() if key not in by_node}
    node = np.zeros(len(graph.labels), np.int8)
    node[[graph.index(label) for label in by_node]] = list(by_node.values())
    edge = node[graph.edges[:, 0]]
    if by_pair:
        wrong = [key for key in by_pair if not (isinstance(key, tuple) and len(key) == 2)]
        if wrong:
            raise OptionError(
                f"sign has unknown labels: {summarize(wrong)}. Choose labels of neurons, for all edges out of them, or "
                "pairs (source, target)."
            )
        edge[graph.find_edges(list(by_pair))] = list(by_pair.values())
    return edge


def _is_label(graph: EdgeGraph, key: Hashable) -> bool:
    try:
        graph.index(key)
    except GraphError:
        return False
    return True


def _frozen_edges(graph: EdgeGraph, frozen: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(E,) from True for all edges, a mask, or pairs of labels."""
    num_edges = len(graph.edges)
    if frozen is True:
        return np.ones(num_edges, np.bool_)
    array = np.asarray(as_numpy(frozen)) if hasattr(frozen, "dtype") else None
    if array is not None and array.ndim == 1:
        if array.dtype != np.bool_ or array.shape != (num_edges,):
            raise OptionError(
                f"frozen must be True, an array of {num_edges:,} bools, one per edge, or pairs of labels, got "
                f"{array.dtype} of shape {array.shape}."
            )
        return array.copy()
    if isinstance(frozen, str) or not (np.iterable(frozen) or is_table(frozen)):
        raise OptionError(f"frozen must be True, an array of bools, one per edge, or pairs of labels, got {frozen!r}.")
    mask = np.zeros(num_edges, np.bool_)
    pairs: Any = frozen if array is not None or is_table(frozen) else list(frozen)
    if len(pairs):
        mask[graph.find_edges(pairs)] = True
    return mask


def _edge_groups(graph: EdgeGraph, tied: Any) -> IntArray:
    """(E,) a group for each edge: of the types of its source and target, or as numbered by the user; -1 for none."""
    if isinstance(tied, str):
        kind, kinds = group_nodes(find_attribute(graph.attributes, tied))
        source, target = kind[graph.edges[:, 0]], kind[graph.edges[:, 1]]
        return np.where((source < 0) | (target < 0), -1, source * len(kinds) + target)
    array = _as_array(tied, "tied")
    if array.shape != (len(graph.edges),) or array.dtype.kind not in "iu":
        raise OptionError(
            "tied must be the name of an attribute, whose values for source and target say which edges share a "
            f"parameter, or {len(graph.edges):,} integers, equal for edges that share one and -1 for edges that don't, "
            f"got {array.dtype} of shape {array.shape}."
        )
    groups: IntArray = array.astype(np.int64)
    return np.maximum(groups, -1)


def _edge_scales(graph: EdgeGraph, scale: Any) -> FloatArray:
    """(E,) positive numbers, from as many or from one."""
    array = _as_array(scale, "scale")
    if array.dtype.kind not in "fiu" or array.shape not in ((), (len(graph.edges),)):
        raise OptionError(
            f"scale must be a number, or {len(graph.edges):,} numbers, one per edge in the order of the graph's edges, "
            f"got {array.dtype} of shape {array.shape}. dag.align(values, pairs) brings values into that order."
        )
    values = np.broadcast_to(array.astype(np.float64), (len(graph.edges),)).copy()
    wrong = values[~(np.isfinite(values) & (values > 0))]
    if len(wrong):
        raise WeightError(
            f"scale must be positive and finite, got {summarize(wrong.tolist(), 3)}. Signs are an option of their own, "
            "sign=; edges of strength 0 are no edges."
        )
    return values


def _as_array(values: Any, name: str) -> Any:
    try:
        array = np.asarray(as_numpy(values))
    except ValueError:
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "biuf":
        raise OptionError(f"{name} must hold numbers, got {type(values).__name__}.")
    return array


def _check_signs(signs: Any) -> None:
    wrong = [sign for sign in signs if isinstance(sign, bool) or sign not in (-1, 0, 1)]
    if wrong:
        raise OptionError(f"a sign must be 1, -1, or 0 for a weight of any sign, got {summarize(wrong, 3)}.")


def _fold_case(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value

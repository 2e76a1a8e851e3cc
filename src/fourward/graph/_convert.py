"""Edges, networkx, rustworkx, scipy.sparse and masks to one plain form, the EdgeList, and back."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import networkx as nx
import numpy as np

from fourward._arrays import IntArray
from fourward.errors import GraphError, summarize

if TYPE_CHECKING:
    import rustworkx as rx

Labels = Sequence[Hashable]
Nodes = int | Iterable[Hashable] | None

#: Node attributes that carry the order of inputs and outputs through networkx and graph files.
INPUT, OUTPUT = "fourward_input", "fourward_output"


class EdgeList(NamedTuple):
    """A graph as it came: nothing sorted, nothing checked but that endpoints are nodes."""

    source: IntArray  # (E,) node index where each edge starts
    target: IntArray  # (E,) node index where it ends
    labels: Labels  # label of each node index
    directed: bool
    inputs: list[Hashable] | None = None  # labels that the graph itself names as inputs, in order
    outputs: list[Hashable] | None = None


def read(graph: Any, nodes: Nodes = None) -> EdgeList:
    """Read whatever describes a graph: networkx, rustworkx, scipy.sparse, or an iterable of pairs.

    An iterable of pairs counts as directed; `nodes` (a count, or labels in order) goes with it alone.
    """
    readers = ((is_networkx, from_networkx), (is_rustworkx, from_rustworkx), (is_scipy, from_scipy))
    for is_kind, reader in readers:
        if is_kind(graph):
            if nodes is not None:
                raise GraphError(
                    f"nodes= was given together with a {type(graph).__name__}, which already names its "
                    "nodes. Leave nodes= away, or pass the edges as pairs."
                )
            return reader(graph)
    return from_pairs(graph, nodes)


def is_networkx(graph: Any) -> bool:
    """Whether it is a networkx graph of any kind."""
    return isinstance(graph, nx.Graph)


def is_rustworkx(graph: Any) -> bool:
    """Whether it is a rustworkx graph; without an import, since whoever has one has imported it."""
    module = sys.modules.get("rustworkx")
    return module is not None and isinstance(graph, module.PyDiGraph | module.PyGraph)


def is_scipy(graph: Any) -> bool:
    """Whether it is a scipy.sparse matrix or array; without an import, as above."""
    module = sys.modules.get("scipy.sparse")
    return module is not None and isinstance(graph, module.sparray | module.spmatrix)


def from_pairs(pairs: Any, nodes: Nodes = None) -> EdgeList:
    """Pairs of labels, or an (E, 2) integer array.

    Integer labels stand in ascending order, any others in order of first appearance; `nodes` states
    another order and may name nodes without edges.
    """
    unordered, pairs = isinstance(pairs, set | frozenset), _materialised(pairs)
    array = _integer_pairs(pairs)
    if array is not None:
        return _from_integer_array(array, nodes)
    if unordered and nodes is None:
        raise GraphError(
            "edges came as a set, whose order differs from run to run, and with it that of the nodes and the features. "
            "Give a list of edges, or the order of the nodes as nodes=."
        )
    listed = [_pair(pair, k) for k, pair in enumerate(pairs)]
    labels = as_labels(nodes) if nodes is not None else tuple(dict.fromkeys(v for pair in listed for v in pair))
    index = {label: i for i, label in enumerate(labels)}
    missing = dict.fromkeys(v for pair in listed for v in pair if v not in index)
    if missing:
        raise GraphError(
            f"edges name nodes that nodes= doesn't list: {summarize(missing)}. Add them to nodes=, or leave it away."
        )
    flat = np.fromiter((index[v] for pair in listed for v in pair), np.int64, 2 * len(listed))
    return EdgeList(flat[0::2], flat[1::2], labels, directed=True)


def from_networkx(graph: nx.Graph) -> EdgeList:
    """A networkx graph, nodes in its own order; parallel edges are kept and refused later."""
    _check_kind(is_networkx(graph), graph, "a networkx graph")
    labels = tuple(graph.nodes)
    index = {label: i for i, label in enumerate(labels)}
    flat = np.fromiter((index[v] for pair in graph.edges() for v in pair), np.int64, 2 * graph.number_of_edges())
    marked = [_marked(graph, attribute) for attribute in (INPUT, OUTPUT)]
    return EdgeList(flat[0::2], flat[1::2], labels, graph.is_directed(), *marked)


def from_rustworkx(graph: rx.PyDiGraph | rx.PyGraph) -> EdgeList:
    """A rustworkx graph; labels are the node payloads if these are hashable and distinct, else indices."""
    _check_kind(is_rustworkx(graph), graph, "a rustworkx graph")
    import rustworkx as rx  # inside: only who has such a graph needs it

    indices = np.asarray(graph.node_indices(), dtype=np.int64)
    payloads = graph.nodes()
    try:
        distinct = len(set(payloads)) == len(payloads)
    except TypeError:
        distinct = False
    labels = tuple(payloads) if distinct else tuple(indices.tolist())
    position = np.zeros(int(indices.max(initial=-1)) + 1, np.int64)
    position[indices] = np.arange(len(indices))
    pairs = position[np.asarray(graph.edge_list(), dtype=np.int64).reshape(-1, 2)]
    return EdgeList(pairs[:, 0], pairs[:, 1], labels, isinstance(graph, rx.PyDiGraph))


def from_scipy(matrix: Any, labels: Iterable[Hashable] | None = None) -> EdgeList:
    """A square sparse matrix: an entry stored at [u, v] is the edge u -> v, whatever its value."""
    _check_kind(is_scipy(matrix), matrix, "a scipy.sparse matrix")
    _check_square(matrix.shape)
    coordinates = matrix.tocoo()
    return EdgeList(coordinates.row, coordinates.col, _matrix_labels(matrix.shape[0], labels), directed=True)


def from_mask(mask: Any, labels: Iterable[Hashable] | None = None) -> EdgeList:
    """A square boolean array: True at [u, v] is the edge u -> v."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise GraphError(
            f"a mask must be boolean, but this one is {array.dtype}. Write mask != 0, or use "
            "Dag.from_scipy for a matrix of weights."
        )
    array = np.atleast_2d(array)
    _check_square(array.shape)
    source, target = np.nonzero(array)
    return EdgeList(source, target, _matrix_labels(len(array), labels), directed=True)


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise GraphError(f"an adjacency matrix must be square, but this one has shape {shape}.")


def _matrix_labels(num_nodes: int, labels: Iterable[Hashable] | None) -> Labels:
    named = range(num_nodes) if labels is None else as_labels(labels)
    if len(named) != num_nodes:
        raise GraphError(f"{len(named)} labels were given for a matrix of {num_nodes} nodes.")
    return named


def to_networkx(source: IntArray, target: IntArray, labels: Labels, inputs: IntArray, outputs: IntArray) -> nx.DiGraph:
    """A DiGraph with the same labels, which carries the order of inputs and outputs as node attributes."""
    graph = nx.DiGraph()
    graph.add_nodes_from(labels)
    graph.add_edges_from((labels[u], labels[v]) for u, v in zip(source.tolist(), target.tolist(), strict=True))
    for attribute, chosen in ((INPUT, inputs), (OUTPUT, outputs)):
        for place, node in enumerate(chosen.tolist()):
            graph.nodes[labels[node]][attribute] = place
    return graph


def to_rustworkx(source: IntArray, target: IntArray, labels: Labels) -> rx.PyDiGraph:
    """A PyDiGraph whose node payloads are the labels."""
    import rustworkx as rx  # inside, as above

    graph = rx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(list(labels))
    graph.add_edges_from_no_data(list(zip(source.tolist(), target.tolist(), strict=True)))
    return graph


def _materialised(pairs: Any) -> Any:
    """An array as it is, a tensor as an array, anything else as a list."""
    pairs = _without_torch(pairs)
    if isinstance(pairs, np.ndarray):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise GraphError(f"an array of edges must have shape (E, 2), but this one has {pairs.shape}.")
        return pairs
    for is_kind, name in ((is_networkx, "networkx"), (is_rustworkx, "rustworkx"), (is_scipy, "scipy")):
        if is_kind(pairs):
            raise GraphError(f"a {type(pairs).__name__} came as edges. Dag.from_{name} takes it whole.")
    mapping = isinstance(pairs, Mapping) and not isinstance(pairs, Set)  # networkx's views of edges are both
    if mapping or isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise GraphError(
            f"edges must be pairs of labels, such as [('a', 'b')], or an (E, 2) array; got {type(pairs).__name__}."
        )
    return list(pairs)


def _integer_pairs(pairs: Any) -> IntArray | None:
    """The pairs as an (E, 2) integer array if that is what they are, else None."""
    if isinstance(pairs, np.ndarray):
        return pairs.astype(np.int64, copy=False) if np.issubdtype(pairs.dtype, np.integer) else None
    if not pairs or not all(map(_is_integer_pair, pairs)):
        return None
    try:
        return np.array(pairs, dtype=np.int64)
    except OverflowError:  # integers beyond 64 bits are labels like any other
        return None


def _is_integer_pair(pair: Any) -> bool:
    return isinstance(pair, tuple | list) and len(pair) == 2 and all(map(is_integer, pair))


def is_integer(label: Any) -> bool:
    """Whether a label is a whole number; True and False aren't."""
    return isinstance(label, int | np.integer) and not isinstance(label, bool)


def _from_integer_array(array: IntArray, nodes: Nodes) -> EdgeList:
    source, target = array[:, 0], array[:, 1]
    labels: Labels
    if isinstance(nodes, int | np.integer):
        labels = as_labels(nodes)
        if array.size and (array.min() < 0 or array.max() >= len(labels)):
            worst = array.min() if array.min() < 0 else array.max()
            raise GraphError(f"an edge names node {worst}, but nodes={nodes} means the nodes 0 to {int(nodes) - 1}.")
        return EdgeList(source, target, labels, directed=True)
    if nodes is not None:
        labels = as_labels(nodes)
        if not all(map(is_integer, labels)):
            raise GraphError(f"edges name nodes by integers, but nodes= lists other labels: {summarize(labels)}.")
        listed = np.array(labels, dtype=np.int64)
        by_value = np.argsort(listed, kind="stable")
        place = np.searchsorted(listed, array, sorter=by_value).clip(max=len(listed) - 1)
        found = by_value[place] if len(listed) else np.zeros(array.shape, np.int64)
        unknown = array[listed[found] != array] if len(listed) else array.ravel()
        if len(unknown):
            raise GraphError(f"edges name nodes that nodes= doesn't list: {summarize(np.unique(unknown).tolist())}.")
        return EdgeList(found[:, 0], found[:, 1], labels, directed=True)
    low, high = (int(array.min()), int(array.max())) if array.size else (0, -1)
    if low < 0 or high > 4 * array.size + 1024:  # scattered integers: sort them instead of counting
        values, inverse = np.unique(array, return_inverse=True)
        inverse = inverse.reshape(array.shape)
        return EdgeList(inverse[:, 0], inverse[:, 1], tuple(values.tolist()), directed=True)
    present = np.zeros(high + 1, np.bool_)
    present[source] = True
    present[target] = True
    if present.all():
        return EdgeList(source, target, range(high + 1), directed=True)
    place = np.cumsum(present) - 1
    return EdgeList(place[source], place[target], tuple(np.flatnonzero(present).tolist()), directed=True)


def _pair(pair: Any, k: int) -> tuple[Hashable, Hashable]:
    try:
        u, v = pair
        hash((u, v))
    except (TypeError, ValueError):
        raise GraphError(f"edge number {k} is {pair!r}: an edge is a pair of hashable labels.") from None
    return u, v


def as_labels(nodes: int | Iterable[Hashable], name: str = "nodes") -> Labels:
    """Labels in node order, from a count N (0 to N-1) or from an iterable; `name` is the argument's, for errors."""
    if isinstance(nodes, int | np.integer):
        if nodes < 0:
            raise GraphError(f"{name} must be a non-negative count or a list of labels, got {nodes}.")
        return range(int(nodes))
    return nodes if isinstance(nodes, range) else tuple(label_list(nodes, name))


def index_pairs(pairs: Any) -> IntArray:
    """(E, 2) node indices, checked for shape and dtype."""
    array: IntArray = _as_array(pairs)
    if array.size == 0 and array.shape in ((0,), (0, 2)):
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise GraphError(f"expected an (E, 2) array of integers, got {array.dtype} of shape {array.shape}.")
    return array


def index_vector(nodes: Any, num_nodes: int, name: str) -> IntArray:
    """(K,) node indices, checked completely; `name` is the argument's, for errors."""
    array: IntArray = _as_array(nodes)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise GraphError(f"{name} must be a vector of node indices, got {array.dtype} of shape {array.shape}.")
    check_indices(array, num_nodes, name)
    return array


def check_indices(array: IntArray, num_nodes: int, name: str) -> None:
    """Raise unless every entry is the index of a node."""
    if array.size and (array.min() < 0 or array.max() >= num_nodes):
        index = int(array.min() if array.min() < 0 else array.max())
        raise GraphError(f"{name} must be node indices from 0 to {num_nodes - 1:,}, got {index:,}.")


def _as_array(values: Any) -> Any:
    try:
        return np.asarray(_without_torch(values))
    except ValueError:  # rows of different lengths
        raise GraphError(f"expected an array of integers, got a ragged {type(values).__name__}.") from None


def _without_torch(values: Any) -> Any:
    """A torch tensor as an array, without an import of torch; anything else unchanged."""
    is_tensor = hasattr(values, "numpy") and hasattr(values, "detach")
    return values.detach().cpu().numpy() if is_tensor else values


def label_list(labels: Any, name: str) -> list[Hashable]:
    """Labels as a list, each of them hashable; `name` says in an error which argument it was."""
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise GraphError(f"{name}={labels!r} came, but a list of labels was wanted, such as ['a', 'b'].")
    if isinstance(labels, set | frozenset):
        raise GraphError(f"{name}= came as a set, but its order counts, and a set has none. Give a list of labels.")
    listed = list(labels)
    for label in listed:
        if not isinstance(label, Hashable):
            raise GraphError(f"{name}= holds {label!r}, but labels must be hashable: numbers, strings, tuples.")
    return listed


def _check_kind(is_kind: bool, graph: Any, wanted: str) -> None:
    if not is_kind:
        raise GraphError(
            f"{wanted} was wanted, but a {type(graph).__name__} came. Dag.from_edges takes pairs of labels."
        )


def _marked(graph: nx.Graph, attribute: str) -> list[Hashable] | None:
    places = [(place, label) for label, place in graph.nodes(data=attribute) if place is not None]
    places.sort(key=lambda item: item[0])
    return [label for _, label in places] or None

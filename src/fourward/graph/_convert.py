"""EdgeList, the plain form of a graph: from pairs, networkx, rustworkx, scipy.sparse and masks, and back."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import GraphError, pluralize, summarize
from fourward.graph import _integers, _sparse, _tables

if TYPE_CHECKING:
    import networkx as nx
    import rustworkx as rx

Labels = Sequence[Hashable]
Nodes = int | Iterable[Hashable] | None

#: Node attributes that carry the order of inputs and outputs through networkx and graph files.
INPUT_ATTRIBUTE, OUTPUT_ATTRIBUTE = "fourward_input", "fourward_output"
FEEDBACK_ATTRIBUTE = "fourward_feedback"  #: edge attribute, True for feedback edges, in which Digraphs are stored


class EdgeList(NamedTuple):
    """A graph before it is a Dag: any order of edges, possibly cyclic, undirected or with duplicate edges."""

    source: IntArray  #: (E,) node index where each edge starts
    target: IntArray  #: (E,) node index where each edge ends
    labels: Labels  #: label of each node
    directed: bool  #: False if an edge has no direction
    inputs: list[Hashable] | None = None  #: labels of the inputs that the graph itself names, in order
    outputs: list[Hashable] | None = None  #: the same for the outputs

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        return f"EdgeList({pluralize(len(self.labels), 'node')}, {pluralize(len(self.source), 'edge')}, {kind})"


def read(graph: Any, nodes: Nodes = None) -> EdgeList:
    """An EdgeList of a networkx, rustworkx or scipy.sparse graph, or of an iterable of pairs.

    Pairs count as directed; `nodes` (a count, or labels in node order) is for them alone.
    """
    readers = ((is_networkx, from_networkx), (is_rustworkx, from_rustworkx), (is_scipy, from_scipy))
    for is_kind, reader in readers:
        if is_kind(graph):
            if nodes is not None:
                raise GraphError(
                    f"nodes= can't be combined with a {type(graph).__name__}, which already names its nodes. "
                    "Omit nodes=, or pass the edges as pairs."
                )
            return reader(graph)
    return from_pairs(graph, nodes)


def is_networkx(graph: Any) -> bool:
    """Whether it is any networkx graph; without an import, since such a graph implies one."""
    module = sys.modules.get("networkx")
    return module is not None and isinstance(graph, module.Graph)


def is_rustworkx(graph: Any) -> bool:
    """Whether it is a rustworkx graph; without an import, as above."""
    module = sys.modules.get("rustworkx")
    return module is not None and isinstance(graph, module.PyDiGraph | module.PyGraph)


def is_scipy(graph: Any) -> bool:
    """Whether it is a scipy.sparse matrix or array; without an import, as above."""
    module = sys.modules.get("scipy.sparse")
    return module is not None and isinstance(graph, module.sparray | module.spmatrix)


def from_pairs(pairs: Any, nodes: Nodes = None) -> EdgeList:
    """Pairs of labels, or an (E, 2) integer array of labels.

    Integer labels are sorted, others in order of first appearance, unless `nodes` lists them; it may list nodes without
    edges.
    """
    if _tables.is_table(pairs):
        return from_pairs(_table_pairs(pairs), nodes)
    unordered, pairs = isinstance(pairs, set | frozenset), _as_array_or_list(pairs)
    labels = None if nodes is None else as_labels(nodes)
    array = _integer_pairs(pairs)
    if array is not None:
        graph = _sort_integers(array) if labels is None else _look_up_integers(array, labels, nodes)
        if graph is not None:
            return graph
        pairs = array.tolist()
    if unordered and labels is None:
        raise GraphError(
            "edges must not be a set, whose order, and with it that of the nodes and features, differs between runs. "
            "Pass a list of edges, or the order of the nodes as nodes=."
        )
    listed = [_pair(pair, k) for k, pair in enumerate(pairs)]
    if labels is None:
        labels = tuple(dict.fromkeys(v for pair in listed for v in pair))
    index = {label: i for i, label in enumerate(labels)}
    missing = dict.fromkeys(v for pair in listed for v in pair if v not in index)
    if missing:
        raise GraphError(
            f"edges have labels that nodes= doesn't list: {summarize(missing)}. Add them to nodes=, or omit it."
        )
    flat = np.fromiter((index[v] for pair in listed for v in pair), np.int64, 2 * len(listed))
    return EdgeList(flat[0::2], flat[1::2], labels, directed=True)


def _table_pairs(table: Any) -> Any:
    """Pairs of labels from a table whose rows are complete."""
    try:
        (source, target, *_), _ = _tables.read_columns(table, None, skip=False)
    except GraphError as error:
        if error.repairs != (_tables.SKIP_MISSING,):
            raise
        advice = "fourward.files.read_dag(table, missing='skip') leaves out such rows."
        raise GraphError(f"{error.args[0]} {advice}") from None
    return _tables.to_pairs(source, target)


def from_networkx(graph: nx.Graph) -> EdgeList:
    """A networkx graph, in its node order; parallel edges are kept, and refused when a Dag is made."""
    _check_kind(is_networkx(graph), graph, "a networkx graph")
    labels = tuple(graph.nodes)
    index = {label: i for i, label in enumerate(labels)}
    flat = np.fromiter((index[v] for pair in graph.edges() for v in pair), np.int64, 2 * graph.number_of_edges())
    ends = [_labels_by_rank(graph, attribute) for attribute in (INPUT_ATTRIBUTE, OUTPUT_ATTRIBUTE)]
    return EdgeList(flat[0::2], flat[1::2], labels, graph.is_directed(), *ends)


def from_rustworkx(graph: rx.PyDiGraph | rx.PyGraph) -> EdgeList:
    """A rustworkx graph; labels are the node payloads if these are hashable and distinct, else indices."""
    _check_kind(is_rustworkx(graph), graph, "a rustworkx graph")
    import rustworkx as rx  # imported here: only rustworkx graphs need it

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
    """A square sparse matrix: an entry stored at [u, v], even a zero, is the edge u -> v."""
    _check_kind(is_scipy(matrix), matrix, "a scipy.sparse matrix")
    _check_square(matrix.shape)
    coordinates = _sparse.to_coordinates(matrix)
    return EdgeList(coordinates.row, coordinates.col, _matrix_labels(matrix.shape[0], labels), directed=True)


def from_mask(mask: Any, labels: Iterable[Hashable] | None = None) -> EdgeList:
    """A square boolean array: True at [u, v] is the edge u -> v."""
    array = np.asarray(mask)
    if array.dtype != np.bool_:
        raise GraphError(
            f"expected a boolean mask, got {array.dtype}. Pass mask != 0, or use Dag.from_scipy for weights."
        )
    array = np.atleast_2d(array)
    _check_square(array.shape)
    source, target = np.nonzero(array)
    return EdgeList(source, target, _matrix_labels(len(array), labels), directed=True)


def _check_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise GraphError(f"expected a square adjacency matrix, got shape {shape}.")


def _matrix_labels(num_nodes: int, labels: Iterable[Hashable] | None) -> Labels:
    listed = range(num_nodes) if labels is None else as_labels(labels, "labels")
    if len(listed) != num_nodes:
        raise GraphError(f"expected {num_nodes:,} labels, one for each row of the matrix, got {len(listed):,} labels.")
    return listed


def to_networkx(source: IntArray, target: IntArray, labels: Labels, inputs: IntArray, outputs: IntArray) -> nx.DiGraph:
    """A DiGraph with these labels; node attributes hold the order of inputs and outputs."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(labels)
    graph.add_edges_from((labels[u], labels[v]) for u, v in zip(source.tolist(), target.tolist(), strict=True))
    for attribute, nodes in ((INPUT_ATTRIBUTE, inputs), (OUTPUT_ATTRIBUTE, outputs)):
        for rank, node in enumerate(nodes.tolist()):
            graph.nodes[labels[node]][attribute] = rank
    return graph


def mark_feedback(graph: nx.DiGraph, feedback: IntArray, labels: Labels) -> nx.DiGraph:
    """Store on every edge whether it is a feedback edge."""
    for _, _, attributes in graph.edges(data=True):
        attributes[FEEDBACK_ATTRIBUTE] = False
    for u, v in feedback.tolist():
        graph.edges[labels[u], labels[v]][FEEDBACK_ATTRIBUTE] = True
    return graph


def feedback_pairs(graph: nx.DiGraph) -> list[tuple[Hashable, Hashable]] | None:
    """The edges that are marked as feedback, or None for a graph without such marks."""
    marks = [(u, v, mark) for u, v, mark in graph.edges(data=FEEDBACK_ATTRIBUTE)]
    return [(u, v) for u, v, mark in marks if mark] if any(mark is not None for *_, mark in marks) else None


def name_pairs(pairs: Iterable[tuple[int, int]], labels: Labels) -> str:
    """Edges by their labels, for messages."""
    return summarize((labels[u], labels[v]) for u, v in pairs)


def to_rustworkx(source: IntArray, target: IntArray, labels: Labels) -> rx.PyDiGraph:
    """A PyDiGraph whose node payloads are the labels."""
    import rustworkx as rx  # imported here, as above

    graph = rx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(list(labels))
    graph.add_edges_from_no_data(list(zip(source.tolist(), target.tolist(), strict=True)))
    return graph


def _as_array_or_list(pairs: Any) -> Any:
    """An array unchanged, a tensor as an array, any other iterable as a list."""
    pairs = as_numpy(pairs)
    if isinstance(pairs, np.ndarray):
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise GraphError(f"expected an array of edges of shape (E, 2), got shape {pairs.shape}.")
        return pairs
    for is_kind, name in ((is_networkx, "networkx"), (is_rustworkx, "rustworkx"), (is_scipy, "scipy")):
        if is_kind(pairs):
            raise GraphError(
                f"expected pairs of labels, got a {type(pairs).__name__}. Use Dag.from_{name} for a graph."
            )
    mapping = isinstance(pairs, Mapping) and not isinstance(pairs, Set)  # networkx's views of edges are both
    if mapping or isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise GraphError(
            f"expected pairs of labels, such as [('a', 'b')], or an (E, 2) array, got {type(pairs).__name__}."
        )
    return list(pairs)


def _integer_pairs(pairs: Any) -> IntArray | None:
    """The pairs as an (E, 2) array of int64 or uint64 if they are integers that fit, else None."""
    if isinstance(pairs, np.ndarray):
        return _integers.as_int64_or_uint64(pairs) if np.issubdtype(pairs.dtype, np.integer) else None
    are_pairs = all(issubclass(kind, tuple | list) for kind in set(map(type, pairs))) and set(map(len, pairs)) == {2}
    if not are_pairs or not _integers.are_integers(chain.from_iterable(pairs)):
        return None
    try:
        return np.array(pairs, dtype=np.int64)
    except OverflowError:  # integers beyond 64 bits are labels like any other
        return None


def is_integer(label: Any) -> bool:
    """Whether a label is an int of Python or NumPy; bools aren't."""
    return isinstance(label, int | np.integer) and not isinstance(label, bool)


def _look_up_integers(array: IntArray, labels: Labels, nodes: Nodes) -> EdgeList | None:
    """Pairs of labels that `nodes` lists; None if neither int64 nor uint64 holds these and the pairs."""
    if not isinstance(labels, range) and not _integers.are_integers(labels):
        raise GraphError(f"edges have integer labels, but nodes= lists others: {summarize(labels)}.")
    result = _integers.look_up(array, labels)
    if result is None:
        return None
    index, unknown = result
    if len(unknown) and isinstance(nodes, int | np.integer):
        label = unknown.min() if unknown.min() < 0 else unknown.max()
        raise GraphError(f"expected labels from 0 to {int(nodes) - 1} for nodes={nodes}, got an edge at {label}.")
    if len(unknown):
        raise GraphError(f"edges have labels that nodes= doesn't list: {summarize(np.unique(unknown).tolist())}.")
    return EdgeList(index[:, 0], index[:, 1], labels, directed=True)


def _sort_integers(array: IntArray) -> EdgeList:
    """Pairs of integer labels; the nodes are in ascending order."""
    source, target = array[:, 0], array[:, 1]
    low, high = (int(array.min()), int(array.max())) if array.size else (0, -1)
    if low < 0 or high > 4 * array.size + 1024:  # scattered integers: look them up instead of counting
        values, index = _integers.number(array)
        return EdgeList(index[:, 0], index[:, 1], tuple(values.tolist()), directed=True)
    present = np.zeros(high + 1, np.bool_)
    present[source] = True
    present[target] = True
    if present.all():
        return EdgeList(source, target, range(high + 1), directed=True)
    position = np.cumsum(present) - 1
    return EdgeList(position[source], position[target], tuple(np.flatnonzero(present).tolist()), directed=True)


def _pair(pair: Any, k: int) -> tuple[Hashable, Hashable]:
    try:
        u, v = pair
        hash((u, v))
    except (TypeError, ValueError):
        raise GraphError(f"expected pairs of hashable labels, got edges[{k}] = {pair!r}.") from None
    return u, v


def as_labels(nodes: int | Iterable[Hashable], name: str = "nodes") -> Labels:
    """Labels in node order, from a count N (0 to N-1) or from an iterable; `name` is the argument's, for errors."""
    if isinstance(nodes, int | np.integer):
        if nodes < 0:
            raise GraphError(f"{name} must be a non-negative int or a list of labels, got {nodes}.")
        return range(int(nodes))
    return nodes if isinstance(nodes, range) else tuple(label_list(nodes, name))


def as_numpy(values: Any) -> Any:
    """A torch tensor as an array, without an import of torch; anything else unchanged."""
    is_tensor = hasattr(values, "numpy") and hasattr(values, "detach")
    return values.detach().cpu().numpy() if is_tensor else values


def label_list(labels: Any, name: str) -> list[Hashable]:
    """Labels as a list, checked to be hashable; `name` is the argument's, for errors."""
    labels = as_numpy(labels)
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise GraphError(f"{name} must be a list of labels, such as ['a', 'b'], got {labels!r}.")
    if isinstance(labels, set | frozenset):
        raise GraphError(f"{name} must be ordered, got a {type(labels).__name__}. Pass a list of labels.")
    if isinstance(labels, np.ndarray) and labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer):
        return list(labels.tolist())
    listed = list(labels)
    unhashable = {kind for kind in set(map(type, listed)) if not issubclass(kind, Hashable)}
    if unhashable:
        label = next(label for label in listed if type(label) in unhashable)
        raise GraphError(f"{name} must be hashable labels, such as numbers, strings or tuples, got {label!r}.")
    return listed


def _check_kind(is_kind: bool, graph: Any, expected: str) -> None:
    if not is_kind:
        raise GraphError(f"expected {expected}, got {type(graph).__name__}. Dag.from_edges takes pairs of labels.")


def _labels_by_rank(graph: nx.Graph, attribute: str) -> list[Hashable] | None:
    """The labels of the nodes that have an attribute, in the order of its values."""
    ranked = [(rank, label) for label, rank in graph.nodes(data=attribute) if rank is not None]
    ranked.sort(key=lambda item: item[0])
    return [label for _, label in ranked] or None

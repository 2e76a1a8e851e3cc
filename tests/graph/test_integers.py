"""Integer labels of any dtype and size, compared with a plain dict."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag
from fourward.errors import GraphError
from fourward.graph import _integers
from fourward.graph._convert import from_pairs

DTYPES = [np.dtype(order + kind) for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8") for order in "<>"]
#: Labels of connectomes, extreme ones, and small ones.
BASES = (0, 720575940600000000, -(2**63), 2**63 - 50, 2**63 + 5, 2**64 - 50)


def label_pairs(array):
    return [tuple(pair) for pair in array.tolist()]


@st.composite
def integer_pairs(draw):
    dtype = draw(st.sampled_from(DTYPES))
    limits = np.iinfo(dtype)
    near = [base + k for base in BASES for k in range(50) if limits.min <= base + k <= limits.max]
    label = st.sampled_from(near) if draw(st.booleans()) else st.integers(limits.min, limits.max)
    values = draw(st.lists(st.tuples(label, label), max_size=40))
    return np.array(values, dtype).reshape(-1, 2)


@given(array=integer_pairs())
def test_nodes_are_the_labels_in_ascending_order(array):
    graph = from_pairs(array)
    labels = sorted({label for pair in label_pairs(array) for label in pair})
    assert list(graph.labels) == labels
    assert all(type(label) is int for label in graph.labels)
    index = {label: i for i, label in enumerate(labels)}
    assert graph.source.tolist() == [index[u] for u, _ in label_pairs(array)]
    assert graph.target.tolist() == [index[v] for _, v in label_pairs(array)]


@given(array=integer_pairs(), rest=st.lists(st.integers(-(2**63), 2**65), max_size=5), random=st.randoms())
def test_labels_are_found_where_nodes_lists_them(array, rest, random):
    labels = list({label for pair in label_pairs(array) for label in pair}.union(rest))
    random.shuffle(labels)
    index = {label: i for i, label in enumerate(labels)}
    graph = from_pairs(array, labels)
    assert list(graph.labels) == labels
    assert graph.source.tolist() == [index[u] for u, _ in label_pairs(array)]
    assert graph.target.tolist() == [index[v] for _, v in label_pairs(array)]
    if array.size:
        lost = array.ravel()[-1].item()
        with pytest.raises(GraphError, match=rf"doesn't list: .*{lost}\b"):
            from_pairs(array[-1:], [label for label in labels if label != lost] or [lost // 2 + 1])


@given(array=integer_pairs(), start=st.sampled_from(BASES), step=st.sampled_from([1, 1, 2, 3, -1, -2]))
def test_labels_of_a_range(array, start, step):
    labels = range(start, start + 60 * step, step)
    listed = [pair for pair in label_pairs(array) if all(label in labels for label in pair)]
    graph = from_pairs(np.array(listed, array.dtype).reshape(-1, 2), labels)
    assert graph.labels == labels
    assert list(zip(graph.source.tolist(), graph.target.tolist(), strict=True)) == [
        (labels.index(u), labels.index(v)) for u, v in listed
    ]
    if len(listed) < len(array):
        with pytest.raises(GraphError, match="doesn't list"):
            from_pairs(array, labels)


def test_tables_grow():
    labels = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 20_000)
    array = np.random.default_rng(1).permutation(np.repeat(labels, 3)).reshape(-1, 2)
    values, index = _integers.number(array)
    assert np.array_equal(values, np.unique(labels))
    assert np.array_equal(values[index], array)


def test_labels_whose_searches_start_at_the_last_slot():
    labels = np.array([label for label in range(60_000) if _integers._first_slot(label, 64) == 63][:31])
    assert len(labels) == 31
    index, unknown = _integers.look_up(labels, labels.tolist())
    assert index.tolist() == [*range(31)]
    assert len(unknown) == 0
    values, index = _integers.number(labels)
    assert np.array_equal(values[index], labels)


def test_equal_labels_are_refused():
    with pytest.raises(GraphError, match="duplicate labels: 7"):
        Dag.from_edges(np.array([[7, 5]]), nodes=[7, 5, 7])


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple, lambda labels: np.array(labels, np.uint64), iter])
def test_nodes_of_any_kind_become_integers(kind):
    labels = [720575940600000003, 720575940600000001, 5]
    dag = Dag.from_edges(np.array([labels[:2]]), nodes=kind(labels))
    assert dag.labels == tuple(labels)
    assert {type(label) for label in dag.labels} <= {int}
    assert dag.edges.tolist() == [[0, 1]]
    assert dag.index(np.int64(5)) == 2


def test_inputs_of_a_range_that_starts_elsewhere():
    dag = Dag.from_edges([(10, 14), (12, 14)], nodes=range(10, 16, 2), inputs=[12, 10], outputs=[14])
    assert dag.inputs.tolist() == [1, 0]
    assert dag.index(14) == 2
    with pytest.raises(GraphError, match="unknown label 11"):
        dag.index(11)


def test_a_range_too_long_for_indices_is_refused_before_it_takes_memory():
    with pytest.raises(GraphError, match="32-bit"):
        Dag.from_edges(np.array([[3, 10**14]]), nodes=range(10**15))


def test_a_list_and_an_array_make_the_same_graph():
    pairs = [(10**15, -3), (-3, 2**63 - 1)]
    assert Dag.from_edges(pairs) == Dag.from_edges(np.array(pairs))
    assert Dag.from_edges([(True, 2)]).labels == (True, 2), "a bool isn't an integer"

import copy
import itertools
import pickle

import networkx as nx
import numpy as np
import pytest
import rustworkx as rx
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, generate, orient
from fourward.errors import CycleError, FourwardError, GraphError, OptionError, WeightError
from fourward.graph import AnnotatedGraph, EdgeList
from fourward.graph._driven import add_feature_nodes

PAIRS = [("a", "c"), ("b", "c"), ("c", "d"), ("a", "d")]


def numpy_pairs(pairs):
    return [(np.int64(u), np.int32(v)) for u, v in pairs]


def label_pairs(dag: Dag) -> set:
    return {(dag.labels[u], dag.labels[v]) for u, v in dag.edges.tolist()}


def test_from_pairs_of_labels():
    dag = Dag.from_edges(PAIRS)
    assert list(dag.labels) == ["a", "c", "b", "d"], "order of first appearance"
    assert label_pairs(dag) == set(PAIRS)
    assert [dag.labels[v] for v in dag.inputs] == ["a", "b"]
    assert [dag.labels[v] for v in dag.outputs] == ["d"]
    assert (dag.num_nodes, dag.num_edges, dag.num_inputs, dag.num_outputs) == (4, 4, 2, 1)


def test_edges_are_in_execution_order():
    dag = generate.erdos_renyi(50, 0.3, seed=0)
    position = dag.position[dag.edges].astype(int)
    assert (np.diff(position[:, 1] * 50 + position[:, 0]) > 0).all()
    for q, v in enumerate(dag.order):
        assert (dag.edges[dag.in_start[q] : dag.in_start[q + 1], 1] == v).all()
    assert (dag.in_degree == np.bincount(dag.target, minlength=50)).all()


def test_inputs_come_first_in_the_order():
    dag = Dag.from_edges([("a", "c"), ("b", "c"), ("s", "c"), ("c", "d")], inputs=["b", "a"])
    assert [dag.labels[v] for v in dag.order] == ["b", "a", "s", "c", "d"]


@pytest.mark.parametrize("kind", [list, np.array, tuple, iter, torch.tensor, lambda v: np.array(v, ">i8"), numpy_pairs])
def test_integers_are_sorted(kind):
    dag = Dag.from_edges(kind([(7, 2), (2, 5)]))
    assert list(dag.labels) == [2, 5, 7]
    assert label_pairs(dag) == {(7, 2), (2, 5)}


def test_scattered_and_negative_integers():
    dag = Dag.from_edges(np.array([(-5, 10**12), (10**12, 3)]))
    assert list(dag.labels) == [-5, 3, 10**12]
    assert label_pairs(dag) == {(-5, 10**12), (10**12, 3)}
    assert label_pairs(Dag.from_edges([(0, 2**70)])) == {(0, 2**70)}


def test_any_hashable_label():
    labels = [("tuple", 1), frozenset({1}), 3.5, None, "text", True]
    pairs = list(itertools.pairwise(labels))
    assert label_pairs(Dag.from_edges(pairs)) == set(pairs)


def test_generators_of_pairs():
    assert label_pairs(Dag.from_edges((u, u + 1) for u in range(3))) == {(0, 1), (1, 2), (2, 3)}


def test_nodes_by_count_and_by_label():
    assert Dag.from_edges([(0, 1)], nodes=4).num_nodes == 4
    dag = Dag.from_edges([("b", "a")], nodes=["a", "b", "c"])
    assert dag.edges.tolist() == [[1, 0]]
    dag = Dag.from_edges(np.array([[9, 4]]), nodes=[9, 1, 4])
    assert dag.edges.tolist() == [[0, 2]]


def test_inputs_and_outputs_keep_their_order():
    dag = Dag.from_edges(PAIRS, inputs=["b", "a"], outputs=["c", "d", "a"])
    assert [dag.labels[v] for v in dag.inputs] == ["b", "a"]
    assert [dag.labels[v] for v in dag.outputs] == ["c", "d", "a"]


def test_driven_inputs():
    dag = Dag.from_edges([("a", "b"), ("b", "c"), ("a", "c"), ("s", "c"), ("c", "d")], inputs=["c", "a", "b"])
    assert [dag.labels[v] for v in dag.driven] == ["c", "b"]
    assert [dag.labels[v] for v in dag.neurons] == ["b", "c", "s", "d"]
    assert [dag.labels[v] for v in dag.order] == ["a", "s", "b", "c", "d"], "an order of execution"
    assert "3 inputs (2 driven)" in repr(dag)
    assert Dag.from_networkx(dag.to_networkx()) == dag
    assert pickle.loads(pickle.dumps(dag)) == dag


def test_edges_into_inputs_can_be_cut(caplog):
    pairs = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("b", "b")]
    with caplog.at_level("INFO", "fourward"):
        dag = Dag.from_edges(pairs, inputs=["b", "a"], driven=False)
    assert label_pairs(dag) == {("b", "c"), ("c", "d")}, "without the edges into inputs, there is no cycle"
    assert "removed 3 edges into inputs" in caplog.text
    assert not len(dag.driven)
    assert Dag.from_edges(PAIRS, driven=False) == Dag.from_edges(PAIRS)


def test_feature_nodes_of_driven_inputs():
    dag = Dag.from_edges([("a", "b"), ("x of b", "c"), ("b", "c")], inputs=["b", "a"])
    expanded, edge = add_feature_nodes(dag, name_nodes=True)
    assert expanded.labels[4:] == ("x of x of b",)
    assert [expanded.labels[v] for v in expanded.inputs] == ["x of x of b", "a"]
    assert label_pairs(expanded) == label_pairs(dag) | {("x of x of b", "b")}
    known = edge < dag.num_edges
    assert (expanded.edges[known] == dag.edges[edge[known]]).all()
    assert np.count_nonzero(~known) == 1
    numbered = Dag.from_edges([(0, 7), (7, 9)], inputs=[7])
    assert add_feature_nodes(numbered, name_nodes=True).dag.labels == (0, 7, 9, 10)
    mixed = Dag.from_edges([(0, "b"), ("b", None)], inputs=["b", None])
    assert add_feature_nodes(mixed, name_nodes=True).dag.labels[3:] == ("x of b", ("x of", None))


def test_networkx_round_trip():
    dag = Dag.from_edges(PAIRS, inputs=["b"], outputs=["c", "d"])
    graph = dag.to_networkx()
    assert isinstance(graph, nx.DiGraph)
    assert set(graph.edges) == set(PAIRS)
    assert Dag.from_networkx(graph) == dag
    assert Dag.from_networkx(graph, outputs=["d"]).num_outputs == 1
    renamed = Dag.from_networkx(nx.relabel_nodes(graph, {"b": "B"}))
    assert [renamed.labels[v] for v in renamed.inputs] == ["B"]


def test_rustworkx_round_trip():
    dag = Dag.from_edges(PAIRS)
    assert Dag.from_rustworkx(dag.to_rustworkx()) == dag
    graph = rx.PyDiGraph()
    graph.add_nodes_from(["same", "same", "same"])
    graph.add_edge(0, 2, None)
    graph.remove_node(1)
    assert label_pairs(Dag.from_rustworkx(graph)) == {(0, 2)}


@pytest.mark.parametrize(
    "form", [sp.csr_array, sp.csc_array, sp.coo_matrix, sp.bsr_array, sp.dia_array, sp.lil_array, sp.dok_array]
)
def test_scipy_round_trip(form):
    dag = generate.erdos_renyi(30, 0.2, seed=0)
    assert Dag.from_scipy(form(dag.to_scipy()), labels=dag.labels) == dag
    weight = np.arange(dag.num_edges) + 0.5
    matrix = dag.to_scipy(weight)
    assert matrix[dag.edges[3, 0], dag.edges[3, 1]] == 3.5


def _tampered(form, **arrays):
    """A matrix whose arrays lie, as attributes: constructors of scipy check some of them."""
    matrix = sp.coo_array(np.triu(np.ones((3, 3)), 1)).asformat(form)
    for name, values in arrays.items():
        setattr(matrix, name, values if name == "rows" else np.array(values))
    return matrix


@pytest.mark.parametrize("convert", [Dag.from_scipy, orient.random_order, orient.remove_feedback])
@pytest.mark.parametrize(
    ("form", "arrays"),
    [
        *(("csr", {"indptr": indptr}) for indptr in ([0, 10**6, 3, 3], [0, 10**6, 10**6, 0], [0, -5, 3, 3], [0, 3])),
        ("csr", {"indptr": [0, 2**31 - 1, -(2**31), 3]}),
        ("csr", {"indptr": [1, 2, 3, 3]}),
        ("csr", {"indptr": [0.0, 2.0, 3.0, 3.0]}),
        ("csr", {"indptr": [0, 1, 2, 2]}),
        ("csr", {"indices": [1, 2, 3]}),
        ("csr", {"indices": [1, 2, -1]}),
        ("csr", {"data": [1.0]}),
        ("csc", {"indptr": [0, 10**6, 3, 3]}),
        ("csc", {"indices": [0, 1, 10**6]}),
        ("bsr", {"indptr": [0, 10**6, 3, 3]}),
        ("bsr", {"indices": [0, 10**6, 2]}),
        ("dia", {"offsets": [1, 2**31 - 1]}),
        ("dia", {"offsets": [1, 1]}),
        ("dia", {"offsets": [1, 2, 0]}),
        ("coo", {"row": [0, 0, 10**6]}),
        ("coo", {"col": [0, 0, -1]}),
        ("lil", {"rows": np.array([[1] * 1000, [], []], object)}),
        ("lil", {"rows": np.array([[1, 10**6], [2], []], object)}),
    ],
    ids=str,
)
def test_sparse_matrices_are_checked_before_compiled_code_converts_them(convert, form, arrays):
    with pytest.raises(GraphError, match="matrix"):
        convert(_tampered(form, **arrays))


def test_a_stored_zero_is_an_edge():
    assert Dag.from_scipy(sp.coo_array(([0.0], ([0], [1])), shape=(2, 2))).num_edges == 1


def test_mask():
    mask = np.triu(np.ones((4, 4), bool), 1)
    assert Dag.from_mask(mask) == generate.complete(4)
    assert Dag.from_mask(mask, labels=list("wxyz")).index("z") == 3


def test_find_edges():
    dag = Dag.from_edges(PAIRS)
    index = dag.find_edges(PAIRS)
    assert [(dag.labels[u], dag.labels[v]) for u, v in dag.edges[index].tolist()] == PAIRS
    with pytest.raises(GraphError, match=r"'d', 'a'"):
        dag.find_edges([("d", "a")])


def test_find_edges_by_index():
    dag = Dag.from_edges(PAIRS)
    assert dag.find_edges(dag.edges[[2, 0]], by="index").tolist() == [2, 0]


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_values_are_aligned_with_the_edges(kind):
    dag = generate.erdos_renyi(30, 0.3, seed=0)
    shuffled = np.random.default_rng(0).permutation(dag.num_edges)
    pairs = [(dag.labels[u], dag.labels[v]) for u, v in dag.edges[shuffled].tolist()]
    values = kind(shuffled.tolist())
    assert dag.align(values, pairs).tolist() == list(range(dag.num_edges))
    assert dag.align(values, dag.edges[shuffled], by="index").tolist() == list(range(dag.num_edges))


def test_alignment_of_an_edgeless_graph():
    assert len(Dag.from_edges([], nodes=2).align([], [])) == 0


def test_from_arrays():
    dag = Dag.from_edges(PAIRS, inputs=["b", "a"], outputs=["c", "d"])
    same = Dag.from_arrays(dag.edges[::-1], labels=dag.labels, inputs=dag.inputs, outputs=dag.outputs)
    assert same == dag
    assert Dag.from_arrays(torch.tensor([[0, 2], [2, 1]])) == Dag.from_edges([(0, 2), (2, 1)])
    assert Dag.from_arrays([], labels=3) == Dag.from_edges([], nodes=3)
    assert Dag.from_arrays(np.array([[0, 1]], np.uint64), labels=["a", "b"]).labels == ("a", "b")


def test_frozen():
    dag = Dag.from_edges(PAIRS)
    with pytest.raises(AttributeError):
        dag.labels = ()
    for name in (
        "edges",
        "inputs",
        "outputs",
        "order",
        "in_start",
        "in_degree",
        "out_degree",
        "neurons",
        "position",
        "longest_path_to_sink",
        "longest_path_from_source",
    ):
        for frozen in (dag, pickle.loads(pickle.dumps(dag))):
            with pytest.raises(ValueError, match="read-only"):
                getattr(frozen, name)[...] = 0


def test_equal_hash_copy_pickle():
    dag = generate.erdos_renyi(40, 0.2, seed=1)
    twin = pickle.loads(pickle.dumps(dag))
    assert twin == dag
    assert hash(twin) == hash(dag)
    assert copy.deepcopy(dag) is dag
    assert dag != generate.erdos_renyi(40, 0.2, seed=2)
    assert dag != "dag"


@given(st.integers(0, 10**6))
def test_longest_paths_are_those_of_networkx(seed):
    dag = generate.erdos_renyi(30, 0.1, seed=seed)
    graph = nx.DiGraph(dag.edges.tolist())
    graph.add_nodes_from(range(dag.num_nodes))
    for length, view in ((dag.longest_path_to_sink, graph), (dag.longest_path_from_source, graph.reverse())):
        for v in range(dag.num_nodes):
            reachable = view.subgraph({v} | nx.descendants(view, v))
            assert length[v] == nx.dag_longest_path_length(reachable)


@given(st.integers(0, 10**6))
def test_order_is_topological(seed):
    dag = generate.erdos_renyi(30, 0.2, seed=seed)
    position = np.empty(dag.num_nodes, int)
    position[dag.order] = np.arange(dag.num_nodes)
    assert sorted(dag.order) == list(range(dag.num_nodes))
    assert (position[dag.source] < position[dag.target]).all()


def test_a_cycle_is_printed_by_its_labels():
    pairs = [("in", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("c", "out")]
    with pytest.raises(CycleError, match="directed cycle of 3 edges") as caught:
        Dag.from_edges(pairs)
    cycle = caught.value.cycle
    assert cycle[0] == cycle[-1]
    assert set(itertools.pairwise(cycle)) <= set(pairs)
    assert all(repr(label) in str(caught.value) for label in cycle)
    assert "remove_feedback" in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_cycle_of_a_million_nodes_is_found_at_once():
    n = 10**6
    ring = np.stack((np.arange(n), (np.arange(n) + 1) % n), -1)
    with pytest.raises(CycleError, match="1,000,000 edges"):
        Dag.from_edges(ring)


BAD = {
    "self-loop": (lambda: Dag.from_edges([("a", "a"), ("a", "b")]), r"1 self-loop, at: 'a'"),
    "duplicate": (lambda: Dag.from_edges([("a", "b"), ("a", "b")]), r"duplicate edges: \('a', 'b'\)"),
    "empty": (lambda: Dag.from_edges([]), "empty"),
    "empty array": (lambda: Dag.from_edges(np.empty((0, 2), int)), "empty"),
    "unknown input": (
        lambda: Dag.from_edges(PAIRS, inputs=["q"]),
        r"unknown input labels: 'q'. Choose .*e\.g\. 'a', 'c', 'b'",
    ),
    "unknown output": (lambda: Dag.from_edges(PAIRS, outputs=["q"]), r"unknown output labels: 'q'"),
    "repeated input": (lambda: Dag.from_edges(PAIRS, inputs=["a", "a"]), r"duplicate inputs: 'a'"),
    "repeated output": (lambda: Dag.from_edges(PAIRS, outputs=["d", "d"]), r"duplicate outputs: 'd'"),
    "no inputs": (lambda: Dag.from_edges(PAIRS, inputs=[]), "at least one input"),
    "no outputs": (lambda: Dag.from_edges(PAIRS, outputs=[]), "at least one output"),
    "undirected": (lambda: Dag.from_networkx(nx.path_graph(3)), "random_order"),
    "parallel": (lambda: Dag.from_networkx(nx.MultiDiGraph([(0, 1), (0, 1)])), "duplicate edges"),
    "undirected rustworkx": (lambda: Dag.from_rustworkx(rx.PyGraph()), "undirected"),
    "not square": (lambda: Dag.from_scipy(sp.coo_array((2, 3))), "square"),
    "a source out of range": (
        lambda: Dag.from_edge_list(EdgeList(np.array([7]), np.array([1]), range(3), True)),
        "source must be node indices from 0 to 2, got 7",
    ),
    "more sources than targets": (
        lambda: Dag.from_edge_list(EdgeList(np.array([0, 0]), np.array([1]), range(3), True)),
        "got 2 sources and 1 targets",
    ),
    "feedback out of range": (
        lambda: AnnotatedGraph(EdgeList(np.array([7]), np.array([1]), range(3), True)).to_dag(remove_feedback=True),
        "source must be node indices from 0 to 2, got 7",
    ),
    "mask of numbers": (lambda: Dag.from_mask(np.ones((2, 2))), "boolean"),
    "flat mask": (lambda: Dag.from_mask(np.ones(3, bool)), "square"),
    "labels of a matrix": (
        lambda: Dag.from_scipy(sp.coo_array((2, 2)), labels=list("abc")),
        "expected 2 labels.* got 3",
    ),
    "labels twice": (lambda: Dag.from_edges([("a", "b")], nodes=["a", "b", "a"]), r"duplicate labels: 'a'"),
    "node out of range": (lambda: Dag.from_edges([(0, 5)], nodes=3), "from 0 to 2 for nodes=3, got an edge at 5"),
    "negative node": (lambda: Dag.from_edges([(0, -1)], nodes=3), "got an edge at -1"),
    "negative count": (lambda: Dag.from_edges([], nodes=-1), "non-negative.*got -1"),
    "node not listed": (lambda: Dag.from_edges([("a", "b")], nodes=["a"]), r"doesn't list: 'b'"),
    "number not listed": (lambda: Dag.from_edges(np.array([[0, 9]]), nodes=[0, 1]), r"doesn't list: 9"),
    "number among names": (lambda: Dag.from_edges(np.array([[0, 9]]), nodes=["a"]), "nodes= lists others: 'a'"),
    "three ends": (lambda: Dag.from_edges([("a", "b", "c")]), r"got edges\[0\] = \('a', 'b', 'c'\)"),
    "a set of names": (lambda: Dag.from_edges({("a", "b")}), "edges must not be a set.*nodes="),
    "inputs as a set": (lambda: Dag.from_edges(PAIRS, inputs={"a", "b"}), "inputs must be ordered, got a set"),
    "outputs as a set": (
        lambda: Dag.from_edges(PAIRS, outputs=frozenset("d")),
        "outputs must be ordered, got a frozenset",
    ),
    "a graph as edges": (
        lambda: Dag.from_edges(nx.DiGraph([("a", "b")])),
        "expected pairs of labels, got a DiGraph.*Dag.from_networkx",
    ),
    "a mapping": (lambda: Dag.from_edges({("a", "b"): 1}), "got dict"),
    "Dag itself": (lambda: Dag(PAIRS), "Dag.from_edges"),
    "no pair": (lambda: Dag.from_edges([1, 2]), r"got edges\[0\] = 1"),
    "unhashable": (lambda: Dag.from_edges([([1], [2])]), "hashable"),
    "wrong shape": (lambda: Dag.from_edges(np.zeros((3, 3), int)), r"\(E, 2\)"),
    "no edges at all": (lambda: Dag.from_edges(5), "got int"),
    "a string": (lambda: Dag.from_edges("ab"), "got str"),
    "input not in a list": (lambda: Dag.from_edges([(0, 1)], inputs=0), r"inputs must be a list of labels.*got 0"),
    "input as text": (lambda: Dag.from_edges(PAIRS, inputs="a"), r"inputs must be a list of labels.*got 'a'"),
    "unhashable input": (lambda: Dag.from_edges(PAIRS, inputs=[["a"]]), r"inputs must be hashable.*got \['a'\]"),
    "unhashable node": (lambda: Dag.from_edges(PAIRS, nodes=[[1]]), "hashable"),
    "nodes as a fraction": (lambda: Dag.from_edges(PAIRS, nodes=2.0), r"nodes must be a list of labels.*got 2.0"),
    "dense matrix": (lambda: Dag.from_scipy(np.eye(3, k=1)), "expected a scipy.sparse matrix, got ndarray"),
    "pairs to networkx": (lambda: Dag.from_networkx([(0, 1)]), "expected a networkx graph, got list"),
    "networkx to rustworkx": (lambda: Dag.from_rustworkx(nx.DiGraph()), "expected a rustworkx graph, got DiGraph"),
    "unhashable label": (lambda: Dag.from_edges(PAIRS).index(["a"]), r"unknown label \['a'\]"),
    "unknown label": (lambda: Dag.from_edges(PAIRS).index("q"), "unknown label 'q'"),
    "float indices": (lambda: Dag.from_arrays([[0.0, 1.0]]), r"\(E, 2\) array of integers, got float64"),
    "boolean indices": (lambda: Dag.from_arrays([[False, True]]), "integers, got bool"),
    "flat indices": (lambda: Dag.from_arrays([0, 1]), r"got int64 of shape \(2,\)"),
    "ragged indices": (lambda: Dag.from_arrays([[0, 1], [2]]), "ragged list"),
    "index too large": (lambda: Dag.from_arrays([[0, 3]], labels=list("abc")), "edges must be .* 0 to 2, got 3"),
    "negative index": (lambda: Dag.from_arrays([[0, -1]]), "edges must be .*, got -1"),
    "input index": (lambda: Dag.from_arrays([[0, 1]], inputs=[2]), "inputs must be .* 0 to 1, got 2"),
    "output index": (lambda: Dag.from_arrays([[0, 1]], outputs=[-1]), "outputs must be .* 0 to 1, got -1"),
    "inputs by label": (lambda: Dag.from_arrays([[0, 1]], labels=["a", "b"], inputs=["a"]), "inputs must be a vector"),
    "inputs as a matrix": (lambda: Dag.from_arrays([[0, 1]], inputs=[[0]]), r"of shape \(1, 1\)"),
    "repeated index": (lambda: Dag.from_arrays([[0, 1]], outputs=[1, 1]), "duplicate outputs: 1"),
    "no output index": (lambda: Dag.from_arrays([[0, 1]], outputs=[]), "at least one output"),
    "cycle of indices": (
        lambda: Dag.from_arrays([[0, 1], [1, 0]], labels=["a", "b"]),
        "'a' -> 'b' -> 'a'|'b' -> 'a' -> 'b'",
    ),
    "self-loop of indices": (lambda: Dag.from_arrays([[0, 0]]), "1 self-loop, at: 0"),
    "repeated pair of indices": (lambda: Dag.from_arrays([[0, 1], [0, 1]]), r"duplicate edges: \(0, 1\)"),
    "labels as text": (lambda: Dag.from_arrays([[0, 1]], labels="ab"), "labels must be a list of labels.*got 'ab'"),
    "labels twice for arrays": (lambda: Dag.from_arrays([[0, 1]], labels=["a", "a"]), "duplicate labels: 'a'"),
    "negative count for arrays": (lambda: Dag.from_arrays([], labels=-1), "labels must be a non-negative int"),
    "empty arrays": (lambda: Dag.from_arrays([]), "empty"),
    "align lacks an edge": (lambda: Dag.from_edges(PAIRS).align([1.0], PAIRS[:1]), "each of the graph's 4 edges once"),
    "align repeats an edge": (lambda: Dag.from_edges(PAIRS).align([1] * 4, PAIRS[:1] * 4), "4 pairs with 1 distinct"),
    "align a stranger": (
        lambda: Dag.from_edges(PAIRS).align([1.0], [("d", "a")]),
        r"unknown edges: \('d', 'a'\)",
    ),
    "pairs out of range": (lambda: Dag.from_edges(PAIRS).find_edges([[0, 4]], by="index"), "0 to 3, got 4"),
    "values": (lambda: Dag.from_edges(PAIRS).to_scipy([1.0]), "one value for each of 4"),
}


def test_align_counts_values_and_names_its_options():
    dag = Dag.from_edges(PAIRS)
    with pytest.raises(WeightError, match="each of 4 pairs, got 3"):
        dag.align([1.0, 2.0, 3.0], PAIRS)
    with pytest.raises(OptionError, match="'label' or 'index', got 'name'"):
        dag.find_edges(PAIRS, by="name")


def test_edges_of_a_networkx_graph():
    graph = nx.DiGraph(PAIRS)
    assert Dag.from_edges(graph.edges) == Dag.from_edges(list(graph.edges))
    assert Dag.from_edges({(1, 0), (2, 0)}) == Dag.from_edges([(2, 0), (1, 0)])


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, message = BAD[name]
    with pytest.raises(GraphError, match=message) as caught:
        call()
    assert isinstance(caught.value, FourwardError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("label", ["\ud800", "a\udfffb", ("a", ("\ud800",))], ids=ascii)
def test_lone_surrogates_are_refused_as_labels(label):
    for make in (
        lambda: Dag.from_edges([(label, "b")]),
        lambda: Dag.from_arrays([[0, 1]], labels=[label, "b"]),
        lambda: Dag.from_networkx(nx.DiGraph([(label, "b")])),
    ):
        with pytest.raises(GraphError, match=r"labels must be valid Unicode text.*lone surrogate"):
            make()

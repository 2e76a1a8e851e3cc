import copy
import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import rustworkx as rx
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st

from fourward import Dag, Digraph, connectomes, files, generate
from fourward.errors import CycleError, GraphError, OptionError, WeightError
from fourward.graph import EdgeList
from tests.graph.write_file import write_file

PAIRS = [("x", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("b", "b"), ("c", "y")]


def named(graph, edges) -> list:
    return [(graph.labels[u], graph.labels[v]) for u, v in edges.tolist()]


def test_the_fewest_edges_are_delayed():
    g = Digraph.from_edges(PAIRS)
    assert repr(g) == "Digraph(5 nodes, 6 edges (2 feedback), 1 input, 1 output)"
    assert set(named(g, g.edges)) == set(PAIRS)
    assert ("b", "b") in named(g, g.feedback)
    assert g.num_feedback == 2
    assert g.edges.tolist() == [*g.dag.edges.tolist(), *g.feedback.tolist()]
    assert g.dag == Dag.from_edges(named(g, g.dag.edges), nodes=g.labels, inputs=["x"], outputs=["y"])
    assert g.in_degree.tolist() == [0, 2, 2, 1, 1]
    assert g.out_degree.tolist() == [1, 1, 2, 2, 0]


def test_an_acyclic_graph_has_no_feedback():
    dag = generate.erdos_renyi(40, 0.2, seed=0)
    g = Digraph.from_edges(dag.edges, nodes=40)
    assert g.dag == dag
    assert g.num_feedback == 0


def test_all_edges_delayed():
    g = Digraph.from_edges(PAIRS, feedback="all")
    assert g.dag.num_edges == 0
    assert set(named(g, g.feedback)) == set(PAIRS)
    position = g.dag.position[g.feedback].astype(int)
    assert (np.diff(position[:, 1] * 5 + position[:, 0]) > 0).all(), "sorted by target, then by source"


def test_listed_feedback():
    g = Digraph.from_edges(PAIRS, feedback=[("b", "b"), ("a", "b")])
    assert set(named(g, g.feedback)) == {("b", "b"), ("a", "b")}
    assert Digraph.from_arrays(g.edges, labels=g.labels, feedback=g.feedback) == g
    with pytest.raises(CycleError, match=r"cycle of 3 edges: '.' -> .*add one of them to feedback") as caught:
        Digraph.from_edges(PAIRS, feedback=[("b", "b")])
    assert set(caught.value.cycle) == {"a", "b", "c"}
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    with pytest.raises(CycleError, match=r"cycle of 1 edge: 'b' -> 'b'"):
        Digraph.from_edges(PAIRS, feedback=[("c", "a")])


def test_heavy_edges_stay_within_a_step():
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    for lightest in range(3):
        weight = [-5.0] * 3
        weight[lightest] = 0.5
        g = Digraph.from_edges(ring, inputs=["a"], outputs=["a"], weight=weight)
        assert named(g, g.feedback) == [ring[lightest]]
    worm = connectomes.load("c-elegans")
    light = worm.graph.num_feedback
    strength = worm.graph.align(worm.strength, worm.edges)
    fewest = worm.acyclic(inputs="sources", outputs="sinks").removed
    removed = sum(dict(zip(worm.edges, worm.strength.tolist(), strict=True))[pair] for pair in fewest)
    assert strength[-light:].sum() < removed


def test_ends_are_sources_and_sinks_of_the_whole_graph():
    g = Digraph.from_edges([("a", "b"), ("b", "c"), ("c", "b")], outputs=["b", "c"])
    assert named(g, g.dag.edges[:0]) == []
    assert [g.labels[v] for v in g.inputs] == ["a"]
    with pytest.raises(GraphError, match=r"at least one input, but every node has incoming edges. .*inputs=\['a'\]"):
        Digraph.from_edges([("a", "b"), ("b", "a")], outputs=["a"])
    with pytest.raises(GraphError, match="at least one output"):
        Digraph.from_edges([("a", "b"), ("b", "a")], inputs=["a"])


def test_feedback_drives_inputs():
    g = Digraph.from_edges([("a", "b"), ("b", "a"), ("b", "c")], inputs=["a"], feedback=[("b", "a")])
    assert g.driven.tolist() == [0]
    assert g.dag.driven.tolist() == []
    assert g.neurons.tolist() == [0, 1, 2]
    cut = Digraph.from_edges([("a", "b"), ("b", "a"), ("b", "c")], inputs=["a"], driven=False, weight=[1, 2, 3])
    assert (cut.num_edges, cut.num_feedback, len(cut.driven)) == (2, 0, 0)


def test_edges_are_found_and_values_aligned():
    g = Digraph.from_edges(PAIRS)
    assert g.find_edges(named(g, g.edges)).tolist() == list(range(6))
    assert g.align(torch.arange(6), named(g, g.edges)[::-1]).tolist() == [5, 4, 3, 2, 1, 0]
    values = dict(zip(PAIRS, range(6), strict=True))
    assert g.align(np.arange(6), PAIRS).tolist() == [values[pair] for pair in named(g, g.edges)]
    with pytest.raises(GraphError, match="unknown edges"):
        g.find_edges([("a", "a")])
    with pytest.raises(GraphError, match="6 pairs with 5 distinct"):
        g.align(np.zeros(6), [*PAIRS[:5], PAIRS[0]])


def test_conversions():
    g = Digraph.from_edges(PAIRS, inputs=["x", "b"], outputs=["c"], feedback="all")
    assert Digraph.from_networkx(g.to_networkx()) == g
    assert Digraph.from_networkx(g.to_networkx(), feedback="fewest").num_feedback == 2
    ends = {"inputs": ["x", "b"], "outputs": ["c"], "feedback": "all"}
    assert Digraph.from_rustworkx(g.to_rustworkx(), **ends) == g
    assert Digraph.from_scipy(g.to_scipy(), labels=g.labels, **ends) == g
    assert Digraph.from_mask(g.to_scipy().toarray(), labels=g.labels, **ends) == g
    weighted = nx.DiGraph()
    weighted.add_weighted_edges_from([("a", "b", 1.0), ("b", "a", 9.0)])
    light = Digraph.from_networkx(weighted, inputs=["a"], outputs=["a"], weight="weight")
    assert named(light, light.feedback) == [("a", "b")]
    matrix = sp.csr_array(np.array([[0, 1.0], [9.0, 0]]))
    assert Digraph.from_scipy(matrix, inputs=[0], outputs=[0]).feedback.tolist() == [[0, 1]]


def test_it_is_immutable():
    g = Digraph.from_edges(PAIRS)
    assert pickle.loads(pickle.dumps(g)) == g
    assert hash(pickle.loads(pickle.dumps(g))) == hash(g)
    assert copy.deepcopy(g) is g
    assert g != Digraph.from_edges(PAIRS, feedback="all")
    assert g != g.dag
    for array in (g.edges, g.feedback, g.driven, g.neurons):
        assert not array.flags.writeable


BAD = {
    "constructor": (lambda: Digraph(PAIRS), GraphError, "Digraph.from_edges"),
    "unknown feedback": (lambda: Digraph.from_edges(PAIRS, feedback="none"), OptionError, "'fewest', 'all' or a list"),
    "no feedback": (lambda: Digraph.from_edges(PAIRS, feedback=None), OptionError, "or a list of pairs.*got None"),
    "feedback of arrays": (lambda: Digraph.from_arrays([[0, 1]], feedback=1), OptionError, "or a list of pairs.*got 1"),
    "no edge": (lambda: Digraph.from_edges(PAIRS, feedback=[("a", "c")]), GraphError, r"aren't edges: \('a', 'c'\)"),
    "no label": (lambda: Digraph.from_edges(PAIRS, feedback=[("a", "q")]), GraphError, "'q'"),
    "duplicates": (lambda: Digraph.from_edges([*PAIRS, PAIRS[3]]), GraphError, r"duplicate edges: \('c', 'a'\)"),
    "duplicates within a step": (lambda: Digraph.from_edges([*PAIRS, PAIRS[0]]), GraphError, "duplicate edges"),
    "empty": (lambda: Digraph.from_edges([]), GraphError, "empty"),
    "undirected": (lambda: Digraph.from_networkx(nx.path_graph(3)), GraphError, "undirected"),
    "undirected rustworkx": (lambda: Digraph.from_rustworkx(rx.PyGraph()), GraphError, "undirected"),
    "short weights": (lambda: Digraph.from_edges(PAIRS, weight=[1.0]), WeightError, "each of 6 edges, got shape"),
    "bad weights": (lambda: Digraph.from_edges(PAIRS, weight=[np.nan] * 6), WeightError, "6 values that are inf"),
    "index": (lambda: Digraph.from_arrays([[0, 1]], feedback=[[0, 7]]), GraphError, "feedback must be node indices"),
    "source": (
        lambda: Digraph.from_edge_list(EdgeList(np.array([7]), np.array([1]), range(3), True)),
        GraphError,
        "source must be node indices",
    ),
    "inputs": (lambda: Digraph.from_edges(PAIRS, inputs=["x", "x"]), GraphError, "duplicate inputs"),
    "no inputs": (lambda: Digraph.from_edges(PAIRS, inputs=[]), GraphError, "at least one input"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, error, message = BAD[name]
    with pytest.raises(error, match=message):
        call()


@given(st.integers(1, 12), st.integers(0, 10**6), st.floats(0, 0.6), st.sampled_from(["fewest", "all"]))
def test_any_digraph_is_split_into_a_dag_and_feedback(n, seed, p, feedback):
    mask = np.random.default_rng(seed).random((n, n)) < p
    g = Digraph.from_mask(mask, inputs=[0], outputs=[n - 1], feedback=feedback)
    assert (g.to_scipy().toarray() == mask).all()
    assert len(g.find_edges(g.edges, by="index")) == mask.sum()
    assert (g.find_edges(g.edges, by="index") == np.arange(g.num_edges)).all()
    assert (g.in_degree == mask.sum(0)).all()
    assert Digraph.from_arrays(g.edges, labels=n, inputs=[0], outputs=[n - 1], feedback=g.feedback) == g


def test_connectomes():
    worm = connectomes.load("c-elegans")
    assert (worm.graph.num_nodes, worm.graph.num_edges) == (302, 3709)
    assert {worm.classes[worm.graph.labels[v]] for v in worm.graph.inputs} == {"sensory"}
    assert {worm.classes[worm.graph.labels[v]] for v in worm.graph.outputs} == {"motorneuron"}
    assert worm.digraph(inputs=["AVAL"], feedback="all").num_feedback == 3709
    fly = connectomes.load("mushroom-body")
    assert (fly.graph.num_inputs, fly.graph.num_outputs) == (121, 58)


def test_attributes():
    g = Digraph.from_edges(PAIRS).with_attributes({"class": {"x": "sensory", "y": "motor"}, "z": range(5)})
    assert g.attributes == g.dag.attributes
    assert g.attributes["class"] == ("sensory", None, None, None, "motor")
    assert g == Digraph.from_edges(PAIRS), "they don't count"
    assert hash(g) == hash(Digraph.from_edges(PAIRS))
    with_sides = g.with_attributes({"side": list("lrlrl")})
    assert [*with_sides.attributes] == ["class", "z", "side"]
    pickled, converted = pickle.loads(pickle.dumps(with_sides)), Digraph.from_networkx(with_sides.to_networkx())
    for copied in (pickled, copy.deepcopy(with_sides), converted):
        assert copied == with_sides
        assert dict(copied.attributes) == dict(with_sides.attributes)
    worm = connectomes.load("c-elegans")
    assert worm.graph.attributes["class"] == tuple(worm.classes.values())
    assert worm.digraph(inputs="class=sensory", driven=False).dag.driven.tolist() == []


def test_files_with_feedback(tmp_path):
    path = write_file(tmp_path, "g.csv", "x,a,1\na,b,9\nb,a,2\nb,a,3\nb,y,4\nb,x,8\ny,y,1\n")
    nodes = pd.DataFrame({"name": list("xaby"), "class": list("simo")})
    options = {"nodes": nodes, "merge": True, "inputs": "class=s", "outputs": "class=o"}
    got = files.read_digraph(path, **options)
    assert set(named(got.graph, got.graph.feedback)) == {("b", "a"), ("x", "a"), ("y", "y")}, "light"
    assert got.graph.attributes["class"] == ("s", "i", "m", "o")
    assert (got.changes.merged, got.changes.driven, got.changes.cut) == (1, 1, 0)
    assert got.describe_changes() == ["merged 1 duplicate edge", "1 input is driven"]
    cut = files.read_digraph(path, into_inputs="cut", self_loops="drop", **options)
    assert set(named(cut.graph, cut.graph.feedback)) == {("b", "a")}, "lighter than a -> b"
    assert (cut.cut, cut.changes.cut, cut.changes.self_loops) == ((("b", "x"),), 1, 1)
    assert "cut 1 edge into inputs with 29.6% of all weight: b -> x" in repr(cut)

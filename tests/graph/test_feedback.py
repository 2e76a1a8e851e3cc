"""Feedback removed by weight: acyclic, nothing reached is lost, light edges first."""

import numpy as np
import pytest

from fourward import connectomes, orient
from fourward.errors import WeightError
from fourward.graph import AnnotatedGraph, EdgeList
from fourward.graph._feedback import find_light_feedback, find_reached


def random_graph(seed, num_nodes=60, num_edges=240):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, num_nodes, (2, num_edges))
    return EdgeList(source, target, range(num_nodes), True), rng.lognormal(0, 1.5, num_edges)


@pytest.mark.parametrize("seed", range(8))
def test_what_the_inputs_reached_they_still_reach(seed):
    graph, weight = random_graph(seed)
    inputs = np.arange(3)
    into = np.isin(graph.target, inputs)
    graph, weight = graph._replace(source=graph.source[~into], target=graph.target[~into]), weight[~into]
    is_removed = find_light_feedback(graph, weight, inputs)
    rest = graph._replace(source=graph.source[~is_removed], target=graph.target[~is_removed])
    before, after = (find_reached(g.source, g.target, 60, inputs) for g in (graph, rest))
    assert np.array_equal(before, after)
    second = find_light_feedback(rest, weight[~is_removed], inputs)
    assert not second.any(), "it is acyclic, and an acyclic graph loses nothing"


def test_less_weight_is_removed_than_by_counting_edges():
    light = fewest = 0.0
    for seed in range(8):
        graph, weight = random_graph(seed)
        light += weight[find_light_feedback(graph, weight, np.empty(0, np.int64))].sum()
        fewest += weight[orient.find_feedback(graph)].sum()
    assert light < 0.9 * fewest


def test_a_hub_keeps_an_edge():
    pairs = [("in", "hub"), *(("hub", f"x{k}") for k in range(9)), *((f"x{k}", "hub") for k in range(9))]
    labels = ("in", "hub", *(f"x{k}" for k in range(9)))
    index = {label: k for k, label in enumerate(labels)}
    ends = np.array([[index[u], index[v]] for u, v in pairs])
    weight = np.array([0.1, *[1.0] * 9, *[5.0] * 9])
    graph = AnnotatedGraph(EdgeList(ends[:, 0], ends[:, 1], labels, True, ["in"], None), weight)
    made = graph.to_dag(remove_feedback=True)
    assert ("in", "hub") not in made.removed, "the only edge from the input, however light"
    assert made.changes.constants == made.changes.unreached == made.changes.lost_outputs == ()


def test_remove_feedback_takes_weights_and_inputs():
    hub = [*((f"x{k}", "hub") for k in range(5)), *(("hub", f"x{k}") for k in range(3)), ("in", "x0")]
    dag, removed = orient.remove_feedback(hub, inputs=["in"])
    assert not [pair for pair in removed if pair == ("x0", "hub")], "the hub keeps an edge from what the input reaches"
    reached = find_reached(dag.source, dag.target, dag.num_nodes, dag.inputs)
    assert {dag.labels[v] for v in np.flatnonzero(~reached)} == {"x3", "x4"}, "as before the removal"
    ring = [("a", "b"), ("b", "c"), ("c", "a")]
    for lightest in range(3):
        weight = [-5.0] * 3
        weight[lightest] = 0.5
        assert orient.remove_feedback(ring, weight=weight).removed == [ring[lightest]]
    worm = connectomes.load("c-elegans")
    ends = {name: [worm.dag.labels[v] for v in getattr(worm.dag, name)] for name in ("inputs", "outputs")}
    cut = [(k, edge) for k, edge in enumerate(worm.edges) if edge[1] not in set(ends["inputs"])]
    weight = worm.strength[[k for k, _ in cut]]
    assert (
        orient.remove_feedback([edge for _, edge in cut], nodes=list(worm.classes), weight=weight, **ends).dag
        == worm.dag
    )
    for wrong in ([1.0], [1.0, 2.0, np.nan]):
        with pytest.raises(WeightError, match="3 finite numbers, one for each edge"):
            orient.remove_feedback(ring, weight=wrong)


def test_the_worm_from_its_sensory_neurons():
    worm = connectomes.load("c-elegans")
    dag, removed = worm.acyclic(inputs="class=sensory", outputs="class=motorneuron")
    assert {worm.classes[dag.labels[v]] for v in dag.inputs} == {"sensory"}
    assert dag.num_edges + len(removed) == len(worm.edges)
    reached = find_reached(dag.source, dag.target, dag.num_nodes, dag.inputs)
    assert reached[dag.outputs].mean() > 0.9
    assert dag.attributes["class"] == tuple(worm.classes[label] for label in dag.labels)


def test_the_report_names_constants_and_new_inputs():
    graph = EdgeList(np.array([0, 1, 2, 2]), np.array([1, 0, 3, 0]), range(4), True, [2], None)
    made = AnnotatedGraph(graph, np.array([5.0, 1, 1, 1])).to_dag(remove_feedback=True)
    assert made.removed == ((1, 0),)
    starved = graph._replace(source=np.array([0, 1, 2]), target=np.array([1, 0, 3]))
    made = AnnotatedGraph(starved).to_dag(remove_feedback=True)
    assert made.changes.constants == (0,)
    assert made.changes.unreached == (0, 1)
    assert made._replace(dag=made.dag).changes.to_json()["constants"] == ["0"]
    made = AnnotatedGraph(starved._replace(inputs=None)).to_dag(remove_feedback=True)
    assert made.changes.new_inputs == (0,)
    assert made.describe_changes()[-1] == "1 neuron (0) lost all incoming edges and is an input now"

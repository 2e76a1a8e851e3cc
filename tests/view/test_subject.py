"""Changes since an earlier wiring: what grew and what is gone, in pictures and on pages."""

import numpy as np
import pytest

import fourward as fw
from fourward import Dag, Digraph, FourWard, Recurrent, rewire
from fourward.errors import FourwardError, OptionError
from fourward.view._subject import build_subject, compare

START = Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])


def edited():
    net = FourWard(START, seed=0)
    rewire(net, add=[("a", "d"), ("b", "d")], remove=[("a", "c")])
    return net


def statuses(subject):
    """By pair of labels: 1 for an edge that grew, -1 for one that is gone."""
    labels = subject.graph.labels
    return {(labels[u], labels[v]): s for (u, v), s in zip(subject.graph.edges.tolist(), subject.weight, strict=True)}


@pytest.mark.parametrize("before", [START, START.edges, START.edges[::-1].tolist()], ids=["graph", "array", "list"])
def test_edges_that_grew_and_that_are_gone(before):
    net = edited()
    subject = compare(build_subject(net), before)
    assert statuses(subject) == {("a", "d"): 1, ("b", "d"): 1, ("b", "c"): 0, ("c", "d"): 0, ("a", "c"): -1}
    assert subject.count_changes() == (2, 1)
    assert subject.present is net.dag


def test_feedback_edges_are_compared_too():
    start = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "y")])
    net = Recurrent(start, seed=0)
    rewire(net, add=[("y", "a")], remove=[("b", "a")])
    subject = compare(build_subject(net), start)
    changed = {pair: status for pair, status in statuses(subject).items() if status}
    assert changed == {("y", "a"): 1, ("b", "a"): -1}


def test_pictures_and_pages_count_the_changes():
    net = edited()
    names = [text.get_text() for legend in fw.draw(net, before=START).legends for text in legend.get_texts()]
    axes = [text.get_text() for each in fw.draw(net, before=START).axes if each.get_legend()
            for text in each.get_legend().get_texts()]  # fmt: skip
    assert {"grown (2)", "gone (1)"} <= {*names, *axes}
    assert "2 edges grew, 1 are gone" in repr(fw.view(net, before=START))
    assert "grew" not in repr(fw.view(net))


def test_other_nodes_are_refused():
    with pytest.raises(OptionError, match="before must be a graph with the same nodes"):
        fw.draw(edited(), before=Dag.from_edges([("a", "c"), ("c", "d")]))
    with pytest.raises(FourwardError):
        fw.draw(edited(), before=np.array([[0, 9]]))

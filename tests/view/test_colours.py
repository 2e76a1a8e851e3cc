"""Colours of nodes by class and by numbers; only paths."""

import numpy as np
import pytest
import torch

import fourward as fw
from fourward.errors import GraphError, OptionError
from fourward.view import _colours
from fourward.view._scene import build_scene
from fourward.view._subject import build_subject

DAG = fw.Dag.from_edges([("a", "b"), ("b", "c"), ("b", "dead"), ("lone", "c")], inputs=["a"], outputs=["c"])
DAG = DAG.with_attributes({"class": {"a": "sensory", "c": "motor"}, "x": [0.5, 1, 2, 3, None]})


def test_classes_have_a_legend(tmp_path):
    fw.draw(DAG, tmp_path / "x.svg", colour="class")
    text = (tmp_path / "x.svg").read_text()
    assert all(name in text for name in ("sensory (1)", "motor (1)", "other (3)"))


def test_rare_classes_share_a_colour():
    dag = fw.generate.chain(30).with_attributes({"type": [str(min(k, 20)) for k in range(30)]})
    colours = _colours.read_colours("type", dag)
    assert colours.names[0] == "20"
    assert (len(colours.names), colours.names[-1]) == (_colours.MAX_CLASSES + 1, "other")


def test_numbers_that_dwarf_others_are_ranked(tmp_path):
    fw.draw(fw.generate.chain(50), tmp_path / "x.svg", colour=np.exp(np.arange(50.0)), colour_label="importance")
    assert "importance (by rank)" in (tmp_path / "x.svg").read_text()
    fw.draw(DAG, tmp_path / "y.svg", colour=torch.arange(5.0), colour_label="activation")
    assert "by rank" not in (tmp_path / "y.svg").read_text()
    assert _colours.rank_values(np.array([5.0, 1, 5, np.nan, 9])).tolist()[:3] == pytest.approx([1 / 3, 0, 1 / 3])


def test_only_paths(tmp_path):
    net = fw.FourWard(DAG, seed=0)
    picture = fw.draw(net, tmp_path / "x.svg", only="paths", colour="x")
    assert "3 of 3 nodes" in picture._supxlabel.get_text()
    page = fw.view(net, only="paths", colour="class")
    assert page.shown.startswith("Shown: 3 of 5 neurons, those on paths from inputs to outputs, and 2 of 4 edges")
    unconnected = fw.Dag.from_edges([("a", "b"), ("c", "d")], inputs=["a"], outputs=["d"])
    with pytest.raises(GraphError, match="no path leads"):
        fw.draw(unconnected, only="paths")


def test_the_page_has_attributes_and_colourings():
    scene = build_scene(build_subject(DAG), "", None, None, _colours.read_colours([1.0] * 5, DAG, "importance"))
    assert scene["attributes"]["class"] == ["sensory", None, "motor", None, None]
    assert [each["name"] for each in scene["colourings"]] == ["importance", "class", "x"]
    assert scene["colouring"] == 0
    assert build_scene(build_subject(DAG), "", None, None)["colouring"] == -1


def test_what_is_refused():
    with pytest.raises(OptionError, match="5 numbers, one for each node"):
        fw.draw(DAG, colour=[1, 2])
    with pytest.raises(GraphError, match="no attribute 'size'"):
        fw.view(DAG, colour="size")
    with pytest.raises(OptionError, match="only must be"):
        fw.view(DAG, only="hubs")
    with pytest.raises(OptionError, match="draws no nodes"):
        fw.draw(DAG, colour="class", kind="density")

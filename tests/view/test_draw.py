"""Pictures of networks: written whole, legible, and honest about what they show."""

import xml.etree.ElementTree as ET

import matplotlib.style
import numpy as np
import pytest
import torch

import fourward as fw
from fourward import FourWard, connectomes, generate
from fourward.errors import LayeringError, OptionError
from fourward.graph._dag import Dag
from fourward.layering import longest_path
from fourward.view import _draw as drawing
from fourward.view._density import count_edges_between_layers
from fourward.view._palette import DARK, LIGHT
from fourward.view._subject import KINDS, colour_limit, kind_names, node_kinds

SMALL = [generate.complete(1), generate.chain(3), generate.erdos_renyi(40, 0.1, seed=0)]


def texts(path):
    return [node.text for node in ET.parse(path).iter() if node.tag.endswith("}text") and node.text]


@pytest.mark.parametrize("dag", SMALL, ids=repr)
@pytest.mark.parametrize("kind", ["lines", "density"])
@pytest.mark.parametrize("trained", [True, False])
def test_pictures_of_any_network(dag, kind, trained, tmp_path):
    path = tmp_path / "new folder" / "net.png"
    fw.draw(FourWard(dag, seed=0) if trained else dag, path, kind=kind)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no temporary file is left"


def test_the_same_network_gives_the_same_bytes(tmp_path):
    net = FourWard(SMALL[2], seed=0)
    for name in ("a.svg", "b.svg"):
        fw.draw(net, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_names_are_written_as_text(tmp_path):
    hostile = ["AVAL", "<script>alert(1)</script>", "$\\frac{$", "naïve"]
    dag = Dag.from_edges([(hostile[0], hostile[1]), (hostile[1], hostile[2]), (hostile[0], hostile[3])])
    fw.draw(dag, tmp_path / "named.svg", title="$ a $ <b>")
    words = texts(tmp_path / "named.svg")
    for label in hostile:
        assert any(label.startswith(text.rstrip("…")) and len(text) > 3 for text in words), (label, words)
    assert "$ a $ <b>" in words
    assert "Shown: every node and every edge, and the names of 4 of 4 nodes." in words


def test_labels_that_no_font_has_and_no_svg_may_hold(tmp_path):
    dag = Dag.from_edges([("\x00nul", "two\nlines"), ("two\nlines", "日本"), ("\x01", "日本")])
    fw.draw(dag, tmp_path / "odd.svg", title="\x1b[31m\ud800")
    words = texts(tmp_path / "odd.svg")
    assert {"�nul", "two lines", "日本", "�", "�[31m�"} <= set(words)
    with pytest.warns(UserWarning, match="no glyphs for .*日.*Save it as .svg, or use fourward.view") as caught:
        fw.draw(dag, tmp_path / "odd.png")
    assert len(caught) == 1


def test_a_long_title_has_lines():
    lines = fw.draw(SMALL[1], title="a long title " * 40).get_suptitle().split("\n")
    assert len(lines) == 3
    assert max(map(len, lines)) < 130
    assert lines[-1].endswith("…")


def test_a_shallow_network_fills_its_picture():
    for sizes in ([4, 8, 4], [2, 2]):
        axes = fw.draw(FourWard(generate.layered_mlp(sizes), seed=0)).axes[0]
        low, high = axes.get_xlim()
        assert (high - low) < 1.15 * (len(sizes) - 1)
        names = [text.get_text() for text in axes.texts]
        assert len(names) == sum(sizes), "and has room for its names"


def test_a_deep_network_has_room_for_the_names_of_its_inputs_and_outputs():
    worm = connectomes.load("c-elegans")
    axes = fw.draw(FourWard(worm.dag, seed=0)).axes[0]
    assert {text.get_text() for text in axes.texts} == set(worm.dag.labels)


def test_names_that_are_alike_once_cut_are_left_out():
    def named(dag):
        relabelled = Dag.from_edges([(7 * 10**17 + u, 7 * 10**17 + v) for u, v in dag.edges.tolist()])
        return [int(text.get_text()) - 7 * 10**17 for text in fw.draw(relabelled).axes[0].texts]

    assert named(generate.chain(120)) == [0, 119]


def test_names_with_a_common_beginning_are_cut_in_the_middle():
    sides = ["stimulus presented left", "stimulus presented right"]
    picture = fw.draw(Dag.from_edges([(side, "out") for side in sides]))
    names = {text.get_text() for text in picture.axes[0].texts}
    assert names == {"stimulus…nted left", "stimulus…ted right", "out"}
    assert picture.get_supxlabel().endswith("the names of 3 of 3 nodes.")


def test_weak_edges_of_a_small_network_are_visible():
    net = FourWard(SMALL[1], seed=0)
    with torch.no_grad():
        net.weight.zero_()
    (lines,) = (each for each in fw.draw(net).axes[0].collections if each.get_array() is not None)
    assert min(lines.get_linewidths()) > 0.6
    assert lines.get_alpha() > 0.8


def test_many_layers_are_averaged_over_several():
    picture = fw.draw(generate.chain(2500), kind="density")
    widths = picture.axes[2]
    assert widths.get_xlabel() == "layer (means of 3)"
    heights = widths.patches[0].get_data().values
    assert len(heights) == 834
    np.testing.assert_array_equal(heights, 1)
    ticks = fw.draw(generate.layered_mlp([3, 4, 2]), kind="density").axes[0].get_xticks()
    np.testing.assert_array_equal(ticks, np.round(ticks))


def test_a_large_graph_becomes_a_density_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "MAX_EDGES", 50)
    dag = SMALL[2]
    fw.draw(dag, tmp_path / "large.svg")
    large = " ".join(texts(tmp_path / "large.svg"))
    assert f"not each of {dag.num_edges} edges and {dag.num_nodes} nodes, too many for lines." in large
    fw.draw(dag, tmp_path / "lines.svg", kind="lines")
    assert "every edge" in " ".join(texts(tmp_path / "lines.svg"))


def test_a_density_picture_that_was_asked_for_does_not_call_the_graph_too_large():
    caption = fw.draw(SMALL[1], kind="density").get_supxlabel()
    assert caption == (
        "Shown: the number of edges from each layer to each layer, blank where there are none; "
        "not each of 2 edges and 3 nodes."
    )


def test_density_counts_every_edge_once():
    dag = generate.erdos_renyi(300, 0.1, seed=0)
    layering = longest_path(dag)
    fine, per_cell = count_edges_between_layers(dag, layering)
    assert per_cell == 1
    expected = np.zeros_like(fine)
    np.add.at(expected, (layering.level[dag.source], layering.level[dag.target]), 1)
    np.testing.assert_array_equal(fine, expected)
    coarse, several = count_edges_between_layers(dag, layering, max_cells=7)
    assert len(coarse) <= 7
    assert several == -(-layering.height // 7)
    assert coarse.sum() == dag.num_edges


def test_kinds_are_the_papers():
    dag = Dag.from_edges(
        [("in", "a"), ("a", "b"), ("b", "out"), ("in", "c"), ("c", "out")], nodes=["lone", "in", *"abc", "out"]
    )
    layering = longest_path(dag)
    named = {label: KINDS[kind] for label, kind in zip(dag.labels, node_kinds(layering), strict=True)}
    assert named["lone"] == named["in"] == "source"
    assert named["a"] == named["b"] == "hidden"
    assert named["c"] == "hidden, could move"
    assert named["out"] == "sink"
    assert KINDS[node_kinds(layering, movable=False)[dag.index("c")]] == "hidden"


WITH_IO = Dag.from_edges(
    [("a", "h"), ("b", "h"), ("c", "k"), ("h", "k"), ("k", "o"), ("k", "p")], inputs=["b", "a"], outputs=["h", "o"]
)


def test_inputs_and_outputs_are_marked_where_they_are_not_the_sources_and_sinks():
    axes = fw.draw(WITH_IO).axes[0]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["input (2)", "hidden (3)", "output (2)"]
    both = Dag.from_edges([("a", "o"), ("b", "o")], outputs=["o", "a"])
    assert [kind_names(both)[kind] for kind in node_kinds(longest_path(both))] == [
        "input and output",
        "output",
        "input",
    ]
    assert "input and output (1)" in [text.get_text() for text in fw.draw(both).axes[0].get_legend().get_texts()]
    turned = Dag.from_edges([("a", "o"), ("b", "o")], inputs=["b", "a"])
    assert kind_names(turned) == KINDS, "another order changes nothing"


def test_weights_that_are_not_finite_are_counted(tmp_path):
    net = FourWard(SMALL[2], seed=0)
    with torch.no_grad():
        net.weight[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    fw.draw(net, tmp_path / "net.svg")
    assert "weights (3 not finite)" in texts(tmp_path / "net.svg")
    assert colour_limit(np.array([np.nan])) == colour_limit(np.zeros(3)) == 1


@pytest.mark.parametrize(
    ("odd", "extend"), [([], "neither"), ([-3], "min"), ([3], "max"), ([-3, np.nan, np.inf], "both")]
)
def test_the_colour_bar_shows_that_weights_exceed_it(odd, extend):
    weight = np.resize([-1.0, 1.0], 199)
    weight[: len(odd)] = odd
    (bar,) = (each for each in fw.draw(generate.chain(200), weight=weight).axes if each.get_label() == "<colorbar>")
    assert bar._colorbar.extend == extend


def test_a_network_without_edges_has_no_histogram_and_no_scale_of_weights():
    picture = fw.draw(FourWard(Dag.from_edges([], nodes=["a", "b"]), seed=0))
    assert [axes.get_title() for axes in picture.axes] == ["", "degrees", "nodes per layer"]


@pytest.mark.parametrize("dag", [SMALL[2], generate.layered_mlp([10, 9]), generate.layered_mlp([50, 60, 2])], ids=repr)
def test_the_marks_of_degrees_keep_off_the_frame(dag):
    axes = fw.draw(dag).axes[1]
    points = axes.transAxes.inverted().transform(
        axes.transData.transform(np.vstack([x.get_xydata() for x in axes.lines]))
    )
    assert points.min() > 0.05
    assert points.max() < 0.95


def test_colours_follow_the_style_of_matplotlib(tmp_path):
    net = FourWard(SMALL[2], seed=0)
    fw.draw(net, tmp_path / "light.svg")
    with matplotlib.style.context("dark_background"):
        fw.draw(net, tmp_path / "dark.svg")
    for name, palette in (("light", LIGHT), ("dark", DARK)):
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert all((each.source in drawn) == (each is palette) for each in (LIGHT, DARK))


def test_a_notebook_shows_it():
    assert fw.draw(SMALL[1])._repr_png_().startswith(b"\x89PNG")


def test_bad_options_are_rejected(tmp_path):
    with pytest.raises(
        OptionError, match=r"expected a Dag, a Digraph.*, got Connectome. Pass the \.dag or the \.graph of a connectome"
    ):
        fw.draw(fw.connectomes.load("c-elegans"))
    with pytest.raises(OptionError, match="kind must be 'auto', 'lines' or 'density', got 'blob'"):
        fw.draw(SMALL[1], kind="blob")
    with pytest.raises(OptionError, match=r"expected a picture's path to end in \.png, \.svg, \.pdf, got"):
        fw.draw(SMALL[1], tmp_path / "net.gif")
    with pytest.raises(LayeringError, match="expected a layering of"):
        fw.draw(SMALL[1], layering=longest_path(SMALL[2]))
    assert list(tmp_path.iterdir()) == []

"""Feedback edges in pictures and pages: dashed, self-loops included, beside the edges within a step."""

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.collections import PathCollection

from fourward import Digraph, FourWard, Recurrent, draw, view
from fourward.errors import OptionError, WeightError
from fourward.view import activation_map
from fourward.view._draw import DASHES
from fourward.view._scene import build_scene
from fourward.view._subject import NUM_STEPS, build_subject

matplotlib.use("agg")
DELAYED = [("b", "a"), ("b", "b"), ("y", "x")]
G = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "y"), *DELAYED], inputs=["x"], outputs=["y"], feedback=DELAYED)


def curves(picture):
    return next(c for c in picture.axes[0].collections if isinstance(c, PathCollection) and len(c.get_paths()) == 6)


@pytest.mark.parametrize("subject", [G, Recurrent(G, seed=0)], ids=["graph", "network"])
def test_drawings_show_feedback(subject, tmp_path):
    picture = draw(subject, tmp_path / "picture.png")
    assert picture.get_suptitle() == "4 nodes, 6 edges (3 feedback), 1 input (1 driven), 1 output"
    styles = [style for _, style in curves(picture).get_linestyle()]
    assert sum(style is not None for style in styles) == 3
    assert "feedback (3)" in [text.get_text() for text in picture.axes[0].get_legend().get_texts()]
    assert DASHES[1] == (4, 2.5)
    loops = [path for path in curves(picture).get_paths() if len(path.vertices) == 4]
    assert len(loops) == 1, "a self-loop is a curve with two controls"


def test_density_counts_feedback():
    picture = draw(G, kind="density")
    assert "of 6 edges" in picture.get_supxlabel()


def test_pages_mark_feedback():
    net = Recurrent(G, seed=0, tau=2.0)
    scene = build_scene(build_subject(net), "title", None, None)
    assert scene["firstFeedback"] == 3
    assert scene["shown"] == "Shown: all 4 neurons and all 6 edges."
    assert len(scene["samples"]) == 3
    assert "firstFeedback" in view(net).html
    dag = FourWard(G.dag, seed=0)
    assert build_scene(build_subject(dag), "title", None, None)["firstFeedback"] == 3, "all of its edges"


def test_activations_after_some_steps():
    net = Recurrent(G, seed=0)
    x = torch.randn(5, 1)
    picture = activation_map(net, x)
    level = net.layering.level
    values = net.activations(x.expand(NUM_STEPS, 5, 1))[-1].detach().abs().numpy()
    shown = np.asarray(picture.axes[0].images[0].get_array())
    np.testing.assert_allclose(shown, [values[:, level == k].mean(1) for k in range(level.max() + 1)], rtol=1e-5)
    activation_map(Recurrent(G, seed=0, batch_first=True), torch.randn(4, 7, 1))


def test_bad_input():
    with pytest.raises(WeightError, match=r"weight of shape \(6,\)"):
        draw(G, weight=np.zeros(3))
    with pytest.raises(OptionError, match="expected a Dag, a Digraph, a FourWard or a Recurrent, got list"):
        view([])

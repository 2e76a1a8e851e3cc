"""Learning curves and activation maps."""

import numpy as np
import pytest
import torch

from fourward import FourWard, generate
from fourward.errors import InputError, OptionError
from fourward.view import _curves
from fourward.view._curves import activation_map, learning_curves, mean_activations


def lines(picture):
    return {axes.get_title(): {line.get_label(): line for line in axes.lines} for axes in picture.axes}


def test_axes_for_each_metric_and_a_line_for_each_split(tmp_path):
    history = tmp_path / "history.csv"
    history.write_text(
        "epoch,train_loss,val_loss,val_accuracy,learning_rate,seconds,lr\n"
        "1,2.0,,0.1,0.01,3,\n2,1.0,1.5,0.5,0.02,3,\n3,0.5,1.2,0.6,0.01,3,\n"
    )
    drawn = lines(learning_curves(history, tmp_path / "curves.png"))
    assert {title: set(names) for title, names in drawn.items()} == {
        "loss": {"train loss", "val loss"},
        "accuracy": {"val accuracy"},
        "learning rate": {"learning rate"},
    }
    np.testing.assert_array_equal(drawn["loss"]["val loss"].get_xydata(), [[2, 1.5], [3, 1.2]])
    train, val = drawn["loss"]["train loss"], drawn["loss"]["val loss"]
    assert train.get_linestyle() != val.get_linestyle()
    assert train.get_marker() != val.get_marker()
    assert val.get_color() == drawn["accuracy"]["val accuracy"].get_color(), "a split looks the same in each of them"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_columns_by_name_without_epochs():
    drawn = lines(learning_curves({"loss": [3.0, None, 1.0]}))
    np.testing.assert_array_equal(drawn["loss"]["loss"].get_xydata(), [[0, 3], [2, 1]])


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("epoch\n1\n", "expected columns of metrics"),
        ("", "expected columns of metrics"),
        ("epoch,train_loss\n1,low\n", "expected numbers in the column 'train_loss' of the history, got 'low'"),
    ],
)
def test_a_history_that_holds_nothing_to_draw(text, wrong, tmp_path):
    (tmp_path / "history.csv").write_text(text)
    with pytest.raises(InputError, match=wrong):
        learning_curves(tmp_path / "history.csv")


def test_columns_of_unequal_length():
    with pytest.raises(InputError, match=r"expected columns of equal length, got lengths \[1, 2\]"):
        learning_curves({"epoch": [1, 2], "loss": [1.0]})


def test_activations_by_layer_and_sample(tmp_path, monkeypatch):
    net = FourWard(generate.erdos_renyi(30, 0.2, seed=0), activation="tanh", dropout=0.5, seed=0).train()
    x = torch.randn(10, net.dag.num_inputs, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr(_curves, "MAX_VALUES", 4 * net.dag.num_nodes)  # several parts
    mean = mean_activations(net, x)
    assert net.training, "as it was"
    all_ = net.eval().activations(x).detach().abs().numpy()
    expected = np.stack([all_[:, nodes].mean(1) for nodes in net.layering.layers])
    np.testing.assert_allclose(mean, expected, rtol=1e-5)
    picture = activation_map(net, x, tmp_path / "map.png", samples=4)
    assert picture.axes[0].images[0].get_array().shape == (net.layering.height, 4)
    assert picture.get_supxlabel() == f"Shown: 4 of 10 samples, all {net.layering.height} layers."
    picture = activation_map(FourWard(generate.complete(1)), torch.zeros(3, 1))
    assert picture.get_supxlabel() == "Shown: 3 of 3 samples, the one layer."


def test_bad_samples_are_refused():
    net = FourWard(generate.chain(3))
    with pytest.raises(InputError, match=r"expected x of shape \(samples, 1\), got \(1,\)"):
        activation_map(net, torch.zeros(1))
    with pytest.raises(OptionError, match="samples must be at least 1, got 0"):
        activation_map(net, torch.zeros(2, 1), samples=0)

"""Linear layers and scalings fold into the network that they surround."""

import pytest
import torch
from torch import nn

from fourward import FourWard, generate
from fourward.errors import OptionError, WeightError
from fourward.exchange import fold
from tests.exchange.helpers import assert_same, batch, driven_network, labelled_network, mlp


def test_driven_inputs_keep_their_biases():
    net, x = driven_network(), batch(4)
    first = mlp(nn.Linear(4, 3))[0]
    folded = fold(net, first)
    assert_same(folded, net(first(x)), x)
    assert_same(fold(net, output_layer=(last := mlp(nn.Linear(2, 2))[0])), last(net(x[:, :3])), x[:, :3])
    assert folded.dag.num_nodes == net.dag.num_nodes + 4


def test_layers_fold_into_the_network():
    net = labelled_network()
    before, after = (mlp(nn.Linear(5, 2)), mlp(nn.Linear(2, 3)))
    with torch.no_grad():
        before[0].weight[0, 1] = 0
    folded = fold(net, before[0], after[0], feature_names=["a", "f1", "f2", "f3", "f4"])
    torch.testing.assert_close(folded(batch(5)), after(net(before(batch(5)))))
    assert folded.dag.num_edges == net.dag.num_edges + 9 + 6
    assert [folded.dag.labels[v] for v in folded.dag.inputs.tolist()] == ["a (feature)", "f1", "f2", "f3", "f4"]
    torch.testing.assert_close(fold(net, before[0])(batch(5)), net(before(batch(5))))
    torch.testing.assert_close(fold(net, output_layer=after[0])(batch(2)), after(net(batch(2))))
    with pytest.raises(WeightError, match=r"expected a layer from 5 to 2 features, got .* shape \(5, 5\)"):
        fold(net, nn.Linear(5, 5))
    with pytest.raises(OptionError, match="got a ReLU"):
        fold(net, nn.ReLU())


def test_scalings_fold_into_the_network():
    net, layer, x = labelled_network(), mlp(nn.Linear(2, 3, bias=False)), batch(2)
    mean, std = torch.tensor([0.5, -2.0]), torch.tensor([2.0, 0.25])
    folded = fold(net, nn.Identity(), layer[0], input_scaling=(mean, std))
    torch.testing.assert_close(folded(x), layer(net((x - mean) / std)))
    torch.testing.assert_close(fold(net, output_scaling=(mean, std))(x), net(x) * std + mean)


def test_folding_integer_labels_and_callables():
    net = FourWard(generate.chain(3), {1: torch.sin, 2: "tanh"}, bias=False, seed=0, dtype=torch.float64)
    layer = mlp(nn.Linear(2, 1))
    folded = fold(net, layer[0])
    assert [folded.dag.labels[v] for v in folded.dag.inputs.tolist()] == [3, 4]
    torch.testing.assert_close(folded(batch(2)), net(layer(batch(2))))

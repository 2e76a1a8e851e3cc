"""MLPs of torch become networks with the same outputs."""

import pytest
import torch
from torch import nn

from fourward import generate
from fourward.errors import ActivationError, GraphError
from fourward.exchange import from_mlp
from tests.exchange.helpers import batch, mlp

MODULES = {
    "relu": nn.ReLU(), "leaky_relu": nn.LeakyReLU(), "elu": nn.ELU(), "selu": nn.SELU(), "gelu": nn.GELU(),
    "silu": nn.SiLU(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "softplus": nn.Softplus(), "hardtanh": nn.Hardtanh(),
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_built_in_activations(name):
    model = mlp(nn.Linear(4, 7), MODULES[name], nn.Linear(7, 5), MODULES[name], nn.Linear(5, 3))
    net, x = from_mlp(model), batch(4)
    torch.testing.assert_close(net(x), model(x))
    assert net.dag == generate.layered_mlp([4, 7, 5, 3])
    assert net.engine == "cpu"


@pytest.mark.parametrize(
    "activation",
    [nn.Mish(), nn.LeakyReLU(0.3), nn.GELU("tanh"), nn.Softplus(2), nn.ELU(0.5), nn.Hardtanh(-2, 3), nn.PReLU()],
)
def test_other_activations_stay_callables(activation):
    model = mlp(nn.Linear(4, 7), activation, nn.Linear(7, 3))
    net, x = from_mlp(model), batch(4)
    torch.testing.assert_close(net(x), model(x))
    net(x).sum().backward()
    assert net.weight.grad.abs().sum() > 0


class Doubled:
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("kind", [nn.GELU, nn.ELU, nn.Softplus, nn.Identity, nn.ReLU])
def test_activations_that_override_forward_stay_callables(kind):
    model = mlp(nn.Linear(4, 7), type("Own", (Doubled, kind), {})(), nn.Linear(7, 3))
    x = batch(4)
    torch.testing.assert_close(from_mlp(model)(x), model(x))


@pytest.mark.parametrize("kind", [nn.Linear, nn.Dropout, nn.Flatten, nn.Sequential])
def test_layers_that_override_forward_are_refused(kind):
    own = type("Own", (Doubled, kind), {})
    odd = own(4, 4) if kind is nn.Linear else own()
    with pytest.raises(GraphError, match=f"Own overrides the forward method of {kind.__name__}"):
        from_mlp(mlp(odd, nn.Linear(4, 3)))


def test_layers_without_effect_are_dropped():
    inner = nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 3, bias=False), nn.Identity())
    model = mlp(nn.Flatten(), nn.Linear(4, 7), nn.Tanh(), inner)
    x = batch(4)
    torch.testing.assert_close(from_mlp(model)(x), model(x))
    bare = mlp(nn.Linear(4, 2, bias=False))
    assert from_mlp(bare).bias is None
    torch.testing.assert_close(from_mlp(bare)(x), bare(x))


def test_prune_omits_zero_weights():
    model = mlp(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3))
    with torch.no_grad():
        model[0].weight[model[0].weight.abs() < 0.5] = 0
    net, x = from_mlp(model, prune=True), batch(4)
    assert net.dag.num_edges == sum(int((p != 0).sum()) for p in (model[0].weight, model[2].weight)) < 49
    torch.testing.assert_close(net(x), model(x))
    assert from_mlp(model).dag.num_edges == 49


@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        (nn.Linear(2, 2), GraphError, "expected a torch.nn.Sequential, got a Linear"),
        (nn.Sequential(nn.ReLU()), ActivationError, r"after a Linear layer, got ReLU\(\)"),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh()), ActivationError, r"after a Linear layer, got Tanh\(\)"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 2)), GraphError, r"with 2 inputs.*got Linear\(in_features=3"),
        (nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)), ActivationError, "elementwise"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), ActivationError, "elementwise"),
        (nn.Sequential(), GraphError, "at least one Linear layer"),
    ],
)
def test_unsupported_models(model, error, match):
    with pytest.raises(error, match=match):
        from_mlp(model)

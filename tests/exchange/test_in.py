"""MLPs of torch and weighted graphs come in with the outputs they had."""

import networkx as nx
import pytest
import torch
from torch import nn

from fourward import Dag, FourWard, files, generate
from fourward.errors import ActivationError, GraphError, OptionError, WeightError
from fourward.exchange import fold, from_mlp, from_networkx, read_network


def mlp(*modules, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(*modules).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1, generator=generator)
    return model.eval()


def batch(width, rows=6):
    return torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


ROWS = {
    "relu": nn.ReLU(), "leaky_relu": nn.LeakyReLU(), "elu": nn.ELU(), "selu": nn.SELU(), "gelu": nn.GELU(),
    "silu": nn.SiLU(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "softplus": nn.Softplus(), "hardtanh": nn.Hardtanh(),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_mlps_with_an_activation_of_the_table(name):
    model = mlp(nn.Linear(4, 7), ROWS[name], nn.Linear(7, 5), ROWS[name], nn.Linear(5, 3))
    net, x = from_mlp(model), batch(4)
    torch.testing.assert_close(net(x), model(x))
    assert net.dag == generate.layered_mlp([4, 7, 5, 3])
    assert net.engine == "cpu"


@pytest.mark.parametrize(
    "odd", [nn.Mish(), nn.LeakyReLU(0.3), nn.GELU("tanh"), nn.Softplus(2), nn.ELU(0.5), nn.Hardtanh(-2, 3), nn.PReLU()]
)
def test_mlps_with_another_activation(odd):
    model = mlp(nn.Linear(4, 7), odd, nn.Linear(7, 3))
    net, x = from_mlp(model), batch(4)
    torch.testing.assert_close(net(x), model(x))
    net(x).sum().backward()
    assert net.weight.grad.abs().sum() > 0


class Doubled:
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("kind", [nn.GELU, nn.ELU, nn.Softplus, nn.Identity, nn.ReLU])
def test_activations_with_a_forward_of_their_own_are_callables(kind):
    model = mlp(nn.Linear(4, 7), type("Own", (Doubled, kind), {})(), nn.Linear(7, 3))
    x = batch(4)
    torch.testing.assert_close(from_mlp(model)(x), model(x))


@pytest.mark.parametrize("kind", [nn.Linear, nn.Dropout, nn.Flatten, nn.Sequential])
def test_layers_with_a_forward_of_their_own_are_refused(kind):
    own = type("Own", (Doubled, kind), {})
    odd = own(4, 4) if kind is nn.Linear else own()
    with pytest.raises(GraphError, match=f"Own is a {kind.__name__} with a forward of its own"):
        from_mlp(mlp(odd, nn.Linear(4, 3)))


def test_mlps_with_what_does_nothing():
    inner = nn.Sequential(nn.Dropout(0.5), nn.Linear(7, 3, bias=False), nn.Identity())
    model = mlp(nn.Flatten(), nn.Linear(4, 7), nn.Tanh(), inner)
    x = batch(4)
    torch.testing.assert_close(from_mlp(model)(x), model(x))
    bare = mlp(nn.Linear(4, 2, bias=False))
    assert from_mlp(bare).bias is None
    torch.testing.assert_close(from_mlp(bare)(x), bare(x))


def test_pruned_weights_are_no_edges():
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
        (nn.Linear(2, 2), GraphError, "Sequential was wanted"),
        (nn.Sequential(nn.ReLU()), ActivationError, "doesn't follow a Linear"),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Tanh()), ActivationError, r"Tanh\(\) doesn't follow"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(3, 2)), GraphError, "2 outputs before 3 inputs"),
        (nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)), ActivationError, "elementwise"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), ActivationError, "elementwise"),
        (nn.Sequential(), GraphError, "no Linear layer"),
    ],
)
def test_models_that_are_no_mlps(model, error, match):
    with pytest.raises(error, match=match):
        from_mlp(model)


def some_net(**options):
    dag = Dag.from_edges(
        [("a", "c"), ("b", "c"), ("c", "default"), ("a", "default"), ("c", "e")], inputs=["b", "a"], outputs=["e", "c"]
    )
    chosen = {"c": "tanh", "default": "relu", "e": "sin"}
    return FourWard(dag, chosen, seed=0, dtype=torch.float64, **options)


@pytest.mark.parametrize("bias", [True, False])
def test_networkx_there_and_back(bias):
    net = some_net(bias=bias)
    again = from_networkx(net.to_networkx(), dtype=torch.float64)
    assert again.dag == net.dag
    assert torch.equal(again(batch(2)), net(batch(2)))
    assert (again.bias is None) == (net.bias is None)


@pytest.mark.parametrize("ending", ["graphml", "gexf", "json", "npz"])
def test_graph_files_there_and_back(ending, tmp_path):
    from fourward.exchange import export

    net = some_net()
    export(net, tmp_path / f"net.{ending}")
    again = read_network(tmp_path / f"net.{ending}", network={"dtype": torch.float64})
    assert again.dag == net.dag
    assert torch.equal(again(batch(2)), net(batch(2)))


def test_graphs_without_what_a_network_needs(tmp_path):
    graph = nx.DiGraph([("a", "b")])
    with pytest.raises(WeightError, match="no weights"):
        from_networkx(graph, activation="relu")
    graph.edges["a", "b"]["weight"] = 2.0
    with pytest.raises(ActivationError, match=r"no activation came for 1 neuron: 'b'.*--activation"):
        from_networkx(graph)
    assert from_networkx(graph, activation="relu")(torch.tensor([3.0])).item() == 6
    graph.nodes["b"]["activation"] = "swish"
    with pytest.raises(ActivationError, match="no activation 'swish'"):
        from_networkx(graph)
    files.write(generate.chain(3), tmp_path / "x.csv")
    with pytest.raises(WeightError, match=r"x\.csv: the edges have no weights"):
        read_network(tmp_path / "x.csv")


def test_layers_fold_into_the_network():
    net = some_net()
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
    net, layer, x = some_net(), mlp(nn.Linear(2, 3, bias=False)), batch(2)
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

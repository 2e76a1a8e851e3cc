"""Signs, frozen and tied edges, scale: what holds while training, on every engine, and what is refused."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.func import functional_call

import fourward as fw
from fourward.errors import GraphError, InitError, OptionError, WeightError
from fourward.nn import scale_by_in_degree
from tests.tolerance import assert_near

KINDS = ["sensory", "inter", None, "motor"]
DAG = fw.generate.erdos_renyi(30, 0.2, seed=1)
DAG = DAG.with_attributes({"type": [KINDS[v % 4] for v in range(30)]})
RNG = np.random.default_rng(0)
OPTIONS = {
    "sign": {"sign": RNG.choice([-1, 0, 1], DAG.num_nodes)},
    "sign by edge": {"sign": RNG.choice([-1, 1], DAG.num_edges)},
    "frozen": {"frozen": RNG.random(DAG.num_edges) < 0.4},
    "all frozen": {"frozen": True},
    "tied": {"tied": "type"},
    "scale": {"scale": RNG.integers(1, 90, DAG.num_edges)},
}
OPTIONS["all"] = (
    {"sign": RNG.choice([-1, 0, 1], DAG.num_nodes)} | OPTIONS["frozen"] | OPTIONS["tied"] | OPTIONS["scale"]
)
each = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
}


def batch(size=8, dtype=torch.float32):
    return torch.randn(size, DAG.num_inputs, generator=torch.Generator().manual_seed(0)).to(dtype)


def train(net, make, steps):
    x, optimiser = batch().to(net.weight.dtype), make(net.parameters())
    target = torch.randn(8, DAG.num_outputs, generator=torch.Generator().manual_seed(1)).to(x.dtype)
    for _ in range(steps):
        optimiser.zero_grad()
        (net(x) - target).square().mean().backward()
        optimiser.step()


@each
@pytest.mark.parametrize("engine", ["reference", "torch", "cpu"])
def test_every_engine_computes_what_a_free_network_with_these_weights_computes(options, engine):
    net = fw.FourWard(DAG, "tanh", seed=0, engine=engine, dtype=torch.float64, **options)
    free = fw.FourWard(DAG, "tanh", engine=engine, dtype=torch.float64)
    free.load_edge_weights(net.weight, net.bias)
    x = batch(dtype=torch.float64)
    assert torch.equal(net(x), free(x))
    net(x).square().sum().backward()
    free(x).square().sum().backward()
    weight = net.weight
    (pulled,) = torch.autograd.grad(weight, net.constraints.free_weight, free.weight.grad, allow_unused=True)
    if pulled is not None:
        assert_near(net.constraints.free_weight.grad, pulled)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_signs_hold_for_1000_steps(name):
    sign = OPTIONS["sign"]["sign"][DAG.source]
    net = fw.FourWard(DAG, "tanh", seed=0, **OPTIONS["sign"])
    before = net.weight.detach().clone()
    train(net, OPTIMISERS[name], 1000)
    assert (net.weight.detach().numpy() * sign >= 0).all()
    assert (net.weight != before).float().mean() > 0.9
    free = net.weight.detach().numpy()[sign == 0]
    assert (free > 0).any(), "a sign of 0 leaves both"
    assert (free < 0).any()


@pytest.mark.parametrize("name", OPTIMISERS)
def test_frozen_weights_hold_to_the_bit(name):
    mask = OPTIONS["frozen"]["frozen"]
    net = fw.FourWard(DAG, "tanh", seed=0, **OPTIONS["frozen"])
    before = net.weight.detach().clone()
    train(net, OPTIMISERS[name], 100)
    after = net.weight.detach()
    assert np.array_equal(after.numpy()[mask].view(np.int32), before.numpy()[mask].view(np.int32))
    assert (after[~torch.from_numpy(mask)] != before[~torch.from_numpy(mask)]).all()
    assert net.constraints.free_weight.shape == ((~mask).sum(),)


def test_tied_edges_share_a_parameter():
    net = fw.FourWard(DAG, "tanh", seed=0, **OPTIONS["tied"])
    train(net, OPTIMISERS["AdamW"], 20)
    kind = np.array([str(KINDS[v % 4]) for v in range(30)])
    groups = np.char.add(kind[DAG.source], kind[DAG.target])
    for group in np.unique(groups):
        values = net.weight.detach().numpy()[groups == group]
        assert len(np.unique(values)) == (len(values) if "None" in group else 1)


def test_a_weight_of_zero_learns():
    net = fw.FourWard(DAG, "tanh", init="zeros", seed=0, **OPTIONS["sign by edge"])
    assert not net.weight.any()
    with torch.no_grad():
        net.bias.fill_(0.3)
    train(net, OPTIMISERS["SGD"], 3)
    assert net.weight.count_nonzero() > 0


@each
def test_copies_pickles_state_dicts_and_functional_calls(options):
    net, other = (fw.FourWard(DAG, "tanh", seed=seed, **options) for seed in (0, 1))
    x, want = batch(), net(batch())
    assert torch.equal(copy.deepcopy(net)(x), want)
    assert torch.equal(pickle.loads(pickle.dumps(net))(x), want)
    assert torch.equal(functional_call(other, {**net.state_dict()}, (x,)), want)
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x), want)
    moved = net.double()
    assert moved(x.double()).dtype == torch.float64
    empty = fw.FourWard(DAG, "tanh", device="meta", **options).to_empty(device="cpu")
    empty.load_state_dict(other.state_dict())
    assert torch.equal(empty(x), want)


@each
def test_loading_effective_weights_gives_them(options):
    net = fw.FourWard(DAG, "tanh", seed=0, dtype=torch.float64, **options)
    other = fw.FourWard(DAG, "tanh", seed=1, dtype=torch.float64, **options)
    other.load_edge_weights(net.weight, net.bias)
    assert_near(other.weight.detach(), net.weight.detach())


def combine(*names):
    return {key: value for name in names for key, value in OPTIONS[name].items()}


COMBINED = [
    combine(*names)
    for names in (("sign", "frozen"), ("sign by edge", "tied"), ("frozen", "tied"), ("frozen", "scale"),
                  ("tied", "scale"), ("sign", "frozen", "scale"), ("all",), ("sign", "all frozen"))
]  # fmt: skip


@pytest.mark.parametrize("options", COMBINED, ids=lambda options: "+".join(options))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_loops_compute_what_torch_computes(options, dtype):
    module = fw.FourWard(DAG, "tanh", seed=0, dtype=dtype, **options).constraints
    with torch.no_grad():  # some of them zeros of both signs
        drawn = torch.randn(module.free_weight.shape, generator=torch.Generator().manual_seed(0))
        module.free_weight.copy_(torch.where(drawn.abs() < 0.3, drawn.sign() * 0.0, drawn))
    got, want = module(), module.compose(module.free_weight)
    assert torch.equal(got, want)
    assert torch.equal(got.signbit(), want.signbit())
    grad = torch.randn(got.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    if not len(module.free_weight):
        assert not got.requires_grad or torch.autograd.grad(got, module.free_weight, grad)[0].shape == (0,)
        return
    (pulled,) = torch.autograd.grad(got, module.free_weight, grad, retain_graph=True)
    assert_near(pulled, torch.autograd.grad(want, module.free_weight, grad)[0])
    expanded = torch.ones((), dtype=dtype).expand(got.shape)  # as sum().backward() passes it
    assert_near(
        torch.autograd.grad(got, module.free_weight, expanded, retain_graph=True)[0],
        torch.autograd.grad(module.compose(module.free_weight).sum(), module.free_weight)[0],
    )
    (batched,) = torch.autograd.grad(got, module.free_weight, torch.stack((grad, -grad)), is_grads_batched=True)
    assert_near(batched, torch.stack((pulled, -pulled)))


def test_second_derivatives_and_transforms_of_combined_constraints():
    net = fw.FourWard(DAG, "tanh", seed=0, dtype=torch.float64, **OPTIONS["all"])
    free, x = net.constraints.free_weight, batch(dtype=torch.float64)
    (first,) = torch.autograd.grad(net(x).square().sum(), free, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), free)

    def loss(values):
        return functional_call(net, {"constraints.free_weight": values}, (x,)).square().sum()

    assert_near(torch.func.grad(loss)(free.detach()), first.detach())
    want = torch.func.grad(lambda values: torch.func.grad(loss)(values).square().sum())(free.detach())
    assert_near(second, want)
    compiled = torch.compile(net, backend="eager")
    assert_near(compiled(x).detach(), net(x).detach())


def test_weights_that_contradict_the_constraints_are_refused():
    net = fw.FourWard(DAG, sign=dict.fromkeys(DAG.labels, 1))
    with pytest.raises(WeightError, match=r"contradict the sign of the edge: \("):
        net.load_edge_weights(-torch.ones(DAG.num_edges), torch.zeros(len(DAG.neurons)))
    net = fw.FourWard(DAG, tied=np.zeros(DAG.num_edges, np.int64))
    with pytest.raises(WeightError, match="tied edges need equal weights"):
        net.load_edge_weights(torch.arange(DAG.num_edges) + 1.0, torch.zeros(len(DAG.neurons)))


def test_weights_under_constraints_cant_be_assigned():
    net = fw.FourWard(DAG, seed=0, sign=dict.fromkeys(DAG.labels, 1))
    before = net.weight.detach().clone()
    for value in (-torch.ones(DAG.num_edges), torch.nn.Parameter(-torch.ones(DAG.num_edges))):
        with pytest.raises(WeightError, match=r"net\.load_edge_weights\(weight, bias\)"):
            net.weight = value
    assert torch.equal(net.weight, before)
    net.load_edge_weights(before + 1, net.bias)
    assert_near(net.weight.detach(), before + 1)


def test_signs_from_a_transmitter_and_a_table():
    dag = fw.Dag.from_edges([("a", "d"), ("b", "d"), ("c", "d")])
    dag = dag.with_attributes({"transmitter": {"a": "ACh", "b": "GABA", "c": "glutamate"}})
    with pytest.raises(OptionError, match=r"'glutamate'.*sign=\('transmitter', \{'glutamate': -1\}\)"):
        fw.FourWard(dag, sign="transmitter")
    net = fw.FourWard(dag, sign=("transmitter", {"glutamate": -1}))
    assert net.weight.sign().tolist() == [1, -1, -1]
    with pytest.raises(GraphError, match=r"no attribute 'class'\. It has 'transmitter'"):
        fw.FourWard(dag, tied="class")


def test_signs_by_label_and_by_pair():
    dag = fw.Dag.from_edges([("a", "c"), ("b", "c"), ("a", "d")])
    net = fw.FourWard(dag, init=2.0, sign={"a": -1, ("a", "d"): 1})
    assert dict(zip([(dag.labels[u], dag.labels[v]) for u, v in dag.edges], net.weight.tolist(), strict=True)) == {
        ("a", "c"): -2.0, ("b", "c"): 2.0, ("a", "d"): 2.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sign": [1, -1]}, "got shape"),
        ({"sign": np.full(30, 2)}, "a sign must be 1, -1, or 0"),
        ({"sign": {"x": 1}}, "unknown labels: 'x'"),
        ({"frozen": [(0, 0)]}, "unknown edges"),
        ({"frozen": np.zeros(3, bool)}, "frozen must be"),
        ({"frozen": "all"}, "frozen must be"),
        ({"tied": [1.5]}, "tied must be"),
        ({"scale": -1.0}, "scale must be positive"),
        ({"scale": "counts"}, "scale must hold numbers"),
    ],
)
def test_what_is_no_constraint_is_refused(options, message):
    with pytest.raises((OptionError, GraphError, WeightError), match=message):
        fw.FourWard(DAG, **options)


def test_as_many_nodes_as_edges_are_ambiguous():
    dag = fw.Dag.from_edges([("a", "b"), ("b", "c"), ("a", "c")])
    with pytest.raises(OptionError, match="as many nodes as edges"):
        fw.FourWard(dag, sign=[1, -1, 1])


def test_excitation_and_inhibition_balance():
    dag = fw.generate.layered_mlp([200, 50])
    sign = np.where(np.arange(250) % 5 == 0, -1, 1)
    net = fw.FourWard(dag, "identity", init="kaiming_normal", bias=False, seed=0, sign=sign)
    weight = net.weight.detach().double().numpy()
    sums = np.bincount(dag.target, weight)[200:]
    assert np.abs(sums).max() < 1e-5, "4 excitatory neurons for each inhibitory one"
    power = np.bincount(dag.target, weight**2)[200:]
    free = fw.FourWard(dag, "identity", init="kaiming_normal", bias=False, seed=0).weight.detach().double().numpy()
    assert np.allclose(power, np.bincount(dag.target, free**2)[200:])


def test_strengths_scaled_by_in_degree_train():
    strength = RNG.lognormal(3, 2, DAG.num_edges)
    net = fw.FourWard(DAG, "relu", init=scale_by_in_degree(DAG, strength), seed=0, **OPTIONS["sign by edge"])
    assert np.allclose(np.bincount(DAG.target, net.weight.detach().numpy() ** 2)[DAG.in_degree > 0], 1)
    train(net, OPTIMISERS["AdamW"], 50)
    assert net.weight.isfinite().all()
    with pytest.raises(InitError, match="finite"):
        fw.FourWard(DAG, init=np.full(DAG.num_edges, np.nan))


def digraph():
    """A graph with feedback whose nodes have signs, and types."""
    pairs = RNG.permutation(np.array([(u, v) for u in range(12) for v in range(12) if (u * 7 + v * 3) % 5 < 2]))
    g = fw.Digraph.from_arrays(pairs, labels=12, inputs=[0, 1, 2], outputs=[10, 11])
    return g.with_attributes({"type": [KINDS[v % 4] for v in range(12)]})


G = digraph()
FEEDBACK = {
    "sign": {"sign": [1, -1, 0] * 4},
    "frozen": {"frozen": [(G.labels[u], G.labels[v]) for u, v in G.feedback.tolist()]},
    "tied": {"tied": "type"},
    "all": {
        "sign": {0: 1, 3: -1}, "frozen": RNG.random(G.num_edges) < 0.3, "tied": "type",
        "scale": RNG.integers(1, 9, G.num_edges),
    },
}  # fmt: skip


def sequences():
    return torch.randn(6, 8, 3, generator=torch.Generator().manual_seed(0))


each_with_feedback = pytest.mark.parametrize("options", FEEDBACK.values(), ids=FEEDBACK)


@each_with_feedback
@pytest.mark.parametrize("engine", ["reference", "torch", "cpu"])
def test_networks_with_feedback_compute_what_free_ones_with_these_weights_compute(options, engine):
    assert 0 < G.num_feedback < G.num_edges
    net = fw.Recurrent(G, seed=0, engine=engine, dtype=torch.float64, **options)
    free = fw.Recurrent(G, engine=engine, dtype=torch.float64)
    free.load_edge_weights(net.weight, net.bias)
    x = sequences().double()
    assert torch.equal(net(x)[0], free(x)[0])
    net(x)[0].square().sum().backward()
    free(x)[0].square().sum().backward()
    (pulled,) = torch.autograd.grad(net.weight, net.constraints.free_weight, free.weight.grad)
    assert_near(net.constraints.free_weight.grad, pulled)
    assert f"weights: {net.constraints.extra_repr()}" in repr(net)


@each_with_feedback
def test_constraints_hold_while_a_network_with_feedback_trains(options):
    net = fw.Recurrent(G, seed=0, tau=2.0, **options)
    arrays, before = net.constraints.arrays, net.weight.detach().numpy().copy()
    x, optimiser = sequences(), torch.optim.AdamW(net.parameters(), lr=0.02)
    for _ in range(50):
        optimiser.zero_grad()
        (net(x)[0] - 0.3).square().mean().backward()
        optimiser.step()
    after = net.weight.detach().numpy()
    assert (after != before).any()
    if arrays.sign is not None:
        assert (after * arrays.sign >= 0).all()
    if arrays.frozen is not None:
        assert np.array_equal(after[arrays.frozen], before[arrays.frozen])
    if options == FEEDBACK["tied"]:
        for group in np.unique(arrays.tied[arrays.tied >= 0]):
            assert len(np.unique(after[arrays.tied == group])) == 1


@each_with_feedback
def test_saved_networks_with_feedback_keep_constraints(tmp_path, options):
    net = fw.Recurrent(G, seed=0, tau=2.0, **options)
    fw.save(net, tmp_path / "net.safetensors")
    loaded = fw.load(tmp_path / "net.safetensors")
    for name, array in net.constraints.arrays._asdict().items():
        assert np.array_equal(getattr(loaded.constraints.arrays, name), array), name
    assert torch.equal(loaded.constraints.free_weight, net.constraints.free_weight), "to the bit"
    assert loaded.graph.attributes == G.attributes
    x = sequences()
    assert torch.equal(loaded(x)[0], net(x)[0])
    assert torch.equal(pickle.loads(pickle.dumps(net))(x)[0], net(x)[0])


def test_options_of_networks_with_feedback_are_checked():
    with pytest.raises(OptionError, match=rf"\(12,\) by neuron or \({G.num_edges},\) by edge"):
        fw.Recurrent(G, sign=[1, -1])
    with pytest.raises(GraphError, match="unknown edges"):
        fw.Recurrent(G, frozen=[(0, 1)])


def test_a_single_edge_with_a_sign():
    net = fw.FourWard(fw.Dag.from_edges([("a", "b")]), "identity", sign={"a": -1}, init=2.0)
    net.weight.sum().backward()
    assert net.weight.tolist() == [-2.0]
    assert net.constraints.free_weight.grad.tolist() == [-1.0]

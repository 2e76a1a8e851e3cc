"""Population: building, members, replacing, training, files, and errors that say what is wrong."""

import copy
import io
import math
import pickle
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fourward as fw
from fourward import Dag, FourWard, Population, Recurrent
from fourward.errors import (
    ActivationError,
    CycleError,
    EngineError,
    FileError,
    FourwardError,
    GraphError,
    InputError,
    OptionError,
    WeightError,
)
from tests.tolerance import assert_near

X = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))


def random_dag(seed, inputs=2, outputs=2):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(inputs + outputs, 12))
    pairs = [(u, v) for v in range(inputs, nodes) for u in range(v) if rng.random() < 0.4]
    labels = [f"n{v}" for v in range(nodes)]
    return Dag.from_arrays(
        np.array(pairs).reshape(-1, 2), labels=labels, inputs=range(inputs), outputs=rng.permutation(nodes)[:outputs]
    )


DAGS = [random_dag(seed) for seed in range(5)]


def population(**options):
    return Population(DAGS, **{"seed": 0} | options)


def test_members_are_networks_of_their_own():
    pop = population()
    assert (len(pop), len(list(pop))) == (5, 5)
    y = pop(X)
    for p, net in enumerate(pop):
        assert net.dag is DAGS[p]
        assert torch.equal(net(X), y[p])
        assert torch.equal(net.weight, pop.weight[pop.edge_start[p] : pop.edge_start[p + 1]])
        assert torch.equal(net.bias, pop.bias[pop.neuron_start[p] : pop.neuron_start[p + 1]])
    assert torch.equal(pop[-1].weight, pop[4].weight)
    with torch.no_grad():
        pop[0].weight.zero_()
    assert torch.equal(pop(X), y), "pop[0] is a copy"
    with pytest.raises(IndexError):
        pop[5]
    for index in ("a", True, slice(0, 2)):
        with pytest.raises(OptionError, match="integer index"):
            pop[index]


def test_networks_bring_their_parameters_and_graphs_draw_theirs():
    nets = [FourWard(dag, "relu", seed=k) for k, dag in enumerate(DAGS[:2])]
    pop = Population([nets[0], DAGS[2], nets[1]], "sin", seed=0)
    assert torch.equal(pop[0].weight, nets[0].weight)
    assert torch.equal(pop[2].bias, nets[1].bias)
    assert torch.equal(pop(X)[[0, 2]], torch.stack([net(X) for net in nets]))
    assert set(pop[1].neuron_activations()) == {"sin"}
    bound = 1 / np.sqrt(DAGS[2].in_degree[DAGS[2].target])
    assert (pop[1].weight.abs().detach().numpy() <= bound).all()
    assert pop[1].weight.count_nonzero() == DAGS[2].num_edges
    assert torch.equal(pop.weight, Population([nets[0], DAGS[2], nets[1]], "sin", seed=0).weight)
    assert not torch.equal(pop.weight, Population([nets[0], DAGS[2], nets[1]], "sin", seed=1).weight)


def test_activations_by_label():
    names = {"n3": "relu", "default": "tanh"}
    pop = Population(DAGS, names, "identity", seed=0)
    for net in pop:
        assert net.neuron_activations() == FourWard(net.dag, names, "identity").neuron_activations()


def arrays(dags):
    edges = np.concatenate([dag.edges for dag in dags])
    starts = np.cumsum([0, *(dag.num_edges for dag in dags)])
    return edges, starts, [dag.num_nodes for dag in dags]


def test_from_arrays():
    edges, starts, nodes = arrays(DAGS)
    outputs = np.array([dag.outputs for dag in DAGS])
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=len(edges)), rng.normal(size=sum(nodes) - 10)
    order = np.concatenate([rng.permutation(np.arange(a, b)) for a, b in pairwise(starts)])
    names = np.array(["tanh", "relu", "sin"])[rng.integers(0, 3, len(bias))]
    pop = Population.from_arrays(
        edges[order], starts, nodes, inputs=2, outputs=outputs, weight=weight[order], bias=bias, activation=names
    )
    assert np.array_equal(order[pop.edge], np.arange(len(edges)))
    for p, dag in enumerate(DAGS):
        assert np.array_equal(pop[p].dag.edges, dag.edges)
        neurons = slice(*pop.neuron_start[p : p + 2])
        net = FourWard(dag, dict(zip([dag.labels[v] for v in dag.neurons], names[neurons].tolist(), strict=True)))
        net.load_edge_weights(weight[starts[p] : starts[p + 1]], bias[neurons])
        assert torch.equal(net(X), pop(X)[p])
    activations = ["sin", "relu", "tanh", "square"]
    pair = activations, [activations.index(name) for name in names]
    same = Population.from_arrays(
        edges, starts, nodes, inputs=[0, 1], outputs=outputs, weight=weight, bias=torch.tensor(bias), activation=pair,
        labels=[dag.labels for dag in DAGS],
    )  # fmt: skip
    assert np.array_equal(same.edge, np.arange(len(edges)))
    assert [same.dag(p) for p in range(5)] == DAGS
    functions = [torch.sin, torch.relu, torch.tanh]
    custom = Population.from_arrays(
        edges, starts, nodes, inputs=2, outputs=outputs, weight=weight, bias=bias, activation=(functions, pair[1])
    )
    assert_near(custom(X).detach(), pop(X).detach())
    assert torch.equal(same(X), pop(X))
    plain = Population.from_arrays(edges, starts, nodes, inputs=2, outputs=1, weight=weight)
    assert plain.bias is None
    drawn = Population.from_arrays(edges, starts, nodes, inputs=2, outputs=1, bias=bias, seed=0)
    assert torch.equal(drawn.bias, torch.tensor(bias, dtype=torch.float32))
    assert Population.from_arrays(edges, starts, nodes, inputs=2, outputs=1, bias=False).bias is None


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=150)
def test_arrays_are_valid_if_each_graph_is(seed):
    """Cycles, self-loops, duplicates, indices out of range, driven inputs: refused with the number of the member."""
    rng = np.random.default_rng(seed)
    members = int(rng.integers(1, 4))
    counts, nodes = rng.integers(0, 5, members), rng.integers(2, 6, members)
    edges = rng.integers(-1 if rng.random() < 0.1 else 0, 5, (counts.sum(), 2))
    edges[:, 1] = np.maximum(edges[:, 1], rng.integers(0, 3, len(edges)))
    outputs, starts = rng.integers(0, 6, (members, 1)), np.cumsum([0, *counts])
    first = None
    for p in range(members):
        try:
            dag = Dag.from_arrays(
                edges[starts[p] : starts[p + 1]], labels=int(nodes[p]), inputs=[0], outputs=outputs[p]
            )
            if len(dag.driven):
                raise GraphError("driven")
        except GraphError:
            first = p
            break
    if first is None:
        pop = Population.from_arrays(edges, starts, nodes, inputs=1, outputs=outputs, seed=0)
        assert torch.equal(pop[0](X[:, :1]), pop(X[:, :1])[0])
    else:
        with pytest.raises(GraphError, match=f"^member {first}: "):
            Population.from_arrays(edges, starts, nodes, inputs=1, outputs=outputs, seed=0)


def test_a_cycle_names_its_member():
    with pytest.raises(CycleError, match=r"member 1: .*cycle of 2 edges: 2 -> 3 -> 2|member 1: .*3 -> 2 -> 3"):
        Population.from_arrays([(0, 1), (2, 3), (3, 2)], [0, 1, 3], 4, inputs=1, outputs=1)


def call(**changes):
    options = {"edges": [(0, 1), (0, 1)], "edge_start": [0, 1, 2], "num_nodes": 2, "inputs": 1, "outputs": 1}
    options |= changes
    return Population.from_arrays(options.pop("edges"), options.pop("edge_start"), options.pop("num_nodes"), **options)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"edges": [(0, 1, 2)]}, GraphError, r"expected an \(E, 2\) array"),
        ({"edge_start": [0, 2]}, GraphError, "member 0: duplicate edges"),
        ({"edge_start": [0, 1]}, GraphError, "ascend from 0 to the 2 edges"),
        ({"edge_start": [0, 3, 2]}, GraphError, "descending"),
        ({"edge_start": [0.0, 1.0, 2.0]}, GraphError, "edge_start must be"),
        ({"edge_start": 2}, GraphError, "edge_start must be"),
        ({"num_nodes": 0}, GraphError, "at least 1"),
        ({"num_nodes": [2, 2, 2]}, GraphError, "one for each of 2 members"),
        ({"num_nodes": 1}, GraphError, "member 0"),
        ({"inputs": 0}, GraphError, "inputs must be a number of nodes"),
        ({"inputs": [-1]}, GraphError, "from 0 on"),
        ({"inputs": [0, 0], "outputs": [1]}, GraphError, "member 0: duplicate inputs"),
        ({"inputs": 3}, GraphError, "member 0: inputs must be node indices"),
        ({"inputs": [1]}, GraphError, "member 0: expected inputs without incoming edges"),
        ({"outputs": [[0], [0], [0]]}, GraphError, "outputs must be a number of nodes"),
        ({"outputs": [5]}, GraphError, "member 0: outputs must be node indices"),
        ({"weight": [1.0]}, WeightError, "expected weight as 2 real numbers"),
        ({"bias": [1.0]}, WeightError, "expected bias as 2 real numbers"),
        ({"activation": "Tanh"}, ActivationError, "unknown activation"),
        ({"activation": ["tanh"]}, ActivationError, "for each of 2 neurons"),
        ({"activation": [3, 99]}, ActivationError, "expected one activation"),
        ({"activation": (["tanh"], [0, 1])}, ActivationError, "indices among 1 activations, got 0 to 1"),
        ({"activation": (["tanh"], [0])}, ActivationError, "for each of 2 neurons"),
        ({"labels": [["a", "b"]]}, GraphError, "expected labels for each of 2 members, .* got those of 1 members"),
        ({"labels": [["a", "b"], ["a"]]}, GraphError, "got 1 for member 1"),
        ({"engine": "tpu"}, EngineError, "unknown engine"),
        ({"seed": -1}, OptionError, "seed must be"),
        ({"dtype": torch.int64}, OptionError, "floating point dtype"),
        ({"init": "zeroes"}, FourwardError, "unknown init"),
    ],
)
def test_invalid_arrays(changes, error, message):
    with pytest.raises(error, match=message):
        call(**changes)


def test_invalid_members():
    driven = Dag.from_edges([("a", "b"), ("b", "c")], inputs=["a", "b"])
    for networks, error, message in (
        (DAGS[0], OptionError, "expected a sequence"),
        ([], GraphError, "at least one member"),
        ([DAGS[0], random_dag(9, inputs=3)], GraphError, "as many inputs in each member, got 2 in member 0 and 3 in"),
        ([DAGS[0], random_dag(9, outputs=1)], GraphError, r"as many outputs.*outputs=\[...\]"),
        ([driven], GraphError, "member 0: expected inputs without incoming edges, got the driven input 'b'"),
        (
            [DAGS[0], Recurrent(fw.Digraph.from_edges([("a", "b"), ("b", "b"), ("b", "c")]))],
            OptionError,
            "member 1: expected a Dag",
        ),
        ([FourWard(DAGS[0], dropout=0.5)], OptionError, "member 0 has dropout"),
        ([FourWard(DAGS[0], frozen=True)], OptionError, "member 0 has constraints"),
        ([FourWard(DAGS[0], bias=False)], OptionError, "member 0 has no biases, and the population has"),
    ):
        with pytest.raises(error, match=message):
            Population(networks)


def test_invalid_samples():
    pop = population()
    for x, message in (
        (X[0], r"expected x of shape \(B, 2\) for all members, or \(5, B, 2\), got shape \(2,\)"),
        (X[:, :1], r"got shape \(6, 1\)"),
        (X.expand(4, 6, 2), r"got shape \(4, 6, 2\)"),
        (X.double(), "expected x of dtype torch.float32"),
        (X.long(), "real floating point"),
        ([1.0], "expected x to be a torch.Tensor"),
    ):
        with pytest.raises(InputError, match=message):
            pop(x)


def test_named_inputs_and_outputs():
    """A member takes the columns of the inputs that it has; any node may be an output."""
    a = Dag.from_edges([("p", "u"), ("q", "u"), ("u", "y"), ("u", "z")])
    b = Dag.from_edges([("q", "y"), ("r", "h"), ("h", "z"), ("y", "z")])
    pop = Population([a, b], inputs=["r", "q", "p"], outputs=["z", "y"], seed=0)
    x = torch.randn(4, 3)
    y = pop(x)
    assert y.shape == (2, 4, 2)
    assert torch.equal(pop[0](x[:, [1, 2]]), y[0])
    assert torch.equal(pop[1](x[:, [0, 1]]), y[1])
    assert [pop[1].dag.labels[v] for v in pop[1].dag.inputs] == ["r", "q"]
    assert [pop[1].dag.labels[v] for v in pop[1].dag.outputs] == ["z", "y"]
    for engine in ("torch", "reference"):
        same = Population([pop[0], pop[1]], inputs=["r", "q", "p"], outputs=["z", "y"], engine=engine)
        assert_near(same(x).detach(), y.detach())
    net = FourWard(b, seed=3)
    named = Population([net], inputs=["r", "q", "p"], outputs=["z"])
    assert torch.equal(named(x)[0, :, 0], net(x[:, [1, 0]])[:, 0])
    for options, message in (
        ({"inputs": ["q", "p"], "outputs": ["y"]}, "member 1 has inputs that inputs= lacks: 'r'"),
        ({"inputs": ["p", "q", "r"], "outputs": ["h"]}, "member 0 lacks an output"),
        ({"inputs": ["p", "q", "r", "r"], "outputs": ["y"]}, "distinct labels"),
        ({"inputs": [], "outputs": ["y"]}, "at least one input"),
    ):
        with pytest.raises(GraphError, match=message):
            Population([a, b], **options)


def test_replacing_members_equals_building_anew():
    rng = np.random.default_rng(0)
    nets = [FourWard(dag, "tanh", seed=k) for k, dag in enumerate(DAGS)]
    pop = Population(nets)
    weight, bias = pop.weight, pop.bias
    for k in range(1000):
        where = rng.permutation(5)[: rng.integers(1, 4)].tolist()
        new = {p - 5 * int(rng.integers(0, 2)): nets[int(rng.integers(0, 5))] for p in where}
        pop.replace(new)
        nets = [new.get(p, new.get(p - 5, net)) for p, net in enumerate(nets)]
        if k % 100 == 99:
            anew = Population(nets)
            for name in (
                "neuron_start",
                "edge_start",
                "in_degree",
                "neuron",
                "code",
                "level",
                "needed",
                "source",
                "outputs",
            ):
                assert np.array_equal(getattr(pop.plan, name), getattr(anew.plan, name))
            assert torch.equal(pop(X), anew(X))
    assert pop.weight is weight
    assert pop.bias is bias
    assert torch.equal(pop.weight, Population(nets).weight)
    assert pop.edge is None
    assert [pop.dag(p) for p in range(5)] == [net.dag for net in nets]


def test_replacing_keeps_moments():
    pop = population()
    optimizer = torch.optim.Adam(pop.parameters(), lr=0.1)
    pop(X).square().sum().backward()
    optimizer.step()
    before = optimizer.state[pop.weight]["exp_avg"].clone()
    start = pop.edge_start.copy()
    pop.replace({1: DAGS[4], 3: DAGS[0]}, optimizer, activation="relu", seed=0)
    after = optimizer.state[pop.weight]["exp_avg"]
    for p in (0, 2, 4):
        assert torch.equal(after[slice(*pop.edge_start[p : p + 2])], before[slice(*start[p : p + 2])])
    assert after[slice(*pop.edge_start[1:3])].count_nonzero() == 0
    assert set(pop[1].neuron_activations()) == {"relu"}
    pop(X).square().sum().backward()
    optimizer.step()
    assert pop(X).isfinite().all()
    with pytest.raises(OptionError, match="the optimiser of this population"):
        pop.replace({0: DAGS[1]}, torch.optim.SGD(population().parameters(), lr=0.1))
    with pytest.raises(OptionError, match="each member once"):
        pop.replace({0: DAGS[1], -5: DAGS[2]})
    with pytest.raises(GraphError, match="expected members with 2 inputs"):
        pop.replace({0: random_dag(1, inputs=3)})
    with pytest.raises(IndexError):
        pop.replace({5: DAGS[0]})
    before = pop(X)
    with pytest.raises(
        OptionError, match=r"^replacing 4, 2, where member 0 is the first of these: member 1 has no bias"
    ):
        pop.replace({4: DAGS[0], 2: FourWard(DAGS[1], bias=False)})
    assert torch.equal(pop(X), before), "an error leaves everything as it was"
    with pytest.raises(OptionError, match="expected a dict from index to network, got a list"):
        pop.replace([DAGS[0]])
    pop.replace({})


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_each_member_trains_as_with_its_own_optimiser(make):
    pop = population(dtype=torch.float64)
    nets, x = list(pop), X.double()
    target = torch.sin(torch.arange(5.0, dtype=torch.float64))[:, None, None]
    rates = torch.tensor([1.0, 0.1, 0.0, 2.0, 0.5])
    optimizer = make(pop.parameters(), lr=0.05)
    own = [make(net.parameters(), lr=0.05 * float(rate)) for net, rate in zip(nets, rates, strict=True)]
    for _ in range(5):
        optimizer.zero_grad()
        loss = (pop(x) - target).square().mean((1, 2))
        loss.sum().backward()
        with pop.scale_updates(rates):
            optimizer.step()
        for net, optimiser, y in zip(nets, own, target, strict=True):
            optimiser.zero_grad()
            (net(x) - y).square().mean().backward()
            optimiser.step()
    assert_near(pop.weight.detach(), torch.cat([net.weight for net in nets]).detach())
    assert_near(pop.bias.detach(), torch.cat([net.bias for net in nets]).detach())
    for factors in ([1.0], [1.0, 1.0, math.nan, 1.0, 1.0]):
        with pytest.raises(OptionError, match="expected 5 finite factors"), pop.scale_updates(factors):
            pass


def test_what_torch_does_with_modules(tmp_path):
    pop = population()
    y = pop(X)
    assert torch.equal(copy.deepcopy(pop)(X), y)
    assert torch.equal(pickle.loads(pickle.dumps(pop))(X), y)
    other = population(seed=1)
    other.load_state_dict(pop.state_dict())
    assert torch.equal(other(X), y)
    assert list(pop.state_dict()) == ["weight", "bias"]
    buffer = io.BytesIO()
    torch.save(pop, buffer)
    buffer.seek(0)
    assert torch.equal(torch.load(buffer, weights_only=False)(X), y)
    double = copy.deepcopy(pop).double()
    assert_near(double(X.double()).detach().float(), y.detach())
    assert copy.deepcopy(pop).half().engine == "torch"
    with torch.autocast("cpu", torch.bfloat16):
        assert pop(X).dtype == torch.bfloat16
    with torch.inference_mode():
        assert torch.equal(pop(X), y)
    assert pop.to_empty(device="cpu")(X).shape == y.shape
    assert "one member after another" in pop.explain()
    assert repr(pop).startswith("Population(5 members, ")


def test_higher_derivatives_and_transforms():
    pop = population(dtype=torch.float64, activation="tanh")
    x = X.double().requires_grad_()
    assert torch.autograd.gradcheck(pop, x)
    assert torch.autograd.gradgradcheck(pop, x)
    first = torch.func.jacrev(pop)(x.detach())
    assert first.shape == (5, 6, 2, 6, 2)
    stacked = torch.stack((x.detach(), 2 * x.detach()))
    assert_near(torch.vmap(pop)(stacked).detach(), torch.stack([pop(part) for part in stacked]).detach())
    torch.compiler.reset()
    weights = {name: value.detach() for name, value in pop.named_parameters()}
    assert_near(torch.func.functional_call(pop, weights, x.detach()), pop(x).detach())


def test_a_non_contiguous_batch_and_gradient():
    pop = population(dtype=torch.float64)
    x = X.double().t().contiguous().t()
    assert torch.equal(pop(x), pop(x.contiguous()))
    each = torch.randn(6, 5, 2, dtype=torch.float64).transpose(0, 1)
    assert torch.equal(pop(each), pop(each.contiguous()))
    pop(x).sum().backward()  # an expanded gradient
    assert pop.weight.grad.isfinite().all()


def test_files(tmp_path):
    path = tmp_path / "population.safetensors"
    nets = [FourWard(dag, "relu", seed=k) for k, dag in enumerate(DAGS[:2])]
    pop = Population([*nets, DAGS[2], DAGS[3].with_attributes({"kind": ["a"] * DAGS[3].num_nodes})], "sin", seed=5)
    fw.save(pop, path)
    loaded = fw.load(path)
    assert torch.equal(loaded(X), pop(X))
    assert [loaded.dag(p) for p in range(4)] == [pop.dag(p) for p in range(4)]
    assert loaded.dag(3).attributes["kind"][0] == "a"
    assert loaded.seed == pop.seed
    loaded.replace({0: DAGS[4]}, seed=0)
    fw.save(call(weight=[0.5, 0.25], dtype=torch.float64), path)
    assert fw.load(path).bias is None
    assert fw.load(path).weight.dtype == torch.float64
    a, b = (Dag.from_edges([(name, "y")]) for name in "ab")
    named = Population([a, b], inputs=["a", "b"], outputs=["y"], seed=0)
    fw.save(named, path)
    loaded = fw.load(path)
    assert torch.equal(loaded(X), named(X))
    loaded.replace({0: b}, seed=0)
    assert [loaded.dag(0).labels[v] for v in loaded.dag(0).inputs] == ["b"]
    with pytest.raises(ActivationError, match="callable"):
        fw.save(Population(DAGS, torch.tanh), path)


def test_commands_say_that_a_file_holds_a_population(tmp_path):
    from fourward._serialization import load_network

    fw.save(population(), tmp_path / "p.safetensors")
    with pytest.raises(FileError, match=r"a population of 5 networks; expected a single network.*pop\[i\]"):
        load_network(tmp_path / "p.safetensors")


@pytest.mark.parametrize("engine", ["cpu", "torch", "reference"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("separate", [False, True])
def test_no_samples_and_no_edges(engine, count, separate):
    """One member, members that are an input and a neuron apart, and members of one node."""
    apart = Dag.from_arrays(np.empty((0, 2), int), labels=2, inputs=[0], outputs=[1])
    for dag in (apart, fw.generate.complete(1), fw.generate.layered_mlp([1, 2, 1])):
        pop = Population([dag] * count, engine=engine, seed=0)
        for batch in (0, 2):
            pop.zero_grad()
            x = torch.ones((count, batch, 1) if separate else (batch, 1), requires_grad=True)
            y = pop(x)
            assert y.shape == (count, batch, 1)
            for p, net in enumerate(pop):
                assert_near(y[p].detach(), net(x[p] if separate else x).detach())
            y.sum().backward()
            grads = [parameter.grad for parameter in (pop.weight, pop.bias, x)]
            assert all(grad is None or grad.isfinite().all() for grad in grads)
            if not batch:
                assert all(grad is None or not grad.any() for grad in grads)


def test_moving():
    pop = population()
    y = pop(X).detach()
    assert pop.to("cpu") is pop
    assert pop.to(torch.float64) is pop
    assert pop.weight.dtype == pop(X.double()).dtype == torch.float64
    assert_near(pop.to(torch.float32)(X).detach(), y)
    skeleton = population(device="meta")
    assert skeleton(X.to("meta")).shape == y.shape
    skeleton.to_empty(device="cpu").load_state_dict(pop.state_dict())
    assert torch.equal(skeleton(X), y)
    assert [skeleton.dag(p) for p in range(5)] == DAGS
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        pop.load_state_dict(Population(DAGS[:2]).state_dict())


def test_what_takes_a_single_network_says_so(tmp_path):
    pop = population()
    for call in (
        lambda: fw.nn.summary(pop),
        lambda: fw.importance(pop, X),
        lambda: fw.exchange.export(pop, tmp_path / "net.onnx"),
    ):
        with pytest.raises(OptionError, match=r"got a Population.* pop\[0\]"):
            call()

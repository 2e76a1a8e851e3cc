"""Edits in place: the network is what building it anew gives, and what belongs to an edge follows it."""

import gc
import pickle
import weakref
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.prune import l1_unstructured

import fourward as fw
from fourward import Dag, Digraph, FourWard, Recurrent, generate, rewire
from fourward.errors import CycleError, FourwardError, GraphError, OptionError, WeightError
from fourward.sparse._rewire import unwrap
from tests.sparse.helpers import F64, OPTIMIZERS, forward_and_gradients, pairs, rebuild
from tests.tolerance import assert_near

SMALL = [("a", "c"), ("b", "c"), ("c", "d")]


def small(**options):
    return FourWard(Dag.from_edges(SMALL), "tanh", dtype=F64, seed=0, **options)


def train(net, optimizer, steps=1, seed=0):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        shape = (3, 2, net.graph.num_inputs) if isinstance(net, Recurrent) else (4, net.graph.num_inputs)
        result = net(torch.randn(shape, generator=rng, dtype=F64))
        optimizer.zero_grad()
        (result[0] if isinstance(result, tuple) else result).square().sum().backward()
        optimizer.step()


def states(net, optimizer):
    """By edge or neuron, its weight or bias and all moments; the numbers of steps apart."""
    graph, table = net.graph, {}
    for parameter, names in ((net.weight, pairs(graph)), (net.bias, [graph.labels[v] for v in graph.neurons])):
        tensors = {"value": parameter.detach(), **optimizer.state[parameter]}
        for key, tensor in tensors.items():
            if isinstance(tensor, torch.Tensor) and tensor.shape == parameter.shape:
                table |= {(name, key): value for name, value in zip(names, tensor.tolist(), strict=True)}
    return table


edits = st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 0.6), st.integers(0, 12)), min_size=1, max_size=4)


def random_edit(net, seed, fraction, count, counter=[0]):  # noqa: B006 - counts over all calls
    """Pairs to add and to remove, forward or, for a Recurrent, in any direction; and nodes."""
    rng, graph = np.random.default_rng(seed), net.graph
    labels, listed, order = list(graph.labels), pairs(graph), graph.dag.position
    removed = [pair for pair in listed if rng.random() < fraction]
    hidden = [labels[v] for v in graph.neurons if v not in graph.inputs and v not in graph.outputs]
    gone = [str(v) for v in rng.permutation(hidden)[: rng.integers(0, 2)]] if hidden else []
    counter[0] += 1
    new = [f"new{counter[0]}"] if rng.random() < 0.5 else []
    there, added = set(listed) - set(removed), {}
    for _ in range(count):
        u, v = rng.integers(0, len(labels), 2)
        carries = v in graph.inputs and v not in graph.driven
        if isinstance(net, FourWard) and order[u] > order[v]:
            u, v = v, u
            carries = v in graph.inputs and v not in graph.driven
        pair = labels[u], labels[v]
        if (u != v or isinstance(net, Recurrent)) and not carries and pair not in there and not {*gone} & {*pair}:
            added[pair] = rng.standard_normal()
    if new:
        added[labels[graph.inputs[0]], new[0]] = 0.5
        if graph.outputs[0] in graph.neurons:
            added[new[0], labels[graph.outputs[0]]] = -0.5
    return {
        "add": list(added), "remove": removed, "add_nodes": {label: "relu" for label in new}, "remove_nodes": gone,
        "weight": np.array(list(added.values())),
    }  # fmt: skip


def check_edits(net, sequence, x):
    optimizer = list(OPTIMIZERS.values())[sequence[0][0] % len(OPTIMIZERS)](net.parameters())
    weight, bias = net.weight, net.bias
    for seed, fraction, count in sequence:
        train(net, optimizer, seed=seed)
        before, edit = states(net, optimizer), random_edit(net, seed, fraction, count)
        result = rewire(net, optimizer, **edit)
        after = states(net, optimizer)
        assert net.weight is weight, "parameters stay the same objects"
        assert net.bias is bias
        new = dict(zip(edit["add"], edit["weight"], strict=True))
        for (name, key), value in after.items():
            if name in new or name in edit["add_nodes"]:
                assert value == (new.get(name, 0.0) if key == "value" else 0.0), (name, key)
            else:
                assert value == before[name, key], (name, key)
        assert [pairs(net.graph)[k] for k in result.added] == edit["add"]
        twin = rebuild(net)
        assert pickle.dumps(net.plan.source) == pickle.dumps(twin.plan.source)
        for got, want in zip(forward_and_gradients(net, x), forward_and_gradients(twin, x), strict=True):
            assert torch.equal(got, want), "the same kernels on the same plan"
    train(net, optimizer)


@settings(max_examples=25)
@given(st.integers(2, 25), st.floats(0.05, 0.6), st.integers(0, 10**6), edits)
def test_edits_of_a_dag_equal_building_it_anew(n, p, seed, sequence):
    dag = generate.erdos_renyi(n, p, seed=seed)
    named = Dag.from_arrays(dag.edges, labels=[f"n{k}" for k in range(n)], inputs=dag.inputs, outputs=dag.outputs)
    net = FourWard(named, "tanh", dtype=F64, seed=seed)
    check_edits(net, sequence, torch.randn(3, dag.num_inputs, dtype=F64, generator=torch.Generator().manual_seed(seed)))


@settings(max_examples=15)
@given(st.integers(3, 12), st.integers(0, 10**6), st.sampled_from(["fewest", "all"]), st.booleans(), edits)
def test_edits_of_a_digraph_equal_building_it_anew(n, seed, feedback, leaky, sequence):
    rng = np.random.default_rng(seed)
    mask = rng.random((n, n)) < 0.3
    mask[:, 0] = False  # an input that carries its feature
    mask[0, 1] = True
    graph = Digraph.from_mask(mask, labels=[f"n{k}" for k in range(n)], inputs=["n0"], outputs=[f"n{n - 1}"],
                              feedback=feedback)  # fmt: skip
    net = Recurrent(graph, "tanh", tau=1.5 if leaky else None, dtype=F64, seed=0)
    check_edits(net, sequence, torch.randn(4, 2, 1, dtype=F64, generator=torch.Generator().manual_seed(seed)))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("grows", [0, 1, -1])
def test_moments_follow_their_edges(name, grows):
    dag = generate.erdos_renyi(20, 0.3, seed=1)
    net = FourWard(dag, "tanh", dtype=F64, seed=0)
    optimizer = OPTIMIZERS[name](net.parameters())
    train(net, optimizer, 3)
    before, step = states(net, optimizer), optimizer.state[net.weight].get("step")
    absent = [(u, v) for u in range(20) for v in range(20) if dag.position[u] < dag.position[v]
              and dag.in_degree[v] and (u, v) not in pairs(dag)][: 3 + max(grows, 0)]  # fmt: skip
    gone = pairs(dag)[5 : 8 - min(grows, 0)]
    rewire(net, optimizer, add=absent, remove=gone)
    after = states(net, optimizer)
    assert len({key for (_, key) in after}) == {"SGD": 2, "Adam": 3, "AdamW": 4, "RMSprop": 4}[name]
    for (pair, key), value in after.items():
        assert value == (0.0 if pair in absent else before[pair, key])
    assert optimizer.state[net.weight].get("step") is step
    train(net, optimizer)


def test_without_edits_the_trajectory_is_the_same():
    """Edges that lead nowhere come and go, and nothing else notices."""
    dag = Dag.from_edges([*SMALL, ("a", "x")], outputs=["d"])
    nets = [FourWard(dag, "tanh", dtype=F64, seed=0) for _ in range(2)]
    optimizers = [torch.optim.Adam(net.parameters(), 0.01) for net in nets]
    for k in range(6):
        for net, optimizer in zip(nets, optimizers, strict=True):
            train(net, optimizer, seed=k)
        change = (
            {"add": [("b", "x")], "remove": [("a", "x")]}
            if k % 2 == 0
            else {"add": [("a", "x")], "remove": [("b", "x")]}
        )
        rewire(nets[1], optimizers[1], **change)
    for pair in SMALL:
        values = [states(net, optimizer)[pair, "exp_avg"] for net, optimizer in zip(nets, optimizers, strict=True)]
        assert values[0] == values[1] != 0


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"add": [("d", "c")]}, CycleError, "'c' -> 'd' -> 'c'. Nothing was changed"),
        ({"add": [("c", "d")]}, GraphError, r"there already: \('c', 'd'\)"),
        ({"add": [("b", "d"), ("b", "d")]}, GraphError, r"duplicate edges to add: \('b', 'd'\)"),
        ({"add": [("c", "c")]}, GraphError, "self-loop"),
        ({"add": [("c", "a")]}, GraphError, "expected added edges into neurons"),
        ({"add": [("c", "nowhere")]}, GraphError, "unknown labels in add: 'nowhere'"),
        ({"add": [("a", "d")], "weight": [1.0, 2.0]}, WeightError, "or as 1 of them"),
        ({"add": [("a", "d")], "weight": float("nan")}, WeightError, "finite number"),
        ({"remove": [("a", "d")]}, GraphError, r"unknown edges: \('a', 'd'\)"),
        ({"remove": [("a", "c"), ("a", "c")]}, GraphError, "duplicate edges to remove"),
        ({"remove_nodes": ["d"]}, GraphError, "'d' is an output"),
        ({"remove_nodes": ["a"]}, GraphError, "'a' is an input"),
        ({"remove_nodes": ["c"], "add": [("a", "c")]}, GraphError, "removed nodes"),
        ({"remove_nodes": ["q"]}, GraphError, "unknown label 'q'"),
        ({"add_nodes": ["c"]}, GraphError, "there already: 'c'"),
        ({"add_nodes": ["e", "e"]}, GraphError, "duplicate labels in add_nodes"),
        ({"add_nodes": {"e": "nope"}}, FourwardError, "nope"),
        ({"add": [("a", "d")], "feedback": True}, OptionError, "feedback is for networks with feedback"),
    ],
    ids=str,
)  # fmt: skip
def test_errors_leave_the_network_as_it_was(change, error, words):
    net = small()
    optimizer = torch.optim.Adam(net.parameters())
    train(net, optimizer)
    before, graph, runner = states(net, optimizer), net.graph, net.runner
    with pytest.raises(error, match=words):
        rewire(net, optimizer, **change)
    assert net.graph is graph
    assert net.runner is runner
    assert states(net, optimizer) == before


def test_optimizers_that_cannot_follow_are_named():
    net, other = small(), small()
    with pytest.raises(OptionError, match="optimises none of the network's parameters"):
        rewire(net, torch.optim.SGD(other.parameters(), 0.1), remove=[("a", "c")])
    with pytest.raises(OptionError, match="optimizer must be a torch"):
        rewire(net, "adam", remove=[("a", "c")])
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = net(torch.ones(1, 2, dtype=F64)).square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    with pytest.raises(OptionError, match=r"LBFGS keeps '.+' for all edges together"):
        rewire(net, optimizer, add=[("a", "d")])
    assert net.dag.num_edges == 3


def test_several_optimizers_and_none():
    net = small()
    optimizers = [torch.optim.SGD([net.weight], 0.1, momentum=0.9), torch.optim.Adam([net.bias])]
    rewire(net, optimizers, add=[("a", "d")])  # before the first step
    for optimizer in optimizers:
        train(net, optimizer)
    rewire(net, optimizers, add=[("b", "d")], add_nodes=["e"])
    assert optimizers[0].state[net.weight]["momentum_buffer"].shape == (5,)
    assert optimizers[1].state[net.bias]["exp_avg"].shape == (3,)
    rewire(net, remove=[("b", "d")])
    with pytest.raises(RuntimeError, match="size"):
        train(net, optimizers[0])  # it wasn't passed
    rewire(net, None, remove=[("a", "c")])


def test_gradients_follow_their_edges():
    net = small()
    net(torch.ones(2, 2, dtype=F64)).sum().backward()
    grad = dict(zip(pairs(net.dag), net.weight.grad.tolist(), strict=True))
    rewire(net, add=[("a", "d"), ("b", "d")], remove=[("a", "c")])
    for pair, value in zip(pairs(net.dag), net.weight.grad.tolist(), strict=True):
        assert value == grad.get(pair, 0.0)


def test_a_living_loss_does_not_remember_the_old_size():
    net = small()
    loss = net(torch.ones(1, 2, dtype=F64)).sum()
    loss.backward()
    rewire(net, add=[("a", "d")])
    net(torch.ones(1, 2, dtype=F64)).sum().backward()
    assert net.weight.grad.shape == (4,)
    loss = net(torch.ones(1, 2, dtype=F64)).sum()
    rewire(net, remove=[("a", "d")], add=[("b", "d")])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # between forward and backward
    del loss


def test_constraints_follow_their_edges():
    dag = Dag.from_edges([("a", "c"), ("b", "c"), ("a", "d"), ("b", "d"), ("c", "e"), ("d", "e")])
    tied = dag.align([7, 7, -1, -1, -1, -1], [("a", "c"), ("b", "c"), ("a", "d"), ("b", "d"), ("c", "e"), ("d", "e")])
    scale = np.arange(1.0, 7.0)
    net = FourWard(dag, "tanh", dtype=F64, seed=3, sign={"c": -1, "d": 1}, tied=tied, scale=scale,
                   frozen=[("d", "e")])  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    train(net, optimizer)
    before = dict(zip(pairs(dag), net.weight.tolist(), strict=True))
    parameter, module = net.constraints.free_weight, net.constraints
    rewire(net, optimizer, add=[("c", "d"), ("a", "e")], remove=[("a", "c"), ("b", "d")], weight=[-0.5, 0.25])
    assert net.constraints is module
    assert module.free_weight is parameter
    after = dict(zip(pairs(net.dag), net.weight.tolist(), strict=True))
    stayed = {pair: before[pair] for pair in after if pair in before}
    assert {pair: after[pair] for pair in stayed} == stayed
    assert after["c", "d"] == -0.5, "it has the sign of its source"
    assert after["a", "e"] == 0.25
    twin = FourWard(net.dag, "tanh", dtype=F64, sign=module.arrays.sign, tied=module.arrays.tied,
                    scale=module.arrays.scale, frozen=module.arrays.frozen)  # fmt: skip
    twin.load_edge_weights(net.weight, net.bias)
    assert_near(twin.constraints.free_weight.detach(), parameter.detach())
    for name, buffer in module.named_buffers():
        assert torch.equal(buffer, dict(twin.constraints.named_buffers())[name]), name
    x = torch.randn(3, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    for got, want in zip(forward_and_gradients(net, x), forward_and_gradients(twin, x), strict=True):
        assert_near(got, want)
    train(net, optimizer, 2)
    assert net.weight[net.dag.find_edges([("d", "e")])].item() == before["d", "e"]
    with pytest.raises(WeightError, match="contradict the signs of their sources"):
        rewire(net, optimizer, add=[("b", "d")], remove=[("c", "d")], weight=0.5) and rewire(
            net, optimizer, add=[("c", "d")], weight=0.5
        )


def draw_constraints(rng, edges, nodes):
    """Some of the four constraints."""
    drawn = {
        "sign": dict(enumerate(rng.integers(-1, 2, nodes).tolist())),
        "tied": np.where(rng.random(edges) < 0.5, rng.integers(0, 4, edges), -1),
        "frozen": rng.random(edges) < 0.3,
        "scale": rng.uniform(0.5, 2, edges),
    }
    return {name: values for name, values in drawn.items() if rng.random() < 0.6}


@settings(max_examples=15)
@given(st.integers(3, 15), st.integers(0, 10**6), edits)
def test_edits_under_constraints_equal_building_it_anew(n, seed, sequence):
    """Effective weights, outputs, and the sizes of the gradients of all parameters: a sign leaves theirs open."""
    rng, drawn = np.random.default_rng(seed), generate.erdos_renyi(n, 0.5, seed=seed)
    n = drawn.num_nodes  # without isolated ones
    dag = Dag.from_arrays(drawn.edges, labels=n, inputs=drawn.inputs, outputs=drawn.outputs)
    try:
        net = FourWard(dag, "tanh", dtype=F64, seed=0, **draw_constraints(rng, dag.num_edges, n))
    except WeightError:  # such as edges of opposite signs that are tied
        return
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    x = torch.randn(3, dag.num_inputs, dtype=F64, generator=torch.Generator().manual_seed(seed))
    for number, fraction, count in sequence:
        train(net, optimizer, seed=number)
        before, sign = dict(zip(pairs(net.dag), net.weight.tolist(), strict=True)), None
        if net.constraints is not None:
            sign, parameter = net.constraints.node_sign, net.constraints.free_weight
        order, size = net.dag.position, dag.num_nodes
        drawn = {
            tuple(sorted(rng.choice(size, 2, replace=False).tolist(), key=order.__getitem__))
            for _ in range(count if size > 1 else 0)
        }
        removed = [pair for pair in before if rng.random() < fraction]
        added = {(u, v): rng.standard_normal() for u, v in sorted(drawn) if v not in net.dag.inputs and (
                 (u, v) not in before or (u, v) in removed)}  # fmt: skip
        added = {(u, v): w if sign is None or sign[u] == 0 else abs(w) * sign[u] for (u, v), w in added.items()}
        rewire(net, optimizer, add=list(added), remove=removed, weight=np.array(list(added.values())))
        twin = FourWard(net.dag, "tanh", dtype=F64)
        if net.constraints is not None:
            assert net.constraints.free_weight is parameter
            arrays = net.constraints.arrays._asdict()
            if arrays["sign"] is not None:  # by pair, as an array may be one by node
                arrays["sign"] = dict(zip(pairs(net.dag), arrays["sign"].tolist(), strict=True))
            twin = FourWard(net.dag, "tanh", dtype=F64, **arrays)
        twin.load_edge_weights(net.weight, net.bias)
        for pair, value in zip(pairs(net.dag), net.weight.tolist(), strict=True):
            assert value == pytest.approx(added.get(pair, before.get(pair)), rel=1e-14)
        for got, want in zip(forward_and_gradients(net, x), forward_and_gradients(twin, x), strict=True):
            assert_near(got, want)
        for each in (net, twin):
            each.zero_grad()
            each(x).square().sum().backward()
        for got, want in zip(net.parameters(), twin.parameters(), strict=True):
            assert (got.grad is None) == (want.grad is None)
            assert got.grad is None or assert_near(got.grad.abs(), want.grad.abs()) is None


def test_a_neuron_that_loses_all_edges_keeps_its_sign(tmp_path):
    net = FourWard(Dag.from_edges(SMALL), "tanh", sign={"c": -1}, seed=0)
    rewire(net, remove=[("c", "d")])
    fw.save(net, tmp_path / "net.safetensors")
    for each in (net, fw.load(tmp_path / "net.safetensors")):
        with pytest.raises(WeightError, match="contradict the signs"):
            rewire(each, add=[("c", "d")], weight=1.0)
        rewire(each, add=[("c", "d")], weight=-1.0)
        assert each.weight[2].item() == -1.0


def test_driven_inputs_dropout_attributes_and_custom_activations():
    dag = Dag.from_edges([*SMALL, ("a", "b")], inputs=["a", "b"]).with_attributes({"kind": {"c": "x"}})
    net = FourWard(dag, {"c": torch.sin, "default": "tanh"}, dtype=F64, seed=0, dropout=0.4)
    rewire(net, add=[("b", "d"), ("b", "e"), ("e", "d")], add_nodes=["e"], remove=[("b", "c")], weight=0.5)
    assert net.graph.attributes["kind"] == (None, "x", None, None, None)
    assert [net.graph.labels[v] for v in net.graph.driven] == ["b"]
    twin = rebuild(net)
    x = torch.randn(5, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    assert_near(net.eval()(x), twin(x))
    assert not torch.equal(net.train()(x), net(x))
    rewire(net, remove_nodes=["c"])
    assert_near(net.eval()(x), rebuild(net)(x))


def test_a_recurrent_takes_feedback_as_its_edges_say():
    g = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "y")])
    net = Recurrent(g, seed=0)
    rewire(net, add=[("b", "a"), ("a", "y")])
    assert pairs(net.graph)[net.graph.dag.num_edges :] == [("b", "a")]
    rewire(net, add=[("x", "y"), ("x", "b")], feedback=[True, False])
    assert pairs(net.graph)[net.graph.dag.num_edges :] == [("b", "a"), ("x", "y")]
    with pytest.raises(CycleError, match="followed within a step: add one of them as feedback"):
        rewire(net, add=[("y", "b")], feedback=False)
    with pytest.raises(GraphError, match="there already"):
        rewire(net, add=[("x", "y")], feedback=False)
    synchronous = Recurrent(Digraph.from_edges([("x", "a"), ("a", "b")], feedback="all"), seed=0)
    rewire(synchronous, add=[("a", "a"), ("x", "b")])
    assert synchronous.graph.num_feedback == 4


def test_time_constants_follow_their_neurons():
    g = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "y"), ("b", "a")])
    for tau in ({"a": 2.0, "b": 3.0, "y": 4.0}, torch.nn.Parameter(torch.tensor([2.0, 3.0, 4.0]))):
        net = Recurrent(g, tau=tau, seed=0)
        optimizer = torch.optim.Adam(net.parameters(), lr=0.0)
        net(torch.ones(3, 1, 1))[0].sum().backward()
        optimizer.step()
        rewire(net, optimizer, add_nodes=["c"], add=[("x", "c"), ("c", "y")], remove_nodes=["a"])
        assert net.tau.tolist() == [3.0, 4.0, 1.0]
        assert isinstance(net.tau, torch.nn.Parameter) == isinstance(tau, torch.nn.Parameter)


def test_what_the_users_own_arrays_need():
    net = small()
    edit = rewire(net, add=[("a", "d")], remove=[("a", "c")], add_nodes=["e"])
    assert edit.carry(np.array([10, 20, 30])).tolist() == [20, 0, 30]
    assert edit.carry(torch.tensor([[1.0], [2.0], [3.0]]), new=-1.0).tolist() == [[2.0], [-1.0], [3.0]]
    assert (edit.edge.tolist(), edit.removed.tolist(), edit.added.tolist()) == ([1, -1, 2], [0], [1])
    assert (edit.node.tolist(), edit.neuron.tolist()) == ([0, 1, 2, 3, -1], [0, 1, -1])
    assert repr(edit) == "Edit(1 edge added, 1 removed, 2 kept, 1 node added)"
    with pytest.raises(OptionError, match="a value for each of 3 edges before the edit, got 4"):
        edit.carry(np.zeros(4))


def test_a_thousand_edits_leave_no_trace():
    """The wiring returns to where it was, with the same weights; no parameter or plan stays alive."""
    dag = generate.erdos_renyi(30, 0.3, seed=2)
    net = FourWard(dag, "tanh", dtype=F64, seed=0)
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    train(net, optimizer, 2)
    before, plans = states(net, optimizer), []
    gone = pairs(dag)[::7]
    weight = [before[pair, "value"] for pair in gone]
    for _ in range(500):
        rewire(net, optimizer, remove=gone)
        plans.append(weakref.ref(net.plan))
        rewire(net, optimizer, add=gone, weight=weight)
    gc.collect()
    assert sum(ref() is not None for ref in plans) <= 1
    assert net.dag == dag
    for (pair, key), value in states(net, optimizer).items():
        assert value == (before[pair, key] if pair not in gone or key == "value" else 0.0)
    assert len(optimizer.state) == 2


def test_a_thousand_random_edits_do_not_drift():
    """A network that trained all the while is at last what its edges, weights and moments make anew."""
    dag = generate.erdos_renyi(30, 0.3, seed=2)
    net = FourWard(dag, "tanh", dtype=F64, seed=0)
    optimizer = torch.optim.AdamW(net.parameters(), 0.01)
    method = fw.sparse.SET(net, optimizer, every=1, fraction=0.1, seed=0)
    own = np.array([hash(pair) for pair in pairs(dag)])
    for k in range(1000):
        train(net, optimizer, seed=k % 7)
        before, edit = states(net, optimizer) if k % 100 == 99 else None, method.step()
        now = pairs(net.dag)
        own = edit.carry(own, new=0)
        own[edit.added] = [hash(now[index]) for index in edit.added]
        if before is not None:
            new = {now[index] for index in edit.added}
            for (pair, key), value in states(net, optimizer).items():
                assert value == (0.0 if pair in new else before[pair, key]), (pair, key)
    assert net.dag.num_edges == dag.num_edges
    assert own.tolist() == [hash(pair) for pair in pairs(net.dag)]
    twin = rebuild(net)
    other = torch.optim.AdamW(twin.parameters(), 0.01)
    other.load_state_dict(deepcopy(optimizer.state_dict()))
    for each in ((net, optimizer), (twin, other)):
        train(*each, steps=3)
    for got, want in zip(net.parameters(), twin.parameters(), strict=True):
        assert torch.equal(got, want)


def test_a_compiled_network_runs_on():
    net = FourWard(generate.erdos_renyi(12, 0.4, seed=1), "tanh", seed=0)
    compiled = torch.compile(net, backend="eager")
    x = torch.ones(2, net.dag.num_inputs)
    compiled(x)
    pair = pairs(net.dag)[3]
    for change in ({"remove": [pair]}, {"add": [pair], "weight": 0.7}):
        rewire(compiled, **change)
        assert torch.equal(compiled(x), net(x))


def test_wrappers_around_wrappers():
    net = FourWard(Dag.from_edges(SMALL), "tanh", seed=0)
    assert unwrap(torch.compile(net, backend="eager")) is net
    with one_process():
        ddp = DistributedDataParallel(net)
        assert unwrap(torch.compile(ddp, backend="eager")) is net
        assert unwrap(DistributedDataParallel(torch.compile(net, backend="eager"))) is net


@contextmanager
def one_process():
    """A process group of this process alone."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def test_ddp_keeps_the_number_of_edges():
    """Its buckets have the size of the parameters; dead weak references anywhere in the process don't matter."""
    nets = [FourWard(generate.erdos_renyi(12, 0.4, seed=1), "tanh", seed=0) for _ in range(2)]
    optimizers = [torch.optim.Adam(net.parameters(), 0.01) for net in nets]
    methods = [fw.sparse.SET(*each, every=1, seed=0) for each in zip(nets, optimizers, strict=True)]
    x = torch.ones(2, nets[0].dag.num_inputs)
    dead = [weakref.proxy(torch.nn.Linear(1, 1)) for _ in range(3)]
    with one_process():
        ddp = DistributedDataParallel(nets[0])
        with pytest.raises(WeightError, match="wrapped in DistributedDataParallel, whose buckets keep the number"):
            rewire(ddp, optimizers[0], remove=[pairs(nets[0].dag)[0]])
        for _ in range(3):
            for model, optimizer, method in zip((ddp, nets[1]), optimizers, methods, strict=True):
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()
                method.step()
        assert torch.equal(nets[0].weight, nets[1].weight)
        del ddp
        gc.collect()
        rewire(nets[0], optimizers[0], remove=[pairs(nets[0].dag)[0]])  # no longer wrapped
    assert len(dead) == 3


def test_edits_within_inference_mode():
    """As in the hooks of a validation: parameters stay such that autograd takes them."""
    net = small()
    optimizer = torch.optim.Adam(net.parameters())
    train(net, optimizer)
    for change in ({"add": [("b", "d")]}, {"add": [("a", "d")], "remove": [("b", "d")]}):
        with torch.inference_mode():
            rewire(net, optimizer, **change)
        train(net, optimizer)
    assert torch.equal(net(torch.ones(1, 2, dtype=F64)), rebuild(net)(torch.ones(1, 2, dtype=F64)))


@pytest.mark.parametrize("name", ["frozen", "tied"])
def test_constraints_that_lost_all_their_edges(name, tmp_path):
    """Weights are then the parameters themselves, which a file must not hold twice."""
    values = {"frozen": [True, False, False], "tied": [0, -1, -1]}[name]
    net = small(**{name: Dag.from_edges(SMALL).align(np.array(values), SMALL)})
    rewire(net, remove=[("a", "c")], add=[("a", "d")], weight=0.3)
    fw.save(net, tmp_path / "net.safetensors")
    x = torch.ones(1, 2, dtype=F64)
    assert torch.equal(fw.load(tmp_path / "net.safetensors")(x), net(x))


def test_only_networks_with_plain_parameters():
    with pytest.raises(OptionError, match="expected a FourWard or a Recurrent, got a Linear"):
        rewire(torch.nn.Linear(2, 2), remove=[])
    net = small()
    l1_unstructured(net, "weight", amount=1)
    with pytest.raises(WeightError, match="pruned or parametrised"):
        rewire(net, remove=[("a", "c")])

"""SET, RigL, Prune: what may grow, what goes, and runs that continue to the same bits."""

import io
from contextlib import suppress

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fourward as fw
from fourward import Dag, Digraph, FourWard, Recurrent, generate
from fourward.errors import OptionError, TrainingError
from fourward.sparse import SET, Prune, RigL, prune
from fourward.sparse._gradients import absent_gradients
from tests.sparse.helpers import F64, pairs
from tests.tolerance import assert_near

EDGES = [("a", "c"), ("b", "c"), ("c", "y"), ("a", "h"), ("h", "y")]


def sparse_mlp(density=0.4, seed=0):
    dag = generate.layered_mlp([6, 12, 12, 3])
    keep = np.random.default_rng(seed).random(dag.num_edges) < density
    return Dag.from_arrays(dag.edges[keep], labels=33, inputs=dag.inputs, outputs=dag.outputs)


def make(dag=None, method=SET, net_options=None, **options):
    net = FourWard(dag or generate.erdos_renyi(30, 0.25, seed=1), "tanh", seed=0, **(net_options or {}))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    return net, optimizer, method(net, optimizer, **options)


def train(net, optimizer, method, steps, start=0):
    """Steps on batches that depend on their number alone; all edits."""
    edits = []
    for k in range(start, start + steps):
        rng = torch.Generator().manual_seed(k)
        shape = (4, 5, net.graph.num_inputs) if isinstance(net, Recurrent) else (8, net.graph.num_inputs)
        result = net(torch.randn(shape, generator=rng))
        optimizer.zero_grad()
        ((result[0] if isinstance(result, tuple) else result) - 0.3).square().mean().backward()
        optimizer.step()
        edits.append(method.step())
    return [edit for edit in edits if edit is not None]


@pytest.mark.parametrize("method", [SET, RigL])
@pytest.mark.parametrize("rule", ["levels", "layered", lambda u, v: (u + v) % 3 > 0])
def test_the_number_of_edges_stays_and_levels_are_respected(method, rule):
    net, optimizer, method = make(method=method, rule=rule, every=2, seed=3, fraction=0.5)
    level, edges, sinks = net.layering.level, net.dag.num_edges, set(net.dag.outputs.tolist())
    joined = {tuple(each) for each in level[net.dag.edges].tolist()}
    started = set(pairs(net.dag))
    listed = train(net, optimizer, method, 10)
    assert len(listed) == method.edits == 5
    assert net.dag.num_edges == edges
    assert set(pairs(net.dag)) != started
    for u, v in net.dag.edges.tolist():
        assert level[u] < level[v]
        assert u not in sinks
        assert v not in net.dag.inputs
        assert rule != "layered" or (level[u], level[v]) in joined
        assert not callable(rule) or (u, v) in started or rule(u, v)
    assert net.layering.height <= level.max() + 1


def test_layers_keep_their_numbers_of_edges():
    net, optimizer, method = make(sparse_mlp(), rule="layered", every=1, seed=0)
    level = net.layering.level.copy()
    before = np.unique(level[net.dag.edges], axis=0, return_counts=True)
    train(net, optimizer, method, 6)
    after = np.unique(level[net.dag.edges], axis=0, return_counts=True)
    assert np.array_equal(before[0], after[0])
    assert np.array_equal(before[1], after[1])
    assert method.replaced == sum(int(0.3 * count) for count in before[1])


@settings(max_examples=20)
@given(st.integers(2, 14), st.floats(0.1, 1.0), st.integers(0, 10**6), st.floats(0.05, 1.0))
def test_the_weakest_go_and_any_graph_can_be_rewired(n, p, seed, fraction):
    net, _, method = make(generate.erdos_renyi(n, p, seed=seed), every=1, seed=seed, fraction=fraction)
    before = dict(zip(pairs(net.dag), net.weight.abs().tolist(), strict=True))
    edit = method.step()
    gone = [value for pair, value in before.items() if pair not in pairs(net.dag)]
    assert net.dag.num_edges == len(before)
    assert len(edit.removed) <= int(fraction * len(before))
    threshold = sorted(before.values())[: len(edit.removed)]
    assert not gone or max(gone) <= max(threshold)


def test_seeds_draw_the_same_and_other_wirings():
    def wiring(seed):
        net, optimizer, method = make(every=1, seed=seed)
        train(net, optimizer, method, 3)
        return pairs(net.dag), net.weight.detach().clone()

    state = np.random.get_state()[1].copy(), torch.get_rng_state()
    assert wiring(1)[0] == wiring(1)[0] != wiring(2)[0]
    assert torch.equal(wiring(1)[1], wiring(1)[1])
    assert (np.random.get_state()[1] == state[0]).all()
    assert torch.equal(torch.get_rng_state(), state[1])
    assert SET(make()[0]).seed != SET(make()[0]).seed


@pytest.mark.parametrize("kind", ["SET", "RigL", "Prune", "recurrent"])
@pytest.mark.parametrize("stop", [5, 6])
def test_a_run_continues_to_the_same_bits(kind, stop, tmp_path):
    def start():
        if kind == "recurrent":
            graph = Digraph.from_mask(np.random.default_rng(0).random((12, 12)) < 0.3, inputs=[0, 1], outputs=[11])
            net = Recurrent(graph, seed=0)
        else:
            net = FourWard(
                generate.erdos_renyi(30, 0.25, seed=1), "tanh", seed=0, dropout=0.2, sign={3: 1, 5: -1, 7: -1}
            )
        return net, torch.optim.Adam(net.parameters(), 0.01)

    def make_method(net, optimizer):
        if kind == "Prune":
            return Prune(net, optimizer, amount=0.6, until=12, every=3)
        return (RigL if kind == "RigL" else SET)(net, optimizer, every=3, seed=4)

    net, optimizer = start()
    method = make_method(net, optimizer)
    train(net, optimizer, method, 14)

    other, other_optimizer = start()
    other_method = make_method(other, other_optimizer)
    train(other, other_optimizer, other_method, stop)
    fw.save(other, tmp_path / "net.safetensors")
    file = io.BytesIO()
    torch.save({"optimizer": other_optimizer.state_dict(), "method": other_method.state_dict()}, file)
    file.seek(0)
    saved, passes = torch.load(file, weights_only=True), other.passes

    loaded = fw.load(tmp_path / "net.safetensors")
    loaded.passes.copy_(passes)
    loaded_optimizer = torch.optim.Adam(loaded.parameters(), 0.01)
    loaded_optimizer.load_state_dict(saved["optimizer"])
    loaded_method = make_method(loaded, loaded_optimizer)
    loaded_method.load_state_dict(saved["method"])
    train(loaded, loaded_optimizer, loaded_method, 14 - stop, start=stop)

    assert loaded.graph == net.graph
    assert torch.equal(loaded.weight, net.weight)
    assert torch.equal(loaded.bias, net.bias)
    for name, value in method.history.to_arrays().items():
        assert np.array_equal(value, loaded_method.history.to_arrays()[name])


@pytest.mark.parametrize("feedback", ["fewest", "all"])
@pytest.mark.parametrize("kind", [SET, RigL])
def test_recurrent_networks_keep_their_kinds_of_edges(feedback, kind):
    mask = np.random.default_rng(0).random((15, 15)) < 0.3
    mask[:, 0] = False
    graph = Digraph.from_mask(mask, inputs=[0, 1], outputs=[14], feedback=feedback)
    net = Recurrent(graph, seed=0, tau=2.0)
    optimizer = torch.optim.RMSprop(net.parameters(), 0.01)
    method = kind(net, optimizer, every=1, seed=0)
    driven, counts = graph.driven.tolist(), (graph.num_edges, graph.num_feedback)
    for edit in train(net, optimizer, method, 6):
        assert len(edit.added) == len(edit.removed) > 0
    assert (net.graph.num_edges, net.graph.num_feedback) == counts
    assert net.graph.driven.tolist() == driven
    assert net.graph != graph


def test_rigl_grows_where_the_gradient_is_largest():
    """Against the gradients of a network that has every forward edge, those of the absent ones with weight 0."""
    dag = generate.erdos_renyi(14, 0.3, seed=4)
    net = FourWard(dag, "tanh", seed=0, dtype=F64, dropout=0.3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    method = RigL(net, optimizer, every=1, fraction=0.2, seed=0, rule=np.ones((14, 14), bool))
    level = net.layering.level
    absent = [(u, v) for u in range(14) for v in range(14) if level[u] < level[v] and (u, v) not in pairs(dag)
              and v not in dag.inputs and (u not in dag.outputs or dag.out_degree[u])]  # fmt: skip
    full = FourWard(
        Dag.from_edges([*pairs(dag), *absent], nodes=14, inputs=dag.inputs.tolist(), outputs=dag.outputs.tolist()),
        "tanh", dtype=F64, dropout=0.3,
    )  # fmt: skip
    full.seed = net.seed
    weight = torch.zeros(full.dag.num_edges, dtype=F64)
    weight[full.dag.find_edges(pairs(dag))] = net.weight.detach()
    full.load_edge_weights(weight, net.bias)
    x = torch.randn(6, dag.num_inputs, dtype=F64, generator=torch.Generator().manual_seed(0))
    for each in (net, full):
        each(x).square().sum().backward()
    grad = full.weight.grad[full.dag.find_edges(absent)].abs()
    optimizer.step()  # before or after makes no difference
    edit = method.step()
    count = len(edit.added)
    grown = {pairs(net.dag)[k] for k in edit.added}
    assert grown == {absent[k] for k in grad.argsort(descending=True)[:count].tolist()}
    assert count == int(0.2 * dag.num_edges)
    assert (net.weight[torch.tensor(edit.added)] == 0).all()


def test_rigl_under_signs_grows_what_can_become_of_that_sign():
    dag = Dag.from_edges(EDGES)
    for sign, expected in ((1, True), (-1, False)):
        net = FourWard(dag, "identity", init=dag.align([1.0, sign, 1.0, 1.0, 1.0], EDGES), sign={"b": sign}, bias=False)
        method = RigL(net, torch.optim.SGD(net.parameters(), 0.0), every=1, fraction=0.2, seed=0,
                      rule=lambda u, v: (u == dag.index("b")) & (v != dag.index("c")))  # fmt: skip
        net(torch.tensor([[0.0, 1.0]])).sum().neg().backward()  # b's outputs should grow
        edit = method.step()
        assert len(edit.added) == 1
        assert (net.constraints.arrays.sign[edit.added[0]] > 0) == expected


def test_rigl_draws_candidates_of_large_graphs():
    net, optimizer, method = make(method=RigL, every=1, candidates=20, seed=0)
    edits = train(net, optimizer, method, 3)
    assert all(0 < len(edit.added) <= 20 for edit in edits)


def test_rigl_needs_a_backward_pass():
    method = make(method=RigL, every=1)[2]
    with pytest.raises(TrainingError, match="needs a backward pass through the network before an edit"):
        method.step()


def test_rigl_falls_along_a_cosine_and_the_wiring_then_stays():
    net, optimizer, method = make(method=RigL, every=1, until=4, fraction=0.4, seed=0)
    edits = train(net, optimizer, method, 8)
    counts = [len(edit.removed) for edit in edits]
    expected = [int(0.2 * (1 + np.cos(np.pi * k / 4)) * net.dag.num_edges) for k in (1, 2, 3, 4)]
    assert counts == expected


def test_frozen_and_tied_edges_stay():
    dag = generate.erdos_renyi(20, 0.4, seed=3)
    frozen, tied = np.arange(dag.num_edges) % 3 == 0, np.where(np.arange(dag.num_edges) % 3 == 1, 5, -1)
    net, optimizer, method = make(dag, net_options={"frozen": frozen, "tied": tied}, every=1, seed=0, fraction=1.0)
    stay = {pair for pair, each in zip(pairs(dag), frozen | (tied >= 0), strict=True) if each}
    before = dict(zip(pairs(dag), net.weight.tolist(), strict=True))
    train(net, optimizer, method, 3)
    assert stay <= set(pairs(net.dag))
    after = dict(zip(pairs(net.dag), net.weight.tolist(), strict=True))
    assert all(after[pair] == before[pair] for pair, each in zip(pairs(dag), frozen, strict=True) if each)


def test_new_weights_of_set_follow_signs():
    dag = generate.erdos_renyi(20, 0.3, seed=3)
    sign = np.resize([1, -1], 20)
    net, _, method = make(dag, net_options={"sign": sign}, every=1, seed=0, init="kaiming_uniform")
    edit = method.step()
    weight = net.weight.detach()
    assert (weight[torch.tensor(edit.added)] != 0).all()
    assert (weight.numpy() * sign[net.dag.source] >= 0).all()


def test_the_history_knows_what_grew_and_what_went():
    net, optimizer, method = make(every=1, seed=0)
    start = set(pairs(net.dag))
    train(net, optimizer, method, 5)
    now, change = set(pairs(net.dag)), method.history.net_change()
    assert {tuple(pair) for pair in change.grown.tolist()} == now - start
    assert {tuple(pair) for pair in change.gone.tolist()} == start - now
    last = method.history.net_change(since=4)
    assert {tuple(pair) for pair in last.grown.tolist()} == {tuple(pair) for pair in method.history.added[4].tolist()}
    assert not len(method.history.net_change(since=5).grown)
    assert len(method.history) == 5
    assert "5 edits" in repr(method.history)
    assert make(every=1, keep_history=False)[2].history is None


def test_prune_takes_the_smallest():
    net = FourWard(sparse_mlp(), seed=0)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    threshold = net.weight.abs().sort().values[int(0.5 * net.dag.num_edges)].item()
    prune(net, optimizer, amount=0.5)
    assert net.weight.abs().min().item() == threshold
    score = np.arange(net.dag.num_edges)
    strong = pairs(net.dag)[5:]
    prune(net, optimizer, amount=5, by=lambda net: torch.tensor(score))
    assert set(pairs(net.dag)) == set(strong)
    prune(net, amount=0.0)
    x, y = torch.randn(10, 6), torch.zeros(10, dtype=torch.int64)
    prune(net, amount=0.1, by=fw.importance(net, x, y, by="gradient", of="edges"))


def test_neurons_without_edges_go():
    edges = [("a", "h"), ("h", "y"), ("a", "y"), ("a", "i"), ("i", "y")]
    dag = Dag.from_edges(edges)
    scores = dag.align(np.array([0, 1, 5, 6, 7]), edges)
    net = FourWard(dag, seed=0)
    edit = prune(net, amount=2, by=scores)
    assert list(net.dag.labels) == ["a", "y", "i"]
    assert edit.node.tolist() == [0, 2, 3]
    net = FourWard(dag, seed=0)
    prune(net, amount=2, by=scores, neurons=False)
    assert net.dag.num_nodes == 4


def test_gradual_pruning_reaches_its_amount():
    net, optimizer, method = make(method=Prune, amount=0.8, until=10, start=2, every=4)
    edges = net.dag.num_edges
    train(net, optimizer, method, 14)
    assert net.dag.num_edges == edges - int(0.8 * edges)
    assert method.history.steps == [4, 8, 10]


def test_a_driven_input_stays_driven():
    dag = Dag.from_edges([("a", "b"), ("b", "c"), ("a", "c")], inputs=["a", "b"])
    net = FourWard(dag, seed=0)
    with pytest.raises(OptionError, match="expected at least 3 edges that can go, got 2"):
        prune(net, amount=1.0)
    prune(net, amount=2)
    assert pairs(net.dag) == [("a", "b")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fraction": 0.0}, "fraction must be a number above 0 and at most 1"),
        ({"every": 0}, "every must be an int of at least 1, got 0"),
        ({"every": None}, "every must be an int"),
        ({"until": -1}, "until must be an int"),
        ({"seed": -1}, "seed must be an int"),
        ({"rule": "rows"}, "rule must be 'levels', 'layered'"),
        ({"rule": 3}, "got a int"),
        ({"rule": np.ones((2, 2), bool)}, r"of shape \(30, 30\), got bool of shape"),
        ({"init": "ones"}, "init must be 'zeros' or 'kaiming_uniform'"),
    ],
    ids=str,
)
def test_invalid_options(options, words):
    with pytest.raises(OptionError, match=words):
        make(**options)


def test_invalid_options_of_others():
    with pytest.raises(OptionError, match="candidates must be"):
        make(method=RigL, candidates=0)
    with pytest.raises(OptionError, match="amount must be a fraction"):
        make(method=Prune, amount=2, until=5)
    with pytest.raises(OptionError, match="start must be"):
        make(method=Prune, until=5, start=5)
    with pytest.raises(OptionError, match="amount must be a fraction of the edges as a float"):
        prune(make()[0], amount=1.5)
    with pytest.raises(OptionError, match="by must be 'magnitude'"):
        prune(make()[0], amount=0.1, by="size")
    with pytest.raises(OptionError, match="expected a score for each of"):
        prune(make()[0], amount=0.1, by=np.zeros(3))
    method = make(every=1, rule=lambda u, v: True)[2]
    with pytest.raises(OptionError, match="expected the rule to return"):
        method.step()


def test_a_method_refuses_other_nodes_and_corrupt_states():
    net, optimizer, method = make(every=1, seed=0)
    good = method.state_dict()
    for name, value in (("steps", -1), ("level", torch.zeros(3, dtype=torch.int32)), ("joined", torch.tensor([10**9])),
                        ("history.added", torch.tensor([[0, 99]], dtype=torch.int32))):  # fmt: skip
        with pytest.raises(fw.FourwardError):
            method.load_state_dict(good | {name: value})
    method.load_state_dict(good)
    fw.rewire(net, optimizer, add_nodes=["new"])
    with pytest.raises(OptionError, match="expected the 30 nodes that the network had at the start, got 31"):
        method.step()
    fw.rewire(net, optimizer, remove_nodes=["new"])
    method.step()
    fw.rewire(net, optimizer, add_nodes=["new"])
    hidden = next(v for v in net.dag.neurons if v not in net.dag.outputs)
    fw.rewire(net, optimizer, remove_nodes=[net.dag.labels[hidden]])
    with pytest.raises(OptionError, match=r"expected the 30 nodes .* got 30, others among them"):
        method.step()


def test_edges_of_the_users_may_go_against_the_levels_but_a_cycle_is_named():
    net, _, method = make(every=1, seed=0, fraction=0.5)
    level, n = net.layering.level, net.dag.num_nodes
    for u, v in ((u, v) for u in range(n) for v in net.dag.neurons.tolist() if level[u] > level[v]):
        with suppress(fw.errors.CycleError, fw.errors.GraphError):
            fw.rewire(net, add=[(u, v)], weight=9.0)
    before = net.dag
    with pytest.raises(OptionError, match=r"against the levels .* Make a new SET"):
        method.step()
    assert net.dag is before
    SET(net, every=1, seed=0).step()


@pytest.mark.parametrize("has_loops", [True, False])
def test_self_loops_grow_where_there_are_some(has_loops):
    mask = np.random.default_rng(0).random((15, 15)) < 0.3
    np.fill_diagonal(mask, has_loops)
    mask[:, 0] = False
    net = Recurrent(Digraph.from_mask(mask, inputs=[0], outputs=[14], feedback="all"), seed=0)
    method = SET(net, every=1, seed=0, fraction=0.5)
    counts = []
    for _ in range(20):
        edit = method.step()
        grown = net.graph.edges[edit.added]
        counts.append(int((grown[:, 0] == grown[:, 1]).sum()))
    assert (sum(counts) > 0) == has_loops
    other = SET(net, every=1, seed=0)
    other.load_state_dict(method.state_dict())
    assert other._growth.self_loops == has_loops


def test_dense_gradients_are_those_of_a_loop_over_time():
    """Feedback candidates of a Recurrent: the gradient equals a finite difference."""
    graph = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a"), ("b", "y")])
    net = Recurrent(graph, seed=0, dtype=F64)
    method = RigL(net, None, every=1, seed=0)
    x = torch.randn(5, 2, 1, dtype=F64, generator=torch.Generator().manual_seed(0))
    net(x)[0].sum().backward()
    wanted = np.array([[graph.index("y"), graph.index("a")], [graph.index("x"), graph.index("y")]])
    got = absent_gradients(net, method._recorder.recorded, wanted, np.array([True, False]))
    for k, (pair, feedback) in enumerate(((("y", "a"), True), (("x", "y"), False))):
        values = []
        for weight in (1e-4, -1e-4):
            other = Recurrent(graph, seed=0, dtype=F64)
            fw.rewire(other, add=[pair], feedback=feedback, weight=weight)
            values.append(other(x)[0].sum().item())
        assert_near(got[k : k + 1].double(), torch.tensor([(values[0] - values[1]) / 2e-4], dtype=F64), torch.float32)

"""One suite for every engine that runs networks with feedback: outputs, states and all gradients.

An engine with `supports_feedback` inherits every test here. FourWard is the case without feedback edges and T=1.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from benchmarks.cases import ZOO, case
from fourward import Dag, Digraph, FourWard, Recurrent, connectomes, generate
from fourward.engine._registry import ENGINES
from fourward.errors import EngineError
from fourward.plan.activations import ACTIVATIONS
from tests.engine.test_contract import device
from tests.tolerance import assert_near

#: Triton's interpreter would take minutes; test_gpu_recurrent.py tests the gpu engine in it.
SUBJECTS = [
    name
    for name, engine in ENGINES.items()
    if engine.supports_feedback and device(name) == ("cuda" if name == "gpu" else "cpu")
]
subjects = pytest.mark.parametrize("subject", SUBJECTS)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
dynamics = pytest.mark.parametrize("dynamics", ["rate", "voltage"])


def random_digraph(n: int, p: float, seed: int, feedback="fewest", inputs: int = 3) -> Digraph:
    """Self-loops, sources that aren't inputs, driven inputs, outputs that are inputs, too."""
    rng = np.random.default_rng(seed)
    mask = rng.random((n, n)) < p
    return Digraph.from_mask(
        mask, inputs=rng.permutation(n)[:inputs].tolist(), outputs=rng.permutation(n)[: inputs + 1].tolist(),
        feedback=feedback,
    )  # fmt: skip


def ring(n: int) -> Digraph:
    return Digraph.from_edges([(u, (u + 1) % n) for u in range(n)], inputs=[0], outputs=[n - 1, 1])


CASES: Mapping[str, Callable[[], Digraph]] = {
    "one node": lambda: Digraph.from_edges([], nodes=1),
    "a self-loop": lambda: Digraph.from_edges([("a", "a"), ("a", "b")], inputs=["a"], outputs=["b", "a"]),
    "a loop on an input alone": lambda: Digraph.from_edges([(0, 0)], inputs=[0], outputs=[0]),
    "no edges": lambda: Digraph.from_edges([], nodes=list("abc"), inputs=["a"]),
    "a ring": lambda: ring(40),
    "feedback into an input": lambda: Digraph.from_edges(
        [("x", "a"), ("a", "y"), ("y", "x"), ("x", "y")], inputs=["x"], outputs=["y"], feedback=[("y", "x")]
    ),
    "feedback from an input": lambda: Digraph.from_edges(
        [("x", "a"), ("a", "b"), ("b", "a"), ("x", "b")], outputs=["b"], feedback=[("x", "b"), ("b", "a")]
    ),
    "random": lambda: random_digraph(40, 0.1, 0),
    "dense": lambda: random_digraph(24, 0.9, 1),
    "synchronous": lambda: random_digraph(50, 0.1, 2, "all"),
    "without feedback": lambda: Digraph.from_edges(generate.erdos_renyi(30, 0.2, seed=0).edges, nodes=30),
    "C. elegans": lambda: connectomes.load("c-elegans").graph,
}


@cache
def digraph(name: str) -> Digraph:
    return CASES[name]()


class Result(NamedTuple):
    y: Tensor
    h: Tensor
    activations: Tensor
    grads: list[Tensor]  # x, h0, and the parameters by name: of a weighted sum of outputs, activations and states


def network(subject: str, g: Digraph, dtype: torch.dtype, *, bias: bool = True, **options) -> Recurrent:
    """A network whose weights neither let signals die nor explode; the same in every dtype."""
    rng = np.random.default_rng(0)
    if isinstance(options.get("tau"), str):
        options["tau"] = nn.Parameter(torch.tensor(rng.uniform(1, 3, len(g.neurons)), dtype=torch.float32))
    net = Recurrent(g, bias=bias, engine=subject, seed=1, dtype=dtype, device=device(subject), **options)
    weight = rng.uniform(-1, 1, g.num_edges) / np.sqrt(np.maximum(g.in_degree, 1))[g.target]
    biases = rng.uniform(-0.3, 0.3, len(g.neurons)) if bias else None
    net.load_edge_weights(*(None if v is None else torch.tensor(v, dtype=torch.float32) for v in (weight, biases)))
    return net


def run(subject: str, g: Digraph, dtype=torch.float64, T=4, batch=3, *, h0: bool = True, **options) -> Result:
    net = network(subject, g, dtype, **options)
    rng = np.random.default_rng(1)

    def draw(*shape: int) -> Tensor:
        return torch.tensor(rng.standard_normal(shape), dtype=torch.float32).to(net.weight.device, dtype)

    x, start = draw(T, batch, g.num_inputs).requires_grad_(), draw(batch, g.num_nodes).requires_grad_()
    net.passes.zero_()
    y, h = net(x, start if h0 else None)
    net.passes.zero_()
    activations = net.activations(x, start if h0 else None)
    loss = sum((value * draw(*value.shape)).sum() for value in (y, h, activations))
    variables = {"x": x, "h0": start, **dict(sorted(net.named_parameters()))}
    grads = torch.autograd.grad(loss, variables.values(), allow_unused=True)
    filled = [torch.zeros_like(v) if g is None else g for v, g in zip(variables.values(), grads, strict=True)]
    return Result(y.detach().cpu(), h.detach().cpu(), activations.detach().cpu(), [grad.cpu() for grad in filled])


def assert_equal_results(got: Result, want: Result) -> None:
    for ours, theirs in zip((*got[:3], *got.grads), (*want[:3], *want.grads), strict=True):
        assert_near(ours, theirs)


_truths: dict[tuple[Digraph, str], Result] = {}


def truth(g: Digraph, **options) -> Result:
    """The results of the reference, which are computed once for all engines and dtypes."""
    key = g, repr(sorted(options.items()))
    if key not in _truths:
        _truths[key] = run("reference", g, **options)
    return _truths[key]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("options", [(), (("tau", "learned"),), (("tau", 2.5), ("dynamics", "voltage"))], ids=str)
@subjects
@dtypes
def test_every_graph(subject, name, options, dtype):
    assert_equal_results(run(subject, digraph(name), dtype, **dict(options)), truth(digraph(name), **dict(options)))


@subjects
@dtypes
@dynamics
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation(subject, activation, dynamics, dtype):
    options = {"activation": activation, "tau": "learned", "dynamics": dynamics}
    g = random_digraph(16, 0.2, 3)
    assert_equal_results(run(subject, g, dtype, 3, **options), truth(g, T=3, **options))


@subjects
@dtypes
@dynamics
def test_every_neuron_its_own_activation(subject, dynamics, dtype):
    g = digraph("random")
    names = list(ACTIVATIONS)
    mixed = {g.labels[v]: names[i % len(names)] for i, v in enumerate(g.neurons.tolist())}
    tau = {g.labels[v]: 1 + i / 8 for i, v in enumerate(g.neurons.tolist())}
    options = {"activation": mixed, "tau": tau, "dynamics": dynamics}
    assert_equal_results(run(subject, g, dtype, **options), truth(g, **options))


@subjects
@pytest.mark.parametrize("T", [1, 2, 7, 200])
@dynamics
def test_numbers_of_steps(subject, dynamics, T):
    g = random_digraph(8, 0.25, 4)
    options = {"tau": 3.0, "dynamics": dynamics, "T": T}
    assert_equal_results(run(subject, g, **options), truth(g, **options))


@subjects
@pytest.mark.parametrize("batch", [0, 1, 2, 63, 130])
def test_batch_sizes(subject, batch):
    g = digraph("random")
    assert_equal_results(run(subject, g, batch=batch), truth(g, batch=batch))


@subjects
@dtypes
@dynamics
def test_without_bias_and_h0(subject, dynamics, dtype):
    options = {"bias": False, "h0": False, "activation": "sigmoid", "tau": 1.5, "dynamics": dynamics}
    for name in ("random", "synchronous"):
        g = digraph(name)
        assert_equal_results(run(subject, g, dtype, **options), truth(g, **options))


@subjects
@dtypes
@dynamics
def test_dropout_draws_alike(subject, dynamics, dtype):
    g = digraph("random")
    options = {"dropout": 0.4, "tau": 2.0, "dynamics": dynamics, "batch": 16}
    want = truth(g, **options)
    assert_equal_results(run(subject, g, dtype, **options), want)
    options["dropout"] = 0.0
    assert not torch.allclose(truth(g, **options).activations, want.activations), "nothing was dropped"


@subjects
def test_custom_activation(subject):
    g = digraph("random")
    options = {"activation": {"default": torch.atan, g.labels[int(g.neurons[3])]: "relu"}, "tau": 2.0}
    if subject not in ("reference", "torch"):
        with pytest.raises(EngineError, match=rf"{subject}.*can't run this network.*callable"):
            run(subject, g, **options)
        return
    assert_equal_results(run(subject, g, **options), truth(g, **options))


@subjects
def test_nan_passes_through(subject):
    g = Digraph.from_edges([("a", "b"), ("c", "d"), ("b", "b"), ("d", "d")], outputs=["b", "d"])
    net = Recurrent(g, engine=subject, seed=0, dtype=torch.float64, device=device(subject))
    x = torch.zeros(3, 2, 2, dtype=torch.float64, device=device(subject))
    x[1, 0, 0] = torch.nan
    y, h = net(x)
    assert y[:, 0, 0].isnan().tolist() == [False, True, True]
    assert y.isnan().sum() == 2
    assert h.isnan().sum() == 1


DEAD_ENDS = [("x", "a"), ("a", "a"), ("a", "y"), ("x", "dead"), ("dead", "dead"), ("a", "late"), ("dead", "late")]


@subjects
@pytest.mark.parametrize("feedback", ["fewest", "all"])
@pytest.mark.parametrize("options", [{}, {"tau": 2.0}, {"tau": 2.0, "dynamics": "voltage"}], ids=str)
def test_neurons_that_reach_no_output_pass_no_nan_on(subject, options, feedback):
    """Their states are NaN, but nothing that outputs depend on is."""
    g = Digraph.from_edges([*DEAD_ENDS, ("late", "dead")], outputs=["y"], feedback=feedback)
    tau = nn.Parameter(torch.full((4,), 2.0)) if "tau" in options else None
    net = network(subject, g, torch.float64, **options | {"tau": tau})
    with torch.no_grad():
        net.bias[[g.neurons.tolist().index(g.index(v)) for v in ("dead", "late")]] = torch.nan
    x = torch.ones(3, 2, 1, dtype=torch.float64, device=device(subject), requires_grad=True)
    h0 = torch.zeros(2, g.num_nodes, dtype=torch.float64, device=device(subject), requires_grad=True)
    y, h = net(x, h0)
    assert h.isnan().sum() == 4
    grads = torch.autograd.grad(y.sum(), [x, h0, *net.parameters()], retain_graph=True)
    for grad in grads:
        assert torch.isfinite(grad).all()
    into_dead = torch.tensor([g.labels[v] in ("dead", "late") for v in g.edges[:, 1].tolist()])
    assert (grads[2][into_dead.to(grads[2].device)] == 0).all()
    assert (grads[2][~into_dead.to(grads[2].device)] != 0).all()
    assert torch.autograd.grad(h.sum(), net.weight)[0].isnan().any()


@pytest.mark.parametrize("name", [name for name in ZOO if "2000" not in name and name != "C. elegans"])
@subjects
def test_a_single_step_without_feedback_is_fourward(subject, name):
    dag, activation = case(name)
    net = FourWard(dag, activation, seed=0, dtype=torch.float64)
    g = Digraph.from_arrays(dag.edges, labels=dag.labels, inputs=dag.inputs, outputs=dag.outputs)
    recurrent = Recurrent(g, activation, engine=subject, dtype=torch.float64, device=device(subject))
    recurrent.load_edge_weights(net.weight, net.bias)
    x = torch.randn(3, dag.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y, h = recurrent(x.unsqueeze(0).to(device(subject)))
    assert_near(y[0].cpu(), net(x).detach())
    assert_near(h.cpu(), net.activations(x).detach())
    assert_near(recurrent.steps(x.to(device(subject)), 1).cpu(), net(x).detach())


@subjects
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_the_synchronous_dense_network_is_torch_rnn(subject, nonlinearity):
    hidden, width, T, batch = 9, 4, 6, 5
    torch.manual_seed(0)
    rnn = nn.RNN(width, hidden, nonlinearity=nonlinearity, bias=True, dtype=torch.float64)
    neurons = [f"h{i}" for i in range(hidden)]
    # Features reach neurons in their own step, states a step later: edges out of inputs are followed within a step.
    pairs = [(f"x{j}", v) for v in neurons for j in range(width)] + [(u, v) for v in neurons for u in neurons]
    g = Digraph.from_edges(pairs, inputs=[f"x{j}" for j in range(width)], outputs=neurons, feedback=pairs[9 * 4 :])
    net = Recurrent(g, nonlinearity, engine=subject, dtype=torch.float64, device=device(subject))
    weight = torch.cat((rnn.weight_ih_l0.flatten(), rnn.weight_hh_l0.flatten())).detach()
    net.load_edge_weights(g.align(weight, pairs), (rnn.bias_ih_l0 + rnn.bias_hh_l0).detach())
    x = torch.randn(T, batch, width, dtype=torch.float64, requires_grad=True)
    h0 = torch.randn(batch, hidden, dtype=torch.float64, requires_grad=True)
    want, last = rnn(x, h0.unsqueeze(0))
    own_x, own_h0 = (v.detach().to(device(subject)).requires_grad_() for v in (x, h0))
    state = torch.zeros(batch, g.num_nodes, dtype=torch.float64, device=device(subject))
    index = torch.tensor([g.index(v) for v in neurons], device=device(subject))
    y, h = net(own_x, state.index_copy(1, index, own_h0))
    assert_near(y.cpu(), want.detach())
    assert_near(h[:, index].cpu(), last[0].detach())
    mix = torch.randn_like(want)
    ((want * mix).sum() + last.pow(2).sum()).backward()
    ((y * mix.to(y.device)).sum() + h[:, index].pow(2).sum()).backward()
    grads = torch.cat((rnn.weight_ih_l0.grad.flatten(), rnn.weight_hh_l0.grad.flatten()))
    assert_near(net.weight.grad.cpu(), g.align(grads, pairs))
    assert_near(net.bias.grad.cpu(), rnn.bias_ih_l0.grad)
    assert_near(own_x.grad.cpu(), x.grad)
    assert_near(own_h0.grad.cpu(), h0.grad)


def unroll(net: Recurrent, T: int) -> tuple[FourWard, Tensor]:
    """The same network as a Dag of T steps, with copied weights; and the edge of the graph of each of its edges.

    A neuron is a node for f, and behind or before it one that integrates; edges that aren't copies have the index E.
    """
    g, tau = net.graph, torch.ones(len(net.graph.neurons)) if net.tau is None else net.tau.detach()
    carriers = set(range(g.num_nodes)) - set(g.neurons.tolist())
    rate = dict(zip(g.neurons.tolist(), (1 / tau).tolist(), strict=True))
    voltage = net.recurrent_plan.dynamics == "voltage"
    within = g.dag.num_edges
    # source, target, weight, index of the original
    edges: list[tuple] = [(("s", v, 0), ("a", v, 0), 1.0, g.num_edges) for v in rate if voltage]
    weight = net.weight.tolist()

    def name(v: int, t: int) -> tuple:
        """The node with the activation of a node of the graph in a step; 0 is before the first."""
        if t == 0:
            return "a" if v not in carriers and voltage else "s", v, 0
        return "x" if v in carriers else "a", v, t

    for t in range(1, T + 1):
        for k, (u, v) in enumerate(g.edges.tolist()):
            target, factor = (("s", v, t), rate[v]) if voltage else (("f", v, t), 1.0)
            edges.append((name(u, t - (k >= within)), target, weight[k] * factor, k))
        for v in g.driven.tolist():
            target, factor = (("s", v, t), rate[v]) if voltage else (("f", v, t), 1.0)
            edges.append((("x", v, t), target, factor, g.num_edges))
        for v, r in rate.items():
            state, result = (("s", v, t), ("a", v, t)) if voltage else (("f", v, t), ("a", v, t))
            edges.append((state, result, 1.0 if voltage else r, g.num_edges))
            before = ("s", v, t - 1) if voltage or t == 1 else ("a", v, t - 1)
            edges.append((before, state if voltage else result, 1 - r, g.num_edges))
    start = [("s", v, 0) for v in range(g.num_nodes)]
    inputs = start + [("x", v, t) for t in range(1, T + 1) for v in g.inputs.tolist()]
    outputs = [name(v, t) for t in range(1, T + 1) for v in g.outputs.tolist()]
    nodes = list(dict.fromkeys([*inputs, *outputs, *(v for edge in edges for v in edge[:2])]))
    dag = Dag.from_edges([edge[:2] for edge in edges], nodes=nodes, inputs=inputs, outputs=outputs)
    activation = dict(zip(g.neurons.tolist(), net.neuron_activations(), strict=True))
    kinds = {"a": voltage, "f": True, "s": False}
    by_label = {
        label: activation[label[1]] if kinds[label[0]] else "identity"
        for label in (dag.labels[v] for v in dag.neurons.tolist())
    }
    flat = FourWard(dag, by_label, dtype=torch.float64, engine="torch")
    bias = dict(zip(g.neurons.tolist(), net.bias.tolist(), strict=True))
    biases = [
        bias[v] * (rate[v] if kind == "s" else 1) if kind == ("s" if voltage else "f") else 0.0
        for kind, v, _ in (dag.labels[v] for v in dag.neurons.tolist())
    ]
    pairs = [edge[:2] for edge in edges]
    weights = torch.tensor([edge[2] for edge in edges], dtype=torch.float64)
    flat.load_edge_weights(dag.align(weights, pairs), torch.tensor(biases, dtype=torch.float64))
    return flat, dag.align(torch.tensor([edge[3] for edge in edges]), pairs)


@subjects
@pytest.mark.parametrize("options", [{}, {"tau": 2.5}, {"tau": 2.5, "dynamics": "voltage"}], ids=str)
@pytest.mark.parametrize("name", ["random", "synchronous", "a self-loop", "feedback into an input"])
def test_it_equals_its_unrolled_dag(subject, name, options):
    g, T, batch = digraph(name), 4, 3
    names = list(ACTIVATIONS)
    mixed = {g.labels[v]: names[i % len(names)] for i, v in enumerate(g.neurons.tolist())}
    net = network(subject, g, torch.float64, activation=mixed, **options)
    x = torch.randn(T, batch, g.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    h0 = torch.randn(batch, g.num_nodes, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    flat, edge = unroll(net, T)
    want = flat(torch.cat((h0, x.transpose(0, 1).flatten(1)), 1)).reshape(batch, T, -1).transpose(0, 1)
    y, _ = net(x.to(device(subject)), h0.to(device(subject)))
    assert_near(y.cpu(), want.detach())
    y.sum().backward()
    want.sum().backward()
    # the weights of voltages are copied times the rate
    factor = 1.0 if net.recurrent_plan.dynamics == "rate" else 1 / 2.5
    sums = torch.zeros(g.num_edges + 1, dtype=torch.float64).index_add(0, edge, flat.weight.grad)[:-1]
    assert_near(net.weight.grad.cpu(), sums * factor)


@subjects
@dynamics
def test_gradcheck(subject, dynamics):
    g = random_digraph(8, 0.25, 5, inputs=2)
    mixed = {v: name for v, name in zip(g.neurons.tolist(), ("gelu", "sin", "softplus"), strict=False)}
    net = network(subject, g, torch.float64, activation={"default": "silu", **mixed}, tau="learned", dynamics=dynamics)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 2, g.num_inputs, dtype=torch.float64, generator=generator).to(device(subject))
    h0 = torch.randn(2, g.num_nodes, dtype=torch.float64, generator=generator).to(device(subject))
    names, values = zip(*net.named_parameters(), strict=True)

    def outputs(x, h0, *values):
        return torch.func.functional_call(net, dict(zip(names, values, strict=True)), (x, h0))

    assert torch.autograd.gradcheck(outputs, (x.requires_grad_(), h0.requires_grad_(), *values))


@subjects
@dynamics
def test_resuming_from_the_state_equals_running_through(subject, dynamics):
    g = digraph("random")
    net = network(subject, g, torch.float64, tau=2.0, dynamics=dynamics, activation="sigmoid")
    x = torch.randn(9, 3, g.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = x.to(device(subject))
    y, last = net(x)
    first, h = net(x[:4])
    rest, final = net(x[4:], h)
    assert_near(torch.cat((first, rest)), y.detach())
    assert_near(final, last.detach())
    assert_near(net.activations(x)[-1][:, g.outputs.tolist()], y[-1].detach())


@subjects
@pytest.mark.parametrize("k", [1, 2, 4, 9, 50])
def test_checkpoints_change_nothing(subject, k):
    g = digraph("random")
    net = network(subject, g, torch.float64, tau="learned", dropout=0.3)
    x = torch.randn(9, 3, g.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    grads = []
    for checkpoint in (None, k):
        net.zero_grad()
        net.passes.zero_()
        y, h = net(x.to(device(subject)), checkpoint=checkpoint)
        (y.pow(2).sum() + h.sum()).backward()
        grads.append([y.detach(), h.detach(), *(p.grad for p in net.parameters())])
    for got, want in zip(*grads, strict=True):
        assert_near(got, want)


@settings(max_examples=25)
@given(
    st.integers(1, 10), st.floats(0, 0.7), st.integers(0, 10**6), st.sampled_from(["fewest", "all"]),
    st.sampled_from(["rate", "voltage"]), st.sampled_from([None, 1.0, 2.0]), st.integers(1, 5),
)  # fmt: skip
def test_any_digraph(n, p, seed, feedback, dynamics, tau, steps):
    g = random_digraph(n, p, seed, feedback, inputs=min(n, 1 + seed % 3))
    names = list(ACTIVATIONS)
    mixed = {g.labels[v]: names[(i + seed) % len(names)] for i, v in enumerate(g.neurons.tolist())}
    options = {"activation": mixed, "tau": tau, "dynamics": dynamics, "T": steps, "bias": seed % 2 == 0}
    want = run("reference", g, **options)
    for subject in SUBJECTS:
        if subject not in ("reference", "gpu"):
            assert_equal_results(run(subject, g, **options), want)


# Threads, batches and paths of gradients


@subjects
def test_first_derivatives_with_create_graph_follow_no_path_twice(subject):
    """h0 of the second pass depends on the weights, too."""
    g = Digraph.from_edges([("x", "a"), ("a", "b"), ("b", "a")], outputs=["b"])
    net, x = network(subject, g, torch.float64, activation="tanh", tau=2.0), torch.ones(3, 2, 1, dtype=torch.float64)
    x = x.to(device(subject))
    y, _ = net(x, net(x)[1])
    plain, created = (
        torch.autograd.grad(y.sum(), net.weight, create_graph=c, retain_graph=True)[0] for c in (False, True)
    )
    assert_near(created.detach(), plain)


@subjects
@pytest.mark.parametrize("tau", [None, 2.0])
def test_threads_may_change_before_checkpoints_are_recomputed(subject, tau):
    before = torch.get_num_threads()
    g = digraph_of_thirty()
    net, x = network(subject, g, torch.float64, tau=tau), torch.randn(6, 150, g.num_inputs, dtype=torch.float64)
    x = x.to(device(subject))
    grads = []
    for forward, backward, k in ((1, 1, None), (2, 1, 2), (1, 2, 2), (3, 2, None)):
        net.zero_grad()
        torch.set_num_threads(forward)
        y, h = net(x, checkpoint=k)
        torch.set_num_threads(backward)
        (y.square().sum() + h.square().sum()).backward()
        grads.append(net.weight.grad.clone())
    torch.set_num_threads(before)
    for grad in grads[1:]:
        assert_near(grad, grads[0])


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name in ("cpu", "gpu")])
def test_the_torch_engine_is_prepared_when_it_is_needed(subject):
    g = random_digraph(20, 0.2, 0)
    net = network(subject, g, torch.float64)
    x = torch.zeros(2, 3, 3, dtype=torch.float64, device=device(subject))
    net(x)[0].sum().backward()
    assert not net.runner.runner._fallbacks
    torch.func.vmap(net)(x.unsqueeze(0))
    assert net.runner.runner._fallbacks


@subjects
def test_batched_gradients(subject):
    g = digraph_of_thirty()
    net, x = network(subject, g, torch.float64), torch.randn(2, 3, g.num_inputs, dtype=torch.float64)
    y, _ = net(x.to(device(subject)))
    grads = torch.randn(4, *y.shape, dtype=torch.float64, device=y.device)
    (batched,) = torch.autograd.grad(y, net.weight, grads, is_grads_batched=True, retain_graph=True)
    for got, grad in zip(batched, grads, strict=True):
        assert_near(got, torch.autograd.grad(y, net.weight, grad, retain_graph=True)[0])


def digraph_of_thirty():
    pairs = np.random.default_rng(0).integers(0, 30, (150, 2))
    return Digraph.from_edges(np.unique(pairs, axis=0), nodes=30, inputs=[0, 1, 2], outputs=[28, 29])

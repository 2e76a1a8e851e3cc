"""The gpu engine on a GPU: what Triton's interpreter can't show."""

import pytest
import torch

from fourward import FourWard, generate
from fourward.engine._gpu import heuristics, launch
from tests.engine.gpu import QUIET, STRATEGIES, force, make, needs_card, random_dag
from tests.engine.test_contract import SUBJECTS, run
from tests.tolerance import TOLERANCE, assert_near

pytestmark = QUIET


@needs_card
def test_same_bits_each_time(strategy):
    dag = generate.erdos_renyi(70, 0.3, seed=1)
    first, second = (run("gpu", dag, torch.float32, 9) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@needs_card
def test_chosen_on_a_card():
    assert FourWard(generate.erdos_renyi(20, 0.4, seed=0), device="cuda").engine == "gpu"


@needs_card
@pytest.mark.parametrize("name", STRATEGIES)
def test_captured_by_the_user(name, monkeypatch):
    force(name, monkeypatch)
    dag = generate.erdos_renyi(100, 0.2, seed=0)
    net, x = make(dag, seed=0), torch.randn(20, dag.num_inputs, device="cuda")
    with torch.no_grad():
        want = net(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = net(x)
        for _ in range(3):
            x.normal_()
            want = net(x)
            out.fill_(torch.nan)
            graph.replay()
            assert torch.equal(out, want)
    launch.clear_passes()


@needs_card
@pytest.mark.parametrize("name", ["tiled segments", "csr per level"])
def test_graphs_are_replayed_with_other_tensors(name, monkeypatch):
    """The third call and all after it replay a graph that was captured with other addresses."""
    force(name, monkeypatch)
    dag = generate.erdos_renyi(200, 0.05, seed=0)
    net, exact = make(dag, seed=0, dtype=torch.float64), make(dag, seed=0, dtype=torch.float64, engine="torch")
    results = []
    for _ in range(5):
        x = torch.randn(20, dag.num_inputs, dtype=torch.float64, device="cuda", requires_grad=True)
        results.append((x, net(x)))
    for x, out in reversed(results):
        assert_near(out, exact(x))
        (got,) = torch.autograd.grad(out.square().sum(), net.weight, retain_graph=True)
        (want,) = torch.autograd.grad(exact(x).square().sum(), exact.weight)
        assert_near(got, want)
    launch.clear_passes()


@needs_card
def test_four_streams_at_once():
    dag = generate.erdos_renyi(300, 0.2, seed=0)
    net, x = make(dag, seed=0), torch.randn(64, dag.num_inputs, device="cuda")
    want = net(x)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    outs = []
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                outs.append(net(x))
    torch.cuda.synchronize()
    assert all(torch.equal(out, want) for out in outs)


@needs_card
@pytest.mark.parametrize("name", ["tiled", "tiled segments"])
def test_more_programs_than_are_resident(name, monkeypatch):
    """Those that wait for the weights mustn't keep out those that pack them."""
    force(name, monkeypatch)
    dag = generate.erdos_renyi(70, 0.2, seed=0)
    net, exact = (make(dag, seed=0, engine=engine, dtype=torch.float64) for engine in ("gpu", "torch"))
    for samples in (40_000, 40_000, 3):
        x = torch.randn(samples, dag.num_inputs, dtype=torch.float64, device="cuda")
        (got,) = torch.autograd.grad(net(x).square().sum(), net.weight)
        (want,) = torch.autograd.grad(exact(x).square().sum(), exact.weight)
        assert_near(net(x), exact(x))
        assert_near(got, want)
    launch.clear_passes()


@needs_card
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("nodes", [70, 250, 600])
def test_large_batches(nodes, dtype):
    """They have other configurations than small ones, with more programs than are resident, or fewer."""
    dag = generate.erdos_renyi(nodes, 0.3, seed=1)
    net, exact = (make(dag, seed=0, engine=engine, dtype=dtype) for engine in ("gpu", "torch"))
    exact = exact.double()
    for samples in (heuristics.SATURATING_BATCH, heuristics.SATURATING_BATCH + 1, 9000):
        x = torch.randn(samples, dag.num_inputs, dtype=dtype, device="cuda")
        (got,) = torch.autograd.grad(net(x).square().mean(), net.weight)
        (want,) = torch.autograd.grad(exact(x.double()).square().mean(), exact.weight)
        assert_near(net(x), exact(x.double()), dtype)
        assert_near(got, want, dtype)


@needs_card
@pytest.mark.parametrize("name", ["csr persistent", "csr per level"])
def test_offsets_beyond_32_bits(name, monkeypatch):
    """Plans of more than 2**29 edges have fields that start beyond 2**31: here the plan of a few, moved there."""
    force(name, monkeypatch)
    dag = random_dag(300, 2000)
    net, x = make(dag, seed=0), torch.randn(20, dag.num_inputs, device="cuda")
    results = []
    for _ in range(2):
        out = net(x)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), list(net.parameters()))))
        runner, start = net.runner, 2**31
        moved = torch.zeros(start + runner.packed_plan.numel(), dtype=torch.int32, device="cuda")
        moved[start:] = runner.packed_plan
        runner.packed_plan = moved
        runner.shape = runner.shape._replace(
            **{field.lower(): at + start for field, at in runner.shape.offsets.items()}
        )
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    launch.clear_passes()


LARGE = {
    "1,500 dense": lambda: generate.erdos_renyi(1500, 0.5, seed=0),
    "3,000 of a tenth": lambda: generate.erdos_renyi(3000, 0.1, seed=0),
    "a chain of 20,000": lambda: generate.chain(20_000),
    "2,000 of 4 edges each": lambda: random_dag(2000, 8000),
    "4,000 of 64 edges each": lambda: random_dag(4000, 256_000),
    "10^5 edges": lambda: random_dag(10**4, 10**5),
    "10^6 edges of high degree": lambda: random_dag(10**4, 10**6),
    "10^7 edges": lambda: random_dag(10**6, 10**7),
}


@needs_card
@pytest.mark.parametrize("name", LARGE)
def test_large(name):
    """Fresh inputs, against the torch engine in float64, and equal bits the second time."""
    dag = LARGE[name]()
    activation = "abs" if "chain" in name else "relu"
    net = make(dag, seed=0, activation=activation)
    exact = (
        net if dag.num_edges > 10**6 else SUBJECTS["torch"](dag, activation=activation, dtype=torch.float64).to("cuda")
    )
    if exact is not net:
        exact.load_edge_weights(net.weight, net.bias)
    x = torch.randn(64, dag.num_inputs, device="cuda", requires_grad=True)
    results = []
    for _ in range(2):
        x.grad = net.weight.grad = net.bias.grad = None
        out = net(x)
        out.square().sum().backward()
        results.append((out.detach(), x.grad, net.weight.grad, net.bias.grad))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert all(torch.isfinite(value).all() for value in results[0])
    if exact is not net:
        y = x.detach().double().requires_grad_()
        want = exact(y)
        want.square().sum().backward()
        for got, exact_value in zip(results[0], (want, y.grad, exact.weight.grad, exact.bias.grad), strict=True):
            error = (got.double() - exact_value).norm() / exact_value.norm().clamp(min=1e-30)
            assert error < TOLERANCE[torch.float32]

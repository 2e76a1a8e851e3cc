"""What networks with feedback have on a GPU alone: strategies, slices that share sums, half precision, CUDA graphs.

On a GPU, the contract suite (test_recurrent.py) tests the gpu engine, too; Triton's interpreter is too slow for that.
"""

from functools import cache

import pytest
import torch

from fourward import Digraph, Recurrent
from fourward.engine._gpu import recurrent_launch
from fourward.engine._gpu.heuristics import LaunchConfig
from tests.engine import test_recurrent
from tests.engine.gpu import DEVICE, needs_card
from tests.engine.test_recurrent import assert_equal_results, network, random_digraph, run
from tests.tolerance import assert_near

STRATEGIES = {
    "persistent": LaunchConfig("recurrent_persistent", 8, 16, 4, 16),
    "per level": LaunchConfig("recurrent_per_level", 32, 8, 4, 16),
    "per level of high degree": LaunchConfig("recurrent_per_level", 32, 32, 4, 4),
}
#: Dynamics, dropout and what may be missing.
OPTIONS = {
    "plain": {},
    "without bias and h0": {"bias": False, "h0": False, "activation": "gelu"},
    "leaky": {"tau": "learned", "activation": "silu", "dropout": 0.3},
    "voltage": {"tau": "learned", "dynamics": "voltage", "activation": "sigmoid", "dropout": 0.3},
    "voltage without h0": {"tau": 2.0, "dynamics": "voltage", "activation": "sigmoid", "h0": False},
}


@pytest.fixture(params=STRATEGIES)
def strategy(request, monkeypatch):
    """Every strategy, in turn; slices share sums."""
    monkeypatch.setattr(recurrent_launch, "choose_recurrent_config", lambda *_: STRATEGIES[request.param])
    monkeypatch.setattr(recurrent_launch, "MIN_SHARES", 1)
    recurrent_launch.clear_passes()
    yield request.param
    recurrent_launch.clear_passes()


@cache
def graph(feedback: str = "fewest") -> Digraph:
    return random_digraph(11, 0.25, 3, feedback)


@cache
def truth(name: str, feedback: str, batch: int = 3, T: int = 3):
    return run("reference", graph(feedback), T=T, batch=batch, **OPTIONS[name])


@pytest.mark.parametrize("name", OPTIONS)
def test_every_strategy(strategy, name):
    feedback = "all" if name in ("plain", "leaky") else "fewest"
    got = run("gpu", graph(feedback), torch.float64, T=3, **OPTIONS[name])
    assert_equal_results(got, truth(name, feedback))


def test_slices_that_share_sums(strategy, monkeypatch):
    monkeypatch.setattr(recurrent_launch, "count_shares", lambda slices, *_: max(slices - 1, 1))
    batch = 2 * STRATEGIES[strategy].block_b + 3
    got = run("gpu", graph("all"), torch.float64, T=2, batch=batch, **OPTIONS["voltage"])
    assert_equal_results(got, truth("voltage", "all", batch, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamics", ["rate", "voltage"])
def test_other_dtypes(dtype, dynamics):
    net = network("gpu", graph(), dtype, tau=2.0, dynamics=dynamics)
    exact = network("torch", graph(), torch.float64, tau=2.0, dynamics=dynamics)
    with torch.no_grad():
        for ours, theirs in zip(net.parameters(), exact.parameters(), strict=True):
            theirs.copy_(ours)
    x = torch.randn(3, 4, graph().num_inputs, generator=torch.Generator().manual_seed(0)).to(dtype)
    results = []
    for each, device, kind in ((net, DEVICE, dtype), (exact, "cpu", torch.float64)):
        y, h = each(x.to(device, kind))
        (y.square().sum() + h.sum()).backward()
        results.append([y.detach(), h.detach(), *(parameter.grad for parameter in each.parameters())])
    for got, want in zip(*results, strict=True):
        assert got.dtype == dtype
        assert_near(got.cpu(), want.to(torch.float64))


@pytest.mark.parametrize("name", ["plain", "leaky", "voltage"])
def test_neurons_that_reach_no_output(name):
    options = {key: value for key, value in OPTIONS[name].items() if key in ("tau", "dynamics")}
    test_recurrent.test_neurons_that_reach_no_output_pass_no_nan_on("gpu", options, "fewest")


def test_passes_with_too_many_launches_for_a_cuda_graph(monkeypatch):
    monkeypatch.setattr(recurrent_launch, "choose_recurrent_config", lambda *_: STRATEGIES["per level"])
    monkeypatch.setattr(recurrent_launch, "MAX_CAPTURED", 0)
    recurrent_launch.clear_passes()
    assert_equal_results(run("gpu", graph("all"), T=3), truth("plain", "all"))
    recurrent_launch.clear_passes()


def test_the_engine_is_explained():
    net = Recurrent(graph(), engine="gpu", device=DEVICE)
    assert "persistent program" in net.explain()
    wide = random_digraph(300, 0.05, 0, "all")
    assert "one launch for each of 1 level of a step" in Recurrent(wide, engine="gpu", device=DEVICE).explain()


@needs_card
def test_results_are_the_same_bits_each_time(strategy):
    first, *repeats = (run("gpu", graph(), torch.float32, T=5, batch=100, **OPTIONS["leaky"]) for _ in range(4))
    for other in repeats:
        for got, want in zip((*other[:3], *other.grads), (*first[:3], *first.grads), strict=True):
            assert torch.equal(got, want)


@needs_card
def test_captured_passes_take_whatever_tensors_come(strategy):
    """From the second pass of a shape on, launches are replayed."""
    net = network("gpu", graph(), torch.float64, tau=2.0)
    exact = network("torch", graph(), torch.float64, tau=2.0)
    for i in range(4):
        x = torch.randn(6, 40, graph().num_inputs, dtype=torch.float64)
        h0 = None if i % 2 else torch.randn(40, graph().num_nodes, dtype=torch.float64)
        for each in (net, exact):
            each.zero_grad()
        y, h = net(x.to(DEVICE), None if h0 is None else h0.to(DEVICE))
        want, state = exact(x, h0)
        (y.sum() + h.square().sum()).backward()
        (want.sum() + state.square().sum()).backward()
        assert_near(y.detach().cpu(), want.detach())
        for got, grad in zip(net.parameters(), exact.parameters(), strict=True):
            assert_near(got.grad.cpu(), grad.grad)

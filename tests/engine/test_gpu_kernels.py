"""The gpu engine's kernels in every strategy: on a GPU where there is one, elsewhere in Triton's interpreter."""

import math

import numpy as np
import pytest
import torch

from benchmarks.cases import case
from fourward import Dag, generate
from fourward.engine._gpu import launch, packing
from fourward.engine._gpu.kernel_launch import Launch
from fourward.plan.activations import ACTIVATIONS
from tests.engine.gpu import DEVICE, QUIET, force, make
from tests.engine.test_contract import assert_equal_results, run, truth
from tests.tolerance import assert_near

pytestmark = QUIET


def mixed(dag):
    names = list(ACTIVATIONS)
    return {dag.labels[v]: names[i % len(names)] for i, v in enumerate(dag.neurons.tolist())}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_every_strategy(strategy, dtype):
    dag = generate.erdos_renyi(100, 0.15, seed=7)
    want = truth(dag, 11, activation="gelu")
    assert_equal_results(run("gpu", dag, dtype, 11, activation="gelu"), want, dtype)


@pytest.mark.parametrize("name", ["source neurons", "isolated nodes", "skip-heavy"])
def test_every_strategy_on_odd_graphs(strategy, name):
    dag = case(name).dag
    options = {"activation": mixed(dag), "dropout": 0.3}
    want = truth(dag, **options)
    assert_equal_results(run("gpu", dag, torch.float64, **options), want, torch.float64)


def test_hubs_in_every_strategy(strategy):
    """A neuron with 90 edges into it, and 90 out of it: fused levels divide its sums."""
    first, hub, last = range(1, 91), 91, range(92, 182)
    edges = [(0, v) for v in first] + [(u, hub) for u in first] + [(hub, v) for v in last] + [(v, 182) for v in last]
    dag = Dag.from_edges(edges, nodes=183)
    want = truth(dag, activation="tanh", dropout=0.2)
    assert_equal_results(run("gpu", dag, torch.float64, activation="tanh", dropout=0.2), want, torch.float64)


@pytest.mark.parametrize(("inputs", "neurons"), [(1, 31), (5, 70), (8, 33), (9, 33), (32, 32), (33, 33), (31, 65)])
def test_panel_boundaries(inputs, neurons):
    rng = np.random.default_rng(inputs)
    mask = np.triu(rng.random((inputs + neurons,) * 2) < 0.5, 1)
    mask[:, :inputs] = False
    mask[:inputs, inputs] = True
    dag = Dag.from_mask(mask, inputs=range(inputs))
    want = truth(dag, activation="tanh")
    assert_equal_results(run("gpu", dag, torch.float64, activation="tanh"), want, torch.float64)


@pytest.mark.parametrize(("p", "direct_inputs"), [(0.1, False), (0.2, True)])
def test_infinities_reach_descendants_alone(strategy, p, direct_inputs):
    """Tiles hold zeros where there is no edge, and zero times infinity is NaN."""
    dag = generate.erdos_renyi(70, p, seed=2)
    assert (dag.num_inputs <= packing.MAX_DIRECT_INPUTS) == direct_inputs
    nets = {
        name: make(dag, engine=name, seed=0, dtype=torch.float64, activation="leaky_relu") for name in ("torch", "gpu")
    }
    x = torch.randn(3, dag.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    x[1, 0] = torch.inf
    x[2, 1] = torch.nan
    a, b = (nets[name].activations(x) for name in ("torch", "gpu"))
    assert torch.isnan(a[2]).any()
    assert not torch.isnan(a[2]).all()
    torch.testing.assert_close(b, a, equal_nan=True)


def test_infinite_gradients_reach_ancestors_alone(strategy):
    dag = generate.erdos_renyi(70, 0.1, seed=2)
    grads = {}
    for name in ("torch", "gpu"):
        net = make(dag, engine=name, seed=0, dtype=torch.float64, activation="leaky_relu")
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(2, dag.num_inputs, dtype=torch.float64, generator=generator).to(DEVICE).requires_grad_()
        gradient = torch.randn(2, dag.num_outputs, dtype=torch.float64, generator=generator).to(DEVICE)
        gradient[1, 0] = torch.inf
        net(x).backward(gradient)
        grads[name] = x.grad, net.bias.grad
    assert torch.isfinite(grads["torch"][1]).any()
    for got, want in zip(grads["gpu"], grads["torch"], strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(strategy, dtype):
    dag = generate.erdos_renyi(60, 0.2, seed=3)
    want = truth(dag, activation="tanh")
    assert_equal_results(run("gpu", dag, dtype, activation="tanh"), want, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_keeps_activations_in_half_and_sums_in_single_precision(strategy, dtype):
    dag = generate.erdos_renyi(60, 0.2, seed=3)
    net, exact = make(dag, seed=0, activation="tanh"), make(dag, seed=0, activation="tanh", engine="torch")
    x = torch.randn(9, dag.num_inputs, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    with torch.autocast(DEVICE, dtype=dtype):
        got = net(x)
    assert got.dtype == dtype
    assert_near(got, exact(x))
    got.float().square().sum().backward()
    exact(x).square().sum().backward()
    assert net.weight.grad.dtype == torch.float32
    assert_near(net.weight.grad, exact.weight.grad, dtype)


class Fenced:
    """Makes new tensors NaN, each followed by guard elements that nothing may write."""

    def __init__(self, monkeypatch):
        self.guards, self.new_empty = [], torch.Tensor.new_empty
        monkeypatch.setattr(torch.Tensor, "new_empty", lambda like, *shape, **options: self.make(like, shape, options))
        monkeypatch.setattr(torch, "empty_like", lambda like, **options: self.make(like, like.shape, options))

    def make(self, like, shape, options):
        count = math.prod(shape)
        buffer = self.new_empty(like, count + 4096, **options).fill_(77)
        self.guards.append(buffer[count:])
        tensor = buffer[:count].view(shape)
        return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor


def test_every_element_of_a_result_is_written_and_no_other(strategy, monkeypatch):
    """What a kernel leaves out of its results stays NaN."""
    fenced = Fenced(monkeypatch)
    dag = case("source neurons").dag
    want = truth(dag, 40, activation="gelu")
    assert_equal_results(run("gpu", dag, torch.float64, 40, activation="gelu"), want, torch.float64)
    assert len(fenced.guards) > 4
    assert all((guard == 77).all() for guard in fenced.guards)


@pytest.mark.parametrize("dag", [generate.chain(300), generate.erdos_renyi(300, 0.3, seed=0)], ids=["chain", "dense"])
def test_several_segments(dag):
    """With tiles that exist and tiles that don't."""
    want = truth(dag, 3, activation="tanh")
    assert_equal_results(run("gpu", dag, torch.float64, 3, activation="tanh"), want, torch.float64)


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@pytest.mark.parametrize("name", ["tiled", "tiled segments"])
def test_finite_gradients_are_not_recomputed_edge_by_edge(name, activation, monkeypatch):
    """That takes twenty times as long, and it alone reads masks of edges, which are empty here."""
    force(name, monkeypatch)
    dag = generate.erdos_renyi(70, 0.3, seed=1)
    net, exact = (make(dag, activation, seed=0, engine=engine) for engine in ("gpu", "torch"))
    x = torch.randn(9, dag.num_inputs, device=DEVICE, requires_grad=True)
    plan, shape = net.runner.packed_plan, net.runner.shape
    out, saved = launch.forward(x, net.weight, net.bias, plan, shape, None, 0.0, False)
    without = plan.clone()
    for first, blocks in ((shape.edge_mask, shape.tiles), (shape.diagonal_edge_mask, shape.panels)):
        without[first : first + 32 * blocks] = 0
    x_grad, *_ = launch.backward(torch.ones_like(out), net.weight, without, shape, saved, None, 0.0, False, True, True)
    assert_near(x_grad, torch.autograd.grad(exact(x).sum(), x)[0])


@pytest.mark.parametrize("needs_backward", [True, False])
@pytest.mark.parametrize("inputs", [1, 12])
@pytest.mark.parametrize("nodes", [160, 330])
def test_every_weight_that_a_sweep_reads_is_packed(nodes, inputs, needs_backward, monkeypatch):
    """Were one left as NaN, the recomputation edge by edge would hide it."""
    dag = Dag.from_edges([(i, max(i + 1, inputs)) for i in range(nodes - 1)])  # a chain whose head has several inputs
    net, x = make(dag, seed=0), torch.ones(5, dag.num_inputs, device=DEVICE)
    shape, segment = net.runner.shape, packing.MAX_SEGMENT
    fenced = Fenced(monkeypatch)
    out, saved = launch.forward(
        x, net.weight, net.bias, net.runner.packed_plan, shape, None, 0.0, False, needs_backward
    )
    assert_near(out, make(dag, seed=0, engine="torch")(x))
    assert all((guard == 77).all() for guard in fenced.guards)
    ends = [min(panel - panel % segment + segment, shape.panels) for panel in range(shape.panels)]
    packed_blocks = shape.input_blocks if inputs > packing.MAX_DIRECT_INPUTS else 0
    unread = shape.forward_slots - packed_blocks * ends[0] - sum(end - panel for panel, end in enumerate(ends))
    if needs_backward:
        unread += sum(shape.segment - panel % segment - 1 for panel in range(shape.panels))
    assert shape.empty_tiles > 0 < shape.backward_empty_tiles
    assert saved.isnan().sum() == 1024 * unread


def test_only_some_gradients_are_needed(strategy):
    dag = generate.erdos_renyi(40, 0.3, seed=1)
    net = make(dag, seed=0)
    x = torch.randn(4, dag.num_inputs, device=DEVICE)
    net(x).sum().backward()
    assert x.grad is None
    assert net.weight.grad is not None
    net.requires_grad_(False)
    x.requires_grad_()
    net(x).sum().backward()
    assert x.grad.abs().sum() > 0


def test_views_and_unaligned_tensors():
    dag = generate.erdos_renyi(40, 0.3, seed=1)
    net = make(dag, seed=0)
    wide = torch.randn(6, dag.num_inputs + 3, device=DEVICE)
    x = wide[:, 3:]
    unaligned = torch.randn(6 * dag.num_inputs + 1, device=DEVICE)[1:].view(6, dag.num_inputs)
    for view in (x, unaligned, torch._neg_view(x), x.expand(6, -1)):
        assert_near(net(view), net(view.clone(memory_format=torch.contiguous_format)))


def misalign(tensor):
    """The same values, 4 or 8 bytes after a multiple of 16."""
    return torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)


@pytest.mark.parametrize("name", ["tiled segments", "csr per level"])
def test_the_second_batch_may_be_aligned_otherwise(name, monkeypatch):
    """It is captured, and meanwhile no kernel can be compiled for another alignment than that of the first."""
    force(name, monkeypatch)
    dag = generate.erdos_renyi(70, 0.2, seed=1)
    net, exact = (make(dag, seed=0, engine=engine, dtype=torch.float64) for engine in ("gpu", "torch"))
    batches = torch.randn(3, 5, dag.num_inputs, dtype=torch.float64, device=DEVICE)
    gradient = torch.randn(5, dag.num_outputs, dtype=torch.float64, device=DEVICE)
    launched, call = [], Launch.__call__

    def record(self, tensors):
        launched.append([tensors[i] for i in self.order])
        call(self, tensors)

    monkeypatch.setattr(Launch, "__call__", record)
    for align, x in zip((lambda tensor: tensor, misalign, misalign), batches, strict=True):
        net.weight.data, net.bias.data = align(net.weight.data), align(net.bias.data)
        launched.clear()
        out = net(align(x))
        net.weight.grad = exact.weight.grad = None
        out.backward(align(gradient))
        exact(x).backward(gradient)
        assert_near(out, exact(x))
        assert_near(net.weight.grad, exact.weight.grad)
        unaligned = [any(tensor.data_ptr() % 16 for tensor in tensors) for tensors in launched]
        assert sum(unaligned) <= 2  # in each pass the launch that writes the pointer table, and no other
    launch.clear_passes()

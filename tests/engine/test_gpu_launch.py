"""The passes of the gpu engine: refused, precompiled, and with more programs than are resident."""

import pytest
import torch

from fourward import generate
from fourward.engine._gpu import cuda_graphs, launch, tiled_launch
from fourward.engine._gpu.kernel_launch import precompile
from fourward.engine._gpu.launch_key import BACKWARD_TENSORS, FORWARD_TENSORS
from fourward.errors import EngineError
from tests.engine.gpu import DEVICE, QUIET, force, make
from tests.tolerance import assert_near

pytestmark = QUIET
#: Tensors that a pass writes, or that the other one wrote.
RESULTS = {"out", "saved", "x_grad", "weight_grad", "bias_grad"}


def test_a_network_for_a_card_where_there_is_none(strategy, monkeypatch):
    net = make(generate.erdos_renyi(40, 0.3, seed=1), seed=0)
    tensors = net.weight, net.bias, net.runner.packed_plan
    arguments = torch.zeros(3, net.dag.num_inputs), *(tensor.detach().cpu() for tensor in tensors)
    monkeypatch.setattr(launch, "interpreting", lambda: False)
    launch.clear_passes()
    with pytest.raises(EngineError, match=r"expected tensors on a CUDA device, .* got cpu\. net\.to\('cpu'\)"):
        launch.forward(*arguments, net.runner.shape, None, 0.0, False)


def test_biases_of_another_dtype_are_refused():
    net = make(generate.erdos_renyi(30, 0.3, seed=1), seed=0)
    net.bias = torch.nn.Parameter(net.bias.double())
    with pytest.raises(EngineError, match=r"expected biases of the weights' dtype .* got torch.float64"):
        net(torch.randn(4, net.dag.num_inputs, device=DEVICE))


@pytest.mark.parametrize("multiprocessors", [1, 1000])
@pytest.mark.parametrize("name", ["tiled", "tiled segments"])
def test_with_tickets_and_without(name, multiprocessors, monkeypatch):
    """Results are the same, and counters are left as they were found."""
    force(name, monkeypatch)
    row = torch.zeros(16, dtype=torch.int64, device=DEVICE)  # the first two are counters
    monkeypatch.setattr(tiled_launch, "counters", lambda device: row)
    monkeypatch.setattr(
        tiled_launch, "max_resident_programs", lambda device, num_warps: multiprocessors * 8 // num_warps
    )
    monkeypatch.setattr(cuda_graphs, "take_row", lambda device: row)
    dag = generate.erdos_renyi(70, 0.3, seed=1)
    net, exact = (make(dag, seed=0, engine=engine, dtype=torch.float64) for engine in ("gpu", "torch"))
    for batch in (1, 20, 33, 20, 20):
        x = torch.randn(batch, dag.num_inputs, dtype=torch.float64, device=DEVICE)
        assert_near(net(x), exact(x))
        assert not row[:2].any()
    assert row.any() == (name == "tiled segments")  # the others are the pointer table
    launch.clear_passes()


@pytest.mark.parametrize("needs_x_grad", [False, True])
def test_both_passes_are_compiled_before_the_first(needs_x_grad, monkeypatch):
    force("tiled segments", monkeypatch)
    compiled = []
    monkeypatch.setattr(launch, "precompile", lambda *passes: compiled.append([type(each.func) for each in passes]))
    net = make(generate.erdos_renyi(70, 0.2, seed=0), seed=0)
    for _ in range(2):
        x = torch.randn(5, net.dag.num_inputs, device=DEVICE, requires_grad=needs_x_grad)
        net(x).sum().backward()
    assert compiled == [[tiled_launch.Forward, tiled_launch.Backward]]
    with torch.no_grad():
        net(torch.randn(6, net.dag.num_inputs, device=DEVICE))
    assert compiled[1:] == [[tiled_launch.Forward]]


def test_precompiling_runs_nothing(monkeypatch):
    force("tiled segments", monkeypatch)
    written = []

    def check(*passes):
        for each, names in zip(passes, (FORWARD_TENSORS, BACKWARD_TENSORS), strict=True):
            tensors = dict(zip(names, each.args[0], strict=True))
            written.extend(tensors[name] for name in names if name in RESULTS)
        for tensor in written:
            tensor.detach().fill_(7)
        precompile(*passes)
        assert all((tensor == 7).all() for tensor in written)

    monkeypatch.setattr(launch, "precompile", check)
    dag = generate.erdos_renyi(70, 0.2, seed=0)
    net, exact = (make(dag, seed=0, engine=engine, dtype=torch.float64) for engine in ("gpu", "torch"))
    x = torch.ones(5, dag.num_inputs, dtype=torch.float64, device=DEVICE)
    out = net(x)
    assert len(written) == 6  # saved in both passes
    assert all((tensor != 7).any() for tensor in written[:2])  # what the forward pass writes
    out.sum().backward()
    (want,) = torch.autograd.grad(exact(x).sum(), exact.weight)
    assert_near(net.weight.grad, want)

"""The gpu engine in torch: traced, exported, differentiated twice, copied, refused, explained."""

import copy
import importlib.util
import pickle

import pytest
import torch

from fourward import Dag, FourWard, generate
from fourward.engine._gpu import engine, heuristics, launch, packing
from fourward.engine._gpu.fused_schedule import BlockShape, FusedConfig
from fourward.errors import EngineError
from fourward.layering import longest_path, reassign
from tests.engine.gpu import DEVICE, QUIET, STRATEGIES, make
from tests.tolerance import assert_near

pytestmark = QUIET


def test_a_network_without_neurons():
    dag = Dag.from_edges([], nodes=list("abc"), inputs=list("abc"), outputs=list("ca"))
    net = make(dag, seed=0)
    x = torch.randn(5, 3, device=DEVICE, requires_grad=True)
    assert torch.equal(net(x), x[:, [2, 0]])
    net(x).sum().backward()
    assert x.grad.tolist() == [[1, 0, 1]] * 5


def test_compile_is_one_graph():
    dag = generate.erdos_renyi(40, 0.3, seed=1)
    net = make(dag, seed=0, dropout=0.2)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    x = torch.randn(4, dag.num_inputs, device=DEVICE)
    compiled(x).sum().backward()
    gradient, net.weight.grad = net.weight.grad, None
    net.passes.zero_()
    net(x).sum().backward()
    assert_near(gradient, net.weight.grad)


def test_copies(strategy):
    dag = generate.erdos_renyi(40, 0.3, seed=1)
    net = make(dag, seed=0)
    x = torch.randn(4, dag.num_inputs, device=DEVICE)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(x), net(x))


def test_export_with_any_batch(strategy):
    dag = generate.erdos_renyi(40, 0.3, seed=1)
    net = make(dag, seed=0).eval()
    sizes = {"x": {0: torch.export.Dim("batch")}}
    exported = torch.export.export(net, (torch.randn(4, dag.num_inputs, device=DEVICE),), dynamic_shapes=sizes)
    for batch in (1, 9):
        x = torch.randn(batch, dag.num_inputs, device=DEVICE)
        assert_near(exported.module()(x), net(x))


def test_second_derivatives_come_from_the_torch_engine():
    dag = generate.erdos_renyi(20, 0.4, seed=0)
    net = make(dag, activation="tanh", seed=0, dtype=torch.float64)
    x = torch.randn(2, dag.num_inputs, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: net(x), (x,))


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_second_derivatives_under_another_layering(name):
    """The engine has the weights in execution order already; the torch engine must not sort them again."""
    dag = generate.erdos_renyi(14, 0.4, seed=1)
    layering = reassign(dag, longest_path(dag), seed=3)
    options = {"layering": layering, "activation": "tanh", "seed": 0, "dtype": torch.float64}
    device = DEVICE if name == "gpu" else "cpu"
    net, exact = (FourWard(dag, engine=engine, device=device, **options) for engine in (name, "torch"))
    assert net.plan.edge is not None
    x = torch.randn(2, dag.num_inputs, dtype=torch.float64, device=device, requires_grad=True)
    for first, second in zip(
        *(torch.autograd.grad(n(x).sum(), (x, n.weight, n.bias), create_graph=True) for n in (net, exact)), strict=True
    ):
        assert_near(first.detach(), second.detach())


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_vectorised_jacobian(name):
    dag = generate.erdos_renyi(14, 0.4, seed=1)
    net = FourWard(dag, engine=name, device=DEVICE if name == "gpu" else "cpu", seed=0, dtype=torch.float64)
    x = torch.randn(dag.num_inputs, dtype=torch.float64, device=net.weight.device)
    want = torch.autograd.functional.jacobian(net, x)
    assert_near(torch.autograd.functional.jacobian(net, x, vectorize=True), want)


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_to_empty_keeps_the_graph(name):
    dag = generate.erdos_renyi(30, 0.3, seed=1)
    net = FourWard(dag, engine=name, device=DEVICE if name == "gpu" else "cpu", seed=0)
    x, state = torch.randn(4, dag.num_inputs, device=net.weight.device), copy.deepcopy(net.state_dict())
    want = net(x)
    net.to_empty(device=net.weight.device).load_state_dict(state)
    assert torch.equal(net(x), want)


def explain_half():
    """Why a float16 network, which the cpu engine can't run, has the engine that it has."""
    return FourWard(generate.erdos_renyi(20, 0.4, seed=0), dtype=torch.float16).explain()


def test_refusals_give_reasons(monkeypatch):
    if DEVICE == "cpu":
        assert "not gpu: Triton's interpreter" in explain_half()
        monkeypatch.setenv("TRITON_INTERPRET", "0")
        assert "not gpu: the network is on cpu, not on a CUDA device" in explain_half()
    monkeypatch.setattr(engine.metadata, "version", lambda name: "3.2.0")
    assert "not gpu: it needs Triton 3.6 or newer, and 3.2.0 is installed" in explain_half()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not gpu: Triton isn't installed" in explain_half()


def test_triton_from_another_distribution(monkeypatch):
    """As in torch's nightly builds, those for ROCm, and Triton for Windows."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    want = explain_half()

    def unknown(name):
        raise engine.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(engine.metadata, "version", unknown)
    assert explain_half() == want
    monkeypatch.setattr("triton.__version__", "3.2.0")
    assert "not gpu: it needs Triton 3.6 or newer, and 3.2.0 is installed" in explain_half()


def choose_by_batch(plan, layout):
    """Fuse all levels in blocks of 8 samples or of 2."""
    return [FusedConfig([(0, plan.num_levels)], block, 200) for block in (BlockShape(2, 8, 8), BlockShape(2, 4, 2))]


@pytest.fixture
def by_batch(monkeypatch):
    """Networks have a packed plan for batches of up to 3 samples, and one for others."""
    monkeypatch.setattr(engine, "choose_layout", lambda plan: packing.CSR)
    monkeypatch.setattr(engine, "choose_fused", choose_by_batch)
    monkeypatch.setattr(engine, "SMALL_BATCH", 3)
    monkeypatch.setattr(heuristics, "choose_config", lambda *_: STRATEGIES["csr fused"][1])
    launch.clear_passes()
    yield
    launch.clear_passes()


def test_the_packed_plan_follows_the_batch(by_batch, monkeypatch):
    dag, called = generate.erdos_renyi(20, 0.3, seed=0), []
    net, exact = make(dag, "tanh", seed=0), FourWard(dag, "tanh", engine="reference", device=DEVICE, seed=0)
    x = torch.randn(9, dag.num_inputs, device=DEVICE, requires_grad=True)

    def spy(name, forward):
        return lambda *arguments: (called.append(name), forward(*arguments))[1]

    for name in ("small", "large"):
        runner = getattr(net.runner, name)
        monkeypatch.setattr(runner, "forward", spy(name, runner.forward))
    for batch in (0, 1, 3, 4, 9):
        out, want = net(x[:batch]), exact(x[:batch])
        assert_near(out, want)
        for got, grad in zip(
            *(torch.autograd.grad(y.square().sum(), (x, *n.parameters())) for n, y in ((net, out), (exact, want))),
            strict=True,
        ):
            assert_near(got, grad)
    assert called == ["small"] * 3 + ["large"] * 2


def test_programs_exported_for_any_batch_have_the_packed_plan_of_large_ones(by_batch):
    net = make(generate.chain(12), "tanh", seed=0)
    x = torch.randn(5, 1, device=DEVICE)
    program = torch.export.export(net, (x[:2],), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    (node,) = (node for node in program.graph.nodes if "gpu_forward" in str(node.target))
    assert node.args[4][packing.Shape._fields.index("fused_lanes")] == 8
    for batch in (2, 5):
        assert_near(program.module()(x[:batch]), net(x[:batch]))


def test_both_packed_plans_are_copied_compiled_and_draw_alike(by_batch):
    net, other = (make(generate.chain(12), "tanh", dropout=0.5, seed=0) for _ in range(2))
    x = torch.randn(5, 1, device=DEVICE)
    first_pass, want = net(x[:3]), other(x)[:3]
    assert_near(first_pass, want)
    assert not torch.equal(net(x[:3]), first_pass)
    net.eval()
    copied, compiled = copy.deepcopy(net), torch.compile(net, fullgraph=True, dynamic=True, backend="eager")
    for batch in (2, 5):
        assert torch.equal(copied(x[:batch]), net(x[:batch]))
        assert torch.equal(compiled(x[:batch]), net(x[:batch]))


@pytest.mark.parametrize("layout", [packing.TILED, packing.CSR], ids=["tiled", "csr"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_fake_tensors_are_like_real_ones(layout, dtype, monkeypatch):
    monkeypatch.setattr(engine, "choose_layout", lambda plan: layout)
    monkeypatch.setattr(engine, "choose_fused", lambda *_: [])
    dag = generate.erdos_renyi(40, 0.2, seed=0)
    net, x = (
        make(dag, seed=0, dtype=dtype, activation="gelu"),
        torch.ones(5, dag.num_inputs, dtype=dtype, device=DEVICE),
    )
    arguments = (
        *(x, net.weight.detach(), net.bias.detach(), net.runner.packed_plan, list(net.runner.shape)),
        *(None, 0.0, False),
    )
    torch.library.opcheck(torch.ops.fourward.gpu_forward.default, arguments, test_utils="test_faketensor")
    out, saved = torch.ops.fourward.gpu_forward(*arguments)
    for needs_x_grad, has_bias in ((True, True), (False, False)):
        back = out, arguments[1], *arguments[3:5], saved, None, 0.0, False, needs_x_grad, has_bias
        torch.library.opcheck(torch.ops.fourward.gpu_backward.default, back, test_utils="test_faketensor")


def test_an_export_of_another_version_is_refused():
    net = make(generate.erdos_renyi(14, 0.3, seed=0), seed=0)
    x, older = torch.randn(3, net.dag.num_inputs, device=DEVICE), list(net.runner.shape)
    older[0] -= 1

    def run(device, shape):
        tensors = x, net.weight.detach(), net.bias.detach(), net.runner.packed_plan
        return torch.ops.fourward.gpu_forward(*(t.to(device) for t in tensors), shape, None, 0.0, False)

    with pytest.raises(
        EngineError, match=f"expected layout {packing.LAYOUT_VERSION}, got {packing.LAYOUT_VERSION - 1}"
    ):
        run(DEVICE, older)
    with pytest.raises(EngineError, match="another version"):  # where it is traced, and had fewer fields
        run("meta", older[:-2])


def test_explain_names_the_strategy():
    text = make(generate.erdos_renyi(20, 0.4, seed=0), seed=0).explain()
    assert "engine gpu" in text
    assert "tiled: 1 panel of 32 neurons in one launch" in text

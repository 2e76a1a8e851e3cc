"""The gpu engine in torch: traced, exported, copied, refused, explained; its heuristics, packing and precompilation."""

import copy
import importlib.util
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_configs import wide_input_graph
from fourward import Dag, FourWard, generate
from fourward.engine._gpu import cuda_graphs, engine, heuristics, launch, packing, tiled_launch
from fourward.engine._gpu.launch_key import BACKWARD_TENSORS, FORWARD_TENSORS
from fourward.engine._gpu.launcher import precompile
from fourward.engine._gpu.tiling import TILE_SIZE, count_tiles, cut_tiles
from fourward.errors import EngineError
from fourward.layering import longest_path, reassign
from fourward.plan._plan import build_plan
from tests.engine.gpu import DEVICE, QUIET, force, make, random_dag
from tests.tolerance import assert_near

pytestmark = QUIET
#: Tensors that a pass writes, or that the other one wrote.
RESULTS = {"out", "saved", "x_grad", "weight_grad", "bias_grad"}


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


def test_a_network_for_a_card_where_there_is_none(strategy, monkeypatch):
    net = make(generate.erdos_renyi(40, 0.3, seed=1), seed=0)
    tensors = net.weight, net.bias, net.runner.program
    arguments = torch.zeros(3, net.dag.num_inputs), *(tensor.detach().cpu() for tensor in tensors)
    monkeypatch.setattr(launch, "interpreting", lambda: False)
    launch.clear_passes()
    with pytest.raises(EngineError, match=r"expected tensors on a CUDA card, .* got cpu\. net\.to\('cpu'\)"):
        launch.forward(*arguments, net.runner.shape, None, 0.0, False)


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


@pytest.mark.parametrize(
    ("tiles", "slices", "want"),
    [(7, 4, (7, False)), (560, 4, (260, False)), (560, 64, (200, False)), (560, 133, (132, True)), (7, 300, (7, True))],
)
def test_tickets_are_for_more_programs_than_are_resident(tiles, slices, want):
    assert heuristics.choose_packers(tiles, slices, 264) == want


@given(st.integers(2, 90), st.floats(0.02, 1), st.integers(0, 2**31))
def test_tiles_hold_every_edge_once(nodes, p, seed):
    dag = generate.erdos_renyi(nodes, p, seed=seed)
    plan = build_plan(dag, longest_path(dag), np.zeros(nodes, int))
    tiles = cut_tiles(plan)
    assert len(tiles.tile_block) == count_tiles(plan) == tiles.tile_start[-1]
    input_blocks = -(-dag.num_inputs // TILE_SIZE)
    panels = np.arange(len(tiles.tile_start) - 1)
    tile_panel = np.repeat(panels, np.diff(tiles.tile_start))
    seen = np.zeros(dag.num_edges, bool)
    for edge_masks, first_edges, sources, targets in (
        (tiles.edge_mask, tiles.first_edge, tiles.tile_block, tile_panel),
        (tiles.diagonal_edge_mask, tiles.diagonal_first_edge, input_blocks + panels, panels),
    ):
        for tile, (block, panel) in enumerate(zip(sources, targets, strict=True)):
            for t in range(TILE_SIZE):
                edge_mask, edge = int(edge_masks[tile * TILE_SIZE + t]), int(first_edges[tile * TILE_SIZE + t])
                for k in range(TILE_SIZE):
                    if edge_mask >> k & 1:
                        assert not seen[edge]
                        seen[edge] = True
                        assert tiles.row[plan.source[edge]] == block * TILE_SIZE + k
                        assert tiles.row[plan.target[edge]] == (input_blocks + panel) * TILE_SIZE + t
                        edge += 1
    assert seen.all()
    assert np.array_equal(tiles.out_panel, tile_panel[tiles.out_tile])
    assert (np.diff(tiles.tile_block[tiles.out_tile]) >= 0).all()


def explain_half():
    """Why a float16 network, which the cpu engine can't run, has the engine that it has."""
    return FourWard(generate.erdos_renyi(20, 0.4, seed=0), dtype=torch.float16).explain()


def test_refusals_give_reasons(monkeypatch):
    if DEVICE == "cpu":
        assert "not gpu: Triton's interpreter" in explain_half()
        monkeypatch.setenv("TRITON_INTERPRET", "0")
        assert "not gpu: the network is on cpu, not on a CUDA card" in explain_half()
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


@pytest.mark.parametrize(
    ("shape", "batch", "want"),
    [
        ((packing.TILED, 128, 4, 8128, 0), 512, ("tiled", 8, 32, 4, 0, True)),
        ((packing.TILED, 256, 8, 32640, 0), 512, ("tiled", 8, 32, 4, 0, True)),
        ((packing.TILED, 256, 8, 32640, 0), 1056, ("tiled", 8, 32, 4, 0, True)),
        ((packing.TILED, 256, 8, 32640, 0), 1057, ("tiled", 8, 16, 2, 0, False)),
        ((packing.TILED, 256, 8, 32640, 0), 8192, ("tiled", 8, 16, 2, 0, False)),
        ((packing.TILED, 320, 9, 2542, 0), 32, ("tiled_segments", 8, 32, 4, 0, True)),
        ((packing.TILED, 384, 12, 73536, 0), 32, ("tiled_segments", 8, 32, 4, 0, True)),
        ((packing.TILED, 384, 12, 73536, 0), 8192, ("tiled_segments", 8, 16, 2, 0, False)),
        ((packing.CSR, 5000, 0, 4999, 4999), 512, ("csr_persistent", 32, 8, 4, 8, False)),
        ((packing.CSR, 10**4, 0, 10**5, 47), 32, ("csr_per_level", 32, 32, 4, 4, False)),
        ((packing.CSR, 10**4, 0, 10**5, 47), 512, ("csr_per_level", 32, 8, 4, 16, False)),
        ((packing.CSR, 10**5, 0, 10**6, 55), 512, ("csr_per_level", 32, 8, 4, 16, False)),
        ((packing.CSR, 10**4, 0, 10**6, 410), 512, ("csr_per_level", 32, 32, 4, 4, False)),
    ],
)
def test_configs_are_those_that_were_measured_fastest(shape, batch, want):
    """The tables of docs/gpu.md."""
    assert heuristics.tuned_config(*shape, batch) == want


@pytest.mark.parametrize("layout", [packing.TILED, packing.CSR], ids=["tiled", "csr"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_fake_tensors_are_like_real_ones(layout, dtype, monkeypatch):
    monkeypatch.setattr(engine, "choose_layout", lambda plan: layout)
    dag = generate.erdos_renyi(40, 0.2, seed=0)
    net, x = (
        make(dag, seed=0, dtype=dtype, activation="gelu"),
        torch.ones(5, dag.num_inputs, dtype=dtype, device=DEVICE),
    )
    arguments = (
        *(x, net.weight.detach(), net.bias.detach(), net.runner.program, list(net.runner.shape)),
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
        tensors = x, net.weight.detach(), net.bias.detach(), net.runner.program
        return torch.ops.fourward.gpu_forward(*(t.to(device) for t in tensors), shape, None, 0.0, False)

    with pytest.raises(
        EngineError, match=f"expected layout {packing.LAYOUT_VERSION}, got {packing.LAYOUT_VERSION - 1}"
    ):
        run(DEVICE, older)
    with pytest.raises(EngineError, match="another version"):  # where it is traced, and had fewer fields
        run("meta", older[:-2])


@pytest.mark.parametrize(
    ("dag", "layout"),
    [
        (lambda: generate.erdos_renyi(200, 0.01, seed=0), packing.TILED),  # one launch
        (lambda: generate.erdos_renyi(1024, 0.2, seed=0), packing.TILED),  # many levels
        (lambda: random_dag(2000, 8000), packing.CSR),  # few levels
        (lambda: random_dag(4000, 256_000), packing.TILED),
        (lambda: random_dag(10**4, 10**5), packing.CSR),  # too much memory
        (lambda: wide_input_graph(800, 200, 50), packing.TILED),
        (lambda: wide_input_graph(4000, 200, 50), packing.CSR),  # many inputs, few for each
        (lambda: wide_input_graph(4000, 200, 1000), packing.TILED),
        (lambda: generate.chain(5000), packing.TILED),
        (lambda: generate.chain(70_000), packing.CSR),  # too much memory
    ],
)
def test_layouts_are_those_that_were_measured_fastest(dag, layout):
    dag = dag()
    assert heuristics.choose_layout(build_plan(dag, longest_path(dag), np.ones(dag.num_nodes, np.int32))) == layout


def test_explain_names_the_strategy():
    text = make(generate.erdos_renyi(20, 0.4, seed=0), seed=0).explain()
    assert "engine gpu" in text
    assert "tiled: 1 panel of 32 neurons in one launch" in text


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

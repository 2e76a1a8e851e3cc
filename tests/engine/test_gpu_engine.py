"""The gpu engine as torch and its users meet it: traced, copied, refused, explained."""

import copy
import importlib.util
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.gpu_ways import fed
from fourward import Dag, FourWard, generate
from fourward.engine._gpu import cuda_graphs, engine, heuristics, launch, packing, tiled_launch
from fourward.engine._gpu.launcher import rehearse
from fourward.engine._gpu.tiling import SIDE, count_tiles, cut_tiles
from fourward.errors import EngineError
from fourward.layering import longest_path, reassign
from fourward.plan._plan import build_plan
from tests.engine.gpu import DEVICE, QUIET, force, make, sparse
from tests.tolerance import assert_near

pytestmark = QUIET


def test_inputs_alone():
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


def test_copies(way):
    dag = generate.erdos_renyi(40, 0.3, seed=1)
    net = make(dag, seed=0)
    x = torch.randn(4, dag.num_inputs, device=DEVICE)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(x), net(x))


def test_a_network_of_a_card_where_there_is_none(way, monkeypatch):
    net = make(generate.erdos_renyi(40, 0.3, seed=1), seed=0)
    given = torch.zeros(3, net.dag.num_inputs), *(t.detach().cpu() for t in (net.weight, net.bias, net.runner.program))
    monkeypatch.setattr(launch, "interpreting", lambda: False)
    launch.forget()
    with pytest.raises(EngineError, match=r"made for a CUDA card, and now it is on cpu. net.to\('cpu'\)"):
        launch.forward(*given, net.runner.shape, None, 0.0, False)


def test_export_with_any_batch(way):
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
    """The engine has the weights in the order of walking already; the torch engine must not sort them again."""
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
def test_many_gradients_at_once(name):
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


def test_biases_of_another_type_are_refused():
    net = make(generate.erdos_renyi(30, 0.3, seed=1), seed=0)
    net.bias = torch.nn.Parameter(net.bias.double())
    with pytest.raises(EngineError, match=r"biases are .*float64"):
        net(torch.randn(4, net.dag.num_inputs, device=DEVICE))


@pytest.mark.parametrize("multiprocessors", [1, 1000])
@pytest.mark.parametrize("name", ["panels", "stretches"])
def test_with_tickets_and_without(name, multiprocessors, monkeypatch):
    """Results are the same, and counters are left as they were found."""
    force(name, monkeypatch)
    row = torch.zeros(16, dtype=torch.int64, device=DEVICE)  # the counters are the first two of these
    monkeypatch.setattr(tiled_launch, "counters", lambda device: row)
    monkeypatch.setattr(tiled_launch, "holds", lambda device, warps: multiprocessors * 8 // warps)
    monkeypatch.setattr(cuda_graphs, "zeros_row", lambda device: row)
    dag = generate.erdos_renyi(70, 0.3, seed=1)
    net, exact = (make(dag, seed=0, engine=engine, dtype=torch.float64) for engine in ("gpu", "torch"))
    for batch in (1, 20, 33, 20, 20):
        x = torch.randn(batch, dag.num_inputs, dtype=torch.float64, device=DEVICE)
        assert_near(net(x), exact(x))
        assert not row[:2].any()
    assert row.any() == (name == "stretches")  # after them, where tensors are
    launch.forget()


@pytest.mark.parametrize(
    ("tiles", "slices", "want"),
    [(7, 4, (7, False)), (560, 4, (260, False)), (560, 64, (200, False)), (560, 133, (132, True)), (7, 300, (7, True))],
)
def test_tickets_are_for_more_programs_than_a_card_holds(tiles, slices, want):
    assert heuristics.packers_of(tiles, slices, 264) == want


@given(st.integers(2, 90), st.floats(0.02, 1), st.integers(0, 2**31))
def test_tiles_hold_every_edge_once(nodes, p, seed):
    dag = generate.erdos_renyi(nodes, p, seed=seed)
    plan = build_plan(dag, longest_path(dag), np.zeros(nodes, int))
    tiles = cut_tiles(plan)
    assert len(tiles.block) == count_tiles(plan) == tiles.start[-1]
    lead = -(-dag.num_inputs // SIDE)
    every = np.arange(len(tiles.start) - 1)
    panel = np.repeat(every, np.diff(tiles.start))
    found = np.full(dag.num_edges, -1)
    for words, bases, blocks, panels in (
        (tiles.word, tiles.base, tiles.block, panel),
        (tiles.own_word, tiles.own_base, lead + every, every),
    ):
        for tile, (block, v) in enumerate(zip(blocks, panels, strict=True)):
            for t in range(SIDE):
                word, edge = int(words[tile * SIDE + t]), int(bases[tile * SIDE + t])
                for k in range(SIDE):
                    if word >> k & 1:
                        assert found[edge] == -1
                        found[edge] = edge
                        assert tiles.slot[plan.source[edge]] == block * SIDE + k
                        assert tiles.slot[plan.target[edge]] == (lead + v) * SIDE + t
                        edge += 1
    assert (found >= 0).all()
    assert np.array_equal(tiles.back_panel, panel[tiles.back_tile])
    assert (np.diff(tiles.block[tiles.back_tile]) >= 0).all()


def test_refusals_give_reasons(monkeypatch):
    dag = generate.erdos_renyi(20, 0.4, seed=0)
    if DEVICE == "cpu":
        assert "not gpu: Triton's interpreter" in FourWard(dag, dtype=torch.float16).explain()
        monkeypatch.setenv("TRITON_INTERPRET", "0")
        assert "not gpu: the network is on cpu, not on a CUDA card" in FourWard(dag, dtype=torch.float16).explain()
    monkeypatch.setattr(engine.metadata, "version", lambda name: "3.2.0")
    assert "not gpu: Triton 3.2.0 is installed, and 3.6 is needed" in FourWard(dag, dtype=torch.float16).explain()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not gpu: Triton isn't installed" in FourWard(dag, dtype=torch.float16).explain()


def test_triton_by_another_name(monkeypatch):
    """As torch's nightly builds, those for ROCm and Triton for Windows have it."""
    dag = generate.erdos_renyi(20, 0.4, seed=0)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    want = FourWard(dag, dtype=torch.float16).explain()

    def unknown(name):
        raise engine.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(engine.metadata, "version", unknown)
    assert FourWard(dag, dtype=torch.float16).explain() == want
    monkeypatch.setattr("triton.__version__", "3.2.0")
    assert "not gpu: Triton 3.2.0 is installed" in FourWard(dag, dtype=torch.float16).explain()


@pytest.mark.parametrize(
    ("shape", "batch", "want"),
    [
        ((packing.PANELS, 128, 4, 8128, 0), 512, ("panels", 8, 32, 4, 0, True)),
        ((packing.PANELS, 256, 8, 32640, 0), 512, ("panels", 8, 32, 4, 0, True)),
        ((packing.PANELS, 256, 8, 32640, 0), 1056, ("panels", 8, 32, 4, 0, True)),
        ((packing.PANELS, 256, 8, 32640, 0), 1057, ("panels", 8, 16, 2, 0, False)),
        ((packing.PANELS, 256, 8, 32640, 0), 8192, ("panels", 8, 16, 2, 0, False)),
        ((packing.PANELS, 320, 9, 2542, 0), 32, ("stretches", 8, 32, 4, 0, True)),
        ((packing.PANELS, 384, 12, 73536, 0), 32, ("stretches", 8, 32, 4, 0, True)),
        ((packing.PANELS, 384, 12, 73536, 0), 8192, ("stretches", 8, 16, 2, 0, False)),
        ((packing.LISTS, 5000, 0, 4999, 4999), 512, ("lists", 32, 8, 4, 8, False)),
        ((packing.LISTS, 10**4, 0, 10**5, 47), 32, ("levels", 32, 32, 4, 4, False)),
        ((packing.LISTS, 10**4, 0, 10**5, 47), 512, ("levels", 32, 8, 4, 16, False)),
        ((packing.LISTS, 10**5, 0, 10**6, 55), 512, ("levels", 32, 8, 4, 16, False)),
        ((packing.LISTS, 10**4, 0, 10**6, 410), 512, ("levels", 32, 32, 4, 4, False)),
    ],
)
def test_ways_are_those_that_were_measured_fastest(shape, batch, want):
    """The tables of docs/gpu.md."""
    assert heuristics.way(*shape, batch) == want


@pytest.mark.parametrize("kind", [packing.PANELS, packing.LISTS], ids=["panels", "lists"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64], ids=str)
def test_what_tracing_expects_is_what_comes(kind, dtype, monkeypatch):
    monkeypatch.setattr(engine, "kind_of", lambda plan: kind)
    dag = generate.erdos_renyi(40, 0.2, seed=0)
    net, x = (
        make(dag, seed=0, dtype=dtype, activation="gelu"),
        torch.ones(5, dag.num_inputs, dtype=dtype, device=DEVICE),
    )
    given = x, net.weight.detach(), net.bias.detach(), net.runner.program, list(net.runner.shape), None, 0.0, False
    torch.library.opcheck(torch.ops.fourward.gpu_forward.default, given, test_utils="test_faketensor")
    out, kept = torch.ops.fourward.gpu_forward(*given)
    for wanted, biased in ((True, True), (False, False)):
        back = out, given[1], *given[3:5], kept, None, 0.0, False, wanted, biased
        torch.library.opcheck(torch.ops.fourward.gpu_backward.default, back, test_utils="test_faketensor")


def test_an_export_of_another_version_is_refused():
    net = make(generate.erdos_renyi(14, 0.3, seed=0), seed=0)
    x, older = torch.randn(3, net.dag.num_inputs, device=DEVICE), list(net.runner.shape)
    older[0] -= 1

    def run(like, shape):
        given = x, net.weight.detach(), net.bias.detach(), net.runner.program
        return torch.ops.fourward.gpu_forward(*(t.to(like) for t in given), shape, None, 0.0, False)

    with pytest.raises(EngineError, match=f"layout {packing.LAYOUT - 1}, not {packing.LAYOUT}"):
        run(DEVICE, older)
    with pytest.raises(EngineError, match="another version"):  # where it is traced, and had fewer fields
        run("meta", older[:-2])


@pytest.mark.parametrize(
    ("dag", "kind"),
    [
        (lambda: generate.erdos_renyi(200, 0.01, seed=0), packing.PANELS),  # one launch
        (lambda: generate.erdos_renyi(1024, 0.2, seed=0), packing.PANELS),  # many levels
        (lambda: sparse(2000, 8000), packing.LISTS),  # few levels
        (lambda: sparse(4000, 256_000), packing.PANELS),
        (lambda: sparse(10**4, 10**5), packing.LISTS),  # no room
        (lambda: fed(800, 200, 50), packing.PANELS),
        (lambda: fed(4000, 200, 50), packing.LISTS),  # many inputs, few for each
        (lambda: fed(4000, 200, 1000), packing.PANELS),
        (lambda: generate.chain(5000), packing.PANELS),
        (lambda: generate.chain(70_000), packing.LISTS),  # no room
    ],
)
def test_tiles_or_lists(dag, kind):
    dag = dag()
    assert heuristics.kind_of(build_plan(dag, longest_path(dag), np.ones(dag.num_nodes, np.int32))) == kind


def test_explain_names_the_way():
    told = make(generate.erdos_renyi(20, 0.4, seed=0), seed=0).explain()
    assert "engine gpu" in told
    assert "walks 1 panel of 32 neurons in one launch" in told


@pytest.mark.parametrize("x_wanted", [False, True])
def test_both_passes_are_compiled_before_the_first(x_wanted, monkeypatch):
    force("stretches", monkeypatch)
    found = []
    monkeypatch.setattr(launch, "rehearse", lambda *passes: found.append([type(each.func) for each in passes]))
    net = make(generate.erdos_renyi(70, 0.2, seed=0), seed=0)
    for _ in range(2):
        x = torch.randn(5, net.dag.num_inputs, device=DEVICE, requires_grad=x_wanted)
        net(x).sum().backward()
    assert found == [[tiled_launch.Forward, tiled_launch.Backward]]
    with torch.no_grad():
        net(torch.randn(6, net.dag.num_inputs, device=DEVICE))
    assert found[1:] == [[tiled_launch.Forward]]


def test_a_rehearsal_runs_nothing(monkeypatch):
    force("stretches", monkeypatch)
    written = []

    def rehearsed(*passes):
        written.extend(tensor for each, first in zip(passes, (4, 2), strict=True) for tensor in each.args[0][first:])
        for tensor in written:
            tensor.detach().fill_(7)
        rehearse(*passes)
        assert all((tensor == 7).all() for tensor in written)

    monkeypatch.setattr(launch, "rehearse", rehearsed)
    dag = generate.erdos_renyi(70, 0.2, seed=0)
    net, exact = (make(dag, seed=0, engine=engine, dtype=torch.float64) for engine in ("gpu", "torch"))
    x = torch.ones(5, dag.num_inputs, dtype=torch.float64, device=DEVICE)
    out = net(x)
    assert len(written) == 6
    assert all((tensor != 7).any() for tensor in written[:2])  # what the forward pass writes
    out.sum().backward()
    (want,) = torch.autograd.grad(exact(x).sum(), exact.weight)
    assert_near(net.weight.grad, want)

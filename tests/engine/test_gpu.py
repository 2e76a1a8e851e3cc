"""The gpu engine: every way to walk, on a card where there is one, elsewhere in Triton's interpreter."""

import copy
import importlib.util
import math
import pickle
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.cases import case
from fourward import Dag, FourWard, generate
from fourward.engine.gpu import by_panels, engine, launch, program, ways
from fourward.engine.gpu.call import Launch
from fourward.engine.gpu.ways import Way
from fourward.errors import EngineError
from fourward.layering import longest_path, reassign
from fourward.plan.activations import ACTIVATIONS
from fourward.plan.plan import build_plan
from fourward.plan.tiles import SIDE, count_tiles, cut_tiles
from tests.engine.test_contract import SUBJECTS, assert_equal_results, run
from tests.tolerance import TOLERANCE, assert_near

#: A card doesn't warn of infinities, NumPy under the interpreter does.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value|divide by zero):RuntimeWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_card = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA card: programs of the interpreter run in turn")
make = partial(FourWard, engine="gpu", device=DEVICE)
WAYS = {
    "panels": (program.PANELS, Way("panels", 8, 4, 4)),
    "stretches": (program.PANELS, Way("stretches", 8, 4, 4)),
    "stretches of many slices": (program.PANELS, Way("stretches", 8, 2, 4)),
    "lists": (program.LISTS, Way("lists", 32, 8, 4, 8)),
    "levels": (program.LISTS, Way("levels", 32, 8, 4, 16)),
    "levels of high degree": (program.LISTS, Way("levels", 32, 32, 4, 4)),
}


def force(name, monkeypatch):
    kind, way = WAYS[name]
    monkeypatch.setattr(engine, "kind_of", lambda plan: kind)
    monkeypatch.setattr(ways, "way_of", lambda *_: way)
    for module in (program, ways):
        monkeypatch.setattr(module, "STRETCH", 1)
    if name == "stretches of many slices":
        monkeypatch.setattr(ways, "spread_of", lambda *_: ways.Spread(2, 1, 4, 2, 4))
    launch.forget()


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    force(request.param, monkeypatch)
    yield request.param
    launch.forget()


def mixed(dag):
    names = list(ACTIVATIONS)
    return {dag.labels[v]: names[i % len(names)] for i, v in enumerate(dag.neurons.tolist())}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_every_way(way, dtype):
    dag = generate.erdos_renyi(100, 0.15, seed=7)
    want = run("reference", dag, torch.float64, 11, activation="gelu")
    assert_equal_results(run("gpu", dag, dtype, 11, activation="gelu"), want, dtype)


@pytest.mark.parametrize("name", ["source neurons", "isolated nodes", "skip-heavy"])
def test_every_way_on_odd_graphs(way, name):
    dag = case(name).dag
    options = {"activation": mixed(dag), "dropout": 0.3}
    want = run("reference", dag, torch.float64, **options)
    assert_equal_results(run("gpu", dag, torch.float64, **options), want, torch.float64)


@pytest.mark.parametrize(("inputs", "neurons"), [(1, 31), (32, 32), (33, 33), (31, 65)])
def test_panel_boundaries(inputs, neurons):
    rng = np.random.default_rng(inputs)
    mask = np.triu(rng.random((inputs + neurons,) * 2) < 0.5, 1)
    mask[:, :inputs] = False
    mask[:inputs, inputs] = True
    dag = Dag.from_mask(mask, inputs=range(inputs))
    want = run("reference", dag, torch.float64, activation="tanh")
    assert_equal_results(run("gpu", dag, torch.float64, activation="tanh"), want, torch.float64)


def test_what_is_infinite_reaches_descendants_alone(way):
    """Tiles hold zeros where there is no edge, and zero times infinity is NaN."""
    dag = generate.erdos_renyi(70, 0.1, seed=2)
    names = {
        name: make(dag, engine=name, seed=0, dtype=torch.float64, activation="leaky_relu") for name in ("torch", "gpu")
    }
    x = torch.randn(3, dag.num_inputs, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    x[1, 0] = torch.inf
    x[2, 1] = torch.nan
    a, b = (names[name].activations(x) for name in ("torch", "gpu"))
    assert torch.isnan(a[2]).any()
    assert not torch.isnan(a[2]).all()
    torch.testing.assert_close(b, a, equal_nan=True)


def test_gradients_that_are_infinite_reach_ancestors_alone(way):
    dag = generate.erdos_renyi(70, 0.1, seed=2)
    found = {}
    for name in ("torch", "gpu"):
        net = make(dag, engine=name, seed=0, dtype=torch.float64, activation="leaky_relu")
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(2, dag.num_inputs, dtype=torch.float64, generator=generator).to(DEVICE).requires_grad_()
        gradient = torch.randn(2, dag.num_outputs, dtype=torch.float64, generator=generator).to(DEVICE)
        gradient[1, 0] = torch.inf
        net(x).backward(gradient)
        found[name] = x.grad, net.bias.grad
    assert torch.isfinite(found["torch"][1]).any()
    for ours, theirs in zip(found["gpu"], found["torch"], strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision(way, dtype):
    dag = generate.erdos_renyi(60, 0.2, seed=3)
    want = run("reference", dag, torch.float64, activation="tanh")
    assert_equal_results(run("gpu", dag, dtype, activation="tanh"), want, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_keeps_activations_in_half_and_sums_in_single_precision(way, dtype):
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
    """Tensors whose numbers are NaN at first, each with room behind it that nobody has any business in."""

    def __init__(self, monkeypatch):
        self.behind, self.fresh = [], torch.Tensor.new_empty
        monkeypatch.setattr(torch.Tensor, "new_empty", lambda like, *shape, **options: self.make(like, shape, options))
        monkeypatch.setattr(torch, "empty_like", lambda like, **options: self.make(like, like.shape, options))

    def make(self, like, shape, options):
        count = math.prod(shape)
        room = self.fresh(like, count + 4096, **options).fill_(77)
        self.behind.append(room[count:])
        made = room[:count].view(shape)
        return made.fill_(torch.nan) if made.is_floating_point() else made


def test_every_number_is_written_and_no_other(way, monkeypatch):
    """What a kernel leaves out of its results stays NaN."""
    fenced = Fenced(monkeypatch)
    dag = case("source neurons").dag
    want = run("reference", dag, torch.float64, 40, activation="gelu")
    assert_equal_results(run("gpu", dag, torch.float64, 40, activation="gelu"), want, torch.float64)
    assert len(fenced.behind) > 4
    assert all((behind == 77).all() for behind in fenced.behind)


@needs_card
def test_same_bits_each_time(way):
    dag = generate.erdos_renyi(70, 0.3, seed=1)
    first, second = (run("gpu", dag, torch.float32, 9) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_only_some_gradients_are_asked_for(way):
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


def test_views_and_odd_addresses():
    dag = generate.erdos_renyi(40, 0.3, seed=1)
    net = make(dag, seed=0)
    wide = torch.randn(6, dag.num_inputs + 3, device=DEVICE)
    x = wide[:, 3:]
    loose = torch.randn(6 * dag.num_inputs + 1, device=DEVICE)[1:].view(6, dag.num_inputs)
    for given_x in (x, loose, torch._neg_view(x), x.expand(6, -1)):
        assert_near(net(given_x), net(given_x.clone(memory_format=torch.contiguous_format)))


def odd(tensor):
    """The same numbers, 4 or 8 bytes behind a multiple of 16."""
    return torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)


@pytest.mark.parametrize("name", ["stretches", "levels"])
def test_the_second_batch_may_lie_elsewhere(name, monkeypatch):
    """It is captured, and meanwhile no kernel can be compiled for tensors that lie otherwise than the first."""
    force(name, monkeypatch)
    dag = generate.erdos_renyi(70, 0.2, seed=1)
    net, exact = (make(dag, seed=0, engine=engine, dtype=torch.float64) for engine in ("gpu", "torch"))
    batches = torch.randn(3, 5, dag.num_inputs, dtype=torch.float64, device=DEVICE)
    gradient = torch.randn(5, dag.num_outputs, dtype=torch.float64, device=DEVICE)
    launched, call = [], Launch.__call__
    monkeypatch.setattr(Launch, "__call__", lambda self, *tensors: (launched.append(tensors), call(self, *tensors))[1])
    for lies, x in zip((lambda tensor: tensor, odd, odd), batches, strict=True):
        net.weight.data, net.bias.data = lies(net.weight.data), lies(net.bias.data)
        launched.clear()
        out = net(lies(x))
        passes = [launched[1:]]
        launched.clear()
        net.weight.grad = exact.weight.grad = None
        out.backward(lies(gradient))
        exact(x).backward(gradient)
        assert_near(out, exact(x))
        assert_near(net.weight.grad, exact.weight.grad)
        for later in (*passes, launched[1:]):
            assert all(tensor.data_ptr() % 16 == 0 for tensors in later for tensor in tensors)
    launch.forget()


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


def test_tickets_leave_nothing_behind(monkeypatch):
    counts = torch.zeros(4, dtype=torch.int32, device=DEVICE)
    monkeypatch.setattr(by_panels, "counters", lambda device: counts)
    dag = generate.erdos_renyi(60, 0.3, seed=1)
    net = make(dag, seed=0)
    for batch in (1, 20, 33):
        net(torch.randn(batch, dag.num_inputs, device=DEVICE))
        assert counts.tolist() == [0, 0, 0, 0]


@given(st.integers(2, 90), st.floats(0.02, 1), st.integers(0, 2**31))
def test_tiles_hold_every_edge_once(nodes, p, seed):
    dag = generate.erdos_renyi(nodes, p, seed=seed)
    plan = build_plan(dag, longest_path(dag), np.zeros(nodes, int))
    tiles = cut_tiles(plan)
    assert len(tiles.block) == count_tiles(plan) == tiles.start[-1]
    lead = -(-dag.num_inputs // SIDE)
    panel = np.repeat(np.arange(len(tiles.start) - 1), np.diff(tiles.start))
    found = np.full(dag.num_edges, -1)
    for words, bases, blocks, panels in (
        (tiles.word, tiles.base, tiles.block, panel),
        (
            tiles.own_word,
            tiles.own_base,
            lead + np.arange(panel.max(initial=-1) + 1),
            np.arange(panel.max(initial=-1) + 1),
        ),
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
        ((program.PANELS, 128, 4, 8128, 0), 512, ("panels", 8, 1, 4, 0)),
        ((program.PANELS, 256, 8, 32640, 0), 512, ("panels", 8, 2, 4, 0)),
        ((program.PANELS, 384, 12, 73536, 0), 32, ("panels", 8, 2, 4, 0)),
        ((program.PANELS, 416, 13, 86320, 0), 32, ("stretches", 8, 2, 4, 0)),
        ((program.LISTS, 5000, 0, 4999, 4999), 512, ("lists", 32, 8, 4, 8)),
        ((program.LISTS, 10**4, 0, 10**5, 47), 32, ("levels", 32, 32, 4, 4)),
        ((program.LISTS, 10**4, 0, 10**5, 47), 512, ("levels", 32, 8, 4, 16)),
        ((program.LISTS, 10**5, 0, 10**6, 55), 512, ("levels", 32, 8, 4, 16)),
        ((program.LISTS, 10**4, 0, 10**6, 410), 512, ("levels", 32, 32, 4, 4)),
    ],
)
def test_ways_are_those_that_were_measured_fastest(shape, batch, want):
    """The tables of docs/gpu.md."""
    assert ways.way(*shape, batch) == want


@pytest.mark.parametrize("kind", [program.PANELS, program.LISTS], ids=["panels", "lists"])
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


def test_explain_names_the_way():
    net = make(generate.erdos_renyi(20, 0.4, seed=0), seed=0)
    assert "engine gpu" in net.explain()
    assert "panels" in net.explain()


@needs_card
def test_chosen_on_a_card():
    assert FourWard(generate.erdos_renyi(20, 0.4, seed=0), device="cuda").engine == "gpu"


@needs_card
@pytest.mark.parametrize("name", WAYS)
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
    launch.forget()


@needs_card
@pytest.mark.parametrize("name", ["stretches", "levels"])
def test_graphs_are_replayed_with_other_tensors(name, monkeypatch):
    """The third call and all after it replay a graph that was captured with other addresses."""
    force(name, monkeypatch)
    dag = generate.erdos_renyi(200, 0.05, seed=0)
    net, exact = make(dag, seed=0, dtype=torch.float64), make(dag, seed=0, dtype=torch.float64, engine="torch")
    kept = []
    for _ in range(5):
        x = torch.randn(20, dag.num_inputs, dtype=torch.float64, device="cuda", requires_grad=True)
        kept.append((x, net(x)))
    for x, out in reversed(kept):
        assert_near(out, exact(x))
        (got,) = torch.autograd.grad(out.square().sum(), net.weight, retain_graph=True)
        (want,) = torch.autograd.grad(exact(x).square().sum(), exact.weight)
        assert_near(got, want)
    launch.forget()


@needs_card
def test_two_streams_at_once():
    dag = generate.erdos_renyi(300, 0.2, seed=0)
    net, x = make(dag, seed=0), torch.randn(64, dag.num_inputs, device="cuda")
    want = net(x)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    found = []
    for _ in range(20):
        for stream in streams:
            with torch.cuda.stream(stream):
                found.append(net(x))
    torch.cuda.synchronize()
    assert all(torch.equal(out, want) for out in found)


def sparse(nodes, edges, seed=0):
    rng = np.random.default_rng(seed)
    pairs = np.sort(rng.integers(0, nodes, (edges, 2)), 1)
    return Dag.from_edges(np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0), nodes=nodes)


LARGE = {
    "1,500 dense": lambda: generate.erdos_renyi(1500, 0.5, seed=0),
    "3,000 of a tenth": lambda: generate.erdos_renyi(3000, 0.1, seed=0),
    "a chain of 20,000": lambda: generate.chain(20_000),
    "10^5 edges": lambda: sparse(10**4, 10**5),
    "10^6 edges of high degree": lambda: sparse(10**4, 10**6),
    "10^7 edges": lambda: sparse(10**6, 10**7),
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
    found = []
    for _ in range(2):
        x.grad = net.weight.grad = net.bias.grad = None
        out = net(x)
        out.square().sum().backward()
        found.append((out.detach(), x.grad, net.weight.grad, net.bias.grad))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert all(torch.isfinite(value).all() for value in found[0])
    if exact is not net:
        y = x.detach().double().requires_grad_()
        want = exact(y)
        want.square().sum().backward()
        for ours, theirs in zip(found[0], (want, y.grad, exact.weight.grad, exact.bias.grad), strict=True):
            error = (ours.double() - theirs).norm() / theirs.norm().clamp(min=1e-30)
            assert error < TOLERANCE[torch.float32]

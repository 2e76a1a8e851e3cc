"""What the contract suite can't test of every engine: slices, blocks, threads, processes, torch's tracers."""

import inspect
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import types

from benchmarks.cases import case
from fourward import Dag, FourWard, generate, layering, plan
from fourward.engine._cpu import activations, entries, launch, slices, threads
from fourward.engine._cpu import edge_runs as cpu_runs
from fourward.engine._cpu.arguments import HEADER, buffer_reader
from fourward.engine._cpu.buffers import BUFFERS
from fourward.engine._kernel_engine import KernelFunction, KernelRunner
from fourward.errors import EngineError
from fourward.graph._algorithms import random_ranks
from fourward.plan.activations import ACTIVATIONS
from tests.tolerance import assert_near


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def x_for(dag, batch, dtype=torch.float32, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal((batch, dag.num_inputs))).to(dtype)


def take_in_order(net, position):
    """Let the CPU engine take the nodes of a network in a given order, and reuse rows."""
    net.runner = KernelRunner(net.plan, *launch.pack(net.plan, position), net.choice.engine.ops)


def random_order(plan, seed):
    """Positions of a plan in an order drawn among all topological ones."""
    draw = np.random.default_rng(seed).random(plan.dag.num_nodes)
    rank = random_ranks(plan.source.astype(np.int64), plan.target.astype(np.int64), plan.dag.num_nodes, draw)
    return np.argsort(rank)


def assert_matches_torch(dag, batch, dtype=torch.float32, order=None, all_nodes=False, **options):
    """Compare outputs and gradients of the CPU engine with the torch engine in float64."""
    ours = FourWard(dag, engine="cpu", seed=0, dtype=dtype, **options)
    theirs = FourWard(dag, engine="torch", seed=0, dtype=torch.float64, **options)
    theirs.load_edge_weights(ours.weight, ours.bias)
    if order is not None:
        take_in_order(ours, order(ours.plan))
    x = x_for(dag, batch, dtype).requires_grad_()
    x64 = x.detach().double().requires_grad_()
    call = "activations" if all_nodes else "forward"
    out, want = getattr(ours, call)(x), getattr(theirs, call)(x64)
    assert_near(out, want)
    if not options.get("dropout"):
        with torch.no_grad():
            assert_near(getattr(ours, call)(x), want)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape)
    (out * weights.to(dtype)).sum().backward()
    (want * weights).sum().backward()
    for got, expected in ((x, x64), (ours.weight, theirs.weight), (ours.bias, theirs.bias)):
        if expected.grad is None:  # no output depends on it
            assert got.grad is None or not got.grad.any()
        else:
            assert_near(got.grad, expected.grad)


@pytest.mark.parametrize("batch", [0, 1, 7, 15, 16, 17, 31, 33, 64, 65, 127, 128, 129, 200, 255, 384, 511, 777, 1000])
def test_batch_sizes(batch, two_threads):
    assert_matches_torch(generate.erdos_renyi(120, 0.3, seed=0), batch)
    assert_matches_torch(generate.erdos_renyi(40, 0.3, seed=0), batch, torch.float64)


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_slices_cover_the_batch_once(lanes, workers):
    for batch in range(0, 1001, 13):
        for most in (1, 2, 8):
            cut = slices.slices(batch, lanes, workers, most)
            first, size, width, begin = cut.table.T
            assert (len(cut.table), cut.table.ctypes.data) == (cut.jobs, cut.address)
            assert sum(size) == batch
            assert (first == np.cumsum(size) - size).all()
            assert sum(width) == cut.padded == slices.pad_batch(batch, lanes)
            assert (begin == np.cumsum(width) - width).all()
            assert cut.width == max(width, default=0) <= most * lanes
            assert all(w & (w - 1) == 0 for w in width.tolist()), "powers of 2"
            assert cut.shares == len(cut.share_start) - 1 <= workers
            assert (cut.share_start[0], cut.share_start[-1]) == (0, cut.jobs)
            assert batch < lanes or (np.diff(cut.share_start) > 0).all()


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 66, 127, 128, 129, 130, 191, 192, 193, 194, 257])
def test_block_boundaries(n, two_threads):
    assert_matches_torch(generate.complete(n), 33, activation="leaky_relu")
    assert_matches_torch(generate.layered_mlp([n, n, 3]), 20)


@pytest.mark.parametrize("density", [0.02, 0.5, 1.0])
def test_runs_take_every_edge_once_and_in_time(density):
    dag = generate.erdos_renyi(300, density, seed=0)
    plan = FourWard(dag).plan
    schedule = plan.schedule
    runs = cpu_runs.forward_runs(plan, schedule)
    edges = cpu_runs.backward_edges(plan, schedule)
    back = cpu_runs.backward_runs(plan, schedule, edges)
    assert sorted(edges.edge) == list(range(dag.num_edges))
    assert (runs is None) == (back is None) == (density < 0.5), "dense graphs are split by blocks, sparse ones by nodes"
    if runs is not None:
        check_runs(runs, plan.source, plan.target, set(), dag.num_edges)
        check_runs(back, plan.target[edges.edge], plan.source[edges.edge], set(), dag.num_edges)


def check_runs(runs, read, written, finished, num_edges):
    begun, taken = set(), 0
    for node, first, last, flag in zip(*(column.tolist() for column in runs), strict=True):
        assert (flag & cpu_runs.BEGIN > 0) == (node not in begun)
        begun.add(node)
        assert set(read[first:last].tolist()) <= finished, "a run reads an unfinished row"
        assert set(written[first:last].tolist()) <= {node}
        taken += last - first
        if flag & cpu_runs.END:
            assert node not in finished
            finished.add(node)
    assert taken == num_edges
    assert begun <= finished


def test_mixed_activations_in_one_level(two_threads):
    dag = generate.layered_mlp([20, 14, 14, 14])
    names = list(ACTIVATIONS)
    mixed = {v: names[i % len(names)] for i, v in enumerate(dag.neurons.tolist())}
    assert_matches_torch(dag, 70, activation=mixed)
    assert_matches_torch(dag, 70, torch.float64, activation=mixed, dropout=0.3)


@pytest.mark.parametrize(
    "dag",
    [generate.erdos_renyi(100_000, 2e-4, seed=0), generate.barabasi_albert(10_000, 100, seed=0)],
    ids=["sparse", "hubs"],
)
def test_a_million_edges(dag, two_threads):
    assert dag.num_edges > 980_000
    assert_matches_torch(dag, 3, activation="tanh")


def test_another_layering_permutes_the_weights(two_threads):
    dag = generate.erdos_renyi(200, 0.05, seed=0)
    lay = layering.reassign(dag, layering.push_sources(dag, layering.longest_path(dag)), seed=1)
    assert FourWard(dag, layering=lay).plan.edge is not None
    assert_matches_torch(dag, 40, layering=lay)


def test_inputs_and_gradients_that_are_not_contiguous(two_threads):
    dag = case("Erdos-Renyi").dag
    net = FourWard(dag, seed=0)
    x = x_for(dag, 40)
    wide = torch.stack((x, x + 1), -1)[..., 0]
    assert not wide.is_contiguous()
    assert torch.equal(net(wide), net(x))
    net(x).sum().backward()  # the gradient of a sum is an expanded number
    want = net.weight.grad.clone()
    net.zero_grad()
    (net(x) * torch.ones(())).sum().backward()
    assert torch.equal(net.weight.grad, want)


def test_only_what_is_needed_is_kept():
    dag = generate.erdos_renyi(100, 0.1, seed=0)
    for activation, rows in (("relu", 0), ("tanh", 0), ("gelu", len(dag.neurons))):
        _, shape = launch.pack(FourWard(dag, activation=activation).plan)
        assert shape.z_rows == rows


@pytest.mark.parametrize("function", [activations.activate, activations.multiply_by_derivative])
def test_float32_stays_float32(function):
    row, rows = types.CPointer(types.float32), 3 if function is activations.multiply_by_derivative else 1
    signature = (types.int32, *[row] * rows, types.int64, *[types.float32] * (rows == 3))
    function.compile(signature)
    assert "double" not in function.inspect_llvm(signature)


@pytest.mark.parametrize("packer", [entries.forward_arguments, entries.backward_arguments])
def test_kernels_read_the_arguments_that_were_packed_by_name(packer):
    values = {name: 10 * i for i, name in enumerate(inspect.signature(packer).parameters)}
    shuffled = dict(sorted(values.items()))
    buffer = packer(**shuffled)
    assert buffer[:HEADER].tolist() == [0] * HEADER
    assert buffer_reader(packer)(np.array(buffer))._asdict() == values
    del shuffled["packed_plan"]
    with pytest.raises(TypeError, match="'packed_plan'"):
        packer(**shuffled)
    with pytest.raises(TypeError, match="'wieght'"):
        packer(**values, wieght=0)


def test_every_kernel_has_a_name_of_its_own():
    """Numba's cache would confuse kernels of one name and type: the first that is loaded is called for all."""
    wide, narrow = entries._FORWARD_32.py_func, entries._NARROW_FORWARD_32.py_func
    called = [func.__closure__[0].cell_contents.py_func for func in (wide, narrow)]
    names = [func.__qualname__ for func in (wide, narrow, *called)]
    for func in called:
        names += [
            kernel.py_func.__qualname__ for name, kernel in func.__globals__.items() if name.startswith("kernel_")
        ]
    assert len(names) == 4 + 4 + 4
    assert len(set(names)) == len(names)


# Orders and rows


@pytest.mark.parametrize("batch", [1, 5, 40])
@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@given(seed=st.integers(0, 10**6), nodes=st.integers(1, 40), density=st.floats(0, 1), hidden_outputs=st.booleans())
@settings(max_examples=8, deadline=None)
def test_any_order_gives_the_same(batch, activation, seed, nodes, density, hidden_outputs):
    dag = generate.erdos_renyi(nodes, density, seed=seed)
    if hidden_outputs:  # others then lead to no output
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(dag.num_nodes)[: rng.integers(1, dag.num_nodes + 1)]
        dag = Dag.from_arrays(dag.edges, labels=nodes, outputs=chosen)
    for all_nodes in (False, True):
        assert_matches_torch(
            dag, batch, order=lambda plan: random_order(plan, seed), all_nodes=all_nodes, activation=activation
        )


GRAPHS = {
    "depth first from the outputs": lambda: trees(),
    "by level": lambda: ladder(),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_chosen_orders(name, two_threads):
    """Graphs for which each order is the best."""
    dag = GRAPHS[name]()
    plan = FourWard(dag, activation="tanh").plan
    assert plan.schedule.name == name
    assert plan.schedule.reuses_rows
    assert_matches_torch(dag, 40, activation="tanh")
    assert_matches_torch(dag, 40, activation="gelu", dropout=0.3)


def trees(leaves=1024):
    """A binary tree from many inputs to one output."""
    child = np.arange(2, 2 * leaves)
    return Dag.from_arrays(np.stack((child - 1, child // 2 - 1), 1))


def ladder(steps=1000):
    """Two chains side by side, joined at each step: few rows are alive in any order."""
    up, down = np.arange(0, 2 * steps, 2), np.arange(1, 2 * steps, 2)
    pairs = [(up[:-1], up[1:]), (down[:-1], down[1:]), (up[:-1], down[1:])]
    return Dag.from_arrays(np.concatenate([np.stack(ends, 1) for ends in pairs]))


def test_inference_takes_memory_for_the_rows_alive_alone(monkeypatch, two_threads):
    net, sizes, take = FourWard(trees(), activation="tanh", seed=0), [], BUFFERS.take
    monkeypatch.setattr(BUFFERS, "take", lambda size, owner: sizes.append(size) or take(size, owner))
    x = x_for(net.dag, 1024)
    with torch.no_grad():
        net(x)
    alive, threads_used = net.plan.schedule.num_slots, 2
    assert alive == 12 < net.dag.num_nodes // 100
    assert sizes == [alive * 128 * 4 * threads_used]
    assert net.plan.schedule.num_slots * 128 * 4 == plan.cost(net.plan, 1024).inference_bytes
    assert "at most 12 of 2,047 rows alive" in net.explain()


@pytest.mark.parametrize("pushes", [False, True])
@pytest.mark.parametrize("batch", [1, 2, 5, 8, 16, 27])
def test_narrow_slices_whose_backward_pass_pulls_or_pushes(pushes, batch, monkeypatch, two_threads):
    monkeypatch.setattr(launch, "_pushes", lambda shape, cut, dtype: pushes)
    monkeypatch.setattr(launch, "_backward_layout", launch._backward_layout.__wrapped__)
    size = 120 if batch > 16 else 60  # large enough for two threads, each of which takes a slice
    dropped = Dag.from_arrays(generate.erdos_renyi(size, 0.6, seed=1).edges, labels=size, outputs=[40, 50])
    for dtype in (torch.float32, torch.float64)[: 2 if batch <= 8 else 1]:  # wider rows of float64 are pulled
        for all_nodes in (False, True):
            assert_matches_torch(dropped, batch, dtype, all_nodes=all_nodes, activation="gelu", dropout=0.3)
            assert_matches_torch(generate.complete(size), batch, dtype, all_nodes=all_nodes, activation="tanh")


def test_backward_passes_push_where_rows_are_narrow_and_fit_the_cache():
    def pushes(nodes, batch):
        shape = launch.Shape(nodes=nodes, inputs=1, outputs=1, edges=1, z_rows=0, slots=nodes, back_slots=nodes)
        return launch._pushes(shape, slices.slices(batch, 16, 1), torch.float32)

    cache = slices.own_cache_bytes()
    assert pushes(cache // 128, 16)
    assert not pushes(cache // 128 + 1, 16)
    assert not pushes(2, 17), "two lane groups"


def test_wide_slices_read_rows_that_fit_the_cache():
    cache = slices.last_cache_bytes()
    assert slices.most_groups(10) == slices.MOST_GROUPS
    assert slices.most_groups(10**9) == slices.LEAST_GROUPS
    assert slices.most_groups(cache // 4 // (4 * 64)) == 4


def test_rows_are_prefetched_where_the_cache_is_too_small(monkeypatch, two_threads):
    monkeypatch.setattr(launch, "last_cache_bytes", lambda: 0)
    monkeypatch.setattr(launch, "_forward_layout", launch._forward_layout.__wrapped__)
    monkeypatch.setattr(launch, "_backward_layout", launch._backward_layout.__wrapped__)
    dag = generate.erdos_renyi(300, 0.05, seed=0)
    shape = FourWard(dag).runner.shape
    assert launch._forward_layout(shape, 40, torch.float32, 2, True).distance == launch.PREFETCH_DISTANCE
    assert_matches_torch(dag, 40, activation="tanh")
    assert_matches_torch(generate.complete(70), 40, activation="tanh")


# Threads that rest


def test_the_caller_works_alone_after_a_team_that_wasted_time(monkeypatch, two_threads):
    now, calls = [100.0], []

    def team(entry, address, num_threads, flags):
        calls.append("team")
        first_end = threads.ctypes.c_double.from_address(address + 8 * threads.FIRST_END)
        first_end.value = now[0] + 0.1  # the caller needed a tenth of a second,
        now[0] += 0.4  # and waited for three

    monkeypatch.setattr(threads, "perf_counter", lambda: now[0])
    monkeypatch.setattr(threads, "_gomp", lambda: threads.Gomp(team, 1))
    monkeypatch.setattr(threads, "_callable", lambda entry: lambda address: calls.append("alone"))
    monkeypatch.setattr(threads, "_alone_until", 0.0)
    monkeypatch.setattr(threads, "_forked", False)
    buffer = threads.array("q", [0] * 10)
    for _ in range(3):
        threads.run(0, buffer, 2, 2)
    assert calls == ["team", "alone", "alone"]
    now[0] += threads.REST * 0.2 - 0.1  # two of the three tenths were wasted: alone, it would have taken two
    threads.run(0, buffer, 2, 2)
    now[0] += 0.2
    threads.run(0, buffer, 2, 2)
    assert calls == ["team", "alone", "alone", "alone", "team"]


def test_a_thread_that_has_not_started_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(threads, "_gomp", lambda: None)
    monkeypatch.setattr(threads, "_alone_until", 0.0)
    release = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(release.wait)  # the only thread is busy
        monkeypatch.setattr(threads, "_executor", lambda: pool)
        monkeypatch.setattr(threads, "_callable", lambda entry: lambda address: None)
        threads.run(0, threads.array("q", [0] * 10), 2, 2)
        release.set()


# The same bits, from any thread and in any process


def bits(net, x):
    net.zero_grad()
    out = net(x)
    out.square().sum().backward()
    return out.detach().clone(), net.weight.grad.clone(), net.bias.grad.clone()


def test_same_bits_each_time(two_threads):
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    net, x = FourWard(dag, seed=0), x_for(dag, 300)
    first = bits(net, x)
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(bits(net, x), first, strict=True))


@pytest.mark.parametrize("openmp", [True, False], ids=["torch's team", "executor"])
def test_eight_python_threads_at_once(openmp, two_threads, monkeypatch):
    if not openmp:
        monkeypatch.setattr(threads, "_gomp", lambda: None)
    dag = generate.erdos_renyi(200, 0.3, seed=0)
    nets = [FourWard(dag, seed=s) for s in range(8)]
    x = x_for(dag, 256)
    want = [bits(net, x) for net in nets]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            for got, expected in zip(pool.map(lambda net: bits(net, x), nets), want, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def child(queue):
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    torch.set_num_threads(2)
    net = FourWard(dag, seed=0)
    with torch.no_grad():
        queue.put(net(x_for(dag, 256)).numpy())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # newer Pythons warn of forks beside threads
def test_worker_processes_after_use(method, two_threads):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    net = FourWard(dag, seed=0)
    with torch.no_grad():
        want = net(x_for(dag, 256)).numpy()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    worker = context.Process(target=child, args=(queue,))
    worker.start()
    try:
        assert np.array_equal(queue.get(timeout=120), want)
    finally:
        worker.join(30)
        worker.kill()
    assert worker.exitcode == 0


def test_threads_follow_torch(monkeypatch):
    dag = generate.erdos_renyi(300, 0.3, seed=0)
    net, seen, run = FourWard(dag, seed=0), [], threads.run

    def record(entry, block, jobs, num_threads):
        seen.append(num_threads)
        run(entry, block, jobs, num_threads)

    monkeypatch.setattr(threads, "run", record)
    before = torch.get_num_threads()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        net(x_for(dag, 256))
    torch.set_num_threads(before)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(("forward_threads", "backward_threads"), [(2, 1), (1, 2), (1, 8), (8, 1)])
@pytest.mark.parametrize("compiled", [False, True])
def test_threads_may_change_before_the_backward_pass(forward_threads, backward_threads, compiled):
    torch._dynamo.reset()
    dag = generate.erdos_renyi(128, 0.5, seed=0)
    net, twin = FourWard(dag, seed=0), FourWard(dag, seed=0, engine="torch")
    call = torch.compile(net, backend="aot_eager", fullgraph=True) if compiled else net
    before = torch.get_num_threads()
    torch.set_num_threads(forward_threads)
    loss = call(x_for(dag, 128)).square().sum()
    torch.set_num_threads(backward_threads)
    loss.backward()
    torch.set_num_threads(before)
    twin(x_for(dag, 128)).square().sum().backward()
    assert_near(net.weight.grad, twin.weight.grad)


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path):
    """A file where the folder would have to be: not even root can write there."""
    blocker = tmp_path / "blocked"
    blocker.write_text("a file, where a folder would have to be")
    code = (
        "import torch, fourward as fw; net = fw.FourWard(fw.generate.chain(3), seed=0); print(net(torch.ones(1)).shape)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(blocker / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "torch.Size([1])" in done.stdout


# Torch's tracers


def operator_arguments(dag, batch=5, dtype=torch.float32, key=None, **options):
    net = FourWard(dag, seed=0, dtype=dtype, **options)
    packed_plan, shape = launch.pack(net.plan)
    x = x_for(dag, batch, dtype).requires_grad_()
    return (x, net.weight, net.bias, packed_plan, list(shape), key, 0.4 if key is not None else 0.0, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_opcheck(dtype, activation):
    dag = generate.erdos_renyi(14, 0.3, seed=0)
    arguments = operator_arguments(dag, dtype=dtype, activation=activation)
    torch.library.opcheck(torch.ops.fourward.cpu_forward.default, arguments)
    torch.library.opcheck(
        torch.ops.fourward.cpu_forward.default, operator_arguments(dag, dtype=dtype, key=torch.tensor(5))
    )
    out, saved = torch.ops.fourward.cpu_forward(*arguments)
    _, weight, _, packed_plan, shape, key, p, all_nodes = arguments
    backward = (torch.ones_like(out), weight.detach(), packed_plan, shape, saved.detach(), key, p, all_nodes)
    for needs_x_grad in (True, False):
        torch.library.opcheck(torch.ops.fourward.cpu_backward.default, (*backward, needs_x_grad, True))


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_compile_is_one_graph(activation, dropout):
    torch._dynamo.reset()
    dag = generate.erdos_renyi(40, 0.3, seed=0)
    net, twin = (FourWard(dag, activation=activation, dropout=dropout, seed=0, engine="cpu") for _ in range(2))
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for batch in (5, 8, 21):
        x = x_for(dag, batch)
        got, want = compiled(x), twin(x)
        assert_near(got, want)
        got.sum().backward()
        want.sum().backward()
        assert_near(net.weight.grad, twin.weight.grad)


def test_export_with_any_batch():
    dag = generate.erdos_renyi(40, 0.3, seed=0)
    net = FourWard(dag, seed=0, engine="cpu").eval()
    exported = torch.export.export(net, (x_for(dag, 5),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    assert "fourward.cpu_forward" in str(exported.graph)
    assert_near(exported.module()(x_for(dag, 33)), net(x_for(dag, 33)))


def test_second_derivatives_come_from_the_torch_engine():
    dag = generate.erdos_renyi(10, 0.4, seed=0)
    net = FourWard(dag, activation="tanh", engine="cpu", seed=3, dtype=torch.float64)
    x = x_for(dag, 2, torch.float64).requires_grad_()

    def outputs(x, weight, bias):
        return torch.func.functional_call(net, {"weight": weight, "bias": bias}, (x,))

    assert torch.autograd.gradgradcheck(outputs, (x, net.weight, net.bias))


def test_second_derivatives_where_x_is_a_parameter():
    dag = generate.erdos_renyi(20, 0.3, seed=0)
    weight_grads = []
    for engine in ("cpu", "torch"):
        net = FourWard(dag, activation="tanh", engine=engine, seed=0, dtype=torch.float64)
        x = torch.nn.Parameter(x_for(dag, 4, torch.float64))
        (x_grad,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        x_grad.square().sum().backward()
        weight_grads.append(net.weight.grad)
    assert_near(*weight_grads)


def test_first_derivatives_with_create_graph_follow_no_path_twice():
    """The input of the second pass depends on the weights, too."""
    net = FourWard(generate.chain(4), activation="tanh", seed=0, dtype=torch.float64)
    y = net(net(torch.ones(2, 1, dtype=torch.float64))).sum()
    plain, created = (torch.autograd.grad(y, net.weight, create_graph=c, retain_graph=True)[0] for c in (False, True))
    assert_near(created.detach(), plain)


def test_second_derivatives_of_a_traced_network_are_refused():
    arguments = operator_arguments(generate.erdos_renyi(14, 0.3, seed=0))
    out = torch.ops.fourward.cpu_forward(*arguments)[0]
    (x_grad,) = torch.autograd.grad(out.sum(), arguments[0], create_graph=True)
    with pytest.raises(EngineError, match=r"double backward.*eager mode"):
        x_grad.sum().backward()


@pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")  # torch's own, at its first use
def test_forward_mode():
    dag = generate.erdos_renyi(20, 0.3, seed=0)
    nets = [FourWard(dag, activation="tanh", seed=0, engine=engine, dtype=torch.float64) for engine in ("cpu", "torch")]
    x, direction = x_for(dag, 3, torch.float64), x_for(dag, 3, torch.float64, seed=1)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, direction)
            tangents = [torch.autograd.forward_ad.unpack_dual(net(dual)).tangent for net in nets]
        assert_near(*(tangent.detach() for tangent in tangents))


def test_an_exported_program_of_another_layout_is_refused():
    arguments = list(operator_arguments(generate.erdos_renyi(14, 0.3, seed=0)))
    arguments[3] = arguments[3].clone()
    arguments[3][-1] += 1
    with pytest.raises(EngineError, match="another version"):
        torch.ops.fourward.cpu_forward(*arguments)


# NaN, infinities, views


def test_padding_never_reaches_gradients():
    """At x=0, which padding once was, this overflows; at x=1 it doesn't."""
    dag = Dag.from_edges([("a", "b"), ("b", "c")])
    net = FourWard(dag, activation="square", engine="cpu")
    net.load_edge_weights([-1e20, 1.0], [1e20, 0.0])
    x = torch.ones(1, 1, requires_grad=True)
    net(x).sum().backward()
    assert net.weight.grad.tolist() == [0, 0]
    assert x.grad.tolist() == [[0]]


def test_views_that_torch_has_yet_to_negate():
    dag = generate.erdos_renyi(20, 0.3, seed=0)
    net = FourWard(dag, activation="tanh", seed=0)
    x = x_for(dag, 5)
    with torch.no_grad():
        assert torch.equal(net(torch._neg_view(x)), net(-x))


def test_nan_is_not_dropped():
    dag = generate.erdos_renyi(60, 0.2, seed=0)
    x = x_for(dag, 9)
    x[4] = float("nan")
    ours, theirs = (FourWard(dag, dropout=0.5, seed=0, engine=engine).activations(x) for engine in ("cpu", "torch"))
    assert torch.equal(ours.isnan(), theirs.isnan())


def test_forward_skips_autograd_without_grad_mode(monkeypatch):
    net = FourWard(case("Erdos-Renyi").dag, seed=0)
    monkeypatch.setattr(KernelFunction, "apply", lambda *_: pytest.fail("autograd was called"))
    with torch.no_grad():
        net(x_for(net.dag, 3))


# What it supports


def test_refusals_give_reasons():
    dag = Dag.from_edges([("a", "b")])
    with pytest.raises(EngineError, match=r"'cpu' can't run.*float32 and float64, not torch.bfloat16"):
        FourWard(dag, engine="cpu", dtype=torch.bfloat16)
    with pytest.raises(EngineError, match="on meta, not on the CPU"):
        FourWard(dag, engine="cpu", device="meta")
    net = FourWard(dag, activation=torch.sin)
    assert net.engine == "torch"
    assert "not cpu: an activation is a callable" in net.explain()

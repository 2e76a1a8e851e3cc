"""What the contract suite can't test of every engine: slices, blocks, kernels, unusual tensors."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
from numba import types

from benchmarks.cases import case
from fourward import Dag, FourWard, generate, layering
from fourward.engine._cpu import activations, entries, launch, pass_arguments, slices
from fourward.engine._cpu import edge_runs as cpu_runs
from fourward.engine._cpu.arguments import HEADER, buffer_reader
from fourward.engine._kernel_engine import KernelFunction
from fourward.errors import EngineError
from fourward.plan.activations import ACTIVATIONS
from tests.engine.cpu import assert_matches_torch, x_for


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
    "make",
    [partial(generate.erdos_renyi, 100_000, 2e-4), partial(generate.barabasi_albert, 10_000, 100)],
    ids=["sparse", "hubs"],
)
def test_a_million_edges(make, two_threads):
    dag = make(seed=0)
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


@pytest.mark.parametrize("packer", [pass_arguments.forward_arguments, pass_arguments.backward_arguments])
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

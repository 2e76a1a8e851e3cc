"""Exported C, compiled by the system's compiler without a warning, computes what the network computes."""

import math

import pytest
import torch

from benchmarks.cases import ZOO, case
from fourward import Dag, FourWard, generate, layering
from fourward.errors import OptionError, WeightError
from fourward.exchange import export, to_c
from fourward.plan.activations import ACTIVATIONS
from tests.exchange.helpers import COMPILER, batch, compile_c, run_c
from tests.tolerance import assert_near

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler: neither cc, gcc nor clang")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name, dtype, tmp_path):
    net = FourWard(generate.erdos_renyi(24, 0.3, seed=2), name, seed=0, dtype=dtype)
    x = batch(net.dag.num_inputs).to(dtype)
    actual = run_c(compile_c(to_c(net), tmp_path), net, x)
    assert actual.dtype == dtype
    assert_near(actual, net.double()(x.double()).detach())


@pytest.mark.parametrize("name", ZOO)
def test_every_graph(name, tmp_path):
    net = FourWard(case(name).dag, case(name).activation, seed=0, dtype=torch.float64)
    library = compile_c(to_c(net), tmp_path)
    for rows in (0, 1, 4):
        x = batch(net.dag.num_inputs, rows)
        assert_near(run_c(library, net, x), net(x).detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_inf_and_nan_as_in_torch(dtype, tmp_path):
    dag = Dag.from_edges([("x", name) for name in ACTIVATIONS])
    net = FourWard(dag, {name: name for name in ACTIVATIONS}, bias=False, init=1.0, dtype=dtype)
    x = torch.tensor([[-1e4], [1e4], [0.0], [math.inf], [-math.inf], [math.nan]], dtype=dtype)
    actual = run_c(compile_c(to_c(net), tmp_path), net, x)
    torch.testing.assert_close(actual, net(x).detach(), equal_nan=True)


def test_reassigned_layering_without_biases(tmp_path):
    dag = generate.erdos_renyi(60, 0.1, seed=0)
    lay = layering.reassign(dag, layering.longest_path(dag), seed=3)
    net = FourWard(dag, "tanh", "identity", bias=False, seed=0, layering=lay, dtype=torch.float64)
    assert net.plan.edge is not None
    x = batch(dag.num_inputs)
    assert_near(run_c(compile_c(to_c(net), tmp_path), net, x), net(x).detach())


def test_half_precision_becomes_float(tmp_path):
    net = FourWard(generate.erdos_renyi(30, 0.2, seed=0), "tanh", seed=0, dtype=torch.float16)
    x = batch(net.dag.num_inputs).half()
    assert "const float *x" in to_c(net)
    assert_near(run_c(compile_c(to_c(net), tmp_path), net, x.float()), net.double()(x.double()).detach())


def test_name_of_the_function(tmp_path):
    net = FourWard(generate.erdos_renyi(20, 0.2, seed=0), "tanh", seed=0)
    export(net, tmp_path / "worm.c")
    assert (tmp_path / "worm.c").read_text() == to_c(net)
    source = to_c(net, "worm")
    x = batch(net.dag.num_inputs).float()
    assert_near(run_c(compile_c(source, tmp_path), net, x, "worm"), net(x).detach())
    for name in ("weight", "while", "a b", "", "größe", "x;int y"):
        with pytest.raises(OptionError, match=r"name must be letters, digits and underscores.*got"):
            to_c(net, name)


def test_no_label_leaves_its_comment(tmp_path):
    labels = ["*/ int leaked; /*", "a\\\nb", "??/\n*/", "größe\0", '"', "/*", "*" * 1000]
    dag = Dag.from_edges([(label, "*/}; out") for label in labels])
    net = FourWard(dag, "tanh", seed=0, dtype=torch.float64)
    source = to_c(net)
    assert source.count("/*") == source.count("*/")
    x = batch(dag.num_inputs)
    library = compile_c(source, tmp_path)
    assert not hasattr(library, "leaked")
    assert_near(run_c(library, net, x), net(x).detach())


def test_code_does_not_grow_with_edges(tmp_path):
    net = FourWard(generate.complete(450), "tanh", seed=0, dtype=torch.float64)
    assert net.dag.num_edges > 100_000
    source = to_c(net)
    assert source.count(";") < 200  # with a statement for each edge, a compiler would take minutes
    x = batch(net.dag.num_inputs, 1)
    assert_near(run_c(compile_c(source, tmp_path), net, x), net(x).detach())


def test_limits():
    net = FourWard(generate.chain(3), seed=0)
    with torch.no_grad():
        net.weight[1] = math.inf
    with pytest.raises(WeightError, match="expected finite weights and biases for C source"):
        to_c(net)
    with pytest.raises(OptionError, match="at most 100,000 nodes for C source, got 100,001"):
        to_c(FourWard(generate.chain(100_001), seed=0, engine="torch"))

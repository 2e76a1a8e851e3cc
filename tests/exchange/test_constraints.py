"""Constraints through every format: carried, or computed into the weights."""

import numpy as np
import pytest
import torch
from torch import nn

import fourward as fw
from fourward import exchange
from fourward.errors import FileError, OptionError, WeightError
from tests.exchange.helpers import batch, run_onnx
from tests.tolerance import assert_near

RNG = np.random.default_rng(0)
DAG = fw.generate.erdos_renyi(20, 0.3, seed=1)
DAG = DAG.with_attributes({"class": [["ring", None, "Ärm"][v % 3] for v in range(20)], "x": RNG.random(20)})


def constrained(**options):
    return fw.FourWard(
        DAG, "tanh", seed=0, dtype=torch.float64, sign=RNG.choice([-1, 0, 1], 20), tied="class",
        frozen=RNG.random(DAG.num_edges) < 0.3, scale=RNG.integers(1, 9, DAG.num_edges), **options,
    )  # fmt: skip


def assert_same_constraints(got, want):
    for name, array in want.constraints.arrays._asdict().items():
        assert np.array_equal(getattr(got.constraints.arrays, name), array), name


@pytest.mark.parametrize("suffix", [".safetensors", *fw.files.NETWORK_SUFFIXES])
def test_formats_of_networks_carry_them(tmp_path, suffix):
    net, path = constrained(), tmp_path / f"net{suffix}"
    exchange.export(net, path)
    saved = suffix == ".safetensors"
    loaded = fw.load(path) if saved else exchange.read_network(path, net_options={"dtype": torch.float64})
    assert_same_constraints(loaded, net)
    assert dict(loaded.dag.attributes) == dict(DAG.attributes)
    assert_near(loaded.weight.detach(), net.weight.detach())
    if saved:
        assert torch.equal(loaded.constraints.free_weight, net.constraints.free_weight), "to the bit"


def test_networkx_carries_them():
    net = constrained()
    assert_same_constraints(exchange.from_networkx(net.to_networkx(), dtype=torch.float64), net)


def test_formats_of_functions_have_the_effective_weights(tmp_path):
    net, x = constrained(), batch(DAG.num_inputs)
    exchange.export(net, tmp_path / "net.onnx")
    assert_near(run_onnx(tmp_path / "net.onnx", x), net(x).float())
    exchange.export(net, tmp_path / "net.pt2")
    assert_near(torch.export.load(tmp_path / "net.pt2").module()(x), net(x))
    for suffix in (".c", ".py", ".tex"):
        exchange.export(net, tmp_path / f"net{suffix}")
    module = nn.Sequential(net, nn.Tanh())
    exchange.export(module, tmp_path / "module.pt2", example=x)
    assert_near(torch.export.load(tmp_path / "module.pt2").module()(x), module(x))


@pytest.mark.parametrize("dynamo", [False, True])
@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.filterwarnings("ignore")  # those of torch's exporters
def test_torch_exports_modules_that_contain_them(tmp_path, dynamo, engine):
    module, x = nn.Sequential(constrained(engine=engine).float(), nn.Tanh()).eval(), batch(DAG.num_inputs).float()
    options = {"dynamo": True, "dynamic_shapes": ({0: torch.export.Dim("batch")},), "verbose": False}
    if not dynamo:
        options = {"dynamo": False, "dynamic_axes": {"x": {0: "batch"}}}
    torch.onnx.export(module, (x,), tmp_path / "module.onnx", input_names=["x"], **options)
    for rows in (x, x[:1]):
        assert_near(run_onnx(tmp_path / "module.onnx", rows), module(rows).detach())


@pytest.mark.parametrize("suffix", [".csv", ".mtx"])
def test_formats_of_edges_refuse_them(tmp_path, suffix):
    with pytest.raises(FileError, match=r"files can't store constraints. Write .graphml"):
        fw.files.write(DAG, tmp_path / f"g{suffix}", constraints={"scale": np.ones(DAG.num_edges)})


def test_folding_keeps_them():
    net, x = constrained(), batch(3)
    before, after = nn.Linear(3, DAG.num_inputs).double(), nn.Linear(DAG.num_outputs, 2).double()
    folded = exchange.fold(net, before, after)
    assert_near(folded(x), after(net(before(x))))
    assert folded.constraints.arrays.frozen.sum() == net.constraints.arrays.frozen.sum()
    assert folded.dag.attributes["class"].count("ring") == DAG.attributes["class"].count("ring")


def test_corrupt_constraints_are_refused(tmp_path):
    graph = constrained().to_networkx()
    for _, _, values in graph.edges(data=True):
        values["fourward_sign"] = 3
    with pytest.raises(OptionError, match="a sign must be"):
        exchange.from_networkx(graph)
    graph = constrained().to_networkx()
    for _, _, values in graph.edges(data=True):
        values["weight"] = 1.0 - 2 * (values["weight"] > 0)
    with pytest.raises(WeightError, match="contradict"):
        exchange.from_networkx(graph)

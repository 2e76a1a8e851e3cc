"""Every format of export: the same outputs, suffixes, limits, and files that are replaced atomically."""

import math
import resource

import onnx
import onnxruntime
import pytest
import torch

from benchmarks.cases import ZOO, case
from fourward import Dag, FourWard, generate, load
from fourward.errors import ActivationError, FileError, OptionError, WeightError
from fourward.exchange import EXPORTERS, export, read_network, to_onnx, to_python
from fourward.plan.activations import ACTIVATIONS
from tests.exchange.helpers import batch, driven_network, run_onnx, run_python
from tests.tolerance import assert_near


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation(name, tmp_path):
    net = FourWard(generate.erdos_renyi(24, 0.3, seed=2), name, seed=0, dtype=torch.float64)
    x = batch(net.dag.num_inputs)
    expected = net(x).detach()
    to_onnx(net, tmp_path / "net.onnx")
    assert_near(run_onnx(tmp_path / "net.onnx", x), expected)
    assert_near(run_python(net, x), expected)


@pytest.mark.parametrize("name", [name for name in ZOO if name != "chain 2000 deep"])  # takes seconds to load
def test_every_graph(name, tmp_path):
    """One node, no edges, several activations, hidden outputs, long chains: the graphs of the engines' tests."""
    net = FourWard(case(name).dag, case(name).activation, seed=0)
    to_onnx(net, tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    for rows in (0, 1, 4):
        x = batch(net.dag.num_inputs, rows)
        (actual,) = session.run(None, {"x": x.float().numpy()})
        assert_near(torch.from_numpy(actual), net(x.float()).detach())
    assert_near(run_python(net, x.float().double()), net.double()(x.float().double()).detach())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_driven_inputs(tmp_path):
    net, x = driven_network(), batch(3)
    expected = net(x).detach()
    assert_near(run_python(net, x), expected)
    for suffix in (".onnx", ".pt2", ".safetensors", ".graphml", ".json", ".npz", ".tex"):
        export(net, tmp_path / f"net{suffix}")
    assert_near(run_onnx(tmp_path / "net.onnx", x), expected, torch.float32)
    assert_near(torch.export.load(tmp_path / "net.pt2").module()(x), expected)
    assert_near(load(tmp_path / "net.safetensors")(x), expected)
    for suffix in (".graphml", ".json", ".npz"):
        restored = read_network(tmp_path / f"net{suffix}", net_options={"dtype": torch.float64})
        assert restored.dag == net.dag
        assert_near(restored(x), expected)
    assert r"\text{x of b}" in (tmp_path / "net.tex").read_text()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_pt2_runs_in_plain_torch(tmp_path):
    dag = generate.erdos_renyi(20, 0.2, seed=0)
    net = FourWard(dag, {"default": "tanh", dag.labels[int(dag.neurons[0])]: torch.cos}, seed=0, dropout=0.5)
    export(net, tmp_path / "net.pt2")
    program = torch.export.load(tmp_path / "net.pt2")
    for rows in (1, 7):
        x = batch(net.dag.num_inputs, rows).float()
        torch.testing.assert_close(program.module()(x), net.eval()(x))
    assert not any("fourward" in str(node.target) for node in program.graph.nodes)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_pt2_of_dense_and_sparse_levels(dtype, tmp_path):
    """Also levels of several activations, and neurons without edges."""
    wide = [(f"x{i}", f"y{i}") for i in range(40)]
    inputs = [source for source, _ in wide[1:]]
    dag = Dag.from_edges([*wide, *((f"y{i}", "z") for i in range(0, 40, 2)), ("z", "w")], inputs=inputs)
    net = FourWard(dag, {"default": "tanh", "y3": "relu", "y5": torch.cos, "w": "gelu"}, seed=0, dtype=dtype)
    export(net, tmp_path / "net.pt2")
    program = torch.export.load(tmp_path / "net.pt2")
    targets = {str(node.target) for node in program.graph.nodes}
    assert {"aten.addmm.default", "aten.index_add.default"} <= targets
    for rows in (1, 7):
        x = batch(39, rows).to(dtype)
        actual = program.module()(x)
        assert actual.dtype == dtype
        assert_near(actual, net.double()(x.double()).detach())
        net.to(dtype)


def test_graphs_have_few_nodes(tmp_path):
    """For each level, dense: a gather, a product, the activation and a concatenation."""
    dag = generate.erdos_renyi(100, 0.3, seed=0)
    height = FourWard(dag, "relu", seed=0).layering.height
    for name in ("relu", "tanh", "sigmoid", "selu"):
        net = FourWard(dag, name, seed=0)
        export(net, tmp_path / "net.onnx")
        assert len(onnx.load(tmp_path / "net.onnx").graph.node) <= 4 * height + 6
    export(net, tmp_path / "net.pt2")
    program = torch.export.load(tmp_path / "net.pt2")
    assert sum(node.op == "call_function" for node in program.graph.nodes) <= 4 * height + 6


def test_pt2_on_a_full_disk_leaves_the_old_file(tmp_path):
    path = tmp_path / "net.pt2"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            export(FourWard(generate.chain(3), seed=0), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_safetensors(tmp_path):
    net = FourWard(generate.erdos_renyi(20, 0.2, seed=0), "tanh", seed=0)
    export(net, tmp_path / "net.safetensors")
    assert torch.equal(
        load(tmp_path / "net.safetensors")(batch(net.dag.num_inputs).float()), net(batch(net.dag.num_inputs).float())
    )


@pytest.mark.parametrize("suffix", [suffix for suffix in EXPORTERS if suffix != ".pt2"])
def test_callable_activations_are_refused(suffix, tmp_path):
    dag = Dag.from_edges([("a", "b"), ("b", "c")])
    net = FourWard(dag, {"b": torch.cos, "c": "relu"}, seed=0)
    with pytest.raises(ActivationError, match=r"neuron 'b' has the activation cos, a callable") as caught:
        export(net, tmp_path / f"net{suffix}")
    assert caught.value.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_unknown_suffix(tmp_path):
    net = FourWard(generate.chain(2), seed=0)
    with pytest.raises(FileError, match=r"one of the suffixes \.onnx, .*, got \.h5"):
        export(net, tmp_path / "net.h5")


def test_limits_of_text_formats(tmp_path):
    net = FourWard(generate.complete(40), seed=0)
    with pytest.raises(OptionError, match="at most 500 edges for LaTeX, got 780"):
        export(net, tmp_path / "net.tex")
    with pytest.raises(OptionError, match="at most 20,000 edges for Python source, got 21,945"):
        to_python(FourWard(generate.complete(210), seed=0))
    with torch.no_grad():
        net.weight[3] = math.nan
    with pytest.raises(WeightError, match="expected finite weights and biases for Python source"):
        to_python(net)
    assert not list(tmp_path.iterdir())

"""Modules with FourWards inside: what torch's exporters and torch.jit.trace make of them, at any batch size."""

import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from fourward import Dag, FourWard, generate
from fourward.engine import _torch_engine
from fourward.errors import EngineError, FileError, OptionError, WeightError
from fourward.exchange import export
from tests.tolerance import assert_near

GRAPHS = {
    "random": generate.erdos_renyi(30, 0.25, seed=0),
    "mlp": generate.layered_mlp([4, 6, 3]),
    "chain": generate.chain(4),
    "empty sums": Dag.from_edges([("a", "c"), ("d", "c")], nodes=list("acde"), inputs=["a"], outputs=["c", "d", "e"]),
}
BATCHES = (1, 3, 17)

# torch's own: its older exporter is deprecated, its newer one uses what torch deprecates
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning:copyreg")


def make_module(dag, activation="relu", **options):
    """A network between two linear layers, from 5 features to 3."""
    if activation == "mixed":
        names = ("tanh", "relu", "gelu", "sigmoid", "sin")
        activation = {dag.labels[v]: names[k % 5] for k, v in enumerate(dag.neurons.tolist())}
    net = FourWard(dag, activation, seed=0, init="kaiming_normal", **options)
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(5, dag.num_inputs), net, nn.Linear(dag.num_outputs, 3)).eval()
    with torch.no_grad():
        for layer in (module[0], module[2]):
            layer.weight.normal_(generator=generator)
            layer.bias.normal_(generator=generator)
    return module


def samples(rows, *shape):
    return torch.randn(rows, *(shape or (5,)), generator=torch.Generator().manual_seed(rows))


def export_traced(module, path, example):
    axes = {name: {0: "batch"} for name in "xy"}
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(module, (example,), str(path), dynamo=False, dynamic_axes=axes, **names)


def export_dynamo(module, path, example):
    batch = ({0: torch.export.Dim.DYNAMIC},)
    torch.onnx.export(module, (example,), str(path), dynamo=True, dynamic_shapes=batch, verbose=False)


def assert_onnx(module, path, *shape):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for rows in BATCHES:
        x = samples(rows, *shape)
        (actual,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        assert_near(torch.from_numpy(actual), module(x).detach())


@pytest.mark.parametrize("engine", ["auto", "torch", "reference"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "mixed"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_torchscript_onnx_exporter(graph, activation, engine, tmp_path):
    module = make_module(GRAPHS[graph], activation, engine=engine)
    export_traced(module, tmp_path / "m.onnx", samples(2))
    assert_onnx(module, tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("graph", "activation", "engine"),
    [
        ("mlp", "relu", "auto"),
        ("mlp", "tanh", "torch"),
        ("chain", "mixed", "reference"),
        ("empty sums", "mixed", "auto"),
        ("random", "mixed", "auto"),
    ],
)
def test_dynamo_onnx_exporter(graph, activation, engine, tmp_path):
    module = make_module(GRAPHS[graph], activation, engine=engine)
    export_dynamo(module, tmp_path / "m.onnx", samples(2))
    assert_onnx(module, tmp_path / "m.onnx")


@pytest.mark.parametrize("exporter", [export_traced, export_dynamo])
def test_onnx_of_leading_dimensions(exporter, tmp_path):
    module = make_module(GRAPHS["mlp"], "tanh")
    exporter(module, tmp_path / "m.onnx", samples(2, 4, 5))
    assert_onnx(module, tmp_path / "m.onnx", 4, 5)


def test_onnx_of_levels_too_large_for_a_dense_block(tmp_path, monkeypatch):
    monkeypatch.setattr(_torch_engine, "_MAX_BLOCK", 20)
    with pytest.raises(EngineError, match=r"at most 20 neurons times sources for torch.onnx.export, got 6 times 4"):
        export_traced(make_module(GRAPHS["mlp"]), tmp_path / "m.onnx", samples(2))


@pytest.mark.parametrize("engine", ["auto", "torch", "reference"])
@pytest.mark.parametrize("shape", [(5,), (4, 5)])
def test_jit_trace(engine, shape):
    for graph in ("random", "empty sums"):
        module = make_module(GRAPHS[graph], "mixed", engine=engine)
        traced = torch.jit.trace(module, samples(2, *shape))
        for rows in BATCHES:
            assert_near(traced(samples(rows, *shape)).detach(), module(samples(rows, *shape)).detach())


def test_jit_trace_checks_its_example():
    with pytest.raises(Exception, match="expected x with 4 features in its last dimension"):
        torch.jit.trace(FourWard(GRAPHS["mlp"], seed=0), torch.zeros(2, 5))


@pytest.mark.parametrize("suffix", [".onnx", ".pt2"])
def test_export(suffix, tmp_path):
    module = make_module(GRAPHS["mlp"], "mixed").train()
    path = tmp_path / f"m{suffix}"
    export(module, path, example=samples(2))
    assert module.training
    assert module[1].engine != "torch"
    assert list(tmp_path.iterdir()) == [path]
    module.eval()
    if suffix == ".onnx":
        return assert_onnx(module, path)
    program = torch.export.load(path)
    assert not any("fourward" in str(node.target) for node in program.graph.nodes)
    for rows in BATCHES:
        assert_near(program.module()(samples(rows)).detach(), module(samples(rows)).detach())


class TwoInputs(nn.Module):
    """Calls one network twice."""

    def __init__(self):
        super().__init__()
        self.net = FourWard(GRAPHS["mlp"], "tanh", seed=0)

    def forward(self, left, right):
        return self.net(left) - self.net(right)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_export_of_several_inputs(tmp_path):
    module, pair = TwoInputs(), (samples(2, 4), samples(2, 4) + 1)
    export(module, tmp_path / "m.pt2", example=pair)
    x, y = samples(7, 4), samples(7, 4) + 1
    assert_near(torch.export.load(tmp_path / "m.pt2").module()(x, y).detach(), module(x, y).detach())


def test_export_errors(tmp_path):
    module = make_module(GRAPHS["mlp"])
    with pytest.raises(OptionError, match=r"a Sequential is exported by tracing it\. Pass example=\.\.\. to give"):
        export(module, tmp_path / "m.onnx")
    with pytest.raises(FileError, match=r"one of the suffixes \.onnx, \.pt2 for a Sequential, got \.py"):
        export(module, tmp_path / "m.py", example=samples(2))
    with pytest.raises(OptionError, match="expected a FourWard, got a Linear"):
        export(nn.Linear(2, 2), tmp_path / "m.onnx", example=samples(2))
    prune.random_unstructured(module[1], "weight", amount=0.5)
    with pytest.raises(WeightError, match=r"net\.weight is pruned"):
        export(module, tmp_path / "m.onnx", example=samples(2))
    assert not list(tmp_path.iterdir())

"""Networks with feedback in ONNX, for a fixed number of steps, and the formats that can't hold them."""

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from fourward import Digraph, Recurrent, connectomes
from fourward.errors import ActivationError, FileError, OptionError
from fourward.exchange import EXPORTERS, check_onnx, export, fold, to_c, to_onnx_recurrent
from fourward.graph.files import NETWORK_SUFFIXES
from fourward.plan.activations import ACTIVATIONS
from tests.engine.test_recurrent import CASES, digraph
from tests.tolerance import assert_near


def network(g: Digraph, **options) -> Recurrent:
    names = list(ACTIVATIONS)
    mixed = {g.labels[v]: names[i % len(names)] for i, v in enumerate(g.neurons.tolist())}
    return Recurrent(g, {"default": "tanh", **mixed}, seed=0, init=0.3, **options)


OPTIONS = [{}, {"tau": 2.5, "batch_first": True}, {"tau": 2.0, "dynamics": "voltage"}]
NAMES = [name for name in CASES if name != "C. elegans"]
#: Every graph with some options, and one graph with all.
PAIRS = [(name, OPTIONS[i % 3]) for i, name in enumerate(NAMES)] + [("random", options) for options in OPTIONS]


@pytest.mark.parametrize(("name", "options"), PAIRS, ids=str)
def test_every_graph(name, options, tmp_path):
    net = network(digraph(name), **options)
    export(net, tmp_path / "net.onnx", steps=3)
    assert check_onnx(net, tmp_path / "net.onnx") < 2e-5
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    assert [node.name for node in session.get_inputs()] == ["x", "h0"]
    x = torch.randn(*((2, 3) if net.batch_first else (3, 2)), net.graph.num_inputs)
    y, h = session.run(None, {"x": x.numpy(), "h0": torch.zeros(2, net.graph.num_nodes).numpy()})
    for got, want in zip((y, h), net(x), strict=True):
        assert_near(torch.from_numpy(got), want.detach())


def test_weights_are_stored_once(tmp_path):
    net = Recurrent(connectomes.load("c-elegans").graph, seed=0, tau=2.0)
    sizes = []
    for steps in (1, 9):
        to_onnx_recurrent(net, tmp_path / "net.onnx", steps)
        constants = onnx.load(tmp_path / "net.onnx").graph.initializer
        sizes.append(sum(len(constant.raw_data) for constant in constants))
    assert sizes[1] < sizes[0] + 200, "a few indices of steps"
    assert check_onnx(net, tmp_path / "net.onnx") < 2e-5


def test_what_cant_be_exported(tmp_path):
    net = network(digraph("a ring"))
    for suffix in set(EXPORTERS) - {".onnx", ".safetensors", *NETWORK_SUFFIXES}:
        with pytest.raises(FileError, match=r"suffixes \.onnx, \.safetensors, .* for a network with feedback, got"):
            export(net, tmp_path / f"net{suffix}")
    with pytest.raises(OptionError, match=r"fixed number of steps. Pass steps="):
        export(net, tmp_path / "net.onnx")
    with pytest.raises(OptionError, match="steps must be an int of at least 1"):
        export(net, tmp_path / "net.onnx", steps=0)
    with pytest.raises(OptionError, match="steps is for networks with feedback, but this is a Linear"):
        export(nn.Linear(1, 1), tmp_path / "net.onnx", steps=2)
    with pytest.raises(OptionError, match=r"got a Recurrent, whose feedback isn't supported here"):
        to_c(net)
    with pytest.raises(OptionError, match=r"expected a FourWard, got a Recurrent"):
        fold(net)
    with pytest.raises(ActivationError, match=r"cos.*ONNX can't store"):
        export(Recurrent(digraph("a ring"), torch.cos), tmp_path / "net.onnx", steps=2)
    assert not list(tmp_path.iterdir())

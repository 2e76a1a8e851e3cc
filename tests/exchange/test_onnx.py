"""ONNX files compute in onnxruntime what the network computes."""

import math

import onnx
import pytest
import torch

from fourward import Dag, FourWard, generate, layering
from fourward.errors import EngineError
from fourward.exchange import check_onnx, export
from fourward.plan.activations import ACTIVATIONS
from tests.exchange.helpers import run_onnx


def test_wide_sparse_and_deep_graphs(tmp_path):
    sparse = FourWard(generate.erdos_renyi(800, 0.004, seed=0), "tanh", seed=0, bias=False)
    deep = FourWard(generate.chain(400), "tanh", seed=0, init=1.0)
    for net in (sparse, deep):
        path = tmp_path / "net.onnx"
        export(net, path)
        assert check_onnx(net, path) < 1e-5
        model = onnx.load(path)
        assert model.opset_import[0].version == 18
        assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim] == ["batch", ""]
    deep_ops = {node.op_type for node in model.graph.node}
    export(sparse, path)
    assert "ScatterND" in {node.op_type for node in onnx.load(path).graph.node}
    assert "ScatterND" not in deep_ops
    assert path.stat().st_size < 20 * sparse.dag.num_edges + 1000 * sparse.layering.height + 20 * sparse.dag.num_nodes


def test_inf_and_nan_as_in_torch(tmp_path):
    dag = Dag.from_edges([("x", name) for name in ACTIVATIONS])
    net = FourWard(dag, {name: name for name in ACTIVATIONS}, bias=False, init=1.0)
    x = torch.tensor([[-1e4], [1e4], [0.0], [math.inf], [-math.inf], [math.nan]])
    export(net, tmp_path / "net.onnx")
    torch.testing.assert_close(run_onnx(tmp_path / "net.onnx", x), net(x).detach(), equal_nan=True)


def test_reassigned_layering(tmp_path):
    dag = generate.erdos_renyi(60, 0.1, seed=0)
    net = FourWard(dag, "tanh", seed=0, layering=layering.reassign(dag, layering.longest_path(dag), seed=3))
    assert net.plan.edge is not None
    export(net, tmp_path / "net.onnx")
    assert check_onnx(net, tmp_path / "net.onnx") < 1e-5


def test_check_onnx_can_fail(tmp_path):
    net = FourWard(generate.erdos_renyi(30, 0.2, seed=0), "tanh", seed=0)
    export(net, tmp_path / "net.onnx")
    with torch.no_grad():
        net.bias += 0.5
    with pytest.raises(EngineError, match=r"outputs of onnxruntime differ from the network's by 0\."):
        check_onnx(net, tmp_path / "net.onnx")

"""Models, batches and runtimes that the tests of exchange share."""

import onnxruntime
import torch
from torch import nn

from fourward import Dag, FourWard
from fourward.exchange import to_python


def mlp(*modules, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(*modules).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-1, 1, generator=generator)
    return model.eval()


def batch(width, rows=5):
    return torch.randn(rows, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def labelled_network(**options):
    dag = Dag.from_edges(
        [("a", "c"), ("b", "c"), ("c", "default"), ("a", "default"), ("c", "e")], inputs=["b", "a"], outputs=["e", "c"]
    )
    activation = {"c": "tanh", "default": "relu", "e": "sin"}
    return FourWard(dag, activation, seed=0, dtype=torch.float64, **options)


def run_onnx(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"x": x.float().numpy()})[0])


def run_python(net, x):
    namespace = {}
    exec(compile(to_python(net), "<network>", "exec"), namespace)
    return torch.tensor([namespace["network"](row) for row in x.tolist()], dtype=torch.float64)


def assert_same(net, expected, x):
    assert expected.isfinite().all()
    assert (net(x) - expected).abs().max() <= 1e-6 * max(1, expected.abs().max())

"""Models, batches and runtimes that the tests of exchange share."""

import ctypes
import shutil
import subprocess

import numpy as np
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


def driven_network():
    dag = Dag.from_edges(
        [("a", "b"), ("b", "c"), ("a", "c"), ("s", "c"), ("c", "d")], inputs=["c", "a", "b"], outputs=["d", "b"]
    )
    return FourWard(dag, {"b": "sin", "default": "tanh"}, seed=0, dtype=torch.float64)


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


COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compile_c(source, folder):
    """The library that the system's compiler makes of a C file; any warning is an error."""
    path = folder / "net.c"
    path.write_text(source, encoding="ascii")
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    built = subprocess.run([COMPILER, *flags, str(path), "-o", str(folder / "net.so"), "-lm"], capture_output=True)
    assert built.returncode == 0, built.stderr.decode()
    return ctypes.CDLL(str(folder / "net.so"))


def run_c(library, net, x, name="network"):
    """Outputs for a batch, from the batched function and, sample by sample, from the other: they agree."""
    x = x.numpy().astype(np.float64 if net.weight.dtype == torch.float64 else np.float32)
    outputs = np.full((2, len(x), net.dag.num_outputs), np.nan, x.dtype)
    pointer = lambda array: ctypes.c_void_p(array.ctypes.data)  # noqa: E731 -- one expression, used three times
    getattr(library, f"{name}_batch")(pointer(x), pointer(outputs[0]), ctypes.c_size_t(len(x)))
    for sample, output in zip(x, outputs[1], strict=True):
        getattr(library, name)(pointer(sample), pointer(output))
    np.testing.assert_array_equal(*outputs)
    return torch.from_numpy(outputs[0])

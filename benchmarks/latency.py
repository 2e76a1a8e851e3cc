"""Batch-1 latency of exported networks against the library: `python -m benchmarks.latency`.

Writes results/latency.json and prints the table of docs/exchange.md. C is compiled with `cc -O2` and called through
ctypes; onnxruntime and torch have one thread.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from benchmarks.storage import describe_environment, write_results
from fourward import Dag, FourWard, connectomes, exchange, generate
from fourward.study._environment import command_output, versions
from fourward.study._timing import HostClock, Turn, alternate

GRAPHS: Mapping[str, Callable[[], Dag]] = {
    "N=64, p=0.2": lambda: generate.erdos_renyi(64, 0.2, seed=0),
    "N=256, p=0.2": lambda: generate.erdos_renyi(256, 0.2, seed=0),
    "N=1024, p=0.05": lambda: generate.erdos_renyi(1024, 0.05, seed=0),
    "*C. elegans*": lambda: connectomes.load("c-elegans").acyclic(inputs="sources", outputs="sinks").dag,
    "MLP 64-64-32-10": lambda: generate.layered_mlp([64, 64, 32, 10]),
}
COLUMNS = {"fourward": "fourward", "c": "C", "onnx": "ONNX", "pt2": "pt2"}
COMPILER = "cc"
TURN_SECONDS = 2e-4
TOLERANCE = 1e-5  # largest error of the outputs of each contestant


def measure(dag: Dag, folder: Path, seconds: float = 5.0, columns: Collection[str] = tuple(COLUMNS)) -> dict[str, Any]:
    """Microseconds of a sample for each contestant, whose outputs are compared first, and the nodes of both graphs."""
    net = FourWard(dag, "tanh", seed=0).eval()
    x = torch.randn(1, dag.num_inputs, generator=torch.Generator().manual_seed(0))
    nodes = {}
    calls: dict[str, Callable[[], Any]] = {"fourward": lambda: net(x)}
    for name in columns:
        if name != "fourward":
            exchange.export(net, folder / f"net.{name}")
    if "pt2" in columns:
        program = torch.export.load(folder / "net.pt2")
        calls["pt2"] = _bind(program.module(), x)
        nodes["pt2_nodes"] = sum(node.op == "call_function" for node in program.graph.nodes)
    if "c" in columns:
        calls["c"] = _call_c(folder, x, dag.num_outputs)
    if "onnx" in columns:
        calls["onnx"] = _call_onnx(folder / "net.onnx", x)
        nodes["onnx_nodes"] = len(onnx.load(folder / "net.onnx").graph.node)
    with torch.no_grad():
        expected = net.double()(x.double())
        net.float()
        for name, call in calls.items():
            error = (torch.as_tensor(call()) - expected).abs().max().item()
            assert error < TOLERANCE, f"{name} differs by {error:.3g}"
        turns = {name: _turn(calls[name]) for name in columns}
        times = alternate(turns, HostClock(), seconds=seconds, min_rounds=5)
    return {
        "nodes": dag.num_nodes,
        "edges": dag.num_edges,
        "layers": net.layering.height,
        "microseconds": {name: 1e6 * value for name, value in times.items()},
        **nodes,
    }


def _turn(call: Callable[[], Any]) -> Turn:
    """Short turns, which other processes seldom interrupt."""
    expected = min(HostClock().time(call) for _ in range(5))
    return Turn(call, max(1, round(TURN_SECONDS / expected)), warmup=2, rounds=2000)


def _bind(module: torch.nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    return lambda: module(x)


def _call_c(folder: Path, x: torch.Tensor, outputs: int) -> Callable[[], Any]:
    library = folder / "net.so"
    flags = ["-O2", "-shared", "-fPIC"]
    subprocess.run([COMPILER, *flags, str(folder / "net.c"), "-o", str(library), "-lm"], check=True)
    function = ctypes.CDLL(str(library)).network
    sample, y = x.numpy().copy(), np.zeros((1, outputs), np.float32)
    pointers = ctypes.c_void_p(sample.ctypes.data), ctypes.c_void_p(y.ctypes.data)

    def call() -> Any:
        function(*pointers)
        return y

    call.sample = sample  # type: ignore[attr-defined] # its memory must outlive the pointer
    return call


def _call_onnx(path: Path, x: torch.Tensor) -> Callable[[], Any]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {"x": x.numpy()}
    return lambda: session.run(None, feed)[0]


def format_table(data: Mapping[str, Any]) -> str:
    """The measurements as a Markdown table, in microseconds."""
    lines = [
        f"| network | edges | layers | {' | '.join(COLUMNS.values())} | nodes of ONNX | nodes of pt2 |",
        "|" + "---|" * (len(COLUMNS) + 5),
    ]
    for name, cell in data["networks"].items():
        times = " | ".join(_format(cell["microseconds"][column]) for column in COLUMNS)
        nodes = f"{cell['onnx_nodes']:,} | {cell['pt2_nodes']:,}"
        lines.append(f"| {name} | {cell['edges']:,} | {cell['layers']:,} | {times} | {nodes} |")
    return "\n".join(lines)


def _format(microseconds: float) -> str:
    return f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.3g}"


def main() -> None:
    """Measure all graphs, store the results, print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # warnings of torch.export
    assert shutil.which(COMPILER), f"{COMPILER} not found"
    environment = describe_environment()
    environment["versions"] |= versions("onnx", "onnxruntime")
    environment["compiler"] = command_output(COMPILER, "--version").splitlines()[0]
    networks = {}
    for name, build in GRAPHS.items():
        with tempfile.TemporaryDirectory() as folder:
            networks[name] = measure(build(), Path(folder))
    data = {"environment": environment, "activation": "tanh", "dtype": "float32", "batch": 1, "networks": networks}
    write_results("latency", data)
    print(format_table(data))


if __name__ == "__main__":
    main()

"""Export to ONNX, built node by node.

torch.onnx.export would trace the torch engine: for 1,024 nodes on 293 levels it takes nine minutes, where this takes
0.15 seconds and writes half the bytes. Each level is a dense matrix product if its block of weights is well filled,
else a gather, a product and a scatter with two indices per edge. So a file has at most 20 bytes per edge, and a few
hundred per level.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourward._arrays import IntArray
from fourward._files import replacing
from fourward.errors import EngineError, OptionError, require
from fourward.exchange._equations import plan_parameters
from fourward.exchange._formulas import Translator
from fourward.graph._annotated import FloatArray
from fourward.nn._fourward import FourWard, builtin_activation_names
from fourward.plan.activations import ACTIVATIONS

OPSET = 18  #: the first whose ScatterND has reduction="add"
MAX_BYTES = 2**31 - 2**20  #: protobuf's limit
_SPARSE_BYTES = 20  # per edge: two indices of 8 bytes, a weight of 4
_FUNCTIONS = {"abs": "Abs", "cos": "Cos", "erf": "Erf", "exp": "Exp", "sin": "Sin", "tanh": "Tanh", "where": "Where"}
_OPERATORS = {
    "+": "Add",
    "-": "Sub",
    "*": "Mul",
    "/": "Div",
    "<": "Less",
    ">": "Greater",
    "<=": "LessOrEqual",
    ">=": "GreaterOrEqual",
}


class _GraphBuilder(Translator[str]):
    """Collects nodes and constants; strings are names of tensors."""

    def __init__(self) -> None:
        require("onnx", "export")
        from onnx import helper, numpy_helper

        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.scalars: dict[float, str] = {}

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(self.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def indices(self, array: IntArray) -> str:
        return self.constant(array.astype(np.int64))

    def number(self, value: float) -> str:
        if value not in self.scalars:
            self.scalars[value] = self.constant(np.float32(value))
        return self.scalars[value]

    def negative(self, x: str) -> str:
        return self.op("Neg", x)

    def binary(self, operator: str, x: str, y: str) -> str:
        return self.op(_OPERATORS[operator], x, y)

    def call(self, name: str, args: list[str]) -> str:
        if name == "expm1":
            return self.op("Sub", self.op("Exp", *args), self.number(1))
        if name == "log1p":
            return self.op("Log", self.op("Add", self.number(1), *args))
        return self.op(_FUNCTIONS[name], *args)


def to_onnx(net: FourWard, path: str | Path) -> None:
    """Write a network as ONNX, opset 18, float32: `x` (batch, inputs) to `y` (batch, outputs), for any batch size."""
    require("onnx", "export")
    import onnx

    names = builtin_activation_names(net, "ONNX", "export to .pt2")
    graph = _GraphBuilder()
    _add_forward(graph, net, names)
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", net.dag.num_inputs), ("y", net.dag.num_outputs))
    )
    size = sum(len(constant.raw_data) for constant in graph.constants)
    if size > MAX_BYTES:
        raise OptionError(
            f"expected a network of at most 2 GiB for ONNX, got {size:,} bytes of weights and indices. Export to "
            ".safetensors."
        )
    model_graph = onnx.helper.make_graph(graph.nodes, "fourward", [x], [y], graph.constants)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(model_graph, opset_imports=[opset], producer_name="fourward", ir_version=9)
    onnx.checker.check_model(model)
    with replacing(Path(path)) as temporary:
        onnx.save(model, temporary)


def check_onnx(net: FourWard, path: str | Path, *, batch: int = 5, seed: int = 0) -> float:
    """The largest difference between a network and its ONNX file in onnxruntime, relative to 1 or the largest output.

    Args:
        net: The network.
        path: The file that `to_onnx` wrote.
        batch: Number of random samples to compare on.
        seed: Seed of these samples.
    """
    runtime = require("onnxruntime", "export")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = torch.randn(batch, net.dag.num_inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    (outputs,) = session.run(None, {"x": x.numpy()})
    copied = copy.deepcopy(net).eval()
    copied = copied.float() if net.weight.dtype.itemsize < 4 else copied
    with torch.no_grad():
        expected = copied(x.to(copied.weight)).double().cpu()
    actual = torch.from_numpy(outputs).double()
    equal = torch.isclose(actual, expected, rtol=1e-12, equal_nan=True)  # also where both overflow
    difference = torch.where(equal, 0.0, (actual - expected).abs())
    finite = expected[expected.isfinite()].abs()
    error: float = difference.max().item() / max(1.0, finite.max().item() if len(finite) else 1.0)
    if not error < 1e-3:
        raise EngineError(
            f"{path}: outputs of onnxruntime differ from the network's by {error:.3g}, more than 0.001. It may be the "
            "file of another network."
        )
    return error


def _add_forward(graph: _GraphBuilder, net: FourWard, names: list[str]) -> None:
    """Add the forward pass, a step for the neurons of each level and activation.

    The tensor `a` holds the activations of all nodes so far, (nodes, batch); each step appends rows to it.
    """
    plan, num_inputs = net.plan, net.dag.num_inputs
    code = plan.code[num_inputs:]
    level = np.repeat(np.arange(plan.num_levels), np.diff(plan.level_start))
    order = np.lexsort((code, level))  # (N-I,) the plan's neurons in the order of the rows of `a`
    row = np.arange(net.dag.num_nodes)  # (N,) the row of `a` for each position of the plan
    row[num_inputs + order] = num_inputs + np.arange(len(order))
    weight, bias = plan_parameters(net, np.float32)
    batch = graph.op("Slice", graph.op("Shape", "x"), *(graph.indices(np.array([k])) for k in (0, 1)))
    a = graph.op("Transpose", "x", perm=[1, 0])
    first = np.flatnonzero(np.diff(code[order], prepend=-1) | np.diff(level[order], prepend=-1))
    for start, stop in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=False):
        neurons = order[start:stop]
        edges, slot = _incoming_edges(plan.edge_start, num_inputs + neurons)
        z = _add_sums(graph, a, batch, row[plan.source[edges]], slot, weight[edges], bias[neurons])
        formula = ACTIVATIONS[names[plan.neuron[neurons[0]]]].formula
        a = graph.op("Concat", a, graph.translate(formula, z), axis=0)
    outputs = graph.op("Gather", a, graph.indices(row[plan.outputs]), axis=0)
    graph.nodes.append(graph.helper.make_node("Transpose", [outputs], ["y"], perm=[1, 0]))


def _incoming_edges(edge_start: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
    """The plan's edges into these positions, and for each the index of its target among them."""
    count = edge_start[positions + 1] - edge_start[positions]
    slot = np.repeat(np.arange(len(positions)), count)
    first = np.cumsum(count) - count
    return np.arange(count.sum()) - first[slot] + edge_start[positions][slot], slot


def _add_sums(
    graph: _GraphBuilder, a: str, batch: str, source: IntArray, slot: IntArray, weight: FloatArray, bias: FloatArray
) -> str:
    """Add biases and weighted sums, (neurons, batch): a dense product, or gather and scatter where that is smaller."""
    column = graph.constant(bias.reshape(-1, 1))
    sources, index = np.unique(source, return_inverse=True)
    if len(source) and len(bias) * len(sources) * 4 <= _SPARSE_BYTES * len(source):
        block = np.zeros((len(bias), len(sources)), np.float32)
        block[slot, index] = weight
        product = graph.op("MatMul", graph.constant(block), graph.op("Gather", a, graph.indices(sources), axis=0))
        return graph.op("Add", product, column)
    expanded = graph.op("Expand", column, graph.op("Concat", graph.indices(np.array([1])), batch, axis=0))
    if not len(source):
        return expanded
    products = graph.op(
        "Mul", graph.op("Gather", a, graph.indices(source), axis=0), graph.constant(weight.reshape(-1, 1))
    )
    return graph.op("ScatterND", expanded, graph.indices(slot.reshape(-1, 1)), products, reduction="add")

"""Export to ONNX, built node by node.

torch.onnx.export would trace the torch engine: for 1,024 nodes on 293 levels it takes nine minutes, where this takes
0.15 seconds and writes half the bytes. A level is a few operations, see `_steps`; a file has at most 40 bytes per edge,
and a few hundred per level.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fourward._arrays import IntArray
from fourward._files import replacing
from fourward.errors import EngineError, OptionError, require
from fourward.exchange._formulas import Translator
from fourward.exchange._steps import Step, list_steps
from fourward.nn._fourward import FourWard, builtin_activation_names
from fourward.nn._recurrent import Recurrent
from fourward.plan.activations import BY_CODE

OPSET = 18  #: the first whose ScatterND has reduction="add"
MAX_BYTES = 2**31 - 2**20  #: protobuf's limit
_FUNCTIONS = {"abs": "Abs", "cos": "Cos", "erf": "Erf", "exp": "Exp", "sin": "Sin", "tanh": "Tanh", "where": "Where"}
#: Activations that are one operation, which propagates NaN in onnxruntime as the table's formula does.
_ACTIVATIONS = {
    "elu": "Elu",
    "leaky_relu": "LeakyRelu",
    "relu": "Relu",
    "selu": "Selu",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
}
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


class GraphBuilder(Translator[str]):
    """Collects nodes and constants; strings are names of tensors."""

    def __init__(self) -> None:
        require("onnx", "export")
        from onnx import helper, numpy_helper

        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[tuple[Any, ...], str] = {}
        self.scalars: dict[float, str] = {}
        self.column_shape = ""  # the tensor [1, batch]

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, *inputs, **attributes)[0]

    def ops(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"t{len(self.nodes)}" + (f"_{k}" if k else "") for k in range(outputs)]
        self.nodes.append(self.helper.make_node(kind, inputs, names, **attributes))
        return names

    def activation(self, code: int, z: str) -> str:
        activation = BY_CODE[code]
        if activation.name in _ACTIVATIONS:
            return self.op(_ACTIVATIONS[activation.name], z)
        return self.translate(activation.formula, z)

    def constant(self, array: Any) -> str:
        """The name of a constant; equal ones, such as the weights of every step in time, are stored once."""
        array = np.ascontiguousarray(array)
        key = array.dtype.str, array.shape, blake2b(array.data).digest()
        if key not in self.names:
            self.names[key] = f"c{len(self.constants)}"
            self.constants.append(self.numpy_helper.from_array(array, self.names[key]))
        return self.names[key]

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
    builtin_activation_names(net, "ONNX", "export to .pt2")
    graph = GraphBuilder()
    _add_forward(graph, net)
    ends = {"x": ["batch", net.dag.num_inputs]}, {"y": ["batch", net.dag.num_outputs]}
    write_model(graph, *ends, path)


def write_model(
    graph: GraphBuilder, inputs: Mapping[str, Sequence[Any]], outputs: Mapping[str, Sequence[Any]], path: str | Path
) -> None:
    """Write a graph whose inputs and outputs have these names and shapes, float32."""
    import onnx

    first, last = (
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in ends.items()]
        for ends in (inputs, outputs)
    )
    size = sum(len(constant.raw_data) for constant in graph.constants)
    if size > MAX_BYTES:
        raise OptionError(
            f"expected a network of at most 2 GiB for ONNX, got {size:,} bytes of weights and indices. Export to "
            ".safetensors."
        )
    model_graph = onnx.helper.make_graph(graph.nodes, "fourward", first, last, graph.constants)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(model_graph, opset_imports=[opset], producer_name="fourward", ir_version=9)
    onnx.checker.check_model(model)
    with replacing(Path(path)) as temporary:
        onnx.save(model, temporary)


def check_onnx(net: FourWard | Recurrent, path: str | Path, *, batch: int = 5, seed: int = 0) -> float:
    """The largest difference between a network and its ONNX file in onnxruntime, relative to 1 or the largest output.

    Args:
        net: The network.
        path: The file that `to_onnx` wrote.
        batch: Number of random samples to compare on.
        seed: Seed of these samples.
    """
    runtime = require("onnxruntime", "export")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(seed)
    sizes = {"batch": batch}
    x = {
        node.name: torch.randn([sizes.get(size, size) for size in node.shape], generator=generator)
        for node in session.get_inputs()
    }
    outputs = session.run(None, {name: values.numpy() for name, values in x.items()})
    copied = copy.deepcopy(net).eval()
    copied = copied.float() if net.weight.dtype.itemsize < 4 else copied
    with torch.no_grad():
        computed = copied(*(values.to(copied.weight) for values in x.values()))
    flat = computed if isinstance(computed, tuple) else (computed,)
    expected = torch.cat([values.double().cpu().flatten() for values in flat])
    actual = torch.cat([torch.from_numpy(values).double().flatten() for values in outputs])
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


def _add_forward(graph: GraphBuilder, net: FourWard) -> None:
    """Add the forward pass. The tensor `a` holds the activations so far, (rows, batch); each step appends to it."""
    steps, outputs = list_steps(net, np.float32)
    batch = graph.op("Slice", graph.op("Shape", "x"), *(graph.indices(np.array([k])) for k in (0, 1)))
    graph.column_shape = graph.op("Concat", graph.indices(np.array([1])), batch, axis=0)
    a = graph.op("Transpose", "x", perm=[1, 0])
    for step in steps:
        z = add_sums(graph, a, step)
        a = graph.op("Concat", a, *add_activations(graph, z, step.sections), axis=0)
    a = graph.op("Gather", a, graph.indices(outputs), axis=0)
    graph.nodes.append(graph.helper.make_node("Transpose", [a], ["y"], perm=[1, 0]))


def add_sums(graph: GraphBuilder, a: str, step: Step) -> str:
    """Add biases and weighted sums, (neurons, batch)."""
    column = graph.constant(step.bias.reshape(-1, 1))
    values = a if step.rows is None else graph.op("Gather", a, graph.indices(step.rows), axis=0)
    if step.block is not None:
        return graph.op("Gemm", graph.constant(step.block), values, column)
    expanded = graph.op("Expand", column, graph.column_shape)
    products = graph.op("Mul", values, graph.constant(step.weight.reshape(-1, 1)))
    return graph.op("ScatterND", expanded, graph.indices(step.target_index.reshape(-1, 1)), products, reduction="add")


def add_activations(graph: GraphBuilder, z: str, sections: list[tuple[int, int]]) -> list[str]:
    """Add the activations of a step, one tensor for each section."""
    parts = [z]
    if len(sections) > 1:
        sizes = graph.indices(np.array([size for _, size in sections]))
        parts = graph.ops("Split", z, sizes, outputs=len(sections), axis=0)
    return [graph.activation(code, part) for (code, _), part in zip(sections, parts, strict=True)]

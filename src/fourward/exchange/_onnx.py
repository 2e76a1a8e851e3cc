"""ONNX, built node by node.

torch.onnx.export would trace the torch engine: for 1,024 nodes in 293 layers it takes nine minutes, where this takes
0.15 seconds and writes half the bytes. Each layer is one product with a block of weights if the block is well filled,
and else a gather, a product and a scatter with two indices an edge, so that a file has at most 20 bytes an edge, and a
few hundred a layer.
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
from fourward.exchange._formulas import Language
from fourward.graph._annotated import FloatArray
from fourward.nn._fourward import FourWard, builtin_activation_names
from fourward.plan.activations import ACTIVATIONS

OPSET = 18  #: the first in which ScatterND adds and all else is as it is today
MOST_BYTES = 2**31 - 2**20  #: of a protobuf file
_SPARSE_BYTES = 20  # of an edge: two indices of 8 bytes, a weight of 4
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


class _Graph(Language[str]):
    """Nodes and constants as they come; also the language of activations, whose words are names of tensors."""

    def __init__(self) -> None:
        require("onnx", "export")
        from onnx import helper, numpy_helper

        self.helper, self.numpy_helper = helper, numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.known: dict[float, str] = {}

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
        if value not in self.known:
            self.known[value] = self.constant(np.float32(value))
        return self.known[value]

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
    """Write a network as ONNX, opset 18, in float32: `x` (batch, inputs) to `y` (batch, outputs), any batch."""
    require("onnx", "export")
    import onnx

    names = builtin_activation_names(net, "ONNX", "export to .pt2")
    graph = _Graph()
    _walk(graph, net, names)
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width])
        for name, width in (("x", net.dag.num_inputs), ("y", net.dag.num_outputs))
    )
    size = sum(len(one.raw_data) for one in graph.constants)
    if size > MOST_BYTES:
        raise OptionError(
            f"an ONNX file holds at most 2 GiB, and this would take {size:,} bytes. Export to .safetensors."
        )
    made = onnx.helper.make_graph(graph.nodes, "fourward", [x], [y], graph.constants)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(made, opset_imports=[opset], producer_name="fourward", ir_version=9)
    onnx.checker.check_model(model)
    with replacing(Path(path)) as temporary:
        onnx.save(model, temporary)


def check_onnx(net: FourWard, path: str | Path, *, batch: int = 5, seed: int = 0) -> float:
    """The largest difference between the network and the file in onnxruntime, over 1 or the largest output."""
    runtime = require("onnxruntime", "export")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = torch.randn(batch, net.dag.num_inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)
    (got,) = session.run(None, {"x": x.numpy()})
    twin = copy.deepcopy(net).eval()
    twin = twin.float() if net.weight.dtype.itemsize < 4 else twin
    with torch.no_grad():
        want = twin(x.to(twin.weight)).double().cpu()
    alike = torch.isclose(torch.from_numpy(got).double(), want, rtol=1e-12, equal_nan=True)  # also where both overflow
    gap = torch.where(alike, 0.0, (torch.from_numpy(got).double() - want).abs())
    error: float = gap.max().item() / max(1.0, want[want.isfinite()].abs().max().item() if want.isfinite().any() else 1)
    if not error < 1e-3:
        raise EngineError(
            f"{path} gives other outputs in onnxruntime than the network does: they differ by {error:.3g}."
        )
    return error


def _walk(graph: _Graph, net: FourWard, names: list[str]) -> None:
    """Each set of neurons of one level and one activation after another; `a` holds the values of all before it."""
    plan, dag = net.plan, net.dag
    inputs = dag.num_inputs
    code = plan.code[inputs:]
    level = np.repeat(np.arange(plan.num_levels), np.diff(plan.level_start))
    order = np.lexsort((code, level))  # places among the plan's neurons, as they are computed here
    position = np.empty(dag.num_nodes, np.int64)  # where `a` holds each position of the plan
    position[:inputs] = np.arange(inputs)
    position[inputs + order] = inputs + np.arange(len(order))
    weight = net.weight.detach().float().cpu().numpy()
    weight = weight if plan.edge is None else weight[plan.edge]
    bias = (
        np.zeros(len(order), np.float32) if net.bias is None else net.bias.detach().float().cpu().numpy()[plan.neuron]
    )
    name_of = [names[i] for i in plan.neuron.tolist()]
    batch = graph.op("Slice", graph.op("Shape", "x"), *(graph.indices(np.array([k])) for k in (0, 1)))
    a = graph.op("Transpose", "x", perm=[1, 0])
    change = np.flatnonzero(np.diff(code[order], prepend=-1) | np.diff(level[order], prepend=-1))
    for start, stop in zip(change.tolist(), [*change[1:].tolist(), len(order)], strict=False):
        own = order[start:stop]
        edges, slot = _into(plan.edge_start, inputs + own)
        source = position[plan.source[edges]]
        z = _sums(graph, a, batch, source, slot, weight[edges], bias[own])
        new = graph.spell(ACTIVATIONS[name_of[own[0]]].formula, z)
        a = graph.op("Concat", a, new, axis=0)
    taken = graph.op("Gather", a, graph.indices(position[plan.outputs]), axis=0)
    graph.nodes.append(graph.helper.make_node("Transpose", [taken], ["y"], perm=[1, 0]))


def _into(edge_start: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
    """The plan's edges into these positions, and for each the place of its target among them."""
    count = edge_start[positions + 1] - edge_start[positions]
    slot = np.repeat(np.arange(len(positions)), count)
    first = np.cumsum(count) - count
    return np.arange(count.sum()) - first[slot] + edge_start[positions][slot], slot


def _sums(
    graph: _Graph, a: str, batch: str, source: IntArray, slot: IntArray, weight: FloatArray, bias: FloatArray
) -> str:
    """(n, batch) biases and weighted sums."""
    column = graph.constant(bias.reshape(-1, 1))
    before, place = np.unique(source, return_inverse=True)
    if len(source) and len(bias) * len(before) * 4 <= _SPARSE_BYTES * len(source):
        block = np.zeros((len(bias), len(before)), np.float32)
        block[slot, place] = weight
        product = graph.op("MatMul", graph.constant(block), graph.op("Gather", a, graph.indices(before), axis=0))
        return graph.op("Add", product, column)
    spread = graph.op("Expand", column, graph.op("Concat", graph.indices(np.array([1])), batch, axis=0))
    if not len(source):
        return spread
    products = graph.op(
        "Mul", graph.op("Gather", a, graph.indices(source), axis=0), graph.constant(weight.reshape(-1, 1))
    )
    return graph.op("ScatterND", spread, graph.indices(slot.reshape(-1, 1)), products, reduction="add")

"""Export with torch.export, a few operations for each level."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fourward.engine import TORCH_FUNCTIONS, apply_activation
from fourward.exchange._module import write_pt2
from fourward.exchange._steps import Step, list_steps
from fourward.nn._fourward import FourWard


def to_pt2(net: FourWard, path: str | Path) -> None:
    """Write a network with torch.export, in plain torch operations that run without fourward, for any batch size."""
    example = torch.zeros(2, net.dag.num_inputs, dtype=net.weight.dtype)
    write_pt2(_Steps(net).eval(), (example,), Path(path))


class _Step(nn.Module):
    """Biases and weighted sums of a step, (n, B), from the activations so far, (rows, B)."""

    rows: Tensor
    weight: Tensor
    target_index: Tensor
    bias: Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.all_rows, self.dense = step.rows is None, step.block is not None
        weight = step.weight.reshape(-1, 1) if step.block is None else step.block
        tensors = {"rows": step.rows, "weight": weight, "target_index": None if self.dense else step.target_index}
        for name, array in {**tensors, "bias": step.bias.reshape(-1, 1)}.items():
            if array is not None:
                self.register_buffer(name, torch.from_numpy(np.array(array)))

    def forward(self, a: Tensor) -> Tensor:
        values = _cast(a if self.all_rows else a.index_select(0, self.rows), self.weight.dtype)
        if self.dense:
            return torch.addmm(self.bias, self.weight, values)
        zeros = values.new_zeros(len(self.bias), a.shape[1])
        return zeros.index_add(0, self.target_index, values * self.weight) + self.bias


class _Steps(nn.Module):
    """The forward pass of a network; sums of half precision are in float32, as in the engines."""

    outputs: Tensor

    def __init__(self, net: FourWard) -> None:
        super().__init__()
        steps, outputs = list_steps(net, np.float64 if net.weight.dtype == torch.float64 else np.float32)
        self.steps = nn.ModuleList(map(_Step, steps))
        self.sections = [step.sections for step in steps]
        self.custom = copy.deepcopy(net.custom_activations).cpu()
        self.register_buffer("outputs", torch.from_numpy(outputs))

    def forward(self, x: Tensor) -> Tensor:
        a = x.t()
        for step, sections in zip(self.steps, self.sections, strict=True):
            z = step(a)
            parts = (z,) if len(sections) == 1 else z.split([size for _, size in sections])
            new = [
                _cast(apply_activation(code, part, self.custom, TORCH_FUNCTIONS), x.dtype)
                for (code, _), part in zip(sections, parts, strict=True)
            ]
            a = torch.cat((a, *new))
        return a.index_select(0, self.outputs).t()


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Tensor.to, without a node in the graph where there is nothing to do."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)

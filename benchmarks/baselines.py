"""What fourward is compared with, beside the paper's methods."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard
from fourward.study._bench import make_mlp


def mlp(num_weights: int, device: str = "cpu") -> tuple[nn.Module, int]:
    """An MLP of four equal layers with as many weights, and its width."""
    model = make_mlp(num_weights, device)
    return model, len(next(model.parameters()))


def sparse_levels(net: FourWard, activation: str = "relu") -> Callable[[Tensor], Tensor]:
    """A forward pass level by level with torch's sparse CSR product, whose weights get no gradient from torch."""
    plan, device, activate = net.plan, net.weight.device, getattr(torch, activation)
    weight = net.weight.detach() if plan.edge is None else net.weight.detach()[torch.from_numpy(plan.edge.copy())]
    assert net.bias is not None
    bias = net.bias.detach()[torch.from_numpy(plan.neuron.astype(np.int64))].unsqueeze(1)
    steps = []
    inputs = plan.dag.num_inputs
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls its CSR support beta
        for start, stop in pairwise(plan.level_start.tolist()):
            first, last = int(plan.edge_start[start]), int(plan.edge_start[stop])
            rows = torch.from_numpy(plan.edge_start[start : stop + 1] - first).to(device)
            columns = torch.from_numpy(plan.source[first:last].astype(np.int64)).to(device)
            level = torch.sparse_csr_tensor(rows, columns, weight[first:last], size=(stop - start, start))
            steps.append((start, stop, level, bias[start - inputs : stop - inputs]))
    outputs = torch.from_numpy(plan.outputs.astype(np.int64)).to(device)

    def forward(x: Tensor) -> Tensor:
        a = x.new_empty(plan.dag.num_nodes, len(x))
        a[:inputs] = x.t()
        for start, stop, level, level_bias in steps:
            a[start:stop] = activate(torch.addmm(level_bias, level, a[:start]))
        return a.index_select(0, outputs).t()

    return forward


def copying(numbers: int) -> Callable[[], Tensor]:
    """Copying so many float32 from one buffer to another, both of them kept."""
    source = torch.ones(numbers)
    return partial(torch.empty(numbers).copy_, source)


def triangular_solves(dag: Dag, batch: int, device: str = "cpu") -> dict[str, Callable[[], Tensor]]:
    """BLAS's triangular solve with a matrix of the same pattern, the right-hand sides row-major and column-major."""
    matrix = torch.eye(dag.num_nodes)
    position = dag.position.astype(np.int64)
    rows, columns = torch.from_numpy(position[dag.target]), torch.from_numpy(position[dag.source])
    matrix[rows, columns] = torch.randn(dag.num_edges, generator=torch.Generator().manual_seed(0)) * 0.01
    right = torch.randn(dag.num_nodes, batch, generator=torch.Generator().manual_seed(1))
    matrix, right = matrix.to(device), right.to(device)
    sides = {"solve, by rows": right, "solve, by columns": right.t().contiguous().t()}
    return {name: partial(_solve, matrix, side) for name, side in sides.items()}


def _solve(matrix: Tensor, right: Tensor) -> Tensor:
    solution: Tensor = torch.linalg.solve_triangular(matrix, right, upper=False, unitriangular=True)
    return solution

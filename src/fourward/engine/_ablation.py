"""Ablations of many nodes, one at a time: exact, and far faster than as many forward passes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.plan._plan import Plan

_BYTES = 2**26  # bytes of the outputs of a chunk of ablations


def ablate_nodes(
    plan: Plan,
    activations: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    nodes: IntArray,
    value: float,
    with_outputs: bool,
) -> Iterator[tuple[IntArray, Tensor]]:
    """Chunks of K nodes, and (K, S, O) the outputs where each of them alone has the activation `value`.

    Without outputs: (K,) the root of the mean over samples and outputs of their squared change. For built-in
    activations, on the CPU, in float64 for networks of that dtype and in float32 for the others.

    Args:
        plan: The plan.
        activations: (S, N) intact activations of S samples, by node index.
        weight: (E,) in the order of dag.edges.
        bias: (N-I,) in the order of dag.neurons, or None.
        nodes: (M,) indices of nodes.
        value: The activation.
        with_outputs: Whether outputs are returned.
    """
    from fourward.engine._cpu import ablation  # imported here: Numba takes a second

    dtype, samples = np.float64 if weight.dtype == torch.float64 else np.float32, len(activations)
    width = ablation.slice_width(dtype)
    ablate: Any = ablation.ablate(width)
    edges, weights, code, outputs, a, z = _prepare(plan, activations, weight, bias, dtype, width)
    find_relevant: Any = ablation.find_relevant
    slices, relevant = len(a), find_relevant(*edges, outputs, plan.dag.num_nodes)

    def compute(part: IntArray) -> tuple[IntArray, Tensor]:
        out = np.empty((len(part) if with_outputs else 0, slices, len(outputs), width), dtype)
        positions, squares = plan.position[part].astype(np.int64), np.zeros(len(part))
        ablate(positions, dtype(value), *edges, weights, code, outputs, relevant, a, z, samples, squares, out)
        if not with_outputs:
            return part, torch.from_numpy(np.sqrt(squares / (samples * len(outputs))))
        flat: Any = out.transpose(0, 1, 3, 2).reshape(len(part), slices * width, len(outputs))
        return part, torch.from_numpy(flat[:, :samples])

    threads = torch.get_num_threads()
    size = max(1, min(_BYTES // (slices * width * len(outputs) * np.dtype(dtype).itemsize), len(nodes) // threads, 64))
    parts = [nodes[k : k + size] for k in range(0, len(nodes), size)]
    with ThreadPoolExecutor(threads) as pool:
        for k in range(0, len(parts), threads):  # a few at a time: their outputs wait in memory
            yield from pool.map(compute, parts[k : k + threads])


def _prepare(
    plan: Plan, activations: Tensor, weight: Tensor, bias: Tensor | None, dtype: Any, width: int
) -> tuple[Any, ...]:
    """Sources and starts of the edges, weights, codes, outputs, (slices, N, W) activations and sums, by position."""
    from fourward.engine._cpu import ablation

    def as_array(tensor: Tensor) -> Any:
        return tensor.detach().cpu().to(torch.float64 if dtype is np.float64 else torch.float32).numpy()

    num_nodes, num_inputs = plan.dag.num_nodes, plan.dag.num_inputs
    weights = np.ascontiguousarray(as_array(weight) if plan.edge is None else as_array(weight)[plan.edge])
    biases = np.zeros(num_nodes, dtype)
    if bias is not None:
        biases[num_inputs:] = as_array(bias)[plan.neuron]
    slices = -(-len(activations) // width)
    padded = np.zeros((slices * width, num_nodes), dtype)
    padded[: len(activations)] = as_array(activations)[:, plan.order]
    a = np.ascontiguousarray(padded.reshape(slices, width, num_nodes).transpose(0, 2, 1))
    z = np.zeros_like(a)
    edges = np.array(plan.source, np.int32), np.array(plan.edge_start, np.int64)
    compute_sums: Any = ablation.compute_sums(width)
    compute_sums(a, *edges, weights, biases, num_inputs, z)
    return edges, weights, np.array(plan.code), np.array(plan.outputs), a, z

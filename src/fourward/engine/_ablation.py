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
    plan: Plan, activations: Tensor, weight: Tensor, bias: Tensor | None, nodes: IntArray, value: float
) -> Iterator[tuple[IntArray, Tensor]]:
    """Chunks of K nodes, and (K, S, O) the outputs where each of them alone has the activation `value`.

    For built-in activations, on the CPU, in float64 for networks of that dtype and in float32 for the others.

    Args:
        plan: The plan.
        activations: (S, N) intact activations of S samples, by node index.
        weight: (E,) in the order of dag.edges.
        bias: (N-I,) in the order of dag.neurons, or None.
        nodes: (M,) indices of nodes.
        value: The activation.
    """
    from fourward.engine._cpu import ablation  # imported here: Numba takes a second

    dtype = np.float64 if weight.dtype == torch.float64 else np.float32
    as_array = lambda t: t.detach().cpu().to(torch.float64 if dtype is np.float64 else torch.float32).numpy()  # noqa: E731
    weights = as_array(weight) if plan.edge is None else as_array(weight)[plan.edge]
    num_nodes, num_inputs, samples = plan.dag.num_nodes, plan.dag.num_inputs, len(activations)
    biases = np.zeros(num_nodes, dtype)
    if bias is not None:
        biases[num_inputs:] = as_array(bias)[plan.neuron]
    width = ablation.slice_width(dtype)
    slices = -(-samples // width)
    padded = np.zeros((slices * width, num_nodes), dtype)
    padded[:samples] = as_array(activations)[:, plan.order]
    a = np.ascontiguousarray(padded.reshape(slices, width, num_nodes).transpose(0, 2, 1))
    z = np.empty_like(a)
    edges = np.array(plan.source, np.int32), np.array(plan.edge_start, np.int64)
    weights, code, outputs = np.ascontiguousarray(weights), np.array(plan.code), np.array(plan.outputs)
    ablation.compute_sums(a, *edges, weights, biases, num_inputs, z)
    relevant = ablation.find_relevant(*edges, outputs, num_nodes)

    def compute(part: IntArray) -> tuple[IntArray, Tensor]:
        out = np.empty((len(part), slices, len(outputs), width), dtype)
        positions = plan.position[part].astype(np.int64)
        ablation.ablate(positions, dtype(value), *edges, weights, code, outputs, relevant, a, z, out)
        flat: Any = out.transpose(0, 1, 3, 2).reshape(len(part), slices * width, len(outputs))
        return part, torch.from_numpy(flat[:, :samples])

    threads = torch.get_num_threads()
    size = max(1, min(_BYTES // (slices * width * len(outputs) * np.dtype(dtype).itemsize), len(nodes) // threads, 64))
    parts = [nodes[k : k + size] for k in range(0, len(nodes), size)]
    with ThreadPoolExecutor(threads) as pool:
        for k in range(0, len(parts), threads):  # a few at a time: their outputs wait in memory
            yield from pool.map(compute, parts[k : k + threads])

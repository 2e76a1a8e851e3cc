"""Ablations of many nodes or edges, one at a time: exact, and far faster than as many forward passes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import IntArray
from fourward.plan._plan import Plan

_BYTES = 2**22  # bytes of the outputs of a chunk of ablations; with 2^26, new pages take as long as the arithmetic


def ablate(
    plan: Plan,
    activations: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    of: Literal["neurons", "edges"],
    parts: IntArray,
    value: float,
    with_outputs: bool,
) -> Iterator[tuple[IntArray, Tensor]]:
    """Chunks of K nodes or edges, and (K, S, O) the outputs where each of them alone has this activation, or weight.

    Without outputs: (K,) the root of the mean over samples and outputs of their squared change. For built-in
    activations, on the CPU, in float64 for networks of that dtype and in float32 for the others.

    Args:
        plan: The plan.
        activations: (S, N) intact activations of S samples, by node index.
        weight: (E,) in the order of dag.edges.
        bias: (N-I,) in the order of dag.neurons, or None.
        of: What is ablated.
        parts: (M,) indices of nodes or edges; edges into the same node, one after another, share some work.
        value: The activation, or the weight.
        with_outputs: Whether outputs are returned.
    """
    from fourward.engine._cpu import ablation  # imported here: Numba takes a second

    dtype, samples = np.float64 if weight.dtype == torch.float64 else np.float32, len(activations)
    width = ablation.slice_width(dtype)
    kernel: Any = ablation.ablate(width)
    edges, weights, code, outputs, a, z = _prepare(plan, activations, weight, bias, dtype, width)
    describe = _describe_nodes if of == "neurons" else _describe_edges
    ablated = describe(plan, weight, parts, value, dtype)
    find_relevant: Any = ablation.find_relevant
    relevant = find_relevant(*edges, outputs, plan.dag.num_nodes)

    def compute(first: int) -> tuple[IntArray, Tensor]:
        part = parts[first : first + size]
        out = np.empty((len(part) if with_outputs else 0, samples, len(outputs)), dtype)
        chunk, squares = (values[first : first + size] for values in ablated), np.zeros(len(part))
        kernel(*chunk, *edges, weights, code, outputs, relevant, a, z, samples, squares, out)
        return part, torch.from_numpy(out if with_outputs else np.sqrt(squares / (samples * len(outputs))))

    threads = torch.get_num_threads()
    num_bytes = samples * len(outputs) * np.dtype(dtype).itemsize if with_outputs else 0
    size = max(1, min(_BYTES // max(num_bytes, 1), len(parts) // threads, 64))
    waiting: deque[Future[tuple[IntArray, Tensor]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for first in range(0, len(parts), size):
            waiting.append(pool.submit(compute, first))
            if len(waiting) > 2 * threads:  # one for each thread, and one more to go on while the caller uses another
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _describe_nodes(plan: Plan, weight: Tensor, nodes: IntArray, value: float, dtype: Any) -> tuple[Any, Any, Any]:
    """(M,) the positions of the nodes, -1, and their activation."""
    return plan.position[nodes].astype(np.int64), np.full(len(nodes), -1), np.full(len(nodes), value, dtype)


def _describe_edges(plan: Plan, weight: Tensor, edges: IntArray, value: float, dtype: Any) -> tuple[Any, Any, Any]:
    """(M,) the positions of the targets and of the sources, and what is added to the weights."""
    ends = plan.position[plan.dag.edges[edges]].astype(np.int64)
    change = value - weight.detach().double().cpu().numpy()[edges]
    return ends[:, 1].copy(), ends[:, 0].copy(), change.astype(dtype)


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

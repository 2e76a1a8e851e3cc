"""Networks with feedback against how others run them: T steps, forward, and forward with backward through time.

    python -m benchmarks.recurrent            # the worm and a stand-in for FlyWire, T=50, B=32 and 128
    python -m benchmarks.recurrent --neurons 5000

Every edge is delayed, as in flyvis and torch.nn.RNN, so that all compute the same; "fewest" is the same wiring with few
edges delayed, which only fourward runs. Writes benchmarks/results/recurrent.json.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fourward as fw
from benchmarks.real_graphs import flywire_edges
from fourward.study._environment import describe_environment
from fourward.study._timing import median_seconds

RESULTS = Path(__file__).parent / "results" / "recurrent.json"
MOST_DENSE = 20_000  #: nodes up to which a matrix of all pairs is tried
Step = Callable[[Tensor, Tensor], Tensor]  #: state (B, N) and weights (E,) to sums (B, N)


def stand_in(neurons: int, seed: int = 0) -> fw.Digraph:
    """The stand-in for FlyWire with its feedback, every edge delayed; a tenth of the neurons each read and write."""
    ends, count = np.random.default_rng(seed).permutation(neurons), max(neurons // 10, 1)
    edges = flywire_edges(neurons, seed=seed)
    return fw.Digraph.from_arrays(edges, labels=neurons, inputs=ends[:count], outputs=ends[-count:], feedback="all")


def gather_scatter(net: fw.Recurrent) -> Step:
    """Flyvis' way: a product for every edge and sample, added up by target."""
    source, target = (torch.tensor(ends.astype(np.int64)) for ends in net.graph.edges.T)

    def add_up(a: Tensor, weight: Tensor) -> Tensor:
        return torch.zeros_like(a).index_add(1, target, a[:, source] * weight)

    return add_up


def masked_dense(net: fw.Recurrent) -> Step:
    """A matrix of all pairs of nodes."""
    nodes = net.graph.num_nodes
    entry = torch.tensor(net.graph.source.astype(np.int64) * nodes + net.graph.target)

    def add_up(a: Tensor, weight: Tensor) -> Tensor:
        return a @ weight.new_zeros(nodes * nodes).scatter(0, entry, weight).reshape(nodes, nodes)

    return add_up


def sparse_product(net: fw.Recurrent) -> Step:
    """torch.sparse.mm with a matrix in coordinates, whose weights have gradients."""
    index = torch.tensor(net.graph.edges[:, ::-1].T.astype(np.int64).copy())
    size = (net.graph.num_nodes,) * 2

    def add_up(a: Tensor, weight: Tensor) -> Tensor:
        sums: Tensor = torch.sparse.mm(torch.sparse_coo_tensor(index, weight, size), a.t()).t()
        return sums

    return add_up


def run_steps(net: fw.Recurrent, make: Callable[[fw.Recurrent], Step], x: Tensor) -> Tensor:
    """(T, B, O) the synchronous network with tanh neurons, by another way to add up."""
    step, nodes = make(net), net.graph.num_nodes
    features = torch.tensor(net.graph.inputs.astype(np.int64))
    outputs = torch.tensor(net.graph.outputs.astype(np.int64))
    assert net.bias is not None
    bias = net.weight.new_zeros(nodes).index_copy(0, torch.tensor(net.graph.neurons.astype(np.int64)), net.bias)
    carriers = torch.tensor(np.setdiff1d(net.graph.inputs, net.graph.driven).astype(np.int64))
    fed = torch.zeros(nodes).index_fill(0, carriers, 1.0)
    a, results = x.new_zeros(x.shape[1], nodes), []
    for rows in x:
        drive = x.new_zeros(x.shape[1], nodes).index_copy(1, features, rows)
        a = torch.where(fed.bool(), drive, torch.tanh(step(a, net.weight) + bias + drive))
        results.append(a[:, outputs])
    return torch.stack(results)


def contestants(graph: fw.Digraph, x: Tensor) -> dict[str, tuple[Callable[[], Tensor], nn.Module]]:
    """A forward pass, and the module whose parameters it trains, by name."""
    net = fw.Recurrent(graph, "tanh", seed=0)
    layered = fw.Recurrent(
        fw.Digraph.from_arrays(graph.edges, labels=graph.labels, inputs=graph.inputs, outputs=graph.outputs), "tanh",
        seed=0,
    )  # fmt: skip
    result: dict[str, tuple[Callable[[], Tensor], nn.Module]] = {
        f"fourward, {net.engine}": (lambda: net(x)[0], net),
        f"fourward, {layered.engine}, fewest delayed": (lambda: layered(x)[0], layered),
    }
    rivals = {"gather and scatter": gather_scatter, "torch.sparse.mm": sparse_product}
    if graph.num_nodes <= MOST_DENSE:
        rnn = nn.RNN(graph.num_inputs, graph.num_nodes)
        rivals["masked dense"] = masked_dense
        result["torch.nn.RNN, dense"] = (lambda: rnn(x)[0], rnn)
    expected = net(x[:3, :4])[0]
    for name, make in rivals.items():
        torch.testing.assert_close(run_steps(net, make, x[:3, :4]), expected, rtol=1e-3, atol=1e-4)
        result[name] = (partial(run_steps, net, make, x), net)
    return result


def train(forward: Callable[[], Tensor], module: nn.Module) -> None:
    """A forward and a backward pass through time."""
    module.zero_grad()
    forward().square().mean().backward()


def measure(name: str, graph: fw.Digraph, steps: int, batch: int) -> dict[str, Any]:
    """Median seconds of every contestant in turn, and the peak memory of the process so far."""
    x = torch.randn(steps, batch, graph.num_inputs, generator=torch.Generator().manual_seed(0))
    calls = contestants(graph, x)
    with torch.no_grad():
        forward = median_seconds({key: call for key, (call, _) in calls.items()}, min_rounds=3)
    both = median_seconds({key: partial(train, *pair) for key, pair in calls.items()}, min_rounds=3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sizes = {"graph": name, "nodes": graph.num_nodes, "edges": graph.num_edges, "steps": steps, "batch": batch}
    return {**sizes, "forward": forward, "train": both, "peak_MiB": peak}


def main(args: list[str] | None = None, out: Path = RESULTS) -> list[dict[str, Any]]:
    """Measure all cells, and write them after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--neurons", type=int, default=20_000, help="Neurons of the stand-in; 0: the worm alone.")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    options = parser.parse_args(args)
    graphs = {"C. elegans": fw.connectomes.load("c-elegans").digraph(feedback="all")}
    if options.neurons:
        graphs["FlyWire stand-in"] = stand_in(options.neurons)
    cells = []
    for name, graph in graphs.items():
        for batch in options.batches:
            cells.append(measure(name, graph, options.steps, batch))
            best = min(cells[-1]["train"], key=cells[-1]["train"].get)
            print(f"{name}, B={batch}: fastest training pass: {best}", flush=True)
            out.write_text(json.dumps({"environment": describe_environment(), "cells": cells}, indent=1) + "\n")
    return cells


if __name__ == "__main__":
    main()

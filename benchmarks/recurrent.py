"""Networks with feedback against how others run them: T steps, forward, and forward with backward through time.

    python -m benchmarks.recurrent                   # two cores: the worm and a stand-in for FlyWire, T=50
    python -m benchmarks.recurrent --device cuda     # a GPU: both, and a stand-in for an optic lobe, T=40
    python -m benchmarks.recurrent --device cuda --configs      # fourward alone, with different launch configurations

Every edge is delayed, as in flyvis and torch.nn.RNN, so that all compute the same; "fewest" is the same wiring with few
edges delayed, which only fourward runs. Outputs and gradients are compared before anything is timed. Writes
recurrent-cpu.json or recurrent-cuda.json, and recurrent.md with the tables of both.
"""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import fourward as fw
from benchmarks.real_graphs import flywire_edges
from benchmarks.report import format_environment
from benchmarks.storage import RESULTS, describe_environment, write_page, write_results
from fourward._memory import available_memory
from fourward.study._timing import clock_for, median_seconds

MOST_DENSE = (
    10_000  #: nodes up to which a matrix of all pairs is tried: beyond, it has hundreds of times as many numbers
)
MOST_LAYERED = 20_000  #: nodes up to which "fewest" is measured
Step = Callable[
    [Tensor], Tensor
]  #: activations (N, B) to sums (N, B): rows are contiguous, the fastest way for all rivals
Rival = Callable[[fw.Recurrent], Callable[[Tensor], Step]]  #: from a network and, once a pass, its weights (E,)
LOBE_TYPES, LOBE_COLUMNS = 63, (25, 29)  #: types and columns of the stand-in for an optic lobe
#: The fields of `heuristics.LaunchConfig`: (strategy, samples in a slice, unroll factor, warps, neurons at a time).
CONFIGS = (
    ("recurrent_per_level", 32, 32, 4, 4),
    ("recurrent_per_level", 32, 8, 4, 16),
    ("recurrent_per_level", 32, 8, 4, 4),
    ("recurrent_per_level", 32, 16, 4, 8),
    ("recurrent_per_level", 32, 32, 4, 2),
    ("recurrent_per_level", 32, 16, 4, 4),
    ("recurrent_per_level", 32, 32, 8, 4),
    ("recurrent_per_level", 16, 32, 4, 4),
    ("recurrent_persistent", 8, 16, 4, 16),
    ("recurrent_persistent", 8, 16, 8, 16),
    ("recurrent_persistent", 8, 32, 8, 8),
)


class Setting(NamedTuple):
    """What is measured."""

    name: str
    graph: fw.Digraph
    steps: int
    batches: tuple[int, ...]


def stand_in(neurons: int, seed: int = 0) -> fw.Digraph:
    """The stand-in for FlyWire with its feedback, every edge delayed; a tenth of the neurons each read and write."""
    ends, count = np.random.default_rng(seed).permutation(neurons), max(neurons // 10, 1)
    edges = flywire_edges(neurons, seed=seed)
    return fw.Digraph.from_arrays(edges, labels=neurons, inputs=ends[:count], outputs=ends[-count:], feedback="all")


def optic_lobe(types: int = LOBE_TYPES, columns: tuple[int, int] = LOBE_COLUMNS, seed: int = 0) -> fw.Digraph:
    """A stand-in for an optic lobe: as many neurons and edges, and the same types of neurons in every column.

    A type reads 9 others, each in 3 or 4 columns nearby, as in flyvis. Columns lie on a torus; every edge is
    delayed; eight types are inputs, and eight outputs.
    """
    rng, count = np.random.default_rng(seed), columns[0] * columns[1]
    across, along = np.divmod(np.arange(count), columns[1])
    parts = []
    for target in range(types):
        for source in rng.choice(types, min(types, 9), replace=False).tolist():
            for shift in np.unique(rng.integers(-2, 3, (rng.integers(3, 5), 2)), axis=0).tolist():
                column = (across + shift[0]) % columns[0] * columns[1] + (along + shift[1]) % columns[1]
                parts.append(np.stack((source * count + column, target * count + np.arange(count)), 1))
    edges, ends = np.concatenate(parts), min(8, types) * count
    nodes = np.arange(types * count)
    return fw.Digraph.from_arrays(
        edges, labels=types * count, inputs=nodes[:ends], outputs=nodes[-ends:], feedback="all"
    )  # fmt: skip


def gather_scatter(net: fw.Recurrent) -> Callable[[Tensor], Step]:
    """Flyvis' way: a product for every edge and sample, added up by target.

    Rows are selected and added whole, since the gradient of indexing sorts.
    """
    source, target = (torch.tensor(ends.astype(np.int64), device=net.weight.device) for ends in net.graph.edges.T)

    def prepare(weight: Tensor) -> Step:
        factor = weight[:, None]
        return lambda a: torch.zeros_like(a).index_add(0, target, a.index_select(0, source) * factor)

    return prepare


def scattered_bytes(graph: fw.Digraph, x: Tensor) -> int:
    """What gather and scatter saves for the gradients: for each sample and step 2 numbers an edge, and 8 a node."""
    steps, batch, _ = x.shape
    return x.itemsize * steps * batch * (2 * graph.num_edges + 8 * graph.num_nodes)


def masked_dense(net: fw.Recurrent) -> Callable[[Tensor], Step]:
    """A matrix of all pairs of nodes."""
    nodes = net.graph.num_nodes
    entry = torch.tensor(net.graph.target.astype(np.int64) * nodes + net.graph.source, device=net.weight.device)

    def prepare(weight: Tensor) -> Step:
        matrix = weight.new_zeros(nodes * nodes).scatter(0, entry, weight).reshape(nodes, nodes)
        return lambda a: matrix @ a

    return prepare


def sparse_product(net: fw.Recurrent) -> Callable[[Tensor], Step]:
    """torch.sparse.mm with a matrix in compressed rows, whose weights have gradients.

    Coordinates took 1.4 times as long on the worm, and 0.7 times on the stand-in, where embedding_bag took 0.3 times.
    """
    order, source, row_start = _sort_by_target(net)
    size = (net.graph.num_nodes,) * 2

    def prepare(weight: Tensor) -> Step:
        values = weight.index_select(0, order)
        matrix = torch.sparse_csr_tensor(row_start, source, values, size, check_invariants=False)
        return lambda a: torch.sparse.mm(matrix, a)

    return prepare


def embedding_bag(net: fw.Recurrent) -> Callable[[Tensor], Step]:
    """A bag of weighted rows for each neuron: gather and scatter without the products of every edge and sample."""
    order, source, row_start = _sort_by_target(net)
    first = row_start[:-1].contiguous()

    def prepare(weight: Tensor) -> Step:
        values = weight.index_select(0, order)
        return lambda a: nn.functional.embedding_bag(source, a, first, mode="sum", per_sample_weights=values)

    return prepare


def _sort_by_target(net: fw.Recurrent) -> tuple[Tensor, Tensor, Tensor]:
    """(E,) the edges sorted by target, (E,) their sources, and (N+1,) the first edge into each node."""
    graph = net.graph
    order = np.lexsort((graph.source, graph.target))
    row_start = np.concatenate(([0], np.cumsum(graph.in_degree)))
    arrays = (order, graph.source[order], row_start)
    edge, source, start = (torch.tensor(array.astype(np.int64), device=net.weight.device) for array in arrays)
    return edge, source, start


def run_steps(net: fw.Recurrent, make: Rival, x: Tensor) -> Tensor:
    """(T, B, O) the synchronous network with tanh neurons, by another way to add up."""
    return steps_runner(net, make)(x)


def steps_runner(net: fw.Recurrent, make: Rival) -> Callable[[Tensor], Tensor]:
    """The same as a function of x, with all index tensors made beforehand."""
    prepare, graph, nodes = make(net), net.graph, net.graph.num_nodes

    def index(array: Any) -> Tensor:
        return torch.tensor(np.asarray(array, np.int64), device=net.weight.device)

    features, outputs, neurons = index(graph.inputs), index(graph.outputs), index(graph.neurons)
    carriers = index(np.setdiff1d(graph.inputs, graph.driven))
    fed = torch.zeros(nodes, device=net.weight.device).index_fill(0, carriers, 1.0).bool()[:, None]

    def run(x: Tensor) -> Tensor:
        assert net.bias is not None
        step, bias = prepare(net.weight), net.weight.new_zeros(nodes).index_copy(0, neurons, net.bias)[:, None]
        a, results = x.new_zeros(nodes, x.shape[1]), []
        for rows in x:
            drive = x.new_zeros(nodes, x.shape[1]).index_copy(0, features, rows.t())
            a = torch.where(fed, drive, torch.tanh(step(a) + bias + drive))
            results.append(a.index_select(0, outputs).t())
        return torch.stack(results)

    return run


Contestant = tuple[Callable[[], Tensor], nn.Module]  #: a forward pass, and the module whose parameters it trains


def contestants(graph: fw.Digraph, x: Tensor) -> dict[str, Contestant]:
    """All that run on this device, by name; compared on a few steps."""
    device = x.device
    net = fw.Recurrent(graph, "tanh", seed=0, device=device)
    result: dict[str, Contestant] = {f"fourward, {net.engine}": (partial(_outputs, net, x), net)}
    if graph.num_nodes <= MOST_LAYERED:
        layered = fw.Recurrent(
            fw.Digraph.from_arrays(graph.edges, labels=graph.labels, inputs=graph.inputs, outputs=graph.outputs),
            "tanh", seed=0, device=device,
        )  # fmt: skip
        result[f"fourward, {layered.engine}, fewest delayed"] = (partial(_outputs, layered, x), layered)
    rivals: dict[str, Rival] = {"embedding_bag": embedding_bag, "torch.sparse.mm": sparse_product}
    if device.type != "cpu" or scattered_bytes(graph, x) < (available_memory() or 0):
        rivals = {"gather and scatter": gather_scatter, **rivals}
    if graph.num_nodes <= MOST_DENSE:
        rnn = nn.RNN(graph.num_inputs, graph.num_nodes, device=device)
        rivals["masked dense"] = masked_dense
        result["torch.nn.RNN, dense"] = (partial(_outputs, rnn, x), rnn)
    probe = x[:3, :4].contiguous()
    expected = _results(net, lambda: net(probe)[0])
    for name, make in rivals.items():
        run = steps_runner(net, make)
        for got, want in zip(_results(net, partial(run, probe)), expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
        result[name] = (partial(run, x), net)
    return result


def _results(net: fw.Recurrent, forward: Callable[[], Tensor]) -> list[Tensor]:
    """Outputs, and the gradients of their squares."""
    y = forward()
    return [y.detach(), *torch.autograd.grad(y.square().sum(), list(net.parameters()))]


def _outputs(net: nn.Module, x: Tensor) -> Tensor:
    y: Tensor = net(x)[0]
    return y


def train(forward: Callable[[], Tensor], module: nn.Module) -> None:
    """A forward and a backward pass through time."""
    module.zero_grad()
    forward().square().mean().backward()


def features(graph: fw.Digraph, steps: int, batch: int, device: str) -> Tensor:
    """(T, B, I) the same on every device."""
    return torch.randn(steps, batch, graph.num_inputs, generator=torch.Generator().manual_seed(0)).to(device)


def measure(name: str, graph: fw.Digraph, steps: int, batch: int, device: str = "cpu") -> dict[str, Any]:
    """Median seconds of every contestant in turn, and the peak memory so far: of the process, or on the GPU."""
    calls = contestants(graph, features(graph, steps, batch, device))
    clock = clock_for(device)
    with torch.no_grad():
        forward = median_seconds({key: call for key, (call, _) in calls.items()}, clock=clock, min_rounds=3)
    both = median_seconds({key: partial(train, *pair) for key, pair in calls.items()}, clock=clock, min_rounds=3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    sizes = {"graph": name, "nodes": graph.num_nodes, "edges": graph.num_edges, "steps": steps, "batch": batch}
    return {**sizes, "forward": forward, "train": both, "peak_MiB": peak}


def measure_configs(setting: Setting, batch: int) -> dict[str, dict[str, float]]:
    """Median seconds of fourward's passes on a GPU with each launch configuration, by its fields."""
    from fourward.engine._gpu import recurrent_launch  # Triton is there only where a GPU is
    from fourward.engine._gpu.heuristics import LaunchConfig

    x, result = features(setting.graph, setting.steps, batch, "cuda"), {}
    for fields in CONFIGS:
        config = LaunchConfig(*fields)
        vars(recurrent_launch)["choose_recurrent_config"] = lambda *_, config=config: config
        recurrent_launch.clear_passes()
        net = fw.Recurrent(setting.graph, "tanh", seed=0, device="cuda")
        forward = partial(_outputs, net, x)
        calls: dict[str, Callable[[], object]] = {
            "forward": torch.no_grad()(forward),
            "train": partial(train, forward, net),
        }
        result[" ".join(map(str, fields))] = median_seconds(calls, clock_for("cuda"), seconds=0.1, min_rounds=3)
        times = ", ".join(f"{kind} {1e3 * value:.3f} ms" for kind, value in result[" ".join(map(str, fields))].items())
        print(f"{setting.name}, B={batch}, {fields}: {times}", flush=True)
    return result


def settings(device: str, neurons: int, steps: int | None, batches: list[int] | None) -> list[Setting]:
    """What is measured on a device."""
    worm = fw.connectomes.load("c-elegans").digraph(feedback="all")
    chosen = [Setting("C. elegans", worm, steps or 50, tuple(batches or (32, 128)))]
    if device == "cuda":
        chosen.append(Setting("optic lobe stand-in", optic_lobe(), steps or 40, tuple(batches or (32,))))
    if neurons:
        chosen.append(Setting("FlyWire stand-in", stand_in(neurons), steps or 50, tuple(batches or (32, 128))))
    return chosen


def format_report(folder: Path) -> str:
    """The stored results of all devices as a page."""
    parts = [
        "# Benchmark: networks with feedback",
        "Written by `python -m benchmarks.recurrent`. Milliseconds, medians of alternating turns; all contestants of a "
        "row computed the same outputs and gradients before, but for torch.nn.RNN, which has all pairs of edges, and "
        "the network with the fewest edges delayed. x: over fourward with every edge delayed. Gather and scatter is "
        "missing where what it saves for the gradients doesn't fit into memory.",
    ]
    for device in ("cpu", "cuda"):
        path = folder / f"recurrent-{device}.json"
        if path.exists():
            data = json.loads(path.read_text())
            parts += [f"## {data['environment'].get('card', 'CPU')}", format_environment(data["environment"])]
            parts += [_table(data["cells"], kind, title) for kind, title in _KINDS.items()]
    return "\n\n".join(parts) + "\n"


_KINDS = {"forward": "forward", "train": "forward and backward"}


def _table(cells: list[dict[str, Any]], kind: str, title: str) -> str:
    names = list(dict.fromkeys(_column(name) for cell in cells for name in cell[kind]))
    lines = [f"| {title} | T | B | {' | '.join(names)} |", f"|---|---|---|{'---|' * len(names)}"]
    for cell in cells:
        times = {_column(name): value for name, value in cell[kind].items()}
        own = times["fourward"]
        texts = [_format_time(name, times.get(name), own) for name in names]
        sizes = f"{cell['graph']} ({cell['nodes']:,} neurons, {cell['edges']:,} edges)"
        lines.append(f"| {sizes} | {cell['steps']} | {cell['batch']} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _column(name: str) -> str:
    """Contestants without the name of fourward's engine."""
    if not name.startswith("fourward"):
        return name
    return "fourward, fewest delayed" if name.endswith("fewest delayed") else "fourward"


def _format_time(name: str, seconds: float | None, own: float) -> str:
    if seconds is None:
        return ""
    ratio = "" if name == "fourward" else f" ({seconds / own:.1f}x)"
    return f"{1e3 * seconds:.3g}{ratio}"


def main(args: list[str] | None = None, folder: Path = RESULTS) -> list[dict[str, Any]]:
    """Measure all cells, and write them after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--neurons", type=int, default=20_000, help="neurons of FlyWire's stand-in; 0: skip it")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batches", type=int, nargs="+")
    parser.add_argument("--configs", action="store_true", help="fourward's launch configurations on a GPU instead")
    options = parser.parse_args(args)
    chosen = settings(options.device, options.neurons, options.steps, options.batches)
    cells: list[dict[str, Any]] = []
    if options.configs:
        cells = [
            {"graph": setting.name, "batch": batch, "times": measure_configs(setting, batch)}
            for setting in chosen
            for batch in setting.batches
        ]
        write_results("recurrent-configs", {"cells": cells}, folder)
        return cells
    environment = describe_environment()
    if options.device == "cuda":
        environment["card"] = torch.cuda.get_device_name()
    for setting in chosen:
        for batch in setting.batches:
            cells.append(measure(setting.name, setting.graph, setting.steps, batch, options.device))
            best = min(cells[-1]["train"], key=cells[-1]["train"].get)
            print(f"{setting.name}, B={batch}: fastest training pass: {best}", flush=True)
            for kind in _KINDS:
                times = ", ".join(f"{name} {1e3 * value:.3f} ms" for name, value in cells[-1][kind].items())
                print(f"  {kind}: {times}", flush=True)
            write_results(f"recurrent-{options.device}", {"environment": environment, "cells": cells}, folder)
    write_page("recurrent", format_report(folder), folder)
    return cells


if __name__ == "__main__":
    main()

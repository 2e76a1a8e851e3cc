"""Wiring that changes: the ladder of SET's code, sparse against masked dense layers, and the time of edits.

    python -m benchmarks.sparse                      # two cores, about ten minutes
    python -m benchmarks.sparse --device cuda        # a GPU
    python -m benchmarks.sparse --quick              # a small rung, a density and a size of each
    python -m benchmarks.sparse --parts layers --densities 0.05 --keep     # beside the other stored results

**The ladder** is that of the code of Liu et al. (2021), for which they publish minutes: 3,312 features, three hidden
layers, 5 classes, epsilon 20, 135 rows, batches of 2, SGD with momentum and weight decay, and after each epoch the
weakest 30 % of the weights of each layer are replaced. Rows are synthetic. Each rung runs in a new process.

**Layers**: a training step of 784-1000-1000-1000-10 by fourward, by dense layers with a mask, and by torch.sparse, all
with the same wiring, weights and optimiser. Outputs and gradients are compared before anything is timed.

**Edits**: a tenth of the edges of a random graph are replaced, and back, and SET does so; the plan and the engine's
arrays are built anew, and the moments follow.

Writes sparse.json or sparse-cuda.json after each measurement, and sparse.md with the tables of both.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import fourward as fw
from benchmarks.fresh import random_edges
from benchmarks.report import format_environment
from benchmarks.storage import RESULTS, describe_environment, list_commits, put_cell, write_page, write_results
from fourward.study._limits import one_line
from fourward.study._timing import clock_for, median_seconds

#: Published minutes of an epoch, by neurons of a hidden layer; and epochs that are measured after the first.
LADDER = {3_000: (0.3, 5), 30_000: (3.0, 3), 300_000: (49.0, 1), 600_000: (112.0, 1)}
FEATURES, CLASSES, ROWS, BATCH, EPSILON, ZETA = 3_312, 5, 135, 2, 20, 0.3
RUNG_SECONDS = 400  #: time after which a rung is cut off
SIZES, LAYERS_BATCH = (784, 1000, 1000, 1000, 10), 128
DENSITIES = (0.01, 0.02, 0.05, 0.1)
EDITED = (10**5, 10**6)  #: edges
EDIT_FRACTION, NODE_DEGREE, EDITS = 0.1, 10, 7
Step = Callable[[], object]
Draw = Callable[[np.random.Generator, int, int], np.ndarray[Any, Any]]  #: indices of pairs of two layers


def layered_dag(sizes: tuple[int, ...], draw: Draw) -> fw.Dag:
    """Random edges between consecutive layers, of which the first is the inputs and the last the outputs."""
    rng, parts, first = np.random.default_rng(0), [], 0
    for size, following in itertools.pairwise(sizes):
        drawn = np.sort(draw(rng, size, following))
        source, target = np.divmod(drawn[np.diff(drawn, prepend=-1) > 0], following)
        parts.append(np.stack((first + source, first + size + target), -1))
        first += size
    inputs, outputs = np.arange(sizes[0]), np.arange(first, first + sizes[-1])
    return fw.Dag.from_arrays(np.concatenate(parts), labels=first + sizes[-1], inputs=inputs, outputs=outputs)


def draw_like_set(rng: np.random.Generator, size: int, following: int) -> np.ndarray[Any, Any]:
    """As SET's code does: epsilon draws for each node of both layers, whose repeats are one edge."""
    return rng.integers(0, size * following, EPSILON * (size + following))


def draw_density(density: float) -> Draw:
    """Draw a fraction of all pairs."""
    return lambda rng, size, following: rng.choice(size * following, round(density * size * following), replace=False)


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    """The optimiser of all contestants: that of SET's code, as fast as torch has it."""
    return torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, weight_decay=2e-4, fused=True)


def synchronize(device: str) -> None:
    """Wait for the device."""
    clock_for(device).synchronize()


def climb(hidden: int, epochs: int, device: str = "cpu") -> dict[str, Any]:
    """Seconds of epochs with their rewiring, the first of them not counted, and the peak memory of this process."""
    sizes = (FEATURES, hidden, hidden, hidden, CLASSES)
    start = time.perf_counter()
    dag = layered_dag(sizes, draw_like_set)
    net = fw.FourWard(dag, "relu", output_activation="identity", seed=0, device=device)
    synchronize(device)
    building = time.perf_counter() - start
    optimizer, steps = sgd(net), ROWS // BATCH
    method = fw.sparse.SET(net, optimizer, ZETA, every=steps, rule="layered", seed=0, keep_history=False)
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(ROWS, FEATURES, generator=generator), torch.randint(CLASSES, (ROWS,), generator=generator)
    x, y, times = x.to(device), y.to(device), []
    for _ in range(epochs + 1):
        order = torch.randperm(ROWS, generator=generator)[: steps * BATCH].to(device)
        begin = time.perf_counter()
        for k, rows in enumerate(order.split(BATCH)):
            optimizer.zero_grad()
            cross_entropy(net(x[rows]), y[rows]).backward()
            optimizer.step()
            if k == steps - 1:
                synchronize(device)
                rewiring = time.perf_counter()
            edit = method.step()
        synchronize(device)
        times.append((time.perf_counter() - begin, time.perf_counter() - rewiring))
        assert edit is not None
        replaced = len(edit.removed)
        print(f"  {hidden:,}: epoch {times[-1][0]:.2f} s, rewiring {times[-1][1]:.2f} s", file=sys.stderr, flush=True)
    seconds, share = (statistics.median(column) for column in zip(*times[1:], strict=True))
    return {
        "hidden": hidden, "neurons": dag.num_nodes, "edges": dag.num_edges, "replaced": replaced,
        "building": building, "epochs": times, "seconds": seconds, "rewiring": share,
    } | peaks(device)  # fmt: skip


def peaks(device: str) -> dict[str, float]:
    """The peak memory so far, of this process and on the GPU."""
    lines = Path("/proc/self/status").read_text().splitlines()
    host = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20
    return {"peak_gib": host} | ({"gpu_gib": torch.cuda.max_memory_allocated() / 2**30} if device == "cuda" else {})


class MaskedLayers(nn.Module):
    """Dense layers whose weights are multiplied by a mask in each pass; or `after` each step of the optimiser.

    The second takes the gradients of all pairs, and masks once a step: fewer passes over the matrices.
    """

    def __init__(self, weights: list[Tensor], masks: list[Tensor], after: bool) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(weight.clone()) for weight in weights])
        self.biases = nn.ParameterList([nn.Parameter(weight.new_zeros(len(weight))) for weight in weights])
        self.masks, self.after = masks, after

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        last = len(self.masks) - 1
        for k, (weight, bias, mask) in enumerate(zip(self.weights, self.biases, self.masks, strict=True)):
            x = nn.functional.linear(x, weight if self.after else weight * mask, bias)
            x = x if k == last else x.relu()
        return x

    @torch.no_grad()
    def mask(self) -> None:
        """Set weights that aren't edges to 0."""
        for weight, mask in zip(self.weights, self.masks, strict=True):
            weight.mul_(mask)


class SparseLayers(nn.Module):
    """Layers of torch.sparse: a matrix in CSR times the activations, (features, batch)."""

    def __init__(self, weights: list[Tensor], masks: list[Tensor]) -> None:
        super().__init__()
        matrices = [weight.to_sparse_csr() for weight in weights]
        self.index = [(matrix.crow_indices(), matrix.col_indices(), matrix.shape) for matrix in matrices]
        self.weights = nn.ParameterList([nn.Parameter(matrix.values().clone()) for matrix in matrices])
        self.biases = nn.ParameterList([nn.Parameter(weight.new_zeros(len(weight), 1)) for weight in weights])
        assert sum(map(len, self.weights)) == sum(int(mask.sum()) for mask in masks)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        a, last = x.t(), len(self.index) - 1
        for k, ((rows, columns, shape), values, bias) in enumerate(
            zip(self.index, self.weights, self.biases, strict=True)
        ):
            a = torch.sparse.mm(torch.sparse_csr_tensor(rows, columns, values, shape), a) + bias
            a = a if k == last else a.relu()
        return a.t()


#: The contestants, from dense weights and masks; those that compute the same.
RIVALS: dict[str, Callable[[list[Tensor], list[Tensor]], nn.Module]] = {
    "masked dense": partial(MaskedLayers, after=False),
    "dense, masked after each step": partial(MaskedLayers, after=True),
    "torch.sparse, CSR": SparseLayers,
}
CONTESTANTS = ("fourward", *RIVALS)


def layers(
    density: float, device: str, sizes: tuple[int, ...] = SIZES
) -> tuple[fw.FourWard, list[Tensor], list[Tensor]]:
    """A network of this density, and its weights as dense matrices (out, in) with their masks."""
    dag, bounds = layered_dag(sizes, draw_density(density)), np.cumsum((0, *sizes))
    net = fw.FourWard(dag, "relu", output_activation="identity", init="kaiming_normal", seed=0, device=device)
    with torch.no_grad():
        assert net.bias is not None
        net.bias.zero_()
    weights, masks = [], []
    ends = torch.tensor(dag.edges.astype(np.int64), device=device)
    for a, b, c in zip(bounds, bounds[1:], bounds[2:], strict=False):
        inside = (ends[:, 0] >= a) & (ends[:, 0] < b)
        entry = ends[inside, 1] - b, ends[inside, 0] - a
        matrix = torch.zeros(int(c - b), int(b - a), device=device)
        weights.append(matrix.index_put(entry, net.weight.detach()[inside]))
        masks.append(matrix.index_put(entry, torch.ones((), device=device)))
    return net, weights, masks


def training(model: nn.Module, x: Tensor, y: Tensor) -> Step:
    """A training step."""
    optimizer = sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        if isinstance(model, MaskedLayers) and model.after:
            model.mask()

    return step


def make(name: str, density: float, device: str, sizes: tuple[int, ...] = SIZES) -> nn.Module:
    """A contestant."""
    net, weights, masks = layers(density, device, sizes)
    return net if name == "fourward" else RIVALS[name](weights, masks).to(device)


def data(sizes: tuple[int, ...], device: str) -> tuple[Tensor, Tensor]:
    """A batch with its classes, the same on every device."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(LAYERS_BATCH, sizes[0], generator=generator)
    return x.to(device), torch.randint(sizes[-1], (LAYERS_BATCH,), generator=generator).to(device)


def compare(density: float, device: str, sizes: tuple[int, ...] = SIZES) -> dict[str, Any]:
    """Median seconds of a training step of each contestant in turn; outputs are compared before and after training."""
    x, y = data(sizes, device)
    models = {name: make(name, density, device, sizes) for name in CONTESTANTS}
    steps, missing = {name: training(model, x, y) for name, model in models.items()}, {}
    with torch.no_grad():
        expected = models["fourward"](x)
    for name, step in steps.items():
        try:
            with torch.no_grad():
                torch.testing.assert_close(models[name](x), expected, rtol=1e-3, atol=1e-3)
            step()
        except RuntimeError as error:  # what torch.sparse lacks on a device
            missing[name] = one_line(error)
    steps = {name: step for name, step in steps.items() if name not in missing}
    with torch.no_grad():  # after a step, so that gradients count, too
        results = {name: models[name](x) for name in steps}
    for result in results.values():
        torch.testing.assert_close(result, results["fourward"], rtol=1e-3, atol=1e-3)
    net = models["fourward"]
    assert isinstance(net, fw.FourWard)
    times = median_seconds(steps, clock_for(device), seconds=4.0, min_rounds=5)
    return {"density": density, "edges": net.dag.num_edges, "batch": LAYERS_BATCH, "train": times, "missing": missing}


def memory(name: str, density: float, device: str) -> dict[str, Any]:
    """MiB that three training steps of a contestant take at the peak, above a process that has done a small one."""
    small = (8, 6, 4)
    training(make(name, 0.9, device, small), *data(small, device))()  # compiles, and loads what torch loads late
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    before = _used(device)
    x, y = data(SIZES, device)
    step = training(make(name, density, device), x, y)
    for _ in range(3):
        step()
    synchronize(device)
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else _status("VmHWM")
    return {"mib": (peak - before) / 2**20}


def _used(device: str) -> int:
    return torch.cuda.memory_allocated() if device == "cuda" else _status("VmRSS")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024


def edits(edges: int, device: str = "cpu") -> dict[str, Any]:
    """Median seconds of `fw.rewire` and of an edit of SET, each of which replaces a tenth of the edges."""
    nodes, count = edges // NODE_DEGREE, int(EDIT_FRACTION * edges)
    pairs = np.random.default_rng(0).permutation(random_edges(nodes, edges + count))
    dag = fw.Dag.from_arrays(pairs[count:], labels=nodes)
    new = pairs[:count][~np.isin(pairs[:count, 1], dag.inputs)]  # which stay inputs
    old, times = pairs[-len(new) :], dict[str, list[float]](rewire=[], SET=[])
    (net, optimizer), (other, its_optimizer) = trained(dag, device), trained(dag, device)
    method = fw.sparse.SET(other, its_optimizer, EDIT_FRACTION, every=1, seed=0, keep_history=False)
    for k in range(EDITS + 1):
        add, remove = (new, old) if k % 2 == 0 else (old, new)
        for name, edit in (
            ("rewire", partial(fw.rewire, net, optimizer, add=add, remove=remove)),
            ("SET", method.step),
        ):
            synchronize(device)
            begin = time.perf_counter()
            edit()
            synchronize(device)
            times[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(values[1:]) for name, values in times.items()}
    return {"nodes": nodes, "edges": dag.num_edges, "replaced": len(new), "seconds": medians, "all": times}


def trained(dag: fw.Dag, device: str) -> tuple[fw.FourWard, torch.optim.Optimizer]:
    """A network after a step of its optimiser, which therefore has moments."""
    net = fw.FourWard(dag, "relu", seed=0, device=device)
    optimizer = sgd(net)
    net(torch.ones(2, dag.num_inputs, device=device)).sum().backward()
    optimizer.step()
    return net, optimizer


def in_fresh_process(*words: object, seconds: float = RUNG_SECONDS) -> dict[str, Any]:
    """What a function of this module returns in a new process."""
    command = [sys.executable, "-m", "benchmarks.sparse", "--call", *map(str, words)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"missing": f"cut off after {seconds:.0f} s"}
    if done.returncode:
        return {"missing": f"failed with code {done.returncode}"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def call(words: list[str]) -> dict[str, Any]:
    """A function of this module with arguments from the command line."""
    name, *arguments = words
    if name == "climb":
        return climb(int(arguments[0]), int(arguments[1]), arguments[2])
    return memory(arguments[0], float(arguments[1]), arguments[2])


def measurements(
    device: str, quick: bool, parts: list[str], densities: Sequence[float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The results of each part, one after another."""
    for edges in EDITED[: 1 if quick else None] if "edits" in parts else ():
        yield "edits", edits(edges, device)
    for density in densities[: 1 if quick else None] if "layers" in parts else ():
        cell = compare(density, device)
        peak = {name: in_fresh_process("memory", name, density, device) for name in CONTESTANTS}
        yield "layers", cell | {"memory": peak}
    rungs = list(LADDER.items())[: 1 if quick else None] if "ladder" in parts else []
    for hidden, (minutes, epochs) in rungs:
        result = in_fresh_process("climb", hidden, epochs, device)
        yield "ladder", {"hidden": hidden, "published": 60 * minutes} | result


_CELL_KEYS = {"ladder": "hidden", "layers": "density", "edits": "edges"}  # what distinguishes the cells of each part


def format_report(folder: Path) -> str:
    """The stored results of all devices as a page."""
    text = [
        "# Benchmark: wiring that changes",
        "Written by `python -m benchmarks.sparse`, whose first lines say what is measured.",
    ]
    for name in ("sparse", "sparse-cuda"):
        path = folder / f"{name}.json"
        if path.exists():
            stored = json.loads(path.read_text())
            environment = stored["environment"] | {
                "commit": list_commits(cell for part in _CELL_KEYS for cell in stored[part])
            }
            text += [f"## {environment.get('card', 'CPU')}", format_environment(environment)]
            tables = {"ladder": _ladder_table, "layers": _layers_table, "edits": _edits_table}
            text += [table(stored[part]) for part, table in tables.items() if stored[part]]
    return "\n\n".join(text) + "\n"


def _ladder_table(cells: list[dict[str, Any]]) -> str:
    lines = [
        "| ladder: neurons | edges | an epoch | of it rewiring | published | gain | peak memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        published = f"{cell['published'] / 60:g} min"
        if "missing" in cell:
            neurons = FEATURES + 3 * cell["hidden"] + CLASSES
            lines.append(f"| {neurons:,} | | {cell['missing']} | | {published} | | |")
            continue
        peak = f"{cell['gpu_gib']:.1f} GiB on the card" if "gpu_gib" in cell else f"{cell['peak_gib']:.1f} GiB"
        lines.append(
            f"| {cell['neurons']:,} | {cell['edges']:,} | {cell['seconds']:.3g} s | "
            f"{cell['rewiring'] / cell['seconds']:.0%} | {published} | "
            f"{cell['published'] / cell['seconds']:,.0f}x | {peak} |"
        )
    return "\n".join(lines)


def _layers_table(cells: list[dict[str, Any]]) -> str:
    lines = [f"| density, training step | {' | '.join(CONTESTANTS)} |", f"|---|{'---|' * len(CONTESTANTS)}"]
    for cell in cells:
        own, texts = cell["train"]["fourward"], []
        for name in CONTESTANTS:
            seconds, peak = cell["train"].get(name), cell["memory"][name].get("mib")
            if seconds is None:
                texts.append("")
                continue
            ratio = "" if name == "fourward" else f" ({seconds / own:.1f}x)"
            texts.append(f"{1e3 * seconds:.3g} ms{ratio}{'' if peak is None else f', {peak:.0f} MiB'}")
        lines.append(f"| {cell['density']:.0%} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _edits_table(cells: list[dict[str, Any]]) -> str:
    lines = ["| edits: edges | replaced | rewire | SET |", "|---|---|---|---|"]
    for cell in cells:
        times = " | ".join(f"{1e3 * cell['seconds'][name]:.0f} ms" for name in ("rewire", "SET"))
        lines.append(f"| {cell['edges']:,} | {cell['replaced']:,} | {times} |")
    return "\n".join(lines)


def main(args: list[str] | None = None, folder: Path = RESULTS) -> dict[str, Any]:
    """Measure all parts, and write the results after each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="the smallest of each part")
    parser.add_argument(
        "--parts", nargs="+", choices=("edits", "layers", "ladder"), default=["edits", "layers", "ladder"]
    )
    parser.add_argument("--densities", nargs="+", type=float, default=DENSITIES)
    parser.add_argument("--keep", action="store_true", help="keep stored results of other measurements")
    parser.add_argument("--call", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    warnings.filterwarnings("ignore", "Sparse")  # torch says that its CSR matrices are in beta
    if options.call:
        result = call(options.call)
        print(json.dumps(result))
        return result
    environment, name = describe_environment(), "sparse"
    if options.device == "cuda":
        environment["card"], name = torch.cuda.get_device_name(), "sparse-cuda"
    stored: dict[str, Any] = {part: [] for part in _CELL_KEYS}
    if options.keep:
        stored |= json.loads((folder / f"{name}.json").read_text())
    stored["environment"] = environment
    for part, cell in measurements(options.device, options.quick, options.parts, options.densities):
        stored[part] = put_cell(stored[part], cell, (_CELL_KEYS[part],), environment["commit"])
        print(part, json.dumps({key: value for key, value in cell.items() if key not in ("all", "epochs")}), flush=True)
        write_results(name, stored, folder)
        write_page("sparse", format_report(folder), folder)
    return stored


if __name__ == "__main__":
    main()

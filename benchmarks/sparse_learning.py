"""Does wiring that changes learn better? SET and RigL against the same wiring fixed, and against dense networks.

    python -m benchmarks.sparse_learning               # digits, breast cancer and wine: a few minutes on 2 cores
    python -m benchmarks.sparse_learning --mnist DIR   # and MNIST: DIR holds its four files, as for benchmarks.mnist

Protocol, which was written before any result was seen:

- **Wiring.** *layered*: an MLP with two hidden layers, of whose edges a random subset of a given density stays; edges
  grow by the rule "layered". *Erdos-Renyi*: a random subset of all forward pairs of the inputs, 128 hidden neurons in
  an order, and the outputs; rule "levels". *worm*: the connectome of C. elegans from its sensory to its motor neurons,
  rule "levels"; each feature is the value of a sensory neuron drawn at random, each class the sum of motor neurons
  drawn at random, and no other layer learns.
- **Methods.** *fixed*: that wiring. *SET* and *RigL*: it is where they start. All three begin with the same weights.
  *dense*: every edge that the rule allows between the same neurons. *narrow*, for layered wiring: a dense MLP whose
  hidden layers are so narrow that it has about as many weights as the sparse networks.
- **Budget.** All take the same steps on the same batches by `fourward.train.fit` with its defaults (AdamW, one cycle),
  relu, and `init="kaiming_normal"`. Edits are 1/40 of the steps apart, replace 0.3 of the edges (RigL: falling along a
  cosine), and end after three quarters of the steps. Three learning rates are tried for every method and seed; the one
  with the higher validation accuracy counts, the lower loss where these are equal.
- **Figures.** Five seeds, each with its own split, wiring, weights and batches: percent of the test rows at the last
  step, mean and 95 % interval (t); and the difference to fixed, seed by seed, with its interval. A difference is bold
  if its interval excludes 0. No correction is made for the number of comparisons.

Tests are 30 % of the rows and validation 15 %; of MNIST its own test images, and 6,000 of the others. Writes
benchmarks/results/sparse-learning.json and .md after each part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import t as student
from sklearn import datasets
from torch import Tensor, nn

import fourward as fw
from benchmarks.mnist import read_mnist
from benchmarks.storage import RESULTS, describe_environment, write_page, write_results
from fourward.train import fit

SEEDS, RATES, EDITS = 5, (1e-3, 3e-3, 1e-2), 40
SPARSE, METHODS = ("fixed", "set", "rigl"), ("fixed", "set", "rigl", "narrow", "dense")
RANDOM_NEURONS, RANDOM_DENSITY = 128, 0.05


class Data(NamedTuple):
    """How a dataset is trained on."""

    hidden: int  #: neurons of each of the two layers
    densities: tuple[float, ...]
    epochs: int
    batch: int


class Part(NamedTuple):
    """A row of the results."""

    data: str
    wiring: str  #: "layered", "Erdos-Renyi" or "worm"
    density: float


DATA = {
    "digits": Data(64, (0.05, 0.2), 40, 32),
    "breast cancer": Data(64, (0.05, 0.2), 100, 32),
    "wine": Data(64, (0.05, 0.2), 120, 16),
    "mnist": Data(128, (0.02, 0.1), 5, 128),
}


def list_parts(names: list[str]) -> list[Part]:
    """All parts of these datasets; MNIST has more pixels than the worm has sensory neurons."""
    layered = [Part(name, "layered", density) for name in names for density in DATA[name].densities]
    random = [Part(name, "Erdos-Renyi", RANDOM_DENSITY) for name in names]
    return layered + random + [Part(name, "worm", 1.0) for name in names if name != "mnist"]


def load_split(name: str, seed: int, folder: Path | None) -> list[tuple[Tensor, Tensor]]:
    """Features and classes to train on, to validate on, and to test on, standardised by the first."""
    if name == "mnist":
        assert folder is not None
        listed = [
            (images.flatten(1).numpy(), y.numpy()) for images, y in (read_mnist(folder, p) for p in ("train", "t10k"))
        ]
        (x, y), test = listed
        order = np.random.default_rng(seed).permutation(len(y))
        parts = [(x[order[6000:]], y[order[6000:]]), (x[order[:6000]], y[order[:6000]]), test]
    else:
        bunch = getattr(datasets, f"load_{name.replace(' ', '_')}")()
        x, y = bunch.data, bunch.target
        order = np.random.default_rng(seed).permutation(len(y))
        first, second = int(0.3 * len(y)), int(0.45 * len(y))
        parts = [(x[rows], y[rows]) for rows in (order[second:], order[first:second], order[:first])]
    axis = None if name in ("digits", "mnist") else 0  # pixels have a scale in common
    mean, std = parts[0][0].mean(axis), parts[0][0].std(axis)
    return [(torch.from_numpy((x - mean) / std).float(), torch.from_numpy(y).long()) for x, y in parts]


def complete_order(inputs: int, hidden: int, outputs: int) -> fw.Dag:
    """Every pair of nodes in an order, but none into inputs or out of outputs."""
    nodes = inputs + hidden + outputs
    source, target = np.triu_indices(nodes, 1)
    keep = (target >= inputs) & (source < nodes - outputs)
    return fw.Dag.from_arrays(
        np.stack((source[keep], target[keep]), -1), labels=nodes, inputs=np.arange(inputs),
        outputs=np.arange(nodes - outputs, nodes),
    )  # fmt: skip


def every_pair(dag: fw.Dag) -> fw.Dag:
    """Every edge that the rule "levels" allows."""
    level = fw.layering.longest_path(dag).level
    receives, sends = np.zeros(dag.num_nodes, bool), np.ones(dag.num_nodes, bool)
    receives[dag.neurons], sends[dag.outputs[dag.out_degree[dag.outputs] == 0]] = True, False
    allowed = (level[:, None] < level) & sends[:, None] & receives
    return fw.Dag.from_arrays(np.argwhere(allowed), labels=dag.num_nodes, inputs=dag.inputs, outputs=dag.outputs)


def make_dag(part: Part, method: str, seed: int, features: int, classes: int) -> fw.Dag:
    """The wiring at the start."""
    if part.wiring == "layered":
        hidden = DATA[part.data].hidden
        dense = fw.generate.layered_mlp([features, hidden, hidden, classes])
        edges = int(part.density * dense.num_edges)
        if method == "narrow":  # w (features + w + classes) weights
            widths = np.arange(1, hidden + 1)
            width = int(widths[np.argmin(np.abs(widths * (features + widths + classes) - edges))])
            return fw.generate.layered_mlp([features, width, width, classes])
        return dense if method == "dense" else fw.generate.thin(dense, edges, seed=seed)
    if part.wiring == "worm":
        worm = fw.connectomes.load("c-elegans").dag
        sparse = fw.Dag.from_arrays(worm.edges, labels=worm.num_nodes, inputs=worm.inputs, outputs=worm.outputs)
    else:
        complete = complete_order(features, RANDOM_NEURONS, classes)
        sparse = fw.generate.thin(complete, int(part.density * complete.num_edges), seed=seed)
    return every_pair(sparse) if method == "dense" else sparse


class FixedMap(nn.Module):
    """A linear map that doesn't learn."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, x: Tensor) -> Tensor:
        """(B, a) to (B, b)."""
        return x @ self.get_buffer("matrix")


def make_model(part: Part, method: str, seed: int, features: int, classes: int) -> tuple[nn.Module, fw.FourWard]:
    """A model from features to logits, and the network in it."""
    dag = make_dag(part, method, seed, features, classes)
    net = fw.FourWard(dag, "relu", output_activation="identity", init="kaiming_normal", seed=seed)
    if part.wiring != "worm":
        return net, net
    rng = np.random.default_rng(seed)
    to_inputs, to_classes = torch.zeros(features, dag.num_inputs), torch.zeros(dag.num_outputs, classes)
    to_inputs[torch.arange(features), torch.from_numpy(rng.permutation(dag.num_inputs)[:features])] = 1
    group = torch.from_numpy(rng.permutation(dag.num_outputs) % classes)
    to_classes[torch.arange(dag.num_outputs), group] = (classes / dag.num_outputs) ** 0.5
    return nn.Sequential(FixedMap(to_inputs), net, FixedMap(to_classes)), net


def run(part: Part, seed: int, folder: Path | None) -> dict[str, dict[str, Any]]:
    """By method, the accuracy on the test rows with the learning rate that is best on the validation rows."""
    torch.set_num_threads(1)
    train, validation, (x, y) = load_split(part.data, seed, folder)
    settings, features, classes = DATA[part.data], train[0].shape[1], int(train[1].max()) + 1
    steps = settings.epochs * -(-len(train[0]) // settings.batch)
    results = {}
    for method in METHODS if part.wiring == "layered" else (*SPARSE, "dense"):
        best: dict[str, Any] = {}
        for rate in RATES:
            start = time.perf_counter()
            model, net = make_model(part, method, seed, features, classes)
            options: dict[str, Any] = {}
            if method in ("set", "rigl"):
                rule = "layered" if part.wiring == "layered" else "levels"
                options = {"rewire": method, "rewire_every": max(1, steps // EDITS), "rewire_rule": rule}
            history = fit(
                model, *train, validation=validation, epochs=settings.epochs, batch_size=settings.batch,
                learning_rate=rate, seed=seed, **options,
            )  # fmt: skip
            with torch.no_grad():
                accuracy = 100 * (model(x).argmax(-1) == y).double().mean().item()
            score = history.val_score[-1], -history.val_loss[-1]
            if not best or score > best["score"]:
                seconds = round(time.perf_counter() - start, 2)
                best = {
                    "accuracy": accuracy,
                    "edges": net.dag.num_edges,
                    "rate": rate,
                    "score": score,
                    "seconds": seconds,
                }
        best["validation"] = 100 * best.pop("score")[0]
        results[method] = best
    return results


def interval(values: list[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval."""
    array = np.array(values)
    half = student.ppf(0.975, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array)) if len(array) > 1 else np.nan
    return float(array.mean()), float(half)


def report_text(data: dict[str, Any]) -> str:
    """The results as Markdown."""
    env, settings = data["environment"], data["settings"]
    lines = [
        "# Does wiring that changes learn better?", "",
        f"`python -m benchmarks.sparse_learning --mnist DIR`, fourward {env['versions']['fourward']}, commit "
        f"{env['commit'][:12]}, {env['processor']}. The protocol is in the program. Percent of the test rows at the "
        f"last step, mean and 95 % interval of {settings['seeds']} seeds. Differences are seed by seed, bold where the "
        "interval excludes 0. *dense* has every edge that the rule allows, *narrow* is a dense MLP with about as many "
        "weights as the sparse networks.", "",
        "| wiring | data | edges | fixed | SET - fixed | RigL - fixed | narrow | dense (edges) |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(part) for part in data["parts"]), "",
        "The same as accuracies, and the learning rates that were chosen, by seed:", "",
        "| wiring | data | edges | fixed | SET | RigL | fixed's rates | SET's | RigL's | dense's |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *(_accuracy_row(part) for part in data["parts"]),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _row(part: dict[str, Any]) -> str:
    accuracy = _accuracies(part)
    cells = [_plus_minus(accuracy["fixed"])]
    for name in ("set", "rigl"):
        mean, half = interval([a - b for a, b in zip(accuracy[name], accuracy["fixed"], strict=True)])
        cells.append(f"**{mean:+.1f} ± {half:.1f}**" if abs(mean) > half else f"{mean:+.1f} ± {half:.1f}")
    cells.append(_plus_minus(accuracy["narrow"]) if "narrow" in accuracy else "")
    cells.append(f"{_plus_minus(accuracy['dense'])} ({part['methods']['dense'][0]['edges']:,})")
    return _join(part, cells)


def _accuracy_row(part: dict[str, Any]) -> str:
    rates = [" ".join(f"{run['rate']:g}" for run in part["methods"][name]) for name in (*SPARSE, "dense")]
    return _join(part, [_plus_minus(_accuracies(part)[name]) for name in SPARSE] + rates)


def _accuracies(part: dict[str, Any]) -> dict[str, list[float]]:
    return {name: [run["accuracy"] for run in runs] for name, runs in part["methods"].items()}


def _join(part: dict[str, Any], cells: list[str]) -> str:
    edges = f"{part['methods']['fixed'][0]['edges']:,}"
    return "| " + " | ".join([part["wiring"], part["data"], edges, *cells]).replace("|  |", "| |") + " |"


def _plus_minus(values: list[float]) -> str:
    mean, half = interval(values)
    return f"{mean:.1f} ± {half:.1f}"


def run_parts(parts: list[Part], seeds: int, workers: int, folder: Path | None) -> Iterator[dict[str, Any]]:
    """The results of each part, by method a list over seeds."""
    with ProcessPoolExecutor(workers) as pool:
        futures = [[pool.submit(run, part, seed, folder) for seed in range(seeds)] for part in parts]
        for part, listed in zip(parts, futures, strict=True):
            runs = [future.result() for future in listed]
            yield part._asdict() | {"methods": {name: [each[name] for each in runs] for name in runs[0]}}


def main(arguments: list[str] | None = None) -> None:
    """Run all parts, and write the results after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mnist", type=Path)
    parser.add_argument("--data", nargs="+", choices=[name for name in DATA if name != "mnist"], default=None)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    names = options.data or [name for name in DATA if name != "mnist"]
    names += ["mnist"] if options.mnist else []
    start, parts = time.perf_counter(), []
    settings = {"seeds": options.seeds, "rates": RATES, "edits": EDITS, "data": {k: DATA[k]._asdict() for k in names}}
    environment = describe_environment()
    for part in run_parts(list_parts(names), options.seeds, options.workers, options.mnist):
        parts.append(part)
        seconds = round(time.perf_counter() - start)
        data = {"environment": environment, "settings": settings, "seconds": seconds, "parts": parts}
        write_results("sparse-learning", data, options.out)
        write_page("sparse-learning", report_text(data), options.out)
        print(f"{seconds:4} s {_row(part)}", flush=True)


if __name__ == "__main__":
    main()

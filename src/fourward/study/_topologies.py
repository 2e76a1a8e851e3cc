"""Which topology learns best, and which is most robust: matched topologies trained on the same data, then ablated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward.errors import OptionError, summarize
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard
from fourward.study._cluster import run_all
from fourward.study._datasets import DATASETS, Split, load_split
from fourward.study._matched import CONNECTOME, TOPOLOGIES, matched_graph
from fourward.study._protocol import Key
from fourward.study._run import Progress, Summary
from fourward.study._store import Store
from fourward.train._joint_fit import fit_together
from fourward.train._model import linear

EXPERIMENT = "topologies"
#: Fractions of the edges, or of the neurons, that are removed.
FRACTIONS = tuple(k / 10 for k in range(10))
KINDS = ("edges", "neurons")
TRAINING: dict[str, Any] = {"batch_size": 64, "learning_rate": 5e-3, "weight_decay": 1e-2}
CURVE_LENGTH = 20  #: epochs in a stored learning curve


@dataclass(frozen=True)
class Topologies:
    """What to run: every topology on every data set with every seed, which draws graph, weights and samples."""

    topologies: Sequence[str] = TOPOLOGIES
    data: Sequence[str] = tuple(DATASETS)
    seeds: int = 10
    epochs: int = 40
    draws: int = 5  #: random removals for each kind and fraction

    def __post_init__(self) -> None:
        for name, known in (("topologies", TOPOLOGIES), ("data", tuple(DATASETS))):
            names = tuple(dict.fromkeys(text.strip() for text in getattr(self, name)))
            object.__setattr__(self, name, names)
            unknown = [text for text in names if text not in known]
            if unknown or not names:
                problem = f"unknown {summarize(unknown)}" if unknown else "expected at least one, got none"
                raise OptionError(f"{name}: {problem}. Choose from {summarize(known, len(known))}.")
        for name in ("seeds", "epochs", "draws"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} must be at least 1, got {getattr(self, name)!r}.")

    def keys(self) -> Iterator[Key]:
        """The parameters of each run; seeds outermost, so that a study that is stopped early has complete seeds."""
        for seed in range(self.seeds):
            for data in self.data:
                for topology in self.topologies:
                    key: Key = {"topology": topology, "data": data, "seed": seed, "connectome": CONNECTOME}
                    yield key | {"epochs": self.epochs, "draws": self.draws}


def run_topologies(
    store: Store,
    protocol: Topologies,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Train and ablate what the store doesn't have yet, on a Dask cluster.

    The topologies of a data set and a seed are trained as one population, in one process: the results of
    `run_topology`, up to rounding, in less time.

    A script that calls this needs `if __name__ == "__main__":` around its work, because workers import it, too.

    Args:
        store: Where each run is stored as it ends.
        protocol: What to run.
        workers: Processes on this machine; default: one per core.
        scheduler: Address of a cluster to use instead, such as "tcp://10.0.0.1:8786".
        on_progress: Called at the start and after each run; `print` is one.
    """
    keys = list(protocol.keys())
    store.set_protocol(EXPERIMENT, asdict(protocol) | {"wanted": len(keys)})
    cluster: dict[str, Any] = {"workers": workers, "scheduler": scheduler, "on_progress": on_progress}
    return run_all(store, EXPERIMENT, keys, run_together, group=shared_samples, **cluster)


def shared_samples(key: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the keys of runs on the same samples have in common."""
    return tuple(value for name, value in key.items() if name != "topology")


def run_together(keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any] | Exception]:
    """The results of `run_topology` for keys that share samples, or the error, trained as one population."""
    seed, epochs = keys[0]["seed"], keys[0]["epochs"]
    dags, samples = [matched_graph(key["topology"], seed) for key in keys], load_split(keys[0]["data"], seed)
    built = [build(dag, samples, seed) for dag in dags]
    validation = samples.validation_x, samples.validation_y
    options: dict[str, Any] = {"validation": validation, "epochs": epochs, "seed": seed, **TRAINING}
    curves = fit_together([model for model, _ in built], samples.x, samples.y, **options)
    return [
        error or _results(key, model, net, samples, train_loss, val_loss)
        for key, (model, net), (train_loss, val_loss, error) in zip(keys, built, curves, strict=True)
    ]


def run_topology(key: Mapping[str, Any]) -> dict[str, Any]:
    """Build, train, evaluate and ablate one network; the results that are stored for a key of `Topologies`."""
    from fourward.train import fit

    seed = key["seed"]
    dag, samples = matched_graph(key["topology"], seed), load_split(key["data"], seed)
    model, net = build(dag, samples, seed)
    validation = samples.validation_x, samples.validation_y
    history = fit(
        model, samples.x, samples.y, validation=validation, epochs=key["epochs"], seed=seed, **TRAINING
    )  # fmt: skip
    return _results(key, model, net, samples, history.train_loss, history.val_loss)


def _results(
    key: Mapping[str, Any],
    model: nn.Sequential,
    net: FourWard,
    samples: Split,
    train_loss: Sequence[float],
    val_loss: Sequence[float],
) -> dict[str, Any]:
    """Evaluate and ablate a trained network."""
    seed, dag = key["seed"], net.dag
    rng = np.random.default_rng([seed, len(FRACTIONS)])
    curves = {kind: ablation_curve(model, net, samples, kind, key["draws"], rng) for kind in KINDS}
    like = matched_graph("connectome", seed)
    return {
        "accuracy": accuracy(model, samples.validation_x, samples.validation_y),
        "chance": float(torch.bincount(samples.validation_y).max()) / len(samples.validation_y),
        "train_loss": _subsample(train_loss),
        "held_loss": _subsample(val_loss),
        "damage": {"shares": FRACTIONS} | curves,
        "neurons": dag.num_nodes,
        "edges": dag.num_edges,
        "neurons_missed": dag.num_nodes - like.num_nodes,
        "edges_missed": dag.num_edges - like.num_edges,
        "inputs": dag.num_inputs,
        "outputs": dag.num_outputs,
        "height": net.layering.height,
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "adaptor_parameters": sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in net.parameters()),
    }


def build(dag: Dag, samples: Split, seed: int) -> tuple[nn.Sequential, FourWard]:
    """The network between two linear adapters: features to inputs, outputs to classes."""
    net = FourWard(dag, init="kaiming_normal", seed=seed)
    first, last = np.random.SeedSequence(seed).generate_state(2).tolist()
    before = linear(samples.x.shape[1], dag.num_inputs, first, net.weight.dtype)
    return nn.Sequential(before, net, linear(dag.num_outputs, samples.classes, last, net.weight.dtype)), net


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The fraction of samples whose class has the highest output; of equal outputs the first counts."""
    model.eval()
    return float((model(x).argmax(1) == y).double().mean())


def ablation_curve(
    model: nn.Module,
    net: FourWard,
    samples: Split,
    kind: str,
    draws: int,
    rng: np.random.Generator,
    fractions: Sequence[float] = FRACTIONS,
) -> list[float]:
    """Validation accuracy for each fraction of edges or neurons removed, a mean over draws, without further training.

    Removing an edge sets its weight to zero; removing a neuron does so with all its edges, in and out. Inputs and
    outputs count as neurons.

    Args:
        model: The network with its adapters.
        net: The network in it, which is restored afterwards.
        samples: Samples to evaluate on.
        kind: "edges" or "neurons".
        draws: Random removals for each fraction.
        rng: Generator of the removals.
        fractions: Fractions of the edges or neurons to remove.
    """
    intact = net.weight.detach().clone()
    curve = []
    try:
        for fraction in fractions:
            accuracies = []
            for _ in range(draws if fraction else 1):
                weight = intact.clone()
                weight[torch.as_tensor(removed_edges(net.dag, kind, fraction, rng))] = 0.0
                net.load_edge_weights(weight, net.bias)
                accuracies.append(accuracy(model, samples.validation_x, samples.validation_y))
            curve.append(float(np.mean(accuracies)))
    finally:
        net.load_edge_weights(intact, net.bias)
    return curve


def removed_edges(
    dag: Dag, kind: str, fraction: float, rng: np.random.Generator
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(E,) True for the edges that go with a random fraction of all edges, or of all neurons."""
    if kind not in KINDS:
        raise OptionError(f"kind must be 'edges' or 'neurons', got {kind!r}.")
    count = dag.num_edges if kind == "edges" else dag.num_nodes
    removed = np.zeros(count, np.bool_)
    removed[rng.permutation(count)[: round(fraction * count)]] = True
    return removed if kind == "edges" else removed[dag.source] | removed[dag.target]


def _subsample(curve: Sequence[float]) -> list[float]:
    """At most `CURVE_LENGTH` values, evenly spaced with the last among them, in four digits."""
    indices = np.unique(np.linspace(0, len(curve) - 1, CURVE_LENGTH).round().astype(int)).tolist()
    return [float(f"{curve[k]:.4g}") for k in indices]

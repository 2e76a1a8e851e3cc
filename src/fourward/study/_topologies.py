"""Which wiring learns, and which survives damage: matched topologies on the same tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fourward.errors import OptionError
from fourward.graph._dag import Dag
from fourward.nn._fourward import FourWard
from fourward.study._cluster import run_all
from fourward.study._datasets import PROBLEMS, Split, split
from fourward.study._matched import CONNECTOME, TOPOLOGIES, matched
from fourward.study._protocol import Key
from fourward.study._run import Progress, Summary
from fourward.study._store import Store
from fourward.train._model import linear

EXPERIMENT = "topologies"
#: Shares of the edges, or of the neurons, that damage removes.
SHARES = tuple(k / 10 for k in range(10))
KINDS = ("edges", "neurons")
BATCH, LEARNING_RATE, WEIGHT_DECAY = 64, 5e-3, 1e-2
CURVE = 20  #: epochs that a stored learning curve shows


@dataclass(frozen=True)
class Topologies:
    """What to run: every topology on every task with every seed, which draws the graph, the weights and the samples."""

    topologies: Sequence[str] = TOPOLOGIES
    data: Sequence[str] = tuple(PROBLEMS)
    seeds: int = 10
    epochs: int = 40
    draws: int = 5  #: damages of each kind and share

    def __post_init__(self) -> None:
        for name, one, known in (("topologies", "topology", TOPOLOGIES), ("data", "data", PROBLEMS)):
            given = tuple(dict.fromkeys(word.strip() for word in getattr(self, name)))
            object.__setattr__(self, name, given)
            wrong = [word for word in given if word not in known]
            if wrong or not given:
                raise OptionError(f"{one} {', '.join(wrong) or 'is empty'}: choose from {', '.join(known)}.")
        for name in ("seeds", "epochs", "draws"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name}={getattr(self, name)!r} came, but it must be at least 1.")

    def keys(self) -> Iterator[Key]:
        """The parameters of each run; seeds outermost, so that a study that is stopped early has whole seeds."""
        for seed in range(self.seeds):
            for data in self.data:
                for topology in self.topologies:
                    key: Key = {"topology": topology, "data": data, "seed": seed, "connectome": CONNECTOME}
                    yield key | {"epochs": self.epochs, "draws": self.draws}


def run_topologies(
    store: Store,
    wanted: Topologies,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Summary:
    """Run what the store lacks on a Dask cluster; see `fourward.study._cluster.run_all`."""
    keys = list(wanted.keys())
    store.set_protocol(EXPERIMENT, asdict(wanted) | {"wanted": len(keys)})
    return run_all(store, EXPERIMENT, keys, run, workers=workers, scheduler=scheduler, on_progress=on_progress)


def run(key: Mapping[str, Any]) -> dict[str, Any]:
    """One run: build, learn, test, damage."""
    from fourward.train import fit

    seed = key["seed"]
    dag, samples = matched(key["topology"], seed), split(key["data"], seed)
    model, net = build(dag, samples, seed)
    history = fit(
        model, samples.x, samples.y, validation=(samples.held_x, samples.held_y), epochs=key["epochs"],
        batch_size=BATCH, learning_rate=LEARNING_RATE, weight_decay=WEIGHT_DECAY, seed=seed,
    )  # fmt: skip
    rng = np.random.default_rng([seed, len(SHARES)])
    like = matched("connectome", seed)
    return {
        "accuracy": accuracy(model, samples.held_x, samples.held_y),
        "chance": float(torch.bincount(samples.held_y).max()) / len(samples.held_y),
        "train_loss": _thinned(history.train_loss),
        "held_loss": _thinned(history.val_loss),
        "damage": {"shares": SHARES} | {kind: damage(model, net, samples, kind, key["draws"], rng) for kind in KINDS},
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
    """The network between two linear adaptors: features to inputs, outputs to classes."""
    net = FourWard(dag, init="kaiming_normal", seed=seed)
    first, last = np.random.SeedSequence(seed).generate_state(2).tolist()
    before = linear(samples.x.shape[1], dag.num_inputs, first, net.weight.dtype)
    return nn.Sequential(before, net, linear(dag.num_outputs, samples.classes, last, net.weight.dtype)), net


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of samples whose class has the highest output; the first of those that are equal counts."""
    model.eval()
    return float((model(x).argmax(1) == y).double().mean())


def damage(
    model: nn.Module,
    net: FourWard,
    samples: Split,
    kind: str,
    draws: int,
    rng: np.random.Generator,
    shares: Sequence[float] = SHARES,
) -> list[float]:
    """Held-out accuracy for each share of edges or neurons removed, the mean over draws; nothing is learned again.

    To remove an edge is to set its weight to zero, to remove a neuron to do so with all its edges, in and out. Inputs
    and outputs count as neurons.
    """
    whole = net.weight.detach().clone()
    curve = []
    try:
        for share in shares:
            found = []
            for _ in range(draws if share else 1):
                hurt = whole.clone()
                hurt[torch.as_tensor(removed(net.dag, kind, share, rng))] = 0.0
                net.load_edge_weights(hurt, net.bias)
                found.append(accuracy(model, samples.held_x, samples.held_y))
            curve.append(float(np.mean(found)))
    finally:
        net.load_edge_weights(whole, net.bias)
    return curve


def removed(dag: Dag, kind: str, share: float, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(E,) True for the edges that go when this share of all edges, or of all neurons, is drawn."""
    if kind not in KINDS:
        raise OptionError(f"kind={kind!r} came, but damage takes {' or '.join(KINDS)}.")
    count = dag.num_edges if kind == "edges" else dag.num_nodes
    gone = np.zeros(count, np.bool_)
    gone[rng.permutation(count)[: round(share * count)]] = True
    return gone if kind == "edges" else gone[dag.source] | gone[dag.target]


def _thinned(curve: Sequence[float]) -> list[float]:
    """At most so many values, evenly spread, the last among them, in four digits."""
    chosen = np.unique(np.linspace(0, len(curve) - 1, CURVE).round().astype(int)).tolist()
    return [float(f"{curve[k]:.4g}") for k in chosen]

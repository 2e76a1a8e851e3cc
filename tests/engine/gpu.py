"""What the tests of the gpu engine share: where it runs, and how a way to walk is forced upon it."""

from functools import partial

import numpy as np
import pytest
import torch

from fourward import Dag, FourWard
from fourward.engine._gpu import engine, heuristics, launch, packing
from fourward.engine._gpu.heuristics import Way

#: A card doesn't warn of infinities, NumPy under the interpreter does.
QUIET = pytest.mark.filterwarnings("ignore:(overflow|invalid value|divide by zero):RuntimeWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_card = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA card: programs of the interpreter run in turn")
make = partial(FourWard, engine="gpu", device=DEVICE)
WAYS = {
    "panels": (packing.PANELS, Way("panels", 8, 32, 4, 0, True)),
    "stretches": (packing.PANELS, Way("stretches", 8, 16, 2)),
    "stretches of many slices": (packing.PANELS, Way("stretches", 8, 4, 2, 0, True)),
    "lists": (packing.LISTS, Way("lists", 32, 8, 4, 8)),
    "levels": (packing.LISTS, Way("levels", 32, 8, 4, 16)),
    "levels of high degree": (packing.LISTS, Way("levels", 32, 32, 4, 4)),
}


def force(name, monkeypatch):
    kind, way = WAYS[name]
    monkeypatch.setattr(engine, "kind_of", lambda plan: kind)
    monkeypatch.setattr(heuristics, "way_of", lambda *_: way)
    if "stretches" in name:
        for module in (packing, heuristics):
            monkeypatch.setattr(module, "STRETCH", 1 if name == "stretches" else 2)
    if name == "stretches of many slices":
        monkeypatch.setattr(heuristics, "spread_of", lambda *_: heuristics.Spread(2, 1, 4, 2, 4))
    launch.forget()


def sparse(nodes, edges):
    pairs = np.sort(np.random.default_rng(0).integers(0, nodes, (edges, 2)), 1)
    return Dag.from_edges(np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0), nodes=nodes)

"""Helpers for tests of the gpu engine: the device it runs on, and how to force a strategy on it."""

from functools import partial

import numpy as np
import pytest
import torch

from fourward import Dag, FourWard
from fourward.engine._gpu import engine, heuristics, launch, packing
from fourward.engine._gpu.fused_schedule import BlockShape, FusedConfig
from fourward.engine._gpu.heuristics import LaunchConfig

#: A GPU doesn't warn of infinities, NumPy under the interpreter does.
QUIET = pytest.mark.filterwarnings("ignore:(overflow|invalid value|divide by zero):RuntimeWarning")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
needs_card = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device: programs of the interpreter run in turn")
make = partial(FourWard, engine="gpu", device=DEVICE)
STRATEGIES = {
    "tiled": (packing.TILED, LaunchConfig("tiled", 8, 32, 4, 0, True)),
    "tiled segments": (packing.TILED, LaunchConfig("tiled_segments", 8, 16, 2)),
    "tiled segments of many slices": (packing.TILED, LaunchConfig("tiled_segments", 8, 4, 2, 0, True)),
    "csr persistent": (packing.CSR, LaunchConfig("csr_persistent", 32, 8, 4, 8)),
    "csr per level": (packing.CSR, LaunchConfig("csr_per_level", 32, 8, 4, 16)),
    "csr fused": (packing.CSR, LaunchConfig("csr_fused", 32, 8, 4, 16)),
    "csr fused of few slots": (packing.CSR, LaunchConfig("csr_fused", 32, 8, 4, 16)),
    "csr per level of high degree": (packing.CSR, LaunchConfig("csr_per_level", 32, 32, 4, 4)),
}


def fused_most(plan, _layout, few_slots=False):
    """Nearly all levels are fused; with few slots, rows are copied again, and some levels can't be fused."""
    levels = plan.num_levels
    runs = [(0, levels // 3), (levels // 3 + 1, levels)] if few_slots else [(0, levels)]
    runs = [(low, high) for low, high in runs if low < high]
    return [FusedConfig(runs, BlockShape(2, 4, 8), 40) if few_slots else FusedConfig(runs, BlockShape(4, 2, 2), 1024)]


def force(name, monkeypatch):
    """Compute all networks from now on with this strategy."""
    layout, config = STRATEGIES[name]
    monkeypatch.setattr(engine, "choose_layout", lambda plan: layout)
    if "fused" in name:
        monkeypatch.setattr(engine, "choose_fused", partial(fused_most, few_slots="few" in name))
    monkeypatch.setattr(heuristics, "choose_config", lambda *_: config)
    if "segments" in name:
        for module in (packing, heuristics):
            monkeypatch.setattr(module, "MAX_SEGMENT", 1 if name == "tiled segments" else 2)
    if name == "tiled segments of many slices":
        products = heuristics.ProductsConfig(slices_per_program=2, split_k=1, tile_group=4, stages=2, num_warps=4)
        monkeypatch.setattr(heuristics, "choose_products_config", lambda *_: products)
    launch.clear_passes()


def random_dag(nodes, edges):
    """A random graph with about so many edges."""
    pairs = np.sort(np.random.default_rng(0).integers(0, nodes, (edges, 2)), 1)
    return Dag.from_edges(np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0), nodes=nodes)

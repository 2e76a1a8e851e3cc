"""What needs neither rustworkx nor scipy nor safetensors runs where they aren't installed."""

import subprocess
import sys

import numpy as np
import pytest
import rustworkx as rx

from fourward import connectomes, generate
from fourward.graph._components import _by_networkx, components
from fourward.graph._gnp import gnp_pairs

BARE = """
import sys
for name in ("rustworkx", "scipy", "safetensors", "matplotlib", "rich", "sklearn"):
    sys.modules[name] = None
import fourward as fw, torch
dag = fw.generate.erdos_renyi(40, 0.08, seed=5)
worm = fw.connectomes.load("c-elegans").dag
for graph in (dag, worm, fw.generate.complete(9), fw.generate.layered_mlp([3, 4, 2]), fw.Dag.from_mask([[False]])):
    net, x = fw.FourWard(graph, seed=0), torch.ones(3, graph.num_inputs)
    net(x).sum().backward()
    for method in (fw.paper.Masked4Ward, fw.paper.SequentialBaseline, fw.paper.DeepStruct):
        torch.testing.assert_close(method(graph, seed=0)(x), net(x))
"""


def test_networks_run_without_the_libraries_that_only_convert():
    command = [sys.executable, "-W", "error", "-c", BARE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_same_graphs_without_them():
    code = BARE.split("for graph in")[0] + "print(dag.edges.tolist(), worm.edges.tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    here = generate.erdos_renyi(40, 0.08, seed=5), connectomes.load("c-elegans").dag
    assert done.stdout.strip() == " ".join(str(dag.edges.tolist()) for dag in here)


@pytest.mark.parametrize(
    ("n", "p", "seed"),
    [(1, 0.5, 0), (2, 0.9, 1), (30, 0.0, 2), (30, 1.0, 3), (63, 0.2, 2**63 - 1), (400, 0.97, 5), (5000, 0.001, 2**40)],
)
def test_gnp_draws_what_rustworkx_draws(n, p, seed):
    theirs = np.array(rx.undirected_gnp_random_graph(n, p, seed=seed).edge_list(), np.int64).reshape(-1, 2)
    assert set(map(frozenset, gnp_pairs(n, p, seed).tolist())) == set(map(frozenset, theirs.tolist()))
    assert len(gnp_pairs(n, p, seed)) == len(theirs)


def test_a_probability_too_small_for_a_float():
    assert len(gnp_pairs(100, 1e-20, 0)) == 0


@pytest.mark.parametrize("strong", [False, True])
def test_components_by_networkx_are_scipys(strong):
    source, target = np.random.default_rng(0).integers(0, 200, (2, 220))
    ours, theirs = _by_networkx(source, target, 200, strong), components(source, target, 200, strong=strong)
    assert len(set(zip(ours.tolist(), theirs.tolist(), strict=True))) == theirs.max() + 1 == ours.max() + 1
    assert strong or np.array_equal(ours, theirs)

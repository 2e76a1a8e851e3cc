"""The graphs of the benchmark of real graphs, as edges: bundled, from files, generated.

`python -m benchmarks.real_graphs DIR` writes those that are not from files as npz, for a machine that can't make them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from benchmarks.fresh import random_edges
from fourward import Dag, connectomes, generate, orient

Edges = np.ndarray[Any, np.dtype[np.int64]]
FILES = ("memctrl", "log2")  #: names of the npz files, with `edges` (E, 2) and `nodes`

#: FlyWire v783, pairs of neurons with at least 5 synapses: percentiles of the out-degree, and the largest degrees.
FLYWIRE_NODES = 134_181
PERCENTILES, DEGREES = (50, 90, 99, 99.9), (12, 43, 138, 466)
LARGEST_OUT, LARGEST_IN = 6_399, 5_080
SIGMA = 1.05  #: sigma of the lognormal that fits below the median
RECIPROCAL = 0.14  #: fraction of the edges whose reverse is one, too
#: Correlation of the normal variables behind in- and out-degree; that of the degrees is then about 0.76.
CORRELATION = 0.85


class Case(NamedTuple):
    """A graph to measure."""

    name: str
    edges: Edges  #: (E, 2) node indices
    nodes: int


def cases(folder: Path | None, quick: bool) -> Iterator[Case]:
    """The graphs, one by one; with `quick` small ones, to see that it works."""
    for name in FILES if folder is not None else ():
        assert folder is not None
        with np.load(folder / f"{name}.npz") as file:
            yield Case(name, file["edges"], int(file["nodes"]))
    shrink = 500 if quick else 1
    drawn: dict[str, Callable[[], Dag]] = {
        "larval mushroom body": lambda: (
            connectomes.load("mushroom-body").acyclic(inputs="sources", outputs="sinks").dag
        ),
        "Watts-Strogatz": lambda: generate.watts_strogatz(10**5 // shrink, 10, 0.1, seed=0),
        "Barabasi-Albert": lambda: generate.barabasi_albert(10**5 // shrink, 5, seed=0),
        "FlyWire stand-in": lambda: flywire_dag(FLYWIRE_NODES // shrink),
        "deep circuit stand-in": lambda: _deep_dag(shrink),
    }
    for name, make in drawn.items():
        dag = make()
        yield Case(name, np.ascontiguousarray(dag.edges), dag.num_nodes)
    for edges, degree in ((500, 10),) if quick else ((10**6, 10), (10**6, 100), (10**7, 10), (10**7, 100)):
        nodes = edges // degree
        yield Case(f"random, {degree} edges a node", random_edges(nodes, edges), nodes)


def _deep_dag(shrink: int) -> Dag:
    levels, nodes = max(8_686 // shrink, 4), max(101_000 // shrink, 60)
    return Dag.from_edges(deep_circuit(levels, nodes, seed=0), nodes=nodes)


def flywire_dag(nodes: int = FLYWIRE_NODES) -> Dag:
    """The stand-in without its feedback edges."""
    return orient.remove_feedback(flywire_edges(nodes, seed=0), nodes=nodes).dag


def flywire_edges(nodes: int = FLYWIRE_NODES, *, seed: int) -> Edges:
    """(E, 2) distinct random edges with FlyWire's published degrees, reciprocity and correlation, and nothing else.

    In- and out-degrees are drawn together, stubs are joined at random, and some edges get their reverse. A connectome
    has more structure, above all locality: this is the harder case for a cache.
    """
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(nodes)
    mixed = CORRELATION * shared + (1 - CORRELATION**2) ** 0.5 * rng.standard_normal(nodes)
    reversed_share = RECIPROCAL / (2 - RECIPROCAL)
    stubs = []
    for normal, largest in ((shared, LARGEST_OUT), (mixed, LARGEST_IN)):
        degree = _degrees(normal, largest) / (1 + reversed_share)
        stubs.append(rng.permutation(np.repeat(np.arange(nodes), np.floor(degree + rng.random(nodes)).astype(int))))
    size = min(map(len, stubs))
    source, target = stubs[0][:size], stubs[1][:size]
    has_reverse = rng.random(size) < reversed_share
    keys = np.concatenate((source * nodes + target, (target * nodes + source)[has_reverse]))
    keys = np.unique(keys[keys // nodes != keys % nodes])
    return np.stack((keys // nodes, keys % nodes), -1)


def _degrees(normal: np.ndarray[Any, Any], largest: int) -> np.ndarray[Any, Any]:
    """Degrees with the published percentiles, in the order of these normal variables; logarithms are interpolated."""
    nodes = len(normal)
    rank = np.empty(nodes)
    rank[np.argsort(normal)] = (np.arange(nodes) + 0.5) / nodes
    known = np.array([1e-7, *(p / 100 for p in PERCENTILES), 1 - 0.5 / FLYWIRE_NODES])
    lowest = DEGREES[0] * np.exp(SIGMA * ndtri(known[0]))
    degrees: np.ndarray[Any, Any] = np.exp(np.interp(ndtri(rank), ndtri(known), np.log([lowest, *DEGREES, largest])))
    return degrees


def deep_circuit(levels: int = 8_686, nodes: int = 101_000, *, seed: int) -> Edges:
    """(E, 2) edges of a narrow, deep graph with locality: as many levels, nodes and edges a node as a deep circuit.

    A node has an edge from the level before its own, and more than half of them another from one of the last thousand
    nodes.
    """
    rng = np.random.default_rng(seed)
    width = 1 + rng.multinomial(nodes - levels, np.full(levels, 1 / levels))
    start = np.concatenate(([0], np.cumsum(width)))
    target = np.arange(width[0], nodes)
    level = np.repeat(np.arange(levels), width)[target]
    before = start[level - 1] + rng.integers(0, width[level - 1])
    other = np.maximum(start[level] - 1 - rng.integers(0, 1000, len(target)), 0)
    second = rng.random(len(target)) < 0.57
    edges = np.concatenate((np.stack((before, target), -1), np.stack((other, target), -1)[second]))
    return np.unique(edges, axis=0).astype(np.int64)


def write_cases(folder: Path, most_edges: int = 2_000_000) -> None:
    """Write the graphs of up to so many edges, one of each name, as npz files."""
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases(None, quick=False):
        path = folder / f"{case.name}.npz"
        if len(case.edges) <= most_edges and not path.exists():
            np.savez_compressed(path, edges=case.edges.astype(np.int32), nodes=case.nodes)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_graphs", description=write_cases.__doc__)
    parser.add_argument("folder", type=Path)
    write_cases(parser.parse_args().folder)

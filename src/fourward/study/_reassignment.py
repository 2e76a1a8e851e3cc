"""The experiment of the paper's appendix B: one network, many layerings of the same height."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from fourward.errors import OptionError, StudyError
from fourward.graph._dag import Dag
from fourward.graph.generate import erdos_renyi
from fourward.layering import Layering, longest_path, push_sources, reassign
from fourward.layering._layering import is_hidden
from fourward.study._protocol import Key, Outcome, Protocol, Task, run_keys

#: Graphs, of seeds 0 on, over which the mean height of a size and probability is taken, as in "attributes".
SAMPLE_SIZE = 30
_MAX_SEEDS = 10_000


def reassignment_tasks(protocol: Protocol) -> Iterator[Task]:
    """Forward passes with reassigned layerings of graphs of the mean height."""
    if "sequential" in protocol.methods:
        raise OptionError("method 'sequential' doesn't use layerings, so there is nothing to compare. Omit it.")
    for graph in graphs(protocol):
        yield Task(variant_keys(*graph, protocol), partial(_measure, protocol))


def graphs(protocol: Protocol) -> Iterator[tuple[int, float, int]]:
    """Size, probability and seed of the graphs: first one of each size and probability, and so on."""
    for index in range(protocol.seeds):
        for size in protocol.sizes:
            for p in protocol.densities:
                yield size, p, seeds_with_mean_height(size, p, protocol.seeds)[index]


def variant_keys(size: int, p: float, graph: int, protocol: Protocol) -> list[Key]:
    """The runs of a graph, variant by variant."""
    return [
        key
        for variant in range(protocol.variants)
        for key in run_keys({"size": size, "p": p, "graph": graph, "variant": variant}, protocol)
    ]


@cache
def mean_height(size: int, p: float) -> int:
    """The mean height of graphs of a size and probability, rounded."""
    return round(float(np.mean([longest_path(erdos_renyi(size, p, seed=seed)).height for seed in range(SAMPLE_SIZE)])))


@cache
def seeds_with_mean_height(size: int, p: float, count: int) -> tuple[int, ...]:
    """The first seeds from 0 on whose graph has all its nodes in one component and the mean height."""
    height, seeds = mean_height(size, p), []
    for seed in range(_MAX_SEEDS):
        dag = erdos_renyi(size, p, seed=seed)
        if dag.num_nodes == size and longest_path(dag).height == height:
            seeds.append(seed)
            if len(seeds) == count:
                return tuple(seeds)
    raise StudyError(
        f"expected {count} connected graphs with {size} nodes, p={p:g} and the mean height {height}, got {len(seeds)} "
        f"among {_MAX_SEEDS:,} seeds. Reduce the number of seeds, or increase the density."
    )


def reassigned_layering(dag: Dag, graph: int, variant: int) -> Layering:
    """A reassigned layering: longest path, sources pushed to layer 0, then the paper's reassignment."""
    return reassign(dag, initial_layering(dag), seed=np.random.default_rng([graph, variant]))


def initial_layering(dag: Dag) -> Layering:
    """The layering that reassignment starts from."""
    return push_sources(dag, longest_path(dag))


def moved_fraction(before: Layering, after: Layering) -> float:
    """The fraction of the hidden nodes, those with edges in and out, that are in another layer."""
    hidden = is_hidden(before.dag)
    return float((before.level != after.level)[hidden].mean()) if hidden.any() else 0.0


def _measure(protocol: Protocol, keys: Sequence[Key]) -> Iterator[Outcome]:
    """The runs of one graph: all its layerings alternate."""
    from fourward.study._grid import Networks, generate_graph  # imported here: counting runs needs no torch

    dag = generate_graph(keys[0], seed="graph")
    networks, values = Networks(dag, protocol), {}
    for variant in dict.fromkeys(_int(key, "variant") for key in keys):
        layering = reassigned_layering(dag, _int(keys[0], "graph"), variant)
        values[variant] = {
            "height": layering.height,
            "moved": moved_fraction(initial_layering(dag), layering),
            "edges": dag.num_edges,
        }
        for method in dict.fromkeys(str(key["method"]) for key in keys if key["variant"] == variant):
            networks.build(f"{method}, layering {variant}", method, layering)
    for batch in dict.fromkeys(_int(key, "batch") for key in keys):
        names = {f"{key['method']}, layering {key['variant']}": key for key in keys if key["batch"] == batch}
        for outcome in networks.measure(names, batch):
            outcome.values.update(values[_int(outcome.key, "variant")])
            yield outcome


def _int(key: Mapping[str, Any], name: str) -> int:
    return int(key[name])

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
from fourward.study._protocol import Key, Protocol, run_keys
from fourward.study._task import Outcome, Task

#: The mean height of a size and probability is that of so many graphs, of seeds 0 on, as in `attributes`.
MEAN_OF = 30
_MOST_SEEDS = 10_000


def tasks(protocol: Protocol) -> Iterator[Task]:
    """Forward passes by the reassigned layerings of graphs of the mean height."""
    if "sequential" in protocol.methods:
        raise OptionError("methods: 'sequential' came, but layerings play no part in it. Leave it away.")
    for graph in graphs(protocol):
        yield Task(variant_keys(*graph, protocol), partial(_measure, protocol))


def graphs(protocol: Protocol) -> Iterator[tuple[int, float, int]]:
    """Size, probability and seed of the graphs: first one of each size and probability, and so on."""
    for place in range(protocol.seeds):
        for size in protocol.sizes:
            for p in protocol.densities:
                yield size, p, seeds_of_mean_height(size, p, protocol.seeds)[place]


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
    return round(float(np.mean([longest_path(erdos_renyi(size, p, seed=seed)).height for seed in range(MEAN_OF)])))


@cache
def seeds_of_mean_height(size: int, p: float, count: int) -> tuple[int, ...]:
    """The first seeds from 0 on whose graph has all its nodes in one component and the mean height."""
    height, found = mean_height(size, p), []
    for seed in range(_MOST_SEEDS):
        dag = erdos_renyi(size, p, seed=seed)
        if dag.num_nodes == size and longest_path(dag).height == height:
            found.append(seed)
            if len(found) == count:
                return tuple(found)
    raise StudyError(
        f"of {_MOST_SEEDS:,} graphs with {size} nodes and p={p:g}, only {len(found)} have all nodes in one component "
        f"and the mean height {height}, but {count} were wanted. Lower --seeds, or raise the density."
    )


def variant_of(dag: Dag, graph: int, variant: int) -> Layering:
    """A reassigned layering: longest path, sources pushed to layer 0, then the paper's reassignment."""
    return reassign(dag, start_of(dag), seed=np.random.default_rng([graph, variant]))


def start_of(dag: Dag) -> Layering:
    """The layering that reassignment starts from."""
    return push_sources(dag, longest_path(dag))


def moved(before: Layering, after: Layering) -> float:
    """The share of the hidden nodes, those with edges in and out, that stand in another layer."""
    dag = before.dag
    hidden = (dag.in_degree > 0) & (dag.out_degree > 0)
    return float((before.level != after.level)[hidden].mean()) if hidden.any() else 0.0


def _measure(protocol: Protocol, wanted: Sequence[Key]) -> Iterator[Outcome]:
    """The runs of one graph: all its layerings take turns."""
    from fourward.study._grid import Networks, graph_of  # inside: who only counts runs needs no torch

    dag = graph_of(wanted[0], seed="graph")
    networks, values = Networks(dag, protocol), {}
    for variant in dict.fromkeys(_int(key, "variant") for key in wanted):
        layering = variant_of(dag, _int(wanted[0], "graph"), variant)
        values[variant] = {"height": layering.height, "moved": moved(start_of(dag), layering), "edges": dag.num_edges}
        for method in dict.fromkeys(str(key["method"]) for key in wanted if key["variant"] == variant):
            networks.build(f"{method}, layering {variant}", method, layering)
    for batch in dict.fromkeys(_int(key, "batch") for key in wanted):
        names = {f"{key['method']}, layering {key['variant']}": key for key in wanted if key["batch"] == batch}
        for outcome in networks.race(names, batch):
            outcome.values.update(values[_int(outcome.key, "variant")])
            yield outcome


def _int(key: Mapping[str, Any], name: str) -> int:
    return int(key[name])

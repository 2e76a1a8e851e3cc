"""What to measure: the paper's protocol, or a part of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from fourward.errors import OptionError, summarize
from fourward.study._store import Scalar

Key = dict[str, Scalar]
#: By the names of the paper's figures: its baseline, its rival, itself as published, and ours.
METHODS = ("sequential", "deepstruct", "4ward", "fourward")
DEVICES = ("cpu", "cuda")
#: Parameters that tell the graphs and layerings of one cell apart.
WITHIN_CELL = ("seed", "graph", "variant")
_FIRST = ("size", "p", "batch", "method")  # of what a cell is known by, in this order
#: Lists and numbers of a protocol that a command line may set, with what they say to their reader.
WORDS = {
    "sizes": "Nodes of the graphs, with commas between them.",
    "densities": "Probabilities of an edge, with commas between them.",
    "batch_sizes": "Batch sizes, with commas between them.",
    "methods": "Of sequential, deepstruct, 4ward and fourward, with commas between them.",
    "seeds": "Graphs of a cell.",
    "batches": "Batches that are counted in a run.",
    "variants": "Reassigned layerings of a graph.",
    "cell_seconds": "Limit of a run, and of building a network; whoever takes longer is cut off.",
}
_LARGEST = 16_384  # nodes; the paper's methods hold dense matrices, and several times as much while they are built


@dataclass(frozen=True)
class Protocol:
    """What an experiment measures; the defaults are the paper's, as `paper(experiment)` is.

    >>> Protocol(sizes=(64, 128), seeds=3).reduced("times")
    ['sizes: 64, 128 instead of 64, 128, 256, 512, 1024', 'seeds: 3 instead of 30']
    """

    sizes: tuple[int, ...] = (64, 128, 256, 512, 1024)  #: nodes of a graph
    densities: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)  #: probabilities of an edge
    batch_sizes: tuple[int, ...] = (32, 128, 512)
    seeds: int = 30  #: graphs of a cell; the first has seed 0
    batches: int = 100  #: counted in a run
    methods: tuple[str, ...] = METHODS
    variants: int = 10  #: reassigned layerings of a graph
    device: str = "cpu"
    cell_seconds: float | None = None  #: of a run, and of building a network; then it is cut off

    def __post_init__(self) -> None:
        for name, kind in _LISTS.items():
            object.__setattr__(self, name, _tuple(name, getattr(self, name), kind))
        for name, (kind, least, most) in _RANGES.items():
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else () if value is None else (value,):
                check_range(name, number, kind, least, most)
        if min(self.densities) == 0:
            raise OptionError("densities: 0 came, but a graph without edges has nothing to measure.")
        _check_among("methods", self.methods, METHODS)
        _check_among("device", (self.device,), DEVICES)

    @property
    def limit(self) -> float:
        """Seconds of a run; infinity where there is no limit."""
        return math.inf if self.cell_seconds is None else self.cell_seconds

    def reduced(self, experiment: str) -> list[str]:
        """What is other than in the paper, a line each; the device isn't."""
        found = []
        for name in _USED[experiment]:
            here, there = (_words(getattr(protocol, name)) for protocol in (self, paper(experiment)))
            if here != there:
                found.append(f"{name}: {here} instead of {there}")
        return found

    def as_dict(self) -> dict[str, Any]:
        """For a results file; `from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Protocol:
        """As `as_dict` wrote it."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in found.items() if name in known})


_LISTS: Mapping[str, type] = {"sizes": int, "densities": float, "batch_sizes": int, "methods": str}
_RANGES: Mapping[str, tuple[type, float, float]] = {
    "sizes": (int, 2, _LARGEST),
    "densities": (float, 0, 1),
    "batch_sizes": (int, 1, 2**20),
    "seeds": (int, 1, 10_000),
    "batches": (int, 1, 10**6),
    "variants": (int, 1, 10_000),
    "cell_seconds": (float, 1e-3, 1e9),
}
_GRID = ("sizes", "densities", "batch_sizes", "seeds", "batches", "methods", "cell_seconds")
#: The parts of a protocol that an experiment reads.
_USED: Mapping[str, tuple[str, ...]] = {
    "times": _GRID,
    "training": _GRID,
    "attributes": ("sizes", "densities", "seeds"),
    "reassignment": (*_GRID, "variants"),
}
#: Experiments that this protocol describes, in the order in which `all` runs them.
EXPERIMENTS = ("attributes", "times", "reassignment", "training")


def paper(experiment: str) -> Protocol:
    """What the paper measured; `training`, which it didn't, has the grid of `times`."""
    _check_among("experiment", (experiment,), EXPERIMENTS)
    if experiment == "reassignment":
        return Protocol(sizes=(64,), batch_sizes=(512,), methods=("4ward", "fourward"))
    return Protocol()


def from_words(experiment: str, **words: str | float | None) -> Protocol:
    """A protocol from a command line: lists are separated by commas, what is None stays the paper's.

    >>> from_words("times", sizes="64,128", densities="0.2", seeds=3).sizes
    (64, 128)
    """
    given: dict[str, Any] = {}
    for name, word in words.items():
        if word is not None:
            given[name] = word.split(",") if isinstance(word, str) and name in _LISTS else word
    return replace(paper(experiment), **given)


def keys_of(experiment: str, protocol: Protocol) -> Iterator[Key]:
    """All runs of an experiment."""
    if experiment == "attributes":
        yield from graph_keys(protocol)
    elif experiment == "reassignment":
        from fourward.study._reassignment import graphs, variant_keys  # inside: it stands on this module

        for graph in graphs(protocol):
            yield from variant_keys(*graph, protocol)
    else:
        for _, keys in grid_keys(protocol):
            yield from keys


def grid_keys(protocol: Protocol) -> Iterator[tuple[Key, list[Key]]]:
    """The graphs of `times` and `training`, each with the keys of its runs: first one graph of each cell, and so on."""
    for graph in graph_keys(protocol):
        yield graph, run_keys(graph, protocol)


def run_keys(graph: Key, protocol: Protocol, **more: Scalar) -> list[Key]:
    """The keys of a graph's runs: by batch size, then by method."""
    return [
        {**graph, **more, "batch": batch, "method": method, "device": protocol.device, "batches": protocol.batches}
        for batch in protocol.batch_sizes
        for method in protocol.methods
    ]


def graph_keys(protocol: Protocol) -> Iterator[Key]:
    """Size, probability and seed of all graphs, seed by seed."""
    for seed in range(protocol.seeds):
        for size in protocol.sizes:
            for p in protocol.densities:
                yield {"size": size, "p": p, "seed": seed}


def cell_of(key: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """What the runs of a cell share: all parameters but the ones that tell graphs and layerings apart."""
    rest = sorted(key.keys() - {*WITHIN_CELL, *_FIRST})
    return tuple((name, key[name]) for name in (*_FIRST, *rest) if name in key)


def _tuple(name: str, values: Any, kind: type) -> tuple[Any, ...]:
    found = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else (values,)
    try:
        read = tuple(dict.fromkeys(kind(value.strip()) if isinstance(value, str) else value for value in found))
    except (TypeError, ValueError):
        wanted = {int: "whole numbers", float: "numbers", str: "names"}[kind]
        raise OptionError(
            f"{name}: {_words(found)} came, but {wanted} were wanted, with commas between them."
        ) from None
    if not read:
        raise OptionError(f"{name}: at least one is needed.")
    return read


def _check_among(what: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise OptionError(f"{what}: {name!r} came, but there are only {summarize(known, len(known))}.")


def check_range(name: str, number: Any, kind: type, least: float, most: float) -> None:
    """Raises OptionError if a number is out of its range, or none."""
    fits = isinstance(number, int) or (kind is float and isinstance(number, float))
    if not fits or isinstance(number, bool) or not least <= number <= most:
        whole = "whole " if kind is int else ""
        raise OptionError(f"{name}: {number!r} came, but a {whole}number from {least:g} to {most:g} was wanted.")


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "no limit" if value is None else str(value)

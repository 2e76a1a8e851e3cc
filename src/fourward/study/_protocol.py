"""What to measure: the paper's protocol or a part of it, the keys of its runs, and the tasks that make them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from fourward.errors import OptionError, summarize
from fourward.study._store import DONE, Scalar

Key = dict[str, Scalar]
#: Named as in the paper's figures: its baseline, its competitor, its own method as published; and ours.
METHODS = ("sequential", "deepstruct", "4ward", "fourward")
DEVICES = ("cpu", "cuda")
#: Parameters that distinguish the graphs and layerings of one cell.
WITHIN_CELL = ("seed", "graph", "variant")
_LEADING = ("size", "p", "batch", "method")  # parameters of a cell that come first, in this order
_MAX_SIZE = 16_384  # nodes; the paper's methods hold dense matrices, and several times as much while they are built


@dataclass(frozen=True)
class Protocol:
    """What an experiment measures; the defaults are the paper's, see `paper_protocol`.

    >>> Protocol(sizes=(64, 128), seeds=3).reduced("times")
    ['sizes: 64, 128 instead of 64, 128, 256, 512, 1024', 'seeds: 3 instead of 30']
    """

    sizes: tuple[int, ...] = (64, 128, 256, 512, 1024)  #: nodes of a graph
    densities: tuple[float, ...] = (0.2, 0.4, 0.6, 0.8, 1.0)  #: probabilities of an edge
    batch_sizes: tuple[int, ...] = (32, 128, 512)
    seeds: int = 30  #: graphs of a cell; the first has seed 0
    batches: int = 100  #: timed in a run
    methods: tuple[str, ...] = METHODS
    variants: int = 10  #: reassigned layerings of a graph
    device: str = "cpu"
    cell_seconds: float | None = None  #: limit of a run, and of building a network, after which it is cut off

    def __post_init__(self) -> None:
        for name, kind in _LISTS.items():
            object.__setattr__(self, name, _read_tuple(name, getattr(self, name), kind))
        for name, (kind, least, most) in _RANGES.items():
            value = getattr(self, name)
            for number in value if isinstance(value, tuple) else () if value is None else (value,):
                check_range(name, number, kind, least, most)
        if min(self.densities) == 0:
            raise OptionError(
                "densities: expected numbers above 0, got 0: a graph without edges has nothing to measure."
            )
        _check_names("method", self.methods, METHODS)
        _check_names("device", (self.device,), DEVICES)

    @property
    def limit(self) -> float:
        """Seconds of a run; infinity where there is no limit."""
        return math.inf if self.cell_seconds is None else self.cell_seconds

    def reduced(self, experiment: str) -> list[str]:
        """What differs from the paper's protocol, a line each; the device doesn't count."""
        lines = []
        for name in _USED[experiment]:
            value, published = (_describe(getattr(protocol, name)) for protocol in (self, paper_protocol(experiment)))
            if value != published:
                lines.append(f"{name}: {value} instead of {published}")
        return lines

    def as_dict(self) -> dict[str, Any]:
        """For a results file; `from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Protocol:
        """From what `as_dict` returned."""
        known = {parameter.name for parameter in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True)
class Outcome:
    """A run that has ended: the arguments of `Store.add`."""

    key: Key
    values: dict[str, Any] = field(default_factory=dict)
    status: str = DONE
    note: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Task:
    """Runs that belong together, since they share a graph and alternate."""

    keys: Sequence[Key]  #: keys of all its runs
    run: Callable[[Sequence[Key]], Iterator[Outcome]]  #: runs some of the keys, and yields each run as it ends


_LISTS: Mapping[str, type] = {"sizes": int, "densities": float, "batch_sizes": int, "methods": str}
_RANGES: Mapping[str, tuple[type, float, float]] = {
    "sizes": (int, 2, _MAX_SIZE),
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
#: Experiments that a protocol describes, in the order in which a complete study runs them.
EXPERIMENTS = ("attributes", "times", "reassignment", "training")


def paper_protocol(experiment: str) -> Protocol:
    """What the paper measured; "training", which it didn't measure, has the grid of "times"."""
    _check_names("experiment", (experiment,), EXPERIMENTS)
    if experiment == "reassignment":
        return Protocol(sizes=(64,), batch_sizes=(512,), methods=("4ward", "fourward"))
    return Protocol()


def iter_keys(experiment: str, protocol: Protocol) -> Iterator[Key]:
    """The keys of all runs of an experiment."""
    if experiment == "attributes":
        yield from graph_keys(protocol)
    elif experiment == "reassignment":
        from fourward.study._reassignment import graphs, variant_keys  # imported here: it imports this module

        for graph in graphs(protocol):
            yield from variant_keys(*graph, protocol)
    else:
        for _, keys in grid_keys(protocol):
            yield from keys


def grid_keys(protocol: Protocol) -> Iterator[tuple[Key, list[Key]]]:
    """The graphs of `times` and `training`, each with the keys of its runs: first one graph of each cell, and so on."""
    for graph in graph_keys(protocol):
        yield graph, run_keys(graph, protocol)


def run_keys(graph: Key, protocol: Protocol) -> list[Key]:
    """The keys of a graph's runs: by batch size, then by method."""
    return [
        {**graph, "batch": batch, "method": method, "device": protocol.device, "batches": protocol.batches}
        for batch in protocol.batch_sizes
        for method in protocol.methods
    ]


def graph_keys(protocol: Protocol) -> Iterator[Key]:
    """Size, probability and seed of all graphs, seed by seed."""
    for seed in range(protocol.seeds):
        for size in protocol.sizes:
            for p in protocol.densities:
                yield {"size": size, "p": p, "seed": seed}


def cell_key(key: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    """What the runs of a cell share: all parameters except those that distinguish graphs and layerings."""
    rest = sorted(key.keys() - {*WITHIN_CELL, *_LEADING})
    return tuple((name, key[name]) for name in (*_LEADING, *rest) if name in key)


def check_range(name: str, number: Any, kind: type, least: float, most: float) -> None:
    """Raises OptionError unless the number is of this kind and in this range."""
    fits = isinstance(number, int) or (kind is float and isinstance(number, float))
    if not fits or isinstance(number, bool) or not least <= number <= most:
        low, high = (f"{bound:,}" if isinstance(bound, int) else f"{bound:g}" for bound in (least, most))
        expected = "an int" if kind is int else "a number"
        raise OptionError(f"{name}: expected {expected} from {low} to {high}, got {number!r}.")


def _read_tuple(name: str, values: Any, kind: type) -> tuple[Any, ...]:
    """Distinct values, in order; numbers may be text."""
    listed = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else (values,)
    try:
        read = tuple(dict.fromkeys(kind(value.strip()) if isinstance(value, str) else value for value in listed))
    except (TypeError, ValueError):
        expected = {int: "ints", float: "numbers", str: "names"}[kind]
        raise OptionError(f"{name}: expected {expected}, got {_describe(listed)!r}.") from None
    if not read:
        raise OptionError(f"{name}: expected at least one, got none.")
    return read


def _check_names(kind: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise OptionError(f"unknown {kind} {name!r}. Choose from {summarize(known, len(known))}.")


def _describe(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "no limit" if value is None else str(value)

"""How much of the paper's grid rows cover, method by method."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from fourward.study._aggregate import among, span, those
from fourward.study._figures.maps import METHODS, present
from fourward.study._protocol import paper
from fourward.study._store import CUT_OFF, Row

_LIMIT = re.compile(r"after ([\d.]+) s")  # in the notes of runs that were cut off


def coverage(experiment: str, rows: Sequence[Row]) -> list[str]:
    """What was run and what the paper ran, a line for each method; one line where there are no methods."""
    methods = present(rows)
    if not methods:
        return [_covered(experiment, rows)]
    lines = [f"{METHODS[method]}: {_covered(experiment, those(rows, method=method))}" for method in methods]
    missing = [METHODS[method] for method in paper(experiment).methods if method not in methods]
    return [*lines, f"not run: {', '.join(missing)}"] if missing else lines


def _covered(experiment: str, rows: Sequence[Row]) -> str:
    published = paper(experiment)
    batches = among(rows, "batch")
    rest = {(p, batch) for p in published.densities for batch in (published.batch_sizes if batches else (None,))}
    seen = {_place(row) for row in rows}
    grid = {(size, *place) for size in published.sizes for place in rest}
    words = [f"{len(seen & grid)} of {len(grid)} cells of the paper's grid"]
    if seen != grid:
        words[0] += f" ({_places(seen, rest)})"
    counts = {"graphs a cell": (_fewest_and_most(rows, "graph", "seed"), published.seeds)}
    if experiment == "reassignment":
        counts["layerings a cell and graph"] = (_fewest_and_most(rows, "variant", by=("graph",)), published.variants)
    if batches:
        counts["batches a run"] = (among(rows, "batches"), published.batches)
    for name, (here, there) in counts.items():
        words.append(f"{name}: {span(here)}" + (f" instead of {there}" if set(here) != {there} else ""))
    return "; ".join([*words, *_cut(rows)])


def _fewest_and_most(rows: Sequence[Row], *names: str, by: Sequence[str] = ()) -> list[int]:
    found: dict[Any, set[Any]] = {}
    for row in rows:
        place = *_place(row), *(row.key[name] for name in by)
        found.setdefault(place, set()).add(tuple(row.key.get(name) for name in names))
    counts = [len(seen) for seen in found.values()]
    return [min(counts), max(counts)]


def _cut(rows: Sequence[Row]) -> list[str]:
    """How many runs the time limit cut off, and the limit, as far as their notes name it."""
    cut = [row for row in rows if row.status == CUT_OFF]
    limits = [float(found[1]) for row in cut if (found := _LIMIT.search(row.note))]
    after = f" after {span(limits)} s" if limits else ""
    return [f"{len(cut)} of {len(rows)} runs cut off{after}"] if cut else []


def _place(row: Row) -> tuple[Any, ...]:
    return row.key["size"], row.key["p"], row.key.get("batch")


def _places(seen: Collection[tuple[Any, ...]], rest: Collection[tuple[Any, Any]]) -> str:
    """The cells by size: which p and batch sizes, where these aren't all."""
    patterns: dict[frozenset[Any], list[int]] = {}
    for size in sorted({place[0] for place in seen}):
        patterns.setdefault(frozenset(place[1:] for place in seen if place[0] == size), []).append(size)
    return "; ".join(
        f"{', '.join(map(str, sizes))} nodes{_pattern(pattern, rest)}" for pattern, sizes in patterns.items()
    )


def _pattern(pattern: Collection[tuple[Any, Any]], rest: Collection[tuple[Any, Any]]) -> str:
    if set(pattern) == set(rest):
        return ""
    words = []
    for index, name in enumerate(("p =", "batch size")):
        values = {place[index] for place in pattern}
        if values != {place[index] for place in rest}:
            words.append(f"{name} {', '.join(f'{value:g}' for value in sorted(values))}")
    whole = len(pattern) == len({p for p, _ in pattern}) * len({batch for _, batch in pattern})
    return " at " + ", ".join(words if whole else [*words, f"{len(pattern)} cells of each size"])

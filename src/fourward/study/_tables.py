"""Tables from the rows of a results file: gains, and how much of a study is done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from fourward.study._protocol import EXPERIMENTS, Protocol, cell_of, keys_of
from fourward.study._store import CUT_OFF, FAILED, Row, Store

#: The slower and the faster of a gain: the paper's two, and ours over all three.
PAIRS = (
    ("sequential", "4ward"),
    ("deepstruct", "4ward"),
    ("sequential", "fourward"),
    ("deepstruct", "fourward"),
    ("4ward", "fourward"),
)
_CELL = ("size", "p", "batch", "device")


def by_facts(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the machine, versions and commit that they belong to, the one that ran last at the end."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        own = found.pop(row.facts["id"], [])
        own.append(row)
        found[row.facts["id"]] = own
    return found


def gains(rows: Iterable[Row], pairs: Sequence[tuple[str, str]] = PAIRS) -> list[dict[str, Any]]:
    """How many times faster one method is than another, cell by cell.

    `gain` is the paper's: the mean over graphs of the ratio of a graph's two times. `of_means` is the ratio of the mean
    times. A run that was cut off counts with what was seen of it; `cut_off` says on how many graphs that was so. Of
    `missing` graphs there is no ratio: nothing was seen, or, on `failed` of them, a run failed.

    Args:
        rows: Of `times` or `training`, of one machine and commit. Only times of runs with the same number of batches
            are compared; methods of one run take turns.
        pairs: The slower and the faster method.
    """
    cells = _by_cell(rows)
    table = []
    for slow, fast in pairs:
        for cell, there in cells.items():
            matched = _matched(there, slow, fast)
            if not matched:
                continue
            sound = [(a, b) for a, b in matched if FAILED not in (a.status, b.status)]
            seen = [(a, b) for a, b in sound if a.values.get("mean") and b.values.get("mean")]
            times = [(float(a.values["mean"]), float(b.values["mean"])) for a, b in seen]
            ratios = [a / b for a, b in times]
            table.append(
                {
                    **dict(zip(_CELL, cell, strict=True)),
                    "slow": slow,
                    "fast": fast,
                    "gain": _mean(ratios),
                    "deviation": statistics.stdev(ratios) if len(ratios) > 1 else None,
                    "of_means": sum(a for a, _ in times) / sum(b for _, b in times) if times else None,
                    "graphs": len(ratios),
                    "cut_off": sum(CUT_OFF in (a.status, b.status) for a, b in seen),
                    "missing": len(matched) - len(seen),
                    "failed": len(matched) - len(sound),
                }
            )
    return table


def status(store: Store) -> dict[str, Any]:
    """How much is done, cut off and failed, in all and cell by cell, for each machine and commit in the file.

    `wanted` counts the runs of the protocol that was asked for last, None where that isn't known.
    """
    protocols = store.protocols()
    groups = by_facts(store.rows(all_facts=True))
    return {
        "file": str(store.path),
        "asked": protocols,
        "groups": [
            {
                "facts": rows[0].facts,
                "experiments": [_progress(name, rows, protocols.get(name)) for name in _names(rows)],
            }
            for rows in groups.values()
        ],
    }


def _progress(experiment: str, rows: list[Row], asked: dict[str, Any] | None) -> dict[str, Any]:
    own = [row for row in rows if row.experiment == experiment]
    cells: dict[Any, dict[str, Any]] = {}
    if asked is not None and experiment in EXPERIMENTS:
        for key in keys_of(experiment, Protocol.from_dict(asked)):
            cells.setdefault(cell_of(key), _blank(0))["wanted"] += 1
    for row in own:
        cells.setdefault(cell_of(row.key), _blank(None))[row.status.replace(" ", "_")] += 1
    wanted = None if asked is None else asked.get("wanted", sum(cell["wanted"] or 0 for cell in cells.values()) or None)
    counts = {name: sum(cell[name] for cell in cells.values()) for name in ("done", "cut_off", "failed")}
    reduced = Protocol.from_dict(asked).reduced(experiment) if asked is not None and experiment in EXPERIMENTS else []
    listed = [dict(cell) | counted for cell, counted in cells.items()]
    return {"name": experiment, "wanted": wanted, **counts, "reduced": reduced, "cells": listed}


def _blank(wanted: int | None) -> dict[str, Any]:
    return {"wanted": wanted, "done": 0, "cut_off": 0, "failed": 0}


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.experiment for row in rows))


def _by_cell(rows: Iterable[Row]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.key[name] for name in _CELL), []).append(row)
    return dict(sorted(found.items()))


def _matched(rows: list[Row], slow: str, fast: str) -> list[tuple[Row, Row]]:
    """The runs of both methods on each graph, with most batches where there are several."""
    runs = {(row.key["seed"], row.key["batches"], row.key["method"]): row for row in rows}
    found: dict[Any, tuple[Row, Row]] = {}
    for seed, batches in sorted({(seed, batches) for seed, batches, _ in runs}):
        pair = runs.get((seed, batches, slow)), runs.get((seed, batches, fast))
        if pair[0] is not None and pair[1] is not None:
            found[seed] = pair[0], pair[1]
    return list(found.values())


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None

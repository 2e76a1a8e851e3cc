"""From rows to tables: means over graphs, gains and progress.

Runs that were cut off, failed or never ran are kept apart from numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from fourward.study._protocol import EXPERIMENTS, Protocol, cell_key, iter_keys
from fourward.study._store import CUT_OFF, DONE, FAILED, Row, Store

NOT_RUN = "not run"
#: (slower, faster): the paper's two gains, and ours over all three methods.
PAIRS = (
    ("sequential", "4ward"),
    ("deepstruct", "4ward"),
    ("sequential", "fourward"),
    ("deepstruct", "fourward"),
    ("4ward", "fourward"),
)
#: Parameters that runs must share to be compared or averaged.
SHARED = ("batches", "epochs", "draws", "connectome")
#: Parameters of a cell of reassignment.
LAYERED = ("size", "batch", "p")
_GAIN_CELL = ("size", "p", "batch", "device")
CellKey = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """The mean over the runs of one cell; it is None unless all of them ended."""

    status: str  #: "done", "cut off", "failed" or "not run"
    mean: float | None = None
    deviation: float = 0.0  #: standard deviation over the graphs
    count: int = 0  #: graphs that were measured to the end
    observed: float | None = None  #: the mean with partial results of runs that were cut off

    @property
    def text(self) -> str:
        """The mean in three digits, or why there is none."""
        return self.status if self.mean is None else format_number(self.mean)


Cells = Mapping[CellKey, Cell]
RowsByExperiment = Mapping[str, list[Row]]
EMPTY = Cell(NOT_RUN)


def format_number(value: float) -> str:
    """Three digits, in powers of ten only below 0.001."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1e}"


def format_range(values: Iterable[float]) -> str:
    """The smallest and the largest value, "1.5 to 20"."""
    listed = list(values)
    low, high = format_number(min(listed)), format_number(max(listed))
    return low if low == high else f"{low} to {high}"


def latest_rows(store: Store) -> dict[str, list[Row]]:
    """By experiment and device, the rows of the same machine, code and protocol as the last one."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in store.rows(all_environments=True):
        groups[row.experiment, row.key.get("device")].append(row)
    latest: dict[str, list[Row]] = defaultdict(list)
    for (experiment, _), rows in groups.items():
        latest[experiment] += [row for row in rows if _comparable(row) == _comparable(rows[-1])]
    return dict(latest)


def _comparable(row: Row) -> tuple[Any, ...]:
    return row.environment, *(row.key.get(name) for name in SHARED)


def group_by_environment(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by the id of their machine, versions and commit, the one that ran last at the end."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        group = groups.pop(row.environment["id"], [])
        group.append(row)
        groups[row.environment["id"]] = group
    return groups


def timed_devices(rows: RowsByExperiment) -> list[str]:
    """The devices on which forward passes were timed."""
    return sorted({device for name in ("times", "reassignment") for device in distinct(rows.get(name, []), "device")})


def device_rows(rows: RowsByExperiment, experiment: str, device: str) -> list[Row]:
    """The rows of an experiment on a device."""
    return select(rows.get(experiment, []), device=device)


def select(rows: Iterable[Row], **parameters: Any) -> list[Row]:
    """The rows with these parameters."""
    return [row for row in rows if all(row.key.get(name) == value for name, value in parameters.items())]


def distinct(rows: Iterable[Row], name: str) -> list[Any]:
    """The values of a parameter that occur, ascending."""
    return sorted({row.key[name] for row in rows if row.key.get(name) is not None})


def aggregate(rows: Iterable[Row], by: Sequence[str], value: str, scale: float = 1.0) -> dict[CellKey, Cell]:
    """The mean of a value over all rows that share the parameters `by`; one row that was cut off cuts its cell off."""
    entries: dict[CellKey, list[tuple[str, float | None]]] = defaultdict(list)
    for row in rows:
        number = row.values.get(value)
        entry = row.status, None if number is None else scale * float(number)
        entries[tuple(row.key[name] for name in by)].append(entry)
    return {key: _cell(listed) for key, listed in entries.items()}


def aggregate_layerings(rows: Sequence[Row], scale: float = 1.0) -> dict[CellKey, Cell]:
    """Times by size, batch size and p; the deviation is that between a graph's layerings, a mean over its graphs."""
    deviations: dict[CellKey, list[float]] = defaultdict(list)
    for key, cell in aggregate(rows, (*LAYERED, "graph"), "mean", scale).items():
        if cell.count > 1:
            deviations[key[:-1]].append(cell.deviation)
    cells = aggregate(rows, LAYERED, "mean", scale)
    return {key: replace(cell, deviation=fmean(deviations.get(key, [0.0]))) for key, cell in cells.items()}


def _cell(entries: list[tuple[str, float | None]]) -> Cell:
    """From status and value of each run."""
    values = [value for _, value in entries if value is not None]
    done = [value for status, value in entries if status == DONE and value is not None]
    statuses = {status for status, _ in entries}
    observed = fmean(values) if values else None
    if CUT_OFF in statuses:
        return Cell(CUT_OFF, observed=observed, count=len(done))
    if not done:
        return Cell(FAILED if FAILED in statuses else NOT_RUN)
    return Cell(DONE, fmean(done), stdev(done) if len(done) > 1 else 0.0, len(done), observed)


def gains(rows: Iterable[Row], pairs: Sequence[tuple[str, str]] = PAIRS) -> list[dict[str, Any]]:
    """How many times faster one method is than another, cell by cell.

    `gain` is the paper's: the mean over graphs of the ratio of a graph's two times. `of_means` is the ratio of the mean
    times. A run that was cut off counts with what was measured of it; `cut_off` says on how many graphs. For `missing`
    graphs there is no ratio: nothing was measured, or, on `failed` of them, a run failed.

    Args:
        rows: Rows of "times" or "training" from one machine and commit. Only runs with the same number of batches are
            compared.
        pairs: The slower and the faster method.
    """
    cells: dict[CellKey, list[Row]] = {}
    for row in rows:
        cells.setdefault(tuple(row.key[name] for name in _GAIN_CELL), []).append(row)
    table = []
    for slow, fast in pairs:
        for cell, cell_rows in sorted(cells.items()):
            matched = _pair_runs(cell_rows, slow, fast)
            if matched:
                names = dict(zip(_GAIN_CELL, cell, strict=True))
                table.append(names | {"slow": slow, "fast": fast} | _gain(matched))
    return table


def _gain(matched: list[tuple[Row, Row]]) -> dict[str, Any]:
    """The gain, from the runs of a slower and a faster method on the same graphs."""
    sound = [(a, b) for a, b in matched if FAILED not in (a.status, b.status)]
    timed = [(a, b) for a, b in sound if a.values.get("mean") and b.values.get("mean")]
    times = [(float(a.values["mean"]), float(b.values["mean"])) for a, b in timed]
    ratios = [a / b for a, b in times]
    return {
        "gain": fmean(ratios) if ratios else None,
        "deviation": stdev(ratios) if len(ratios) > 1 else None,
        "of_means": sum(a for a, _ in times) / sum(b for _, b in times) if times else None,
        "graphs": len(ratios),
        "cut_off": sum(CUT_OFF in (a.status, b.status) for a, b in timed),
        "missing": len(matched) - len(timed),
        "failed": len(matched) - len(sound),
    }


def _pair_runs(rows: list[Row], slow: str, fast: str) -> list[tuple[Row, Row]]:
    """The runs of both methods on each graph, with most batches where there are several."""
    runs = {(row.key["seed"], row.key["batches"], row.key["method"]): row for row in rows}
    pairs: dict[Any, tuple[Row, Row]] = {}
    for seed, batches in sorted({(seed, batches) for seed, batches, _ in runs}):
        pair = runs.get((seed, batches, slow)), runs.get((seed, batches, fast))
        if pair[0] is not None and pair[1] is not None:
            pairs[seed] = pair[0], pair[1]
    return list(pairs.values())


def gain_cells(rows: Sequence[Row], slow: str, fast: str, by: Sequence[str] = ("size", "p")) -> dict[CellKey, Cell]:
    """The gains of one pair as cells, of rows that differ in `by` and graphs alone."""
    return {tuple(line[name] for name in by): _gain_cell(line) for line in gains(rows, [(slow, fast)])}


def _gain_cell(line: Mapping[str, Any]) -> Cell:
    """One graph that was cut off cuts its cell off; failed ones are left out."""
    count = line["graphs"] - line["cut_off"]
    if line["cut_off"] or line["missing"] > line["failed"]:
        return Cell(CUT_OFF, observed=line["gain"], count=count)
    if not count:
        return Cell(FAILED)
    return Cell(DONE, line["gain"], line["deviation"] or 0.0, count, line["gain"])


def status(store: Store) -> dict[str, Any]:
    """How many runs are done, cut off and failed, in total and cell by cell, for each environment in the file.

    `requested` counts the runs of the protocol that was requested last, None where that isn't known.
    """
    protocols = store.protocols()
    groups = group_by_environment(store.rows(all_environments=True))
    return {
        "file": str(store.path),
        "protocols": protocols,
        "groups": [
            {
                "environment": rows[0].environment,
                "experiments": [
                    _experiment_status(name, rows, protocols.get(name))
                    for name in dict.fromkeys(row.experiment for row in rows)
                ],
            }
            for rows in groups.values()
        ],
    }


def _experiment_status(experiment: str, rows: list[Row], protocol: dict[str, Any] | None) -> dict[str, Any]:
    cells: dict[Any, dict[str, Any]] = {}
    reduced: list[str] = []
    if protocol is not None and experiment in EXPERIMENTS:
        reduced = Protocol.from_dict(protocol).reduced(experiment)
        for key in iter_keys(experiment, Protocol.from_dict(protocol)):
            cells.setdefault(cell_key(key), _zero_counts(0))["requested"] += 1
    for row in rows:
        if row.experiment == experiment:
            cells.setdefault(cell_key(row.key), _zero_counts(None))[row.status.replace(" ", "_")] += 1
    requested = sum(cell["requested"] or 0 for cell in cells.values()) or None
    if protocol is not None:
        requested = protocol.get("wanted", requested)  # experiments of other protocols store the number of their runs
    counts = {name: sum(cell[name] for cell in cells.values()) for name in ("done", "cut_off", "failed")}
    listed = [dict(key) | cell for key, cell in cells.items()]
    return {"name": experiment, "requested": requested, **counts, "reduced": reduced, "cells": listed}


def _zero_counts(requested: int | None) -> dict[str, Any]:
    return {"requested": requested, "done": 0, "cut_off": 0, "failed": 0}


def confidence_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float | None]:
    """The mean, and half the width of its confidence interval by Student's t; None for a single value.

    >>> mean, half_width = confidence_interval([1, 2, 3])
    >>> f"{mean:g} +- {half_width:.2f}"
    '2 +- 2.48'
    """
    if len(values) < 2:
        return fmean(values), None
    from scipy.stats import t

    half_width = t.ppf(0.5 + level / 2, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return fmean(values), float(half_width)

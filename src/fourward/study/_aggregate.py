"""From rows to cells: means over graphs, with what was cut off, failed or never run kept apart from numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from fourward.study import _tables
from fourward.study._store import CUT_OFF, DONE, FAILED, Row, Store

NOT_RUN = "not run"
#: Parameters that runs must share to be compared or averaged.
PROTOCOL = ("batches", "epochs", "draws", "connectome")
#: What tells cells of reassignment apart.
LAYERED = ("size", "batch", "p")
Place = tuple[Any, ...]
Entry = tuple[str, float | None]  # status and value of a run


@dataclass(frozen=True)
class Cell:
    """What is known of one place of a map; `mean` is there if and only if it is done."""

    status: str  #: "done", "cut off", "failed" or "not run"
    mean: float | None = None
    deviation: float = 0.0  #: over the graphs
    count: int = 0  #: graphs that were measured to the end
    seen: float | None = None  #: the mean with what was seen of runs that were cut off

    @property
    def text(self) -> str:
        """The mean in three digits, or why there is none."""
        return self.status if self.mean is None else number(self.mean)


Cells = Mapping[Place, Cell]
Rows = Mapping[str, list[Row]]  # by experiment
EMPTY = Cell(NOT_RUN)


def number(value: float) -> str:
    """Three digits, never in powers of ten where a reader would have to count."""
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1e}"


def span(values: Iterable[float]) -> str:
    """From the least to the greatest."""
    listed = list(values)
    low, high = number(min(listed)), number(max(listed))
    return low if low == high else f"{low} to {high}"


def newest(store: Store) -> dict[str, list[Row]]:
    """By experiment, the rows of each device that belong with its last one: to the same machine, code and protocol."""
    groups: dict[Any, list[Row]] = defaultdict(list)
    for row in store.rows(all_facts=True):
        groups[row.experiment, row.key.get("device")].append(row)
    found: dict[str, list[Row]] = defaultdict(list)
    for (experiment, _), rows in groups.items():
        found[experiment] += [row for row in rows if _belonging(row) == _belonging(rows[-1])]
    return dict(found)


def _belonging(row: Row) -> tuple[Any, ...]:
    return row.facts, *(row.key.get(name) for name in PROTOCOL)


def devices(found: Rows) -> list[str]:
    """The devices that forward passes were timed on."""
    return sorted({device for name in ("times", "reassignment") for device in among(found.get(name, []), "device")})


def on_device(found: Rows, experiment: str, device: str) -> list[Row]:
    """The rows of an experiment on a device."""
    return those(found.get(experiment, []), device=device)


def those(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows with these parameters."""
    return [row for row in rows if all(row.key.get(name) == value for name, value in wanted.items())]


def among(rows: Iterable[Row], name: str) -> list[Any]:
    """The values of a parameter that occur, ascending."""
    return sorted({row.key[name] for row in rows if row.key.get(name) is not None})


def cells(rows: Iterable[Row], by: Sequence[str], value: str, scale: float = 1.0) -> dict[Place, Cell]:
    """The mean of a value over all rows that share the parameters `by`; one row that was cut off cuts its cell off."""
    found: dict[Place, list[Entry]] = defaultdict(list)
    for row in rows:
        seen = row.values.get(value)
        entry = row.status, None if seen is None else scale * float(seen)
        found[tuple(row.key[name] for name in by)].append(entry)
    return {place: _cell(entries) for place, entries in found.items()}


def over_layerings(rows: Sequence[Row], scale: float = 1.0) -> dict[Place, Cell]:
    """Times by size, batch size and p; the deviation is that between a graph's layerings, a mean over its graphs."""
    graphs: dict[Place, list[float]] = defaultdict(list)
    for place, cell in cells(rows, (*LAYERED, "graph"), "mean", scale).items():
        if cell.count > 1:
            graphs[place[:-1]].append(cell.deviation)
    found = cells(rows, LAYERED, "mean", scale)
    return {place: replace(cell, deviation=fmean(graphs.get(place, [0.0]))) for place, cell in found.items()}


def gains(rows: Sequence[Row], slow: str, fast: str, by: Sequence[str] = ("size", "p")) -> dict[Place, Cell]:
    """The gains of `tables.gains` as cells, of rows that differ in `by` and graphs alone."""
    return {tuple(line[name] for name in by): _gain(line) for line in _tables.gains(rows, [(slow, fast)])}


def _gain(line: Mapping[str, Any]) -> Cell:
    """One graph that was cut off cuts its cell off; failed ones are left out."""
    count = line["graphs"] - line["cut_off"]
    if line["cut_off"] or line["missing"] > line["failed"]:
        return Cell(CUT_OFF, seen=line["gain"], count=count)
    if not count:
        return Cell(FAILED)
    return Cell(DONE, line["gain"], line["deviation"] or 0.0, count, line["gain"])


def _cell(entries: list[Entry]) -> Cell:
    every = [value for _, value in entries if value is not None]
    done = [value for status, value in entries if status == DONE and value is not None]
    statuses = {status for status, _ in entries}
    seen = fmean(every) if every else None
    if CUT_OFF in statuses:
        return Cell(CUT_OFF, seen=seen, count=len(done))
    if not done:
        return Cell(FAILED if FAILED in statuses else NOT_RUN)
    return Cell(DONE, fmean(done), stdev(done) if len(done) > 1 else 0.0, len(done), seen)


def interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float | None]:
    """The mean, and how far its confidence interval reaches to either side by Student's t; None for one value.

    >>> mean, reach = interval([1, 2, 3])
    >>> f"{mean:g} +- {reach:.2f}"
    '2 +- 2.48'
    """
    if len(values) < 2:
        return fmean(values), None
    from scipy.stats import t

    reach = t.ppf(0.5 + level / 2, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return fmean(values), float(reach)

"""The paper's findings: their published numbers, the numbers measured here, and whether they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from scipy.stats import pearsonr, spearmanr

from fourward.study._aggregate import (
    CellKey,
    Cells,
    aggregate,
    distinct,
    format_number,
    format_range,
    gain_cells,
    select,
)
from fourward.study._store import CUT_OFF, Row

HOLDS, PARTLY, FAILS, UNKNOWN = "holds", "holds in part", "doesn't hold", "unknown"
#: Parameters of a cell.
CELL = ("size", "p", "batch")
SPARSE, BREAK_EVEN = 0.2, 0.8  #: densities where the paper's gain is highest, and where it is about 1
COMPLETE = 1.0  #: the density at which a graph has only one layering
MIN_CELLS = 4  #: cells that a correlation needs


@dataclass(frozen=True)
class Finding:
    """What the paper claims, what these rows show, and the rule by which the verdict follows."""

    claim: str
    published: str
    rule: str
    verdict: str = UNKNOWN
    measured: str = "not measured"


def findings(times: Sequence[Row], reassignment: Sequence[Row]) -> list[Finding]:
    """The verdicts from rows of one device."""
    return [
        *(evaluate(times) for evaluate in (sparse_gain, even_gain, deepstruct_gain, by_height, by_size, by_batch)),
        *(evaluate(reassignment) for evaluate in (small_deviations, moved_nodes)),
    ]


def sparse_gain(rows: Sequence[Row]) -> Finding:
    """The gain over the sequential baseline on the sparsest graphs."""
    finding = Finding(
        "4Ward gains most over the sequential baseline where graphs are sparsest.",
        "up to 2.80, at p = 0.2",
        "holds if the largest mean gain is above 1 and, for each size and batch size, the largest is at p = 0.2; in "
        "part if it is for half of them",
    )
    gains = _means(gain_cells(rows, "sequential", "4ward", CELL))
    lines = [line for line in _lines(gains) if SPARSE in {p for _, p, _ in line}]
    if not lines:
        return finding
    best = max(gains, key=gains.__getitem__)
    right = sum(max(line, key=line.__getitem__)[1] == SPARSE for line in lines)
    verdict = FAILS if gains[best] <= 1 or 2 * right < len(lines) else HOLDS if right == len(lines) else PARTLY
    where = f"at {best[0]} nodes, p = {best[1]:g}, batch size {best[2]}"
    largest = f"largest at p = 0.2 for {right} of {len(lines)} sizes and batch sizes"
    measured = f"up to {format_number(gains[best])}, {where}; {largest}"
    return _conclude(finding, verdict, measured)


def even_gain(rows: Sequence[Row]) -> Finding:
    """The gain over the sequential baseline on dense graphs."""
    finding = Finding(
        "4Ward and the sequential baseline are equally fast near p = 0.8.",
        "gain of 1 at p ~ 0.8",
        "holds if the gains at p = 0.8 are between 0.5 and 2 and their mean between 0.8 and 1.25; in part if gains "
        "cross 1 at another p",
    )
    gains = _means(gain_cells(rows, "sequential", "4ward", CELL))
    near = [gain for (_, p, _), gain in gains.items() if p == BREAK_EVEN]
    if not near:
        return finding
    crosses = min(gains.values()) < 1 < max(gains.values())
    equal = 0.8 <= fmean(near) <= 1.25 and min(near) >= 0.5 and max(near) <= 2
    crossing = "cross 1 within the grid" if crosses else "never cross 1 within the grid"
    measured = f"{format_number(fmean(near))} at p = 0.8 ({format_range(near)}); gains {crossing}"
    return _conclude(finding, HOLDS if equal else PARTLY if crosses else FAILS, measured)


def deepstruct_gain(rows: Sequence[Row]) -> Finding:
    """The gain over deepstruct."""
    finding = Finding(
        "4Ward is faster than deepstruct everywhere, and more so the larger and denser the graph.",
        "gains from 2.47 to 160.37",
        "holds if every mean gain is above 1 and gains increase with the height (rank correlation of at least 0.8); in "
        "part if one of the two is true",
    )
    cells = gain_cells(rows, "deepstruct", "4ward", CELL)
    gains = _means(cells)
    if len(gains) < MIN_CELLS:
        return finding
    height = _heights(select(rows, method="4ward"))
    correlation = _correlation([height[key] for key in gains], list(gains.values()), ranks=True)
    conditions = (min(gains.values()) > 1) + (correlation >= 0.8)
    cut = sum(cell.status == CUT_OFF for cell in cells.values())
    note = f"; cut off in {cut} of {len(cells)} cells, where the gain is unknown" if cut else ""
    measured = f"{format_range(gains.values())}; rank correlation with the height {correlation:.2f}{note}"
    return _conclude(finding, (FAILS, PARTLY, HOLDS)[conditions], measured)


def by_height(rows: Sequence[Row]) -> Finding:
    """4Ward's time against the height."""
    finding = Finding(
        "The time of 4Ward follows the height of the graph.",
        "times and heights behave alike",
        "holds if the correlation of mean times and heights of the cells is at least 0.95 at every batch size; in part "
        "if it is at least 0.8",
    )
    correlations = {}
    for batch in distinct(rows, "batch"):
        batch_rows = select(rows, method="4ward", batch=batch)
        time, height = _means(aggregate(batch_rows, CELL, "mean")), _means(aggregate(batch_rows, CELL, "height"))
        if len(time) >= MIN_CELLS and len(set(height.values())) > 1:
            correlations[batch] = _correlation([time[key] for key in time], [height[key] for key in time])
    if not correlations:
        return finding
    lowest = min(correlations.values())
    words = ", ".join(f"{value:.3f} at batch size {batch}" for batch, value in correlations.items())
    return _conclude(finding, HOLDS if lowest >= 0.95 else PARTLY if lowest >= 0.8 else FAILS, f"correlation {words}")


def by_size(rows: Sequence[Row]) -> Finding:
    """The baseline's time against p."""
    finding = Finding(
        "The time of the sequential baseline depends on the number of nodes alone.",
        "no dependence on p",
        "holds if, for each size and batch size, the slowest p takes at most 1.25 times as long as the fastest; in "
        "part if at most 2 times",
    )
    lines = _lines(_means(aggregate(select(rows, method="sequential"), CELL, "mean")))
    if not lines:
        return finding
    spreads = [max(line.values()) / min(line.values()) for line in lines]
    worst = max(spreads)
    verdict = HOLDS if worst <= 1.25 else PARTLY if worst <= 2 else FAILS
    return _conclude(finding, verdict, f"the slowest p takes {format_range(spreads)} times as long as the fastest")


def by_batch(rows: Sequence[Row]) -> Finding:
    """4Ward's time against the batch size."""
    finding = Finding(
        "The batch size has no influence on the time of 4Ward, on a GPU like theirs.",
        "no differences on an RTX A6000",
        "holds if the largest batch size takes at most 1.25 times as long as the smallest in every cell; in part if it "
        "does on average",
    )
    batches = distinct(rows, "batch")
    time = _means(aggregate(select(rows, method="4ward"), CELL, "mean"))
    ratios = [
        time[size, p, batches[-1]] / time[size, p, batches[0]]
        for size in distinct(rows, "size")
        for p in distinct(rows, "p")
        if {(size, p, batches[0]), (size, p, batches[-1])} <= time.keys()
    ]
    if len(batches) < 2 or not ratios:
        return finding
    mean = geometric_mean(ratios)
    verdict = HOLDS if max(ratios) <= 1.25 else PARTLY if mean <= 1.25 else FAILS
    measured = f"batches of {batches[-1]} take {format_number(mean)} times as long as those of {batches[0]} on average"
    return _conclude(finding, verdict, f"{measured} ({format_range(ratios)})")


def small_deviations(rows: Sequence[Row]) -> Finding:
    """Times over reassigned layerings."""
    finding = Finding(
        "Which layering of minimal height is used hardly matters: times of reassigned ones vary little.",
        "standard deviations small compared with the mean times",
        "the standard deviation between the layerings of one graph, at one size and batch size, in percent of their "
        "mean time, averaged over graphs; at p = 1, where all layerings are the same, it is noise; holds if at every p "
        "it is at most 10 %, or at most 1.5 times the noise; in part if at most 25 %",
    )
    graphs: dict[float, list[float]] = {}
    for key, cell in aggregate(select(rows, method="4ward"), ("p", "size", "batch", "graph"), "mean").items():
        if cell.mean and cell.count > 1:
            graphs.setdefault(key[0], []).append(cell.deviation / cell.mean)
    deviations = {p: fmean(values) for p, values in sorted(graphs.items())}
    noise = deviations.pop(COMPLETE, 0.0)
    if not deviations:
        return finding
    worst = max(deviations.values())
    verdict = HOLDS if worst <= max(0.1, 1.5 * noise) else PARTLY if worst <= 0.25 else FAILS
    words = [f"{100 * deviation:.1f} % at p = {p:g}" for p, deviation in deviations.items()]
    words.append(f"noise of {100 * noise:.1f} % at p = 1" if COMPLETE in graphs else "noise not measured")
    return _conclude(finding, verdict, ", ".join(words))


def moved_nodes(rows: Sequence[Row]) -> Finding:
    """How many nodes reassignment moves in sparse graphs."""
    finding = Finding(
        "At p = 0.2, reassignment moves about a quarter of the hidden nodes.",
        "about 1/4",
        "holds if the mean fraction is between 0.15 and 0.35",
    )
    cell = aggregate(select(rows, p=SPARSE), ("p",), "moved").get((SPARSE,))
    if cell is None or cell.mean is None:
        return finding
    return _conclude(finding, HOLDS if 0.15 <= cell.mean <= 0.35 else FAILS, f"{cell.mean:.2f} at p = 0.2")


def _conclude(finding: Finding, verdict: str, measured: str) -> Finding:
    return Finding(finding.claim, finding.published, finding.rule, verdict, measured)


def _means(cells: Cells) -> dict[CellKey, float]:
    return {key: cell.mean for key, cell in cells.items() if cell.mean is not None}


def _heights(rows: Sequence[Row]) -> dict[CellKey, float]:
    """The mean height by cell: graphs have theirs even where a run was cut off."""
    heights: dict[CellKey, list[float]] = {}
    for row in rows:
        if "height" in row.values:
            heights.setdefault(tuple(row.key[name] for name in CELL), []).append(float(row.values["height"]))
    return {key: fmean(values) for key, values in heights.items()}


def _lines(means: dict[CellKey, float]) -> list[dict[CellKey, float]]:
    """The cells by size and batch size, where there are at least two of different p."""
    lines: dict[CellKey, dict[CellKey, float]] = {}
    for key, value in means.items():
        lines.setdefault((key[0], key[2]), {})[key] = value
    return [values for values in lines.values() if len(values) > 1]


def _correlation(x: Sequence[float], y: Sequence[float], *, ranks: bool = False) -> float:
    """Pearson's, or Spearman's by ranks; 0 where one side is constant."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return 0.0
    return float((spearmanr if ranks else pearsonr)(x, y).statistic)

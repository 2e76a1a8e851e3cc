"""The paper's findings, each with its published numbers, ours, and whether it holds in these rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from scipy.stats import pearsonr, spearmanr

from fourward.study._aggregate import Cells, Place, among, cells, gains, number, span, those
from fourward.study._store import CUT_OFF, Row

HOLDS, PARTLY, FAILS, UNKNOWN = "holds", "holds in part", "doesn't hold", "can't be said"
#: Sizes, probabilities and batch sizes tell cells apart.
CELL = ("size", "p", "batch")
SPARSE, EVEN = 0.2, 0.8  #: where the paper's gain is highest, and where it is about 1
COMPLETE = 1.0  #: where a graph has but one layering
FEW = 4  #: cells that a correlation needs


@dataclass(frozen=True)
class Finding:
    """What the paper says, what these rows say, and by which rule the verdict follows."""

    claim: str
    published: str
    rule: str
    verdict: str = UNKNOWN
    here: str = "not measured"


def findings(times: Sequence[Row], reassignment: Sequence[Row]) -> list[Finding]:
    """The verdicts from rows of one device."""
    return [
        *(judge(times) for judge in (sparse_gain, even_gain, deepstruct_gain, by_height, by_size, by_batch)),
        *(judge(reassignment) for judge in (small_deviations, moved_nodes)),
    ]


def sparse_gain(rows: Sequence[Row]) -> Finding:
    """Over the sequential baseline, at the sparsest graphs."""
    finding = Finding(
        "4Ward gains most over the sequential baseline where graphs are sparsest.",
        "up to 2.80, at p = 0.2",
        "holds if the largest mean gain is above 1, and for each size and batch size the largest lies at p = 0.2; in "
        "part if it does for half of them",
    )
    found = _done(gains(rows, "sequential", "4ward", CELL))
    lines = [line for line in _lines(found, lambda place: (place[0], place[2])) if SPARSE in {p for _, p, _ in line}]
    if not lines:
        return finding
    place = max(found, key=found.__getitem__)
    right = sum(max(line, key=line.__getitem__)[1] == SPARSE for line in lines)
    verdict = FAILS if found[place] <= 1 or 2 * right < len(lines) else HOLDS if right == len(lines) else PARTLY
    where = f"at {place[0]} nodes, p = {place[1]:g}, batch size {place[2]}"
    here = (
        f"up to {number(found[place])}, {where}; largest at p = 0.2 for {right} of {len(lines)} sizes and batch sizes"
    )
    return _judged(finding, verdict, here)


def even_gain(rows: Sequence[Row]) -> Finding:
    """Over the sequential baseline, in dense graphs."""
    finding = Finding(
        "4Ward and the sequential baseline are equally fast near p = 0.8.",
        "gain of 1 at p ~ 0.8",
        "holds if the gains at p = 0.8 lie between 0.5 and 2 and their mean between 0.8 and 1.25; in part if gains "
        "pass 1 at another p",
    )
    found = _done(gains(rows, "sequential", "4ward", CELL))
    near = [gain for (_, p, _), gain in found.items() if p == EVEN]
    if not near:
        return finding
    passes = min(found.values()) < 1 < max(found.values())
    equal = 0.8 <= fmean(near) <= 1.25 and min(near) >= 0.5 and max(near) <= 2
    crossing = "pass 1 within the grid" if passes else "never pass 1 within the grid"
    here = f"{number(fmean(near))} at p = 0.8 ({span(near)}); gains {crossing}"
    return _judged(finding, HOLDS if equal else PARTLY if passes else FAILS, here)


def deepstruct_gain(rows: Sequence[Row]) -> Finding:
    """Over deepstruct."""
    finding = Finding(
        "4Ward is faster than deepstruct everywhere, and the more so the larger and denser the graph.",
        "gains from 2.47 to 160.37",
        "holds if every mean gain is above 1 and gains rise with the height (rank correlation of at least 0.8); in "
        "part if one of both is so",
    )
    every = gains(rows, "deepstruct", "4ward", CELL)
    found = _done(every)
    if len(found) < FEW:
        return finding
    height = _heights(those(rows, method="4ward"))
    rises = _correlation([height[place] for place in found], list(found.values()), ranks=True)
    signs = (min(found.values()) > 1) + (rises >= 0.8)
    cut = sum(cell.status == CUT_OFF for cell in every.values())
    note = f"; cut off in {cut} of {len(every)} cells, where the gain is unknown" if cut else ""
    here = f"{span(found.values())}; rank correlation with the height {rises:.2f}{note}"
    return _judged(finding, (FAILS, PARTLY, HOLDS)[signs], here)


def by_height(rows: Sequence[Row]) -> Finding:
    """4Ward's time against the height."""
    finding = Finding(
        "The time of 4Ward follows the height of the graph.",
        "times and heights behave alike",
        "holds if mean times and heights of the cells correlate with at least 0.95 at every batch size; in part from "
        "0.8 on",
    )
    found = {}
    for batch in among(rows, "batch"):
        mine = those(rows, method="4ward", batch=batch)
        time, height = _done(cells(mine, CELL, "mean")), _done(cells(mine, CELL, "height"))
        if len(time) >= FEW and len(set(height.values())) > 1:
            found[batch] = _correlation([time[place] for place in time], [height[place] for place in time])
    if not found:
        return finding
    lowest = min(found.values())
    words = ", ".join(f"{value:.3f} at batch size {batch}" for batch, value in found.items())
    return _judged(finding, HOLDS if lowest >= 0.95 else PARTLY if lowest >= 0.8 else FAILS, f"correlation {words}")


def by_size(rows: Sequence[Row]) -> Finding:
    """The baseline's time against p."""
    finding = Finding(
        "The time of the sequential baseline depends on the number of nodes alone.",
        "no dependence on p",
        "holds if, for each size and batch size, the slowest p takes at most 1.25 times as long as the quickest; in "
        "part up to 2 times",
    )
    found = _done(cells(those(rows, method="sequential"), CELL, "mean"))
    lines = _lines(found, lambda place: (place[0], place[2]))
    if not lines:
        return finding
    spreads = [max(line.values()) / min(line.values()) for line in lines]
    worst = max(spreads)
    verdict = HOLDS if worst <= 1.25 else PARTLY if worst <= 2 else FAILS
    return _judged(finding, verdict, f"the slowest p takes {span(spreads)} times as long as the quickest")


def by_batch(rows: Sequence[Row]) -> Finding:
    """4Ward's time against the batch size."""
    finding = Finding(
        "The batch size has no influence on the time of 4Ward, on a card like theirs.",
        "no differences on an RTX A6000",
        "holds if the largest batch size takes at most 1.25 times as long as the smallest in every cell; in part if so "
        "on average",
    )
    batches = among(rows, "batch")
    time = _done(cells(those(rows, method="4ward"), CELL, "mean"))
    found = [
        time[size, p, batches[-1]] / time[size, p, batches[0]]
        for size in among(rows, "size")
        for p in among(rows, "p")
        if {(size, p, batches[0]), (size, p, batches[-1])} <= time.keys()
    ]
    if len(batches) < 2 or not found:
        return finding
    mean = geometric_mean(found)
    verdict = HOLDS if max(found) <= 1.25 else PARTLY if mean <= 1.25 else FAILS
    here = f"batches of {batches[-1]} take {number(mean)} times as long as those of {batches[0]} on average"
    return _judged(finding, verdict, f"{here} ({span(found)})")


def small_deviations(rows: Sequence[Row]) -> Finding:
    """Times over reassigned layerings."""
    finding = Finding(
        "Which of the layerings of least height is taken hardly matters: times of reassigned ones deviate little.",
        "standard deviations small against the mean times",
        "the standard deviation between the layerings of one graph, at one size and batch size, in percent of their "
        "mean time, averaged over graphs; at p = 1, where all layerings are the same, it is noise; holds if at every p "
        "it is at most 10 %, or at most 1.5 times the noise; in part up to 25 %",
    )
    graphs: dict[float, list[float]] = {}
    for place, cell in cells(those(rows, method="4ward"), ("p", "size", "batch", "graph"), "mean").items():
        if cell.mean and cell.count > 1:
            graphs.setdefault(place[0], []).append(cell.deviation / cell.mean)
    shares = {p: fmean(seen) for p, seen in sorted(graphs.items())}
    noise = shares.pop(COMPLETE, 0.0)
    if not shares:
        return finding
    worst = max(shares.values())
    verdict = HOLDS if worst <= max(0.1, 1.5 * noise) else PARTLY if worst <= 0.25 else FAILS
    words = [f"{100 * share:.1f} % at p = {p:g}" for p, share in shares.items()]
    words.append(f"noise of {100 * noise:.1f} % at p = 1" if COMPLETE in graphs else "noise not measured")
    return _judged(finding, verdict, ", ".join(words))


def moved_nodes(rows: Sequence[Row]) -> Finding:
    """What reassignment does in sparse graphs."""
    finding = Finding(
        "At p = 0.2, reassignment moves about a quarter of the hidden nodes.",
        "about 1/4",
        "holds if the mean share lies between 0.15 and 0.35",
    )
    cell = cells(those(rows, p=SPARSE), ("p",), "moved").get((SPARSE,))
    if cell is None or cell.mean is None:
        return finding
    return _judged(finding, HOLDS if 0.15 <= cell.mean <= 0.35 else FAILS, f"{cell.mean:.2f} at p = 0.2")


def _judged(finding: Finding, verdict: str, here: str) -> Finding:
    return Finding(finding.claim, finding.published, finding.rule, verdict, here)


def _done(found: Cells) -> dict[Place, float]:
    return {place: cell.mean for place, cell in found.items() if cell.mean is not None}


def _heights(rows: Sequence[Row]) -> dict[Place, float]:
    """The mean height by cell: graphs have theirs even where a run was cut off."""
    found: dict[Place, list[float]] = {}
    for row in rows:
        if "height" in row.values:
            found.setdefault(tuple(row.key[name] for name in CELL), []).append(float(row.values["height"]))
    return {place: fmean(heights) for place, heights in found.items()}


def _lines(found: dict[Place, float], line: Callable[[Place], Place]) -> list[dict[Place, float]]:
    """The lines of cells that have at least two."""
    lines: dict[Place, dict[Place, float]] = {}
    for place, value in found.items():
        lines.setdefault(line(place), {})[place] = value
    return [values for values in lines.values() if len(values) > 1]


def _correlation(x: Sequence[float], y: Sequence[float], *, ranks: bool = False) -> float:
    """Pearson's, or Spearman's by ranks; 0 where one side is constant, for then it follows nothing."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return 0.0
    return float((spearmanr if ranks else pearsonr)(x, y).statistic)

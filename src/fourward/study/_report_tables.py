"""The tables of the report, and how much of the paper's grid was covered."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from statistics import fmean
from typing import Any

from fourward.study._aggregate import (
    EMPTY,
    LAYERED,
    Cell,
    RowsByExperiment,
    aggregate,
    aggregate_layerings,
    confidence_interval,
    device_rows,
    distinct,
    format_number,
    format_range,
    gain_cells,
    select,
    timed_devices,
)
from fourward.study._datasets import DATASETS
from fourward.study._figures.maps import GAINS, METHODS, methods_in
from fourward.study._html import Html, Text, fold, join, table, tag
from fourward.study._matched import TOPOLOGIES
from fourward.study._protocol import paper_protocol
from fourward.study._store import CUT_OFF, DONE, Row

REFERENCE = "mlp"  #: what the other topologies are compared with
UNMATCHED = ("dense-mlp",)  #: differs in neurons from the rest: shown, but not counted in comparisons
#: What topologies are compared in.
MEASURES: dict[str, Callable[[Row], float]] = {
    "Accuracy of the intact network": lambda row: float(row.values["accuracy"]),
    "Mean accuracy over all fractions of edges removed": lambda row: fmean(row.values["damage"]["edges"]),
    "Mean accuracy over all fractions of neurons removed": lambda row: fmean(row.values["damage"]["neurons"]),
}
COMPARED = (
    "Percentage points of accuracy above the MLP with as many neurons and edges: mean over seeds, paired by seed, ± "
    "half the width of intervals that hold simultaneously for a table (95 %, Student's t, Bonferroni). In bold: "
    "differs from zero. In the last row, and not counted: dense-mlp, which isn't matched in neurons. All topologies "
    "were trained with the same settings, which weren't tuned for any of them."
)
_LIMIT = re.compile(r"after ([\d.]+) s")  # part of the notes of runs that were cut off


def all_tables(rows: RowsByExperiment) -> Html:
    """Every table that these rows allow, folded."""
    parts = []
    for experiment in ("times", "training"):
        for device in distinct(rows.get(experiment, []), "device"):
            selected = device_rows(rows, experiment, device)
            parts += [_times_table(experiment, device, selected, batch) for batch in distinct(selected, "batch")]
    if rows.get("attributes"):
        parts.append(_attributes_table(rows["attributes"]))
    for device in timed_devices(rows):
        parts.append(_reassignment_table(device, device_rows(rows, "reassignment", device)))
    if rows.get("topologies"):
        parts += [_accuracy_table(rows["topologies"]), _half_accuracy_table(rows["topologies"])]
    return join(*parts)


def _times_table(experiment: str, device: str, rows: Sequence[Row], batch: int) -> Html:
    """Milliseconds a batch, and gains; runs that were cut off count with what was measured, and are marked."""
    selected, methods = select(rows, batch=batch), methods_in(rows)
    pairs = [pair for pair in GAINS if set(pair) <= set(methods)]
    times = [aggregate(select(selected, method=method), ("size", "p"), "mean", 1e3) for method in methods]
    ratios = [gain_cells(selected, *pair) for pair in pairs]
    body = []
    for key in [(size, p) for size in distinct(selected, "size") for p in distinct(selected, "p")]:
        cells = [by_key.get(key, EMPTY) for by_key in times]
        texts = [*map(_time_text, cells), *(_observed_text(by_key.get(key, EMPTY)) for by_key in ratios)]
        body.append([str(key[0]), f"{key[1]:g}", str(max(cell.count for cell in cells)), *texts])
    heads = [*(METHODS[name] for name in methods), *(f"{METHODS[a]} / {METHODS[b]}" for a, b in pairs)]
    caption = (
        "Milliseconds a batch: mean ± deviation between graphs. Gains: mean over graphs of the ratio. * cut off: what "
        "was measured until then."
    )
    title = f"{experiment} on {device}, batch size {batch}"
    return fold(title, table(["size", "p", "graphs", *heads], body, caption, 1 + len(heads)))


def _time_text(cell: Cell) -> str:
    spread = f" ± {100 * cell.deviation / cell.mean:.0f} %" if cell.mean and cell.count > 1 else ""
    return _observed_text(cell) + spread


def _observed_text(cell: Cell) -> str:
    return f"{format_number(cell.observed)} *" if cell.mean is None and cell.observed is not None else cell.text


def _attributes_table(rows: Sequence[Row]) -> Html:
    height, attenuation = (aggregate(rows, ("size", "p"), name) for name in ("height", "attenuation"))
    body = [
        [str(size), f"{p:g}", height[size, p].text, attenuation[size, p].text, str(height[size, p].count)]
        for size, p in sorted(height)
    ]
    return fold("attributes", table(["size", "p", "height", "attenuation", "graphs"], body, numbers=3))


def _reassignment_table(device: str, rows: Sequence[Row]) -> Html:
    body = []
    for method in methods_in(rows):
        selected = select(rows, method=method)
        height, moved = (aggregate(selected, LAYERED, name) for name in ("height", "moved"))
        for key, cell in sorted(aggregate_layerings(selected).items()):
            text = cell.status
            if cell.mean is not None:
                text = f"{format_number(1e3 * cell.mean)} ± {format_number(1e3 * cell.deviation)}"
            rest = text, height[key].text, moved[key].text, str(cell.count)
            body.append([METHODS[method], *(f"{value:g}" for value in key), *rest])
    heads = ["method", "size", "batch", "p", "ms a batch", "height", "fraction moved", "runs"]
    caption = "Milliseconds a batch: mean ± deviation between the layerings of one graph, averaged over graphs."
    return fold(f"reassignment on {device}", table(heads, body, caption, numbers=4)) if body else Html("")


def _accuracy_table(rows: Sequence[Row]) -> Html:
    def text(topology: str, data: str) -> str:
        accuracies = [
            row.values["accuracy"] for row in select(rows, topology=topology, data=data) if row.status == DONE
        ]
        if not accuracies:
            return "not run"
        mean, half_width = confidence_interval(accuracies)
        return f"{100 * mean:.1f}" + (f" ± {100 * half_width:.1f}" if half_width is not None else "")

    return _by_data("accuracy in percent: mean ± half the width of the 95 % interval", rows, text)


def _half_accuracy_table(rows: Sequence[Row]) -> Html:
    def text(topology: str, data: str) -> str:
        done = [row for row in select(rows, topology=topology, data=data) if row.status == DONE]
        return " / ".join(_half_accuracy(done, kind) for kind in ("edges", "neurons")) if done else "not run"

    return _by_data("fraction of edges / of neurons removed that halves the accuracy above chance", rows, text)


def _by_data(title: str, rows: Sequence[Row], text: Callable[[str, str], Text]) -> Html:
    names = [name for name in DATASETS if select(rows, data=name)]
    body = [
        [topology, *(text(topology, data) for data in names)]
        for topology in TOPOLOGIES
        if select(rows, topology=topology)
    ]
    return fold(f"topologies: {title}", table(["topology", *names], body, numbers=len(names)))


def _half_accuracy(rows: Sequence[Row], kind: str) -> str:
    """Where the mean curve is halfway from its start to chance, interpolated linearly."""
    fractions = rows[0].values["damage"]["shares"]
    curve = [sum(values) / len(rows) for values in zip(*(row.values["damage"][kind] for row in rows), strict=True)]
    chance = sum(row.values["chance"] for row in rows) / len(rows)
    half = (curve[0] + chance) / 2
    for k in range(1, len(curve)):
        if curve[k] <= half < curve[k - 1]:
            step = (curve[k - 1] - half) / (curve[k - 1] - curve[k])
            return f"{fractions[k - 1] + step * (fractions[k] - fractions[k - 1]):.2f}"
    return f"over {fractions[-1]:g}"


def compare_topologies(rows: Sequence[Row]) -> Html:
    """How each topology differs from the MLP, seed by seed: in accuracy, and in what removals leave of it."""
    parts = [part for name, measure in MEASURES.items() if (part := _comparison(rows, name, measure))]
    if not parts:
        return Html("")
    return join(tag("h3", "Beyond the paper: does the topology matter?"), tag("p", COMPARED), *parts)


def _comparison(rows: Sequence[Row], name: str, measure: Callable[[Row], float]) -> Html:
    by_pair = paired_differences(rows, measure)
    if not by_pair:
        return Html("")
    counted = [pair for pair in by_pair if pair[0] not in UNMATCHED]
    level = 1 - 0.05 / max(len(counted), 1)
    intervals = {pair: confidence_interval(values, level) for pair, values in by_pair.items()}
    significant = {pair for pair in counted if _excludes_zero(*intervals[pair])}

    def text(topology: str, data: str) -> Text:
        if (topology, data) not in intervals:
            return "not run"
        mean, half_width = intervals[topology, data]
        words = f"{100 * mean:+.1f} ± {100 * (half_width or 0.0):.1f}"
        return tag("strong", words) if (topology, data) in significant else words

    names = [dataset for dataset in DATASETS if any(data == dataset for _, data in by_pair)]
    shown = [topology for topology in TOPOLOGIES if any(topology == other for other, _ in by_pair)]
    labels = {topology: f"{topology} (not matched in neurons)" for topology in UNMATCHED}
    body = [[labels.get(topology, topology), *(text(topology, data) for data in names)] for topology in shown]
    caption = f"{name}: {len(significant)} of {len(counted)} comparisons differ from zero"
    return table(["topology", *names], body, caption, numbers=len(names))


def _excludes_zero(mean: float, half_width: float | None) -> bool:
    return half_width is not None and abs(mean) > half_width


def paired_differences(rows: Sequence[Row], measure: Callable[[Row], float]) -> dict[tuple[str, str], list[float]]:
    """A measure less that of the MLP on the same samples, by topology and data; at least two seeds each."""
    values: dict[Any, float] = {
        (row.key["topology"], row.key["data"], row.key["seed"]): measure(row) for row in rows if row.status == DONE
    }
    differences: dict[tuple[str, str], list[float]] = {}
    for (topology, data, seed), value in values.items():
        if topology != REFERENCE and (REFERENCE, data, seed) in values:
            differences.setdefault((topology, data), []).append(value - values[REFERENCE, data, seed])
    return {pair: listed for pair, listed in differences.items() if len(listed) > 1}


def describe_coverage(experiment: str, rows: Sequence[Row]) -> list[str]:
    """What was run of the paper's grid, a line for each method; one line where there are no methods."""
    methods = methods_in(rows)
    if not methods:
        return [_coverage(experiment, rows)]
    lines = [f"{METHODS[method]}: {_coverage(experiment, select(rows, method=method))}" for method in methods]
    missing = [METHODS[method] for method in paper_protocol(experiment).methods if method not in methods]
    return [*lines, f"not run: {', '.join(missing)}"] if missing else lines


def _coverage(experiment: str, rows: Sequence[Row]) -> str:
    published = paper_protocol(experiment)
    batches = distinct(rows, "batch")
    rest = {(p, batch) for p in published.densities for batch in (published.batch_sizes if batches else (None,))}
    covered = {_grid_key(row) for row in rows}
    grid = {(size, *pair) for size in published.sizes for pair in rest}
    words = [f"{len(covered & grid)} of {len(grid)} cells of the paper's grid"]
    if covered != grid:
        words[0] += f" ({_describe_cells(covered, rest)})"
    counts = {"graphs a cell": (_fewest_and_most(rows, "graph", "seed"), published.seeds)}
    if experiment == "reassignment":
        counts["layerings a cell and graph"] = (_fewest_and_most(rows, "variant", by=("graph",)), published.variants)
    if batches:
        counts["batches a run"] = (distinct(rows, "batches"), published.batches)
    for name, (values, expected) in counts.items():
        words.append(
            f"{name}: {format_range(values)}" + (f" instead of {expected}" if set(values) != {expected} else "")
        )
    return "; ".join([*words, *_describe_cut_off(rows)])


def _fewest_and_most(rows: Sequence[Row], *names: str, by: Sequence[str] = ()) -> list[int]:
    groups: dict[Any, set[Any]] = {}
    for row in rows:
        key = *_grid_key(row), *(row.key[name] for name in by)
        groups.setdefault(key, set()).add(tuple(row.key.get(name) for name in names))
    counts = [len(members) for members in groups.values()]
    return [min(counts), max(counts)]


def _describe_cut_off(rows: Sequence[Row]) -> list[str]:
    """How many runs the time limit cut off, and the limit, as far as their notes name it."""
    cut = [row for row in rows if row.status == CUT_OFF]
    limits = [float(match[1]) for row in cut if (match := _LIMIT.search(row.note))]
    after = f" after {format_range(limits)} s" if limits else ""
    return [f"{len(cut)} of {len(rows)} runs cut off{after}"] if cut else []


def _grid_key(row: Row) -> tuple[Any, ...]:
    return row.key["size"], row.key["p"], row.key.get("batch")


def _describe_cells(covered: Collection[tuple[Any, ...]], rest: Collection[tuple[Any, Any]]) -> str:
    """The cells by size: which p and batch sizes, where these aren't all."""
    patterns: dict[frozenset[Any], list[int]] = {}
    for size in sorted({key[0] for key in covered}):
        patterns.setdefault(frozenset(key[1:] for key in covered if key[0] == size), []).append(size)
    return "; ".join(
        f"{', '.join(map(str, sizes))} nodes{_describe_pattern(pattern, rest)}" for pattern, sizes in patterns.items()
    )


def _describe_pattern(pattern: Collection[tuple[Any, Any]], rest: Collection[tuple[Any, Any]]) -> str:
    if set(pattern) == set(rest):
        return ""
    words = []
    for index, name in enumerate(("p =", "batch size")):
        values = {key[index] for key in pattern}
        if values != {key[index] for key in rest}:
            words.append(f"{name} {', '.join(f'{value:g}' for value in sorted(values))}")
    is_product = len(pattern) == len({p for p, _ in pattern}) * len({batch for _, batch in pattern})
    return " at " + ", ".join(words if is_product else [*words, f"{len(pattern)} cells of each size"])

"""The tables of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from fourward.study._aggregate import (
    EMPTY,
    LAYERED,
    Cell,
    Rows,
    among,
    cells,
    devices,
    gains,
    interval,
    number,
    on_device,
    over_layerings,
    those,
)
from fourward.study._datasets import PROBLEMS
from fourward.study._figures.maps import GAINS, METHODS, present
from fourward.study._html import Html, Text, fold, join, table, tag
from fourward.study._matched import TOPOLOGIES
from fourward.study._store import DONE, Row

REFERENCE = "mlp"  #: what the other topologies are compared with
UNMATCHED = ("dense-mlp",)  #: has other neurons than the rest, so it is shown, but counts in no comparison
#: What is compared.
MEASURES: dict[str, Callable[[Row], float]] = {
    "Accuracy of the whole network": lambda row: float(row.values["accuracy"]),
    "Mean accuracy over all shares of edges removed": lambda row: fmean(row.values["damage"]["edges"]),
    "Mean accuracy over all shares of neurons removed": lambda row: fmean(row.values["damage"]["neurons"]),
}
COMPARED = (
    "Points of accuracy above the MLP that has as many neurons and edges: mean over seeds, each compared with itself, "
    "± the reach of intervals that hold for a whole table together (95 %, Student's t, Bonferroni). In bold: what "
    "differs from zero. Below, and not counted: dense-mlp, which isn't matched in "
    "neurons. All topologies learned with the same settings, which weren't tuned for any of them."
)


def all_tables(found: Rows) -> Html:
    """Every table that these rows allow, folded."""
    parts = []
    for experiment in ("times", "training"):
        for device in among(found.get(experiment, []), "device"):
            rows = on_device(found, experiment, device)
            parts += [_times_table(experiment, device, rows, batch) for batch in among(rows, "batch")]
    if found.get("attributes"):
        parts.append(_attributes_table(found["attributes"]))
    parts += [_reassignment_table(device, on_device(found, "reassignment", device)) for device in devices(found)]
    if found.get("topologies"):
        parts += [_accuracy_table(found["topologies"]), _half_table(found["topologies"])]
    return join(*parts)


def _times_table(experiment: str, device: str, rows: Sequence[Row], batch: int) -> Html:
    """Milliseconds a batch, and gains; runs that were cut off count with what was seen, and are marked."""
    own, methods = those(rows, batch=batch), present(rows)
    pairs = [pair for pair in GAINS if set(pair) <= set(methods)]
    times = [cells(those(own, method=method), ("size", "p"), "mean", 1e3) for method in methods]
    ratios = [gains(own, *pair) for pair in pairs]
    body = []
    for place in [(size, p) for size in among(own, "size") for p in among(own, "p")]:
        here = [found.get(place, EMPTY) for found in times]
        texts = [*map(_time_text, here), *(_seen_text(found.get(place, EMPTY)) for found in ratios)]
        body.append([str(place[0]), f"{place[1]:g}", str(max(cell.count for cell in here)), *texts])
    heads = [*(METHODS[name] for name in methods), *(f"{METHODS[a]} / {METHODS[b]}" for a, b in pairs)]
    caption = (
        "Milliseconds a batch: mean ± deviation between graphs. Gains: mean over graphs of the ratio. * cut off: what "
        "was seen until then."
    )
    title = f"{experiment} on {device}, batch size {batch}"
    return fold(title, table(["size", "p", "graphs", *heads], body, caption, 1 + len(heads)))


def _time_text(cell: Cell) -> str:
    spread = f" ± {100 * cell.deviation / cell.mean:.0f} %" if cell.mean and cell.count > 1 else ""
    return _seen_text(cell) + spread


def _seen_text(cell: Cell) -> str:
    return f"{number(cell.seen)} *" if cell.mean is None and cell.seen is not None else cell.text


def _attributes_table(rows: Sequence[Row]) -> Html:
    height, attenuation = (cells(rows, ("size", "p"), name) for name in ("height", "attenuation"))
    body = [
        [str(size), f"{p:g}", height[size, p].text, attenuation[size, p].text, str(height[size, p].count)]
        for size, p in sorted(height)
    ]
    return fold("attributes", table(["size", "p", "height", "attenuation", "graphs"], body, numbers=3))


def _reassignment_table(device: str, rows: Sequence[Row]) -> Html:
    body = []
    for method in present(rows):
        own = those(rows, method=method)
        height, moved = (cells(own, LAYERED, name) for name in ("height", "moved"))
        for place, cell in sorted(over_layerings(own).items()):
            text = cell.status if cell.mean is None else f"{number(1e3 * cell.mean)} ± {number(1e3 * cell.deviation)}"
            rest = text, height[place].text, moved[place].text, str(cell.count)
            body.append([METHODS[method], *(f"{value:g}" for value in place), *rest])
    heads = ["method", "size", "batch", "p", "ms a batch", "height", "share moved", "runs"]
    caption = "Milliseconds a batch: mean ± deviation between the layerings of one graph, averaged over graphs."
    return fold(f"reassignment on {device}", table(heads, body, caption, numbers=4)) if body else Html("")


def _accuracy_table(rows: Sequence[Row]) -> Html:
    def text(topology: str, data: str) -> str:
        seen = [row.values["accuracy"] for row in those(rows, topology=topology, data=data) if row.status == DONE]
        if not seen:
            return "not run"
        mean, reach = interval(seen)
        return f"{100 * mean:.1f}" + (f" ± {100 * reach:.1f}" if reach is not None else "")

    return _by_data("accuracy in percent: mean ± reach of the 95 % interval", rows, text)


def _half_table(rows: Sequence[Row]) -> Html:
    def text(topology: str, data: str) -> str:
        seen = [row for row in those(rows, topology=topology, data=data) if row.status == DONE]
        return " / ".join(_half(seen, kind) for kind in ("edges", "neurons")) if seen else "not run"

    return _by_data("share of edges / of neurons removed that halves the accuracy above chance", rows, text)


def _by_data(title: str, rows: Sequence[Row], text: Callable[[str, str], Text]) -> Html:
    names = [name for name in PROBLEMS if those(rows, data=name)]
    body = [[one, *(text(one, data) for data in names)] for one in TOPOLOGIES if those(rows, topology=one)]
    return fold(f"topologies: {title}", table(["topology", *names], body, numbers=len(names)))


def _half(rows: Sequence[Row], kind: str) -> str:
    """Where the mean curve is half-way from its start down to chance, between two shares on a straight line."""
    shares = rows[0].values["damage"]["shares"]
    curve = [sum(values) / len(rows) for values in zip(*(row.values["damage"][kind] for row in rows), strict=True)]
    chance = sum(row.values["chance"] for row in rows) / len(rows)
    half = (curve[0] + chance) / 2
    for k in range(1, len(curve)):
        if curve[k] <= half < curve[k - 1]:
            step = (curve[k - 1] - half) / (curve[k - 1] - curve[k])
            return f"{shares[k - 1] + step * (shares[k] - shares[k - 1]):.2f}"
    return f"over {shares[-1]:g}"


def compared(rows: Sequence[Row]) -> Html:
    """How each topology differs from the MLP, seed by seed: in accuracy, and in what damage leaves of it."""
    parts = [part for name, value in MEASURES.items() if (part := _compared(rows, name, value))]
    if not parts:
        return Html("")
    return join(tag("h3", "Beyond the paper: does the topology matter?"), tag("p", COMPARED), *parts)


def _compared(rows: Sequence[Row], name: str, value: Callable[[Row], float]) -> Html:
    found = differences(rows, value)
    if not found:
        return Html("")
    counted = [place for place in found if place[0] not in UNMATCHED]
    reaches = {place: interval(seen, 1 - 0.05 / max(len(counted), 1)) for place, seen in found.items()}
    apart = {place for place in counted if (reach := reaches[place][1]) is not None and abs(reaches[place][0]) > reach}

    def text(topology: str, data: str) -> Text:
        if (topology, data) not in reaches:
            return "not run"
        mean, reach = reaches[topology, data]
        words = f"{100 * mean:+.1f} ± {100 * (reach or 0.0):.1f}"
        return tag("strong", words) if (topology, data) in apart else words

    names = [problem for problem in PROBLEMS if any(data == problem for _, data in found)]
    shown = [one for one in TOPOLOGIES if any(topology == one for topology, _ in found)]
    labels = {one: f"{one} (not matched in neurons)" for one in UNMATCHED}
    body = [[labels.get(one, one), *(text(one, data) for data in names)] for one in shown]
    said = f"{name}: {len(apart)} of {len(counted)} comparisons differ from zero"
    return table(["topology", *names], body, said, numbers=len(names))


def differences(rows: Sequence[Row], value: Callable[[Row], float]) -> dict[tuple[str, str], list[float]]:
    """A value less that of the MLP on the same samples, by topology and data; at least two seeds each."""
    values: dict[Any, float] = {
        (row.key["topology"], row.key["data"], row.key["seed"]): value(row) for row in rows if row.status == DONE
    }
    found: dict[tuple[str, str], list[float]] = {}
    for (topology, data, seed), one in values.items():
        if topology != REFERENCE and (REFERENCE, data, seed) in values:
            found.setdefault((topology, data), []).append(one - values[REFERENCE, data, seed])
    return {place: seen for place, seen in found.items() if len(seen) > 1}

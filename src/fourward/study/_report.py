"""report.html: all figures and tables of a results file on one page, beside what the paper published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fourward._files import replacing
from fourward.study._aggregate import (
    RowsByExperiment,
    device_rows,
    distinct,
    format_range,
    gain_cells,
    latest_rows,
    select,
    timed_devices,
)
from fourward.study._datasets import DATASETS
from fourward.study._figures import available_figures
from fourward.study._figures.style import encode
from fourward.study._findings import FAILS, HOLDS, PARTLY, UNKNOWN, Finding, findings
from fourward.study._html import Html, Text, fold, image, join, links, page, table, tag
from fourward.study._protocol import EXPERIMENTS
from fourward.study._report_tables import all_tables, compare_topologies, describe_coverage
from fourward.study._store import CUT_OFF, DONE, FAILED, Row, Store

TITLE = "4Ward's study, reproduced with fourward"
ALTERNATE = "Methods of one run alternate on each graph; rows don't record which methods were run together."
_OMITTED = "of another machine, version, commit or protocol than the last run of their experiment are not shown."
_CLASSES = {HOLDS: "holds", PARTLY: "partly", FAILS: "fails", UNKNOWN: "unknown"}


def write_report(store: Store, folder: Path | str) -> Path:
    """Write report.html into a folder: one self-contained file, whatever part of the study is done."""
    rows = latest_rows(store)
    omitted = len(store.rows(all_environments=True)) - sum(map(len, rows.values()))
    path = Path(folder) / "report.html"
    with replacing(path) as temporary:
        temporary.write_text(page(TITLE, _body(rows, omitted)), encoding="utf-8")
    return path


def _body(rows: RowsByExperiment, omitted: int) -> Html:
    images = [image(encode(drawn.figure, "svg"), drawn.caption, drawn.name) for drawn in available_figures(rows)]
    sections = {
        "findings": ("Findings", _findings(rows)),
        "protocol": ("What was run, and what was reduced", _protocol(rows)),
        "figures": ("Figures", join(*images)),
        "tables": ("Tables", all_tables(rows)),
        "machine": ("Machine, versions, code", _environments(rows, omitted)),
    }
    jump = links({name: title for name, (title, _) in sections.items()})
    parts = [tag("section", tag("h2", title), content, id=name) for name, (title, content) in sections.items()]
    return join(tag("header", tag("h1", TITLE), _introduction(rows), jump), *parts)


def _introduction(rows: RowsByExperiment) -> Html:
    count = sum(map(len, rows.values()))
    if not count:
        return tag("p", "The results file is empty: the figures below only explain the method.")
    days = sorted(row.when[:10] for listed in rows.values() for row in listed)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return tag("p", f"{count:,} runs, {when}, on {' and '.join(_hardware(rows))}.", class_="soft")


def _hardware(rows: RowsByExperiment) -> list[str]:
    """The processors and GPUs that something was measured on."""
    names: dict[str, None] = {}
    for listed in rows.values():
        for row in listed:
            on_gpu = row.key.get("device") == "cuda"
            machine = row.environment
            names[str(machine.get("card") if on_gpu else machine.get("processor", "an unknown machine"))] = None
    return list(names)


def _findings(rows: RowsByExperiment) -> Html:
    head = ["the paper's finding", "published", "here", "verdict"]
    parts = [
        table(
            [*head[:2], f"here, on {device}", head[3]],
            [
                _finding(finding)
                for finding in findings(device_rows(rows, "times", device), device_rows(rows, "reassignment", device))
            ],
        )
        for device in timed_devices(rows)
    ] or [table(head, [_finding(finding) for finding in findings([], [])])]
    return join(*parts, _engine_gains(rows), compare_topologies(rows.get("topologies", [])))


def _finding(finding: Finding) -> list[Text]:
    verdict = tag("span", finding.verdict, class_=f"verdict {_CLASSES[finding.verdict]}")
    rule = tag("div", tag("small", f"({finding.rule})"))
    return [finding.claim, finding.published, finding.measured, join(verdict, rule)]


def _engine_gains(rows: RowsByExperiment) -> Html:
    """The gains of fourward's engines over the paper's method, which aren't findings of the paper."""
    lines = []
    for experiment, measured in (("times", "a forward pass"), ("training", "a training step")):
        for device in distinct(rows.get(experiment, []), "device"):
            cells = gain_cells(device_rows(rows, experiment, device), "4ward", "fourward", ("size", "p", "batch"))
            means = [cell.mean for cell in cells.values() if cell.mean is not None]
            if means:
                text = f"{measured} on {device}: {format_range(means)} times as fast as 4Ward"
                lines.append(tag("li", f"{text}, over {len(means)} cells of the grid"))
    return join(tag("h3", "Beyond the paper: fourward's own engines"), tag("ul", *lines)) if lines else Html("")


def _protocol(rows: RowsByExperiment) -> Html:
    lines: list[Text] = []
    for experiment in EXPERIMENTS:
        listed = rows.get(experiment, [])
        for device in distinct(listed, "device") or ([None] if listed else []):
            selected = listed if device is None else device_rows(rows, experiment, device)
            title = f"{experiment}{f' on {device}' if device else ''}"
            if experiment == "training":
                title += " (the paper measured forward passes only)"
            coverage = tag("ul", *(tag("li", f"{line}.") for line in describe_coverage(experiment, selected)))
            lines.append(tag("li", tag("strong", f"{title}:"), coverage))
    if rows.get("topologies"):
        lines.append(tag("li", tag("strong", "topologies: "), _topologies_protocol(rows["topologies"])))
    missing = [name for name in (*EXPERIMENTS, "topologies") if not rows.get(name)]
    if missing:
        lines.append(tag("li", tag("strong", "not in this results file: "), ", ".join(missing), "."))
    if rows.get("times") or rows.get("training"):
        lines.append(tag("li", ALTERNATE))
    return join(tag("ul", *lines), _unfinished(rows))


def _topologies_protocol(rows: Sequence[Row]) -> str:
    seeds, epochs = len(distinct(rows, "seed")), ", ".join(map(str, distinct(rows, "epochs")))
    return (
        f"{seeds} seeds, {epochs} epochs, on {', '.join(name for name in DATASETS if select(rows, data=name))}. Each "
        "seed draws the graph, the weights and the samples anew, the same samples for all topologies. All have as many "
        "neurons, edges, inputs and outputs as the connectome of C. elegans, and the same linear adapters, so as many "
        "parameters; only dense-mlp has fewer neurons, and about as many edges. Networks aren't trained again after "
        "edges or neurons are removed."
    )


def _unfinished(rows: RowsByExperiment) -> Html:
    """Runs that were cut off or failed, counted by cell."""
    counts: Counter[tuple[str, ...]] = Counter()
    notes: dict[tuple[str, ...], str] = {}
    for experiment, listed in rows.items():
        for row in listed:
            if row.status != DONE:
                names = ("size", "p", "batch", "method", "device", "topology", "data")
                cell = ", ".join(f"{name} {row.key[name]}" for name in names if row.key.get(name) is not None)
                line = (experiment, cell, row.status)
                counts[line] += 1
                notes[line] = row.note
    if not counts:
        return tag("p", "No run was cut off, and none failed.")
    body = [[*line, notes[line], str(count)] for line, count in counts.items()]
    cut = sum(count for line, count in counts.items() if line[2] == CUT_OFF)
    failed = sum(count for line, count in counts.items() if line[2] == FAILED)
    title = f"Cut off: {cut:,} runs. Failed: {failed:,} runs."
    return fold(title, table(["experiment", "cell", "status", "last note", "runs"], body, numbers=1))


def _environments(rows: RowsByExperiment, omitted: int) -> Html:
    experiments: dict[str, list[str]] = {}
    environments: dict[str, Mapping[str, Any]] = {}
    for experiment, listed in rows.items():
        for id_, environment in {str(row.environment["id"]): row.environment for row in listed}.items():
            experiments.setdefault(id_, []).append(experiment)
            environments[id_] = environment
    parts = [fold(", ".join(names), _environment(environments[id_])) for id_, names in experiments.items()]
    if omitted:
        parts.append(tag("p", f"{omitted:,} more runs {_OMITTED}"))
    return join(*parts)


def _environment(environment: Mapping[str, Any]) -> Html:
    body = []
    for name, value in environment.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{package} {version}" for package, version in value.items())
        if name != "id" and value is not None:
            body.append([name.replace("_", " "), str(value)])
    return table(["", ""], body)

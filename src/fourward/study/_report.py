"""report.html: all figures and tables of a results file on one page, beside what the paper published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fourward._files import replacing
from fourward.study._aggregate import Rows, among, devices, gains, newest, on_device, span, those
from fourward.study._coverage import coverage
from fourward.study._datasets import PROBLEMS
from fourward.study._figures import pictures
from fourward.study._figures.style import encode
from fourward.study._findings import FAILS, HOLDS, PARTLY, UNKNOWN, Finding, findings
from fourward.study._html import Html, Text, fold, image, join, links, page, table, tag
from fourward.study._protocol import EXPERIMENTS
from fourward.study._report_tables import all_tables, compared
from fourward.study._store import CUT_OFF, DONE, FAILED, Row, Store

TITLE = "4Ward's study, run again with fourward"
TURNS = "Methods of one run take turns on each graph; rows don't tell which methods were run together."
_LEFT_OUT = (
    "aren't shown: they are of another machine, version, commit or protocol than the last run of their experiment."
)
_CLASSES = {HOLDS: "holds", PARTLY: "partly", FAILS: "fails", UNKNOWN: "unknown"}


def write_report(store: Store, folder: Path | str) -> Path:
    """Write report.html into a folder: one file that needs no other, whatever part of the study is done."""
    found = newest(store)
    other = len(store.rows(all_facts=True)) - sum(map(len, found.values()))
    path = Path(folder) / "report.html"
    with replacing(path) as temporary:
        temporary.write_text(page(TITLE, _body(found, other)), encoding="utf-8")
    return path


def _body(found: Rows, other: int) -> Html:
    drawn = [image(encode(one.figure, "svg"), one.caption, one.name) for one in pictures(found)]
    sections = {
        "findings": ("Finding by finding", _findings(found)),
        "protocol": ("What was run, and what was reduced", _protocol(found)),
        "figures": ("Figures", join(*drawn)),
        "tables": ("Tables", all_tables(found)),
        "machine": ("Machine, versions, code", _machines(found, other)),
    }
    jump = links({name: title for name, (title, _) in sections.items()})
    parts = [tag("section", tag("h2", title), inside, id=name) for name, (title, inside) in sections.items()]
    return join(tag("header", tag("h1", TITLE), _lead(found), jump), *parts)


def _lead(found: Rows) -> Html:
    runs = sum(map(len, found.values()))
    if not runs:
        return tag("p", "The results file is empty: the figures below only explain.")
    days = sorted(row.when[:10] for rows in found.values() for row in rows)
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return tag("p", f"{runs:,} runs, {when}, on {' and '.join(_places(found))}.", class_="soft")


def _places(found: Rows) -> list[str]:
    """The processors and cards that timed or trained something."""
    names: dict[str, None] = {}
    for rows in found.values():
        for row in rows:
            on_card = row.key.get("device") == "cuda"
            names[str(row.facts.get("card") if on_card else row.facts.get("processor", "an unknown machine"))] = None
    return list(names)


def _findings(found: Rows) -> Html:
    head = ["the paper's finding", "published", "here", "verdict"]
    parts = [
        table(
            [*head[:2], f"here, on {device}", head[3]],
            [
                _finding(one)
                for one in findings(on_device(found, "times", device), on_device(found, "reassignment", device))
            ],
        )
        for device in devices(found)
    ] or [table(head, [_finding(one) for one in findings([], [])])]
    return join(*parts, _ours(found), compared(found.get("topologies", [])))


def _finding(one: Finding) -> list[Text]:
    verdict = tag("span", one.verdict, class_=f"verdict {_CLASSES[one.verdict]}")
    return [one.claim, one.published, one.here, join(verdict, tag("div", tag("small", f"({one.rule})")))]


def _ours(found: Rows) -> Html:
    """What fourward gains over the paper's method: no finding of theirs, but the reason to read on."""
    lines = []
    for experiment, what in (("times", "a forward pass"), ("training", "a training step")):
        for device in among(found.get(experiment, []), "device"):
            cells = gains(on_device(found, experiment, device), "4ward", "fourward", ("size", "p", "batch"))
            seen = [cell.mean for cell in cells.values() if cell.mean is not None]
            if seen:
                text = f"{what} on {device}: {span(seen)} times as fast as 4Ward"
                lines.append(tag("li", f"{text}, over {len(seen)} cells of the grid"))
    return join(tag("h3", "Beyond the paper: fourward's own engines"), tag("ul", *lines)) if lines else Html("")


def _protocol(found: Rows) -> Html:
    lines: list[Text] = []
    for experiment in EXPERIMENTS:
        rows = found.get(experiment, [])
        for device in among(rows, "device") or ([None] if rows else []):
            own = rows if device is None else on_device(found, experiment, device)
            title = f"{experiment}{f' on {device}' if device else ''}"
            if experiment == "training":
                title += " (the paper measured forward passes only)"
            said = tag("ul", *(tag("li", f"{line}.") for line in coverage(experiment, own)))
            lines.append(tag("li", tag("strong", f"{title}:"), said))
    if found.get("topologies"):
        lines.append(tag("li", tag("strong", "topologies: "), _topology_words(found["topologies"])))
    missing = [name for name in (*EXPERIMENTS, "topologies") if not found.get(name)]
    if missing:
        lines.append(tag("li", tag("strong", "not in this results file: "), ", ".join(missing), "."))
    if found.get("times") or found.get("training"):
        lines.append(tag("li", TURNS))
    return join(tag("ul", *lines), _unfinished(found))


def _topology_words(rows: Sequence[Row]) -> str:
    seeds, epochs = len(among(rows, "seed")), ", ".join(map(str, among(rows, "epochs")))
    return (
        f"{seeds} seeds, {epochs} epochs, on {', '.join(name for name in PROBLEMS if those(rows, data=name))}. Each "
        "seed draws the graph, the weights and the samples anew, the same samples for all topologies. All have as many "
        "neurons, edges, inputs and outputs as the worm's connectome, and the same linear adaptors, so as many "
        "parameters; only dense-mlp has fewer neurons, and about as many edges. Damage is never learned from."
    )


def _unfinished(found: Rows) -> Html:
    """Runs that were cut off or failed, counted by cell."""
    counts: Counter[tuple[str, ...]] = Counter()
    notes: dict[tuple[str, ...], str] = {}
    for experiment, rows in found.items():
        for row in rows:
            if row.status != DONE:
                names = ("size", "p", "batch", "method", "device", "topology", "data")
                cell = ", ".join(f"{name} {row.key[name]}" for name in names if row.key.get(name) is not None)
                place = (experiment, cell, row.status)
                counts[place] += 1
                notes[place] = row.note
    if not counts:
        return tag("p", "No run was cut off, and none failed.")
    body = [[*place, notes[place], str(count)] for place, count in counts.items()]
    cut = sum(count for place, count in counts.items() if place[2] == CUT_OFF)
    failed = sum(count for place, count in counts.items() if place[2] == FAILED)
    title = f"Cut off: {cut:,} runs. Failed: {failed:,} runs."
    return fold(title, table(["experiment", "cell", "status", "last note", "runs"], body, numbers=1))


def _machines(found: Rows, other: int) -> Html:
    groups: dict[str, list[str]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    for experiment, rows in found.items():
        for name, one in {str(row.facts["id"]): row.facts for row in rows}.items():
            groups.setdefault(name, []).append(experiment)
            facts[name] = one
    parts = [fold(", ".join(names), _facts(facts[name])) for name, names in groups.items()]
    if other:
        parts.append(tag("p", f"{other:,} more runs in the file {_LEFT_OUT}"))
    return join(*parts)


def _facts(facts: Mapping[str, Any]) -> Html:
    body = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {one}" for key, one in value.items())
        if name != "id" and value is not None:
            body.append([name.replace("_", " "), str(value)])
    return table(["", ""], body)

"""report.html: all figures and tables of a results file on one page, beside what the paper published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fourward._files import replacing
from fourward.study.cells import among, cells, interval, latest, newest, number, those
from fourward.study.figures import pictures
from fourward.study.figures.every import Rows
from fourward.study.figures.frame import encode
from fourward.study.figures.maps import METHODS, present
from fourward.study.findings import FAILS, HOLDS, PARTLY, UNKNOWN, Finding, findings
from fourward.study.matched import TOPOLOGIES
from fourward.study.page import Html, Text, fold, image, join, page, table, tag
from fourward.study.problems import PROBLEMS
from fourward.study.protocol import EXPERIMENTS, Protocol
from fourward.study.store import CUT_OFF, DONE, FAILED, Row, Store
from fourward.study.tables import gains, mean_times

TITLE = "4Ward's study, run again with fourward"
_CLASSES = {HOLDS: "holds", PARTLY: "partly", FAILS: "fails", UNKNOWN: "unknown"}
_GAINS = (("sequential", "4ward"), ("deepstruct", "4ward"), ("4ward", "fourward"))


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
        "tables": ("Tables", _tables(found)),
        "machine": ("Machine, versions, code", _machines(found, other)),
    }
    links = tag("nav", *(tag("a", title, href=f"#{name}") for name, (title, _) in sections.items()))
    parts = [tag("section", tag("h2", title), inside, id=name) for name, (title, inside) in sections.items()]
    return join(tag("header", tag("h1", TITLE), _lead(found), links), *parts)


def _lead(found: Rows) -> Html:
    runs = sum(map(len, found.values()))
    if not runs:
        return tag("p", "The results file is empty: the figures below only explain.")
    days = sorted(row.when[:10] for rows in found.values() for row in rows)
    span = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    return tag("p", f"{runs:,} runs, {span}, on {' and '.join(_places(found))}.", class_="soft")


def _places(found: Rows) -> list[str]:
    """The processors and cards that timed or trained something."""
    names: dict[str, None] = {}
    for rows in found.values():
        for row in rows:
            on_card = row.key.get("device") == "cuda"
            names[str(row.facts.get("card") if on_card else row.facts.get("processor", "an unknown machine"))] = None
    return list(names)


def _devices(found: Rows) -> list[str]:
    return sorted({device for name in ("times", "reassignment") for device in among(found.get(name, []), "device")})


def _on(found: Rows, experiment: str, device: str) -> list[Row]:
    """The rows of one experiment on one device, of the last number of batches that was asked for."""
    return latest(those(found.get(experiment, []), device=device), "batches")


def _findings(found: Rows) -> Html:
    head = ["the paper's finding", "published", "here", "verdict"]
    parts = [
        table(
            [*head[:2], f"here, on {device}", head[3]],
            [_finding(one) for one in findings(_on(found, "times", device), _on(found, "reassignment", device))],
        )
        for device in _devices(found)
    ] or [table(head, [_finding(one) for one in findings([], [])])]
    return join(*parts, _ours(found), _learned(found))


def _finding(one: Finding) -> list[Text]:
    verdict = tag("span", one.verdict, class_=f"verdict {_CLASSES[one.verdict]}")
    return [one.claim, one.published, one.here, join(verdict, tag("div", tag("small", f"({one.rule})")))]


def _ours(found: Rows) -> Html:
    """What fourward gains over the paper's method: no finding of theirs, but the reason to read on."""
    lines = []
    for experiment, what in (("times", "a forward pass"), ("training", "a training step")):
        for device in among(found.get(experiment, []), "device"):
            rows = gains(_on(found, experiment, device), [("4ward", "fourward")])
            seen = [row["gain"] for row in rows if row["gain"] and not row["cut_off"] and not row["missing"]]
            if seen:
                text = f"{what} on {device}: {number(min(seen))} to {number(max(seen))} times as fast as 4Ward"
                lines.append(tag("li", f"{text}, over {len(seen)} cells of the grid"))
    return join(tag("h3", "Beyond the paper: fourward's own engines"), tag("ul", *lines)) if lines else Html("")


def _learned(found: Rows) -> Html:
    """Which topologies differ from the MLP, by seeds compared with themselves."""
    rows = [row for row in found.get("topologies", []) if row.status == DONE]
    if not rows:
        return Html("")
    accuracy = {(row.key["topology"], row.key["data"], row.key["seed"]): row.values["accuracy"] for row in rows}
    pairs = {
        (topology, data): [
            accuracy[topology, data, seed] - accuracy["mlp", data, seed]
            for seed in among(rows, "seed")
            if {(topology, data, seed), ("mlp", data, seed)} <= accuracy.keys()
        ]
        for topology in TOPOLOGIES if topology != "mlp"
        for data in PROBLEMS
    }  # fmt: skip
    tested = {place: differences for place, differences in pairs.items() if len(differences) > 1}
    if not tested:
        return Html("")
    apart = []
    for (topology, data), differences in tested.items():
        mean, reach = interval(differences, 1 - 0.05 / len(tested))
        if reach is not None and abs(mean) > reach:
            apart.append(f"{topology} on {data} by {100 * mean:+.1f} ± {100 * reach:.1f} points")
    said = "; ".join(apart) if apart else "none"
    text = (
        f"Of {len(tested)} comparisons with the MLP that has as many neurons and edges, seed by seed, these differ in "
        f"accuracy beyond chance (t-intervals at 95 % for all together, Bonferroni): {said}."
    )
    return join(tag("h3", "Beyond the paper: does the topology matter?"), tag("p", text))


def _protocol(found: Rows) -> Html:
    lines: list[Text] = []
    for experiment in EXPERIMENTS:
        rows = found.get(experiment, [])
        for device in among(rows, "device") or ([None] if rows else []):
            own = rows if device is None else _on(found, experiment, device)
            reduced = measured(experiment, own).reduced(experiment)
            words = "; ".join(reduced) if reduced else "as in the paper"
            if experiment == "training":
                words += " (the paper measured forward passes only)"
            lines.append(tag("li", tag("strong", f"{experiment}{f' on {device}' if device else ''}: "), words, "."))
    if found.get("topologies"):
        lines.append(tag("li", tag("strong", "topologies: "), _topology_words(found["topologies"])))
    missing = [name for name in (*EXPERIMENTS, "topologies") if not found.get(name)]
    if missing:
        lines.append(tag("li", tag("strong", "not in this results file: "), ", ".join(missing), "."))
    return join(tag("ul", *lines), _unfinished(found))


def measured(experiment: str, rows: Sequence[Row]) -> Protocol:
    """The protocol that these rows follow; `seeds` and `variants` are the fewest of any cell."""
    within = {"reassignment": ("graph", "variant")}.get(experiment, ("seed",))
    places: dict[Any, dict[str, set[Any]]] = {}
    for row in rows:
        place = tuple(row.key.get(name) for name in ("size", "p", "batch", "method"))
        seen = places.setdefault(place, {name: set() for name in within})
        for name in within:
            seen[name].add(row.key[name])
    given: dict[str, Any] = {"sizes": tuple(among(rows, "size")), "densities": tuple(among(rows, "p"))}
    given["seeds"] = min(len(seen[within[0]]) for seen in places.values())
    if experiment == "reassignment":
        given["variants"] = min(len(seen["variant"]) for seen in places.values())
    if experiment != "attributes":
        given |= {"batch_sizes": tuple(among(rows, "batch")), "batches": rows[-1].key["batches"]}
        given["methods"] = tuple(present(rows))
    return Protocol(**given)


def _topology_words(rows: Sequence[Row]) -> str:
    seeds, epochs = len(among(rows, "seed")), ", ".join(map(str, among(rows, "epochs")))
    return (
        f"{seeds} seeds, {epochs} epochs, on {', '.join(name for name in PROBLEMS if those(rows, data=name))}. Each "
        "seed draws the graph, the weights and the samples anew, the same samples for all topologies. All have as many "
        "neurons, edges, inputs and outputs as the worm's connectome, and the same linear adaptors, so as many "
        "parameters; only dense-mlp has fewer neurons. Damage is never learned from."
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


def _tables(found: Rows) -> Html:
    parts = []
    for experiment in ("times", "training"):
        for device in among(found.get(experiment, []), "device"):
            rows = _on(found, experiment, device)
            parts += [_times_table(experiment, device, rows, batch) for batch in among(rows, "batch")]
    if found.get("attributes"):
        parts.append(_attributes_table(found["attributes"]))
    parts += [_reassignment_table(device, _on(found, "reassignment", device)) for device in _devices(found)]
    if found.get("topologies"):
        parts += [_accuracy_table(found["topologies"]), _half_table(found["topologies"])]
    return join(*parts)


def _times_table(experiment: str, device: str, rows: Sequence[Row], batch: int) -> Html:
    """Milliseconds a batch, and gains; runs that were cut off count with what was seen, and are marked."""
    own, methods = those(rows, batch=batch), present(rows)
    times = {(row["size"], row["p"], row["method"]): row for row in mean_times(own)}
    ratios = {(row["size"], row["p"], row["slow"], row["fast"]): row for row in gains(own, _GAINS)}
    pairs = [pair for pair in _GAINS if set(pair) <= set(methods)]
    body = [
        [
            str(size),
            f"{p:g}",
            *(_time_text(times.get((size, p, method))) for method in methods),
            *(_gain_text(ratios.get((size, p, *pair))) for pair in pairs),
        ]
        for size in among(own, "size")
        for p in among(own, "p")
    ]
    heads = [*(METHODS[name] for name in methods), *(f"{METHODS[a]} / {METHODS[b]}" for a, b in pairs)]
    caption = (
        "Milliseconds a batch: mean ± deviation between graphs (number of graphs). Gains: mean over graphs of the "
        "ratio. * cut off: what was seen until then."
    )
    return fold(
        f"{experiment} on {device}, batch size {batch}",
        table(["size", "p", *heads], body, caption, len(heads)),
    )


def _time_text(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not run"
    if row["mean"] is None:
        return "cut off" if row["cut_off"] else "failed"
    deviation = f" ± {number(1e3 * row['deviation'])}" if row["deviation"] is not None else ""
    return f"{number(1e3 * row['mean'])}{deviation} ({row['graphs']}){' *' if row['cut_off'] else ''}"


def _gain_text(row: Mapping[str, Any] | None) -> str:
    if row is None or row["gain"] is None:
        return "unknown"
    return f"{number(row['gain'])}{' *' if row['cut_off'] or row['missing'] else ''}"


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
        time, height, moved = (cells(own, ("p",), name) for name in ("mean", "height", "moved"))
        for (p,), cell in sorted(time.items()):
            text = cell.status if cell.mean is None else f"{number(1e3 * cell.mean)} ± {number(1e3 * cell.deviation)}"
            body.append([METHODS[method], f"{p:g}", text, height[p,].text, moved[p,].text, str(cell.count)])
    heads = ["method", "p", "ms a batch", "height", "share moved", "layerings"]
    return fold(f"reassignment on {device}", table(heads, body, numbers=4)) if body else Html("")


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


def _by_data(title: str, rows: Sequence[Row], text: Any) -> Html:
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


def _machines(found: Rows, other: int) -> Html:
    groups: dict[str, list[str]] = {}
    facts: dict[str, Mapping[str, Any]] = {}
    for experiment, rows in found.items():
        name = str(rows[-1].facts.get("id"))
        groups.setdefault(name, []).append(experiment)
        facts[name] = rows[-1].facts
    parts = [fold(", ".join(names), _facts(facts[name])) for name, names in groups.items()]
    if other:
        parts.append(
            tag("p", f"{other:,} more runs in the file, of other machines, versions or commits, aren't shown here: of "
                "each experiment only those that belong with its last run are.")
        )  # fmt: skip
    return join(*parts)


def _facts(facts: Mapping[str, Any]) -> Html:
    body = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            value = ", ".join(f"{key} {one}" for key, one in value.items())
        if name != "id" and value is not None:
            body.append([name.replace("_", " "), str(value)])
    return table(["", ""], body)

"""The benchmark of real graphs as tables."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.report import format_environment, format_rows
from benchmarks.storage import geometric_mean, write_page

Cells = list[dict[str, Any]]
NAMES = {"fourward": "fourward", "before": "before", "csr": "CSR levels", "mlp": "MLP", "copy": "copy"}
LABELS = {
    "nodes=n": "labels 0 to N-1, `nodes=n`",
    "nodes=range(n)": "the same, `nodes=range(n)`",
    "ids": "64-bit ids",
    "ids, nodes=array": "64-bit ids, listed by `nodes=`",
    "networks from arrays": "a `Dag` and its network, 50 nodes and 100 edges, from an array",
    "networks from lists": "the same from a list",
}


def write_real_report(data: dict[str, Any], folder: Path) -> None:
    """real.md, from the stored results."""
    write_page("real", format_real_report(data), folder)


def format_real_report(data: dict[str, Any]) -> str:
    """The results as a page."""
    before = data["facts"]["before"]
    parts = [
        "# CPU benchmark: real graphs",
        f"{format_environment(data['facts'])} Written by `make bench-cpu`; `benchmarks/real.py` has the protocol. "
        "Medians of alternating turns, milliseconds. copy: N B float32, from one kept buffer to another. "
        + ("" if before is None else f"before: the same with commit {before[:7]}, in the same rounds. ")
        + "Empty: left out by the rules of the protocol.",
        "## In short",
        *_summary(data["real"]),
        "## Forward without gradients",
        _table(data["real"], "forward"),
        "## Training step with Adam",
        _table(data["real"], "train"),
        *_latency(data["latency"]),
        "## Building",
        *_building(data["building"]),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(cells: Cells) -> Iterable[str]:
    for kind, title in (("forward", "Forward"), ("train", "Training step")):
        for rival, text in (("copy", "time over copying N B floats"), ("before", "gain over before")):
            ratios = [_ratio(cell[kind], rival) for cell in cells]
            known = [ratio for ratio in ratios if ratio is not None]
            if known:
                yield f"{title}, {text}: {geometric_mean(known):.2f} ({min(known):.2f} to {max(known):.2f})."
        for rival in ("before", "csr", "mlp"):
            both = [cell for cell in cells if rival in cell[kind]]
            lost = [cell for cell in both if cell[kind]["fourward"] > cell[kind][rival]]
            won = [cell for cell in both if cell not in lost]
            if both:
                if len(won) < len(lost):
                    names = f"; not slower: {_names(won)}" if won else ""
                else:
                    names = f": {_names(lost)}" if lost else ""
                yield f"{title}, slower than {NAMES[rival]} in {len(lost)} of {len(both)} cells{names}."


def _names(cells: Cells) -> str:
    return "; ".join(map(_name, cells))


def _ratio(times: dict[str, float], rival: str) -> float | None:
    """Our time over that of copying; before's time over ours."""
    if rival not in times:
        return None
    return times["fourward"] / times[rival] if rival == "copy" else times[rival] / times["fourward"]


def _name(cell: dict[str, Any]) -> str:
    return f"{cell['graph']} ({cell['edges']:,} edges), {cell['activation']}, B={cell['batch']}"


def _table(cells: Cells, kind: str) -> str:
    columns = [name for name in NAMES if any(name in cell[kind] for cell in cells)]
    head = ["graph", "nodes", "edges", "height", "activation", "B", *(NAMES[c] for c in columns), "over copy"]
    rows = [[*head, "gain over before"] if "before" in columns else head]
    for cell in cells:
        times = [_format(1e3 * cell[kind][c]) if c in cell[kind] else "" for c in columns]
        sizes = [f"{cell[name]:,}" for name in ("nodes", "edges", "height")]
        ratios = [_ratio(cell[kind], rival) for rival in ("copy", "before")][: len(rows[0]) - len(head) + 1]
        texts = ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        rows.append([cell["graph"], *sizes, cell["activation"], str(cell["batch"]), *times, *texts])
    return format_rows(rows)


def _latency(cells: Cells) -> Iterable[str]:
    if cells:
        rows = [["graph", "edges", "layers", "fourward", "onnxruntime", "its time over ours", "nodes of ONNX"]]
        for cell in cells:
            ours, theirs = (cell["microseconds"][name] for name in ("fourward", "onnx"))
            sizes = [f"{cell[name]:,}" for name in ("edges", "layers")]
            times = [_format(ours), _format(theirs), f"{theirs / ours:.1f}"]
            rows.append([cell["graph"], *sizes, *times, f"{cell['onnx_nodes']:,}"])
        yield "## Latency at batch 1, microseconds, tanh, one thread"
        yield format_rows(rows)


def _building(building: dict[str, Any]) -> Iterable[str]:
    yield f"Labels: {building['nodes']:,} nodes and {building['edges']:,} random edges."
    whos = list(building["seconds"]["ids"])
    rows = [["", *(NAMES[who] for who in whos)]]
    for name, seconds in building["seconds"].items():
        small = name.startswith("networks")
        rows.append([LABELS[name], *(f"{1e3 * seconds[w]:.3f} ms" if small else f"{seconds[w]:.2f} s" for w in whos)])
    yield format_rows(rows)


def _format(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

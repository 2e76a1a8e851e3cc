"""What `fourward study` prints: progress, summaries and tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from fourward.errors import pluralize
from fourward.study._aggregate import format_number
from fourward.study._run import Progress, Summary, format_duration
from fourward.study._store import CUT_OFF, DONE, FAILED, FILE

_COUNTS = ("requested", "done", "cut_off", "failed")


def show_progress() -> AbstractContextManager[Callable[[Progress], None]]:
    """Progress bars at a terminal, else lines."""
    return ProgressBars() if sys.stderr.isatty() else nullcontext(ProgressLines())


class ProgressLines:
    """Progress as lines on stderr, one every few seconds: for logs."""

    def __init__(self, interval: float = 10.0) -> None:
        self.interval, self.last = interval, float("-inf")

    def __call__(self, progress: Progress) -> None:
        """Print a line, unless the last one is recent."""
        now = time.perf_counter()
        if now - self.last >= self.interval or progress.ended == progress.total:
            self.last = now
            print(progress, file=sys.stderr, flush=True)


class ProgressBars:
    """A bar for each experiment, with the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        left = TextColumn("{task.fields[left]}")
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), left
        self.bars, self.tasks = Progress(*columns, console=Console(stderr=True)), dict[str, Any]()

    def __enter__(self) -> ProgressBars:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Update the experiment's bar."""
        name = progress.experiment
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=progress.total, left="")
        self.bars.update(self.tasks[name], completed=progress.ended, left=progress.time_left)


def print_summary(summary: Summary, out: Path) -> None:
    """What a command did, in a few lines."""
    counts = [f"{summary.ended[status]:,} {status}" for status in (DONE, CUT_OFF, FAILED) if summary.ended[status]]
    print(f"{', '.join(counts) or 'nothing new'} in {format_duration(summary.seconds)}: {out / FILE}")
    if summary.skipped:
        print(f"{pluralize(summary.skipped, 'run')} skipped: already in the file")
    if summary.left:
        print(f"{pluralize(summary.left, 'run')} left: run the same command to continue")
    if summary.ended[FAILED]:
        print("failed runs are repeated by the same command; their notes say why they failed")


def print_gains(table: list[dict[str, Any]]) -> None:
    """The gains of each pair of methods, a line for each cell."""
    pairs = list(dict.fromkeys((line["slow"], line["fast"]) for line in table))
    cells: dict[Any, dict[Any, str]] = {}
    for line in table:
        key = line["size"], line["p"], line["batch"]
        cells.setdefault(key, {})[line["slow"], line["fast"]] = _gain_text(line)
    names = ["size", "p", "batch", *(f"{slow} / {fast}" for slow, fast in pairs)]
    _print_table("gains", names, [[*map(str, key), *map(texts.get, pairs)] for key, texts in sorted(cells.items())])


def _gain_text(line: dict[str, Any]) -> str:
    if line["gain"] is None:
        return "failed" if line["failed"] == line["missing"] else "cut off"
    note = f", {line['cut_off']} cut off" if line["cut_off"] else ""
    note += f", {line['missing']} missing" if line["missing"] else ""
    return f"{format_number(line['gain'])} ({format_number(line['of_means'])}){note}"


def print_status(status: dict[str, Any]) -> None:
    """The runs of each machine and experiment, cell by cell."""
    for group in status["groups"]:
        environment = group["environment"]
        hardware = environment.get("card") or environment.get("processor")
        print(f"{hardware}, commit {environment.get('commit')}, environment {environment['id']}")
        for experiment in group["experiments"]:
            _print_experiment(experiment)
    if not status["groups"]:
        print(f"{status['file']} has no runs yet")


def _print_experiment(experiment: dict[str, Any]) -> None:
    requested = experiment["requested"]
    counts = f"{experiment['done']} done, {experiment['cut_off']} cut off, {experiment['failed']} failed"
    print(f"\n{experiment['name']}: {counts}" + (f", {requested} requested" if requested is not None else ""))
    for line in experiment["reduced"]:
        print(f"  reduced: {line}")
    cells = experiment["cells"]
    names = [
        name for name in dict.fromkeys(name for cell in cells for name in cell) if name not in (*_COUNTS, "method")
    ]
    methods = list(dict.fromkeys(cell.get("method", "runs") for cell in cells))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells:
        key = tuple(str(cell.get(name, "")) for name in names)
        lines.setdefault(key, {})[cell.get("method", "runs")] = _count_text(cell)
    _print_table(None, [*names, *methods], [[*key, *map(texts.get, methods)] for key, texts in lines.items()])


def _count_text(cell: dict[str, Any]) -> str:
    text = f"{cell['done']}" if cell["requested"] is None else f"{cell['done']}/{cell['requested']}"
    return text + "".join(f", {cell[name]} {name.replace('_', ' ')}" for name in ("cut_off", "failed") if cell[name])


def _print_table(title: str | None, names: Sequence[str], lines: Sequence[Sequence[str | None]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*map(escape, names), title=title, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*(None if text is None else escape(text) for text in line))
    Console(width=None if sys.stdout.isatty() else 200).print(table)

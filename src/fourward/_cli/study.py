"""`fourward study`: the paper's experiments, their progress and their tables."""

from __future__ import annotations

import json as json_
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward._cli.output import warn_if_busy
from fourward.study._protocol import WORDS
from fourward.study._store import FILE

if TYPE_CHECKING:
    from fourward.study._run import Progress

Out = Annotated[Path, typer.Option(help=f"Folder of {FILE}; what is in it isn't run again.")]
From = Annotated[Path, typer.Option("--out", help=f"Folder of {FILE}.")]  #: for those who run nothing
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Sizes = Annotated[str | None, typer.Option(help=WORDS["sizes"])]
Densities = Annotated[str | None, typer.Option(help=WORDS["densities"])]
BatchSizes = Annotated[str | None, typer.Option(help=WORDS["batch_sizes"])]
Methods = Annotated[str | None, typer.Option(help=WORDS["methods"])]
Seeds = Annotated[int | None, typer.Option(help=WORDS["seeds"])]
Batches = Annotated[int | None, typer.Option(help=WORDS["batches"])]
Variants = Annotated[int | None, typer.Option(help=WORDS["variants"])]
CellSeconds = Annotated[float | None, typer.Option(help=WORDS["cell_seconds"])]
Seconds = Annotated[float | None, typer.Option(help="Budget of the whole: after it no new graph is begun.")]
Retry = Annotated[bool, typer.Option("--retry", help="Also run again what was cut off.")]
Commit = Annotated[str | None, typer.Option(help="Of the code, where there is no git to ask.")]
Json = Annotated[bool, typer.Option("--json", help="For programs.")]
FOLDER = Path("study")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    study = typer.Typer(
        no_args_is_help=True,
        help="The paper's experiments, on your machine: run them, stop them, go on, and look at what came out. "
        "Without options an experiment is the paper's own; options reduce it.",
    )
    study.command("times")(_over_the_grid(partial(_measure, "times"), TIMES))
    study.command("training")(_over_the_grid(partial(_measure, "training"), TRAINING))
    study.command()(attributes)
    study.command()(reassignment)
    study.command("all")(_over_the_grid(_everything, ALL))
    study.command()(topologies)
    study.command()(gains)
    study.command()(status)
    study.command()(export)
    study.command()(figures)
    study.command()(report)
    app.add_typer(study, name="study")


TIMES = """Time forward passes over the paper's grid: sequential, deepstruct, 4Ward as published, and ours.

Example: `fourward study times --seeds 3 --batches 10 --cell-seconds 10`
"""
TRAINING = """Time whole training steps over the same grid, which the paper didn't: forward, loss, backward, Adam.

Example: `fourward study training --seeds 3 --batches 10 --methods 4ward,fourward`
"""


ALL = """Run attributes, times, reassignment, training and topologies, then draw the figures and write the report.

Sizes, batch sizes and methods are those of the grid; reassignment keeps the paper's. Topologies run on the CPU, and
only if time is left of --seconds.

Example: `fourward study all --seeds 3 --batches 10 --cell-seconds 10`
"""


def _over_the_grid(act: Callable[..., None], text: str) -> Callable[..., None]:
    """A command with the options of the grid."""

    def command(
        out: Out = FOLDER,
        device: Device = "cpu",
        sizes: Sizes = None,
        densities: Densities = None,
        batch_sizes: BatchSizes = None,
        methods: Methods = None,
        seeds: Seeds = None,
        batches: Batches = None,
        cell_seconds: CellSeconds = None,
        seconds: Seconds = None,
        retry: Retry = False,
        commit: Commit = None,
    ) -> None:
        words: dict[str, Any] = {"device": device, "sizes": sizes, "densities": densities, "batch_sizes": batch_sizes}
        words |= {"methods": methods, "seeds": seeds, "batches": batches, "cell_seconds": cell_seconds}
        act(out, words, seconds, retry, commit)

    command.__doc__ = text
    return command


def attributes(
    out: Out = FOLDER,
    sizes: Sizes = None,
    densities: Densities = None,
    seeds: Seeds = None,
    seconds: Seconds = None,
    commit: Commit = None,
) -> None:
    """Height and height attenuation of the paper's graphs; nothing is timed.

    Example: `fourward study attributes`
    """
    _measure("attributes", out, {"sizes": sizes, "densities": densities, "seeds": seeds}, seconds, False, commit)


def reassignment(
    out: Out = FOLDER,
    device: Device = "cpu",
    sizes: Sizes = None,
    densities: Densities = None,
    batch_sizes: BatchSizes = None,
    methods: Methods = None,
    seeds: Seeds = None,
    batches: Batches = None,
    variants: Variants = None,
    cell_seconds: CellSeconds = None,
    seconds: Seconds = None,
    retry: Retry = False,
    commit: Commit = None,
) -> None:
    """Time graphs of the mean height by many layerings of that height, as the paper's appendix B does.

    Example: `fourward study reassignment --seeds 10 --batches 20`
    """
    words: dict[str, Any] = {"device": device, "sizes": sizes, "densities": densities, "batch_sizes": batch_sizes}
    words |= {"methods": methods, "seeds": seeds, "batches": batches}
    words |= {"variants": variants, "cell_seconds": cell_seconds}
    _measure("reassignment", out, words, seconds, retry, commit)


def topologies(
    out: Out = FOLDER,
    topologies: Annotated[str | None, typer.Option(help="Some of them, with commas; default: all.")] = None,
    data: Annotated[str | None, typer.Option(help="Some data sets, with commas; default: all.")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each pair: each draws graph, weights and samples anew.")] = 10,
    epochs: Annotated[int, typer.Option(help="Times that all samples are seen.")] = 40,
    draws: Annotated[int, typer.Option(help="Damages of each kind and share.")] = 5,
    workers: Annotated[int | None, typer.Option(help="Processes on this machine; default: one a core.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask cluster to run on instead.")] = None,
    commit: Commit = None,
) -> None:
    """Train matched topologies on the same tasks, and damage them: random graphs, a connectome, its shuffle, MLPs.

    Example: `fourward study topologies --seeds 3 --data digits,wine`
    """
    from fourward.study._progress import summary_text, writing
    from fourward.study._topologies import Topologies, run_topologies

    lists = {"topologies": topologies, "data": data}
    chosen: dict[str, Any] = {name: tuple(words.split(",")) for name, words in lists.items() if words is not None}
    wanted = Topologies(**chosen, seeds=seeds, epochs=epochs, draws=draws)
    with writing(out, commit) as store, _shown() as on_progress:
        summary = run_topologies(store, wanted, workers=workers, scheduler=scheduler, on_progress=on_progress)
    print(summary_text(summary, out))


def _everything(out: Path, words: dict[str, Any], seconds: float | None, retry: bool, commit: str | None) -> None:
    began = time.monotonic()
    _measure("all", out, words, seconds, retry, commit)
    if seconds is None or time.monotonic() - began < seconds:
        topologies(out, seeds=10 if words["seeds"] is None else words["seeds"], commit=commit)
    figures(out)
    report(out)


def gains(
    out: From = FOLDER,
    training: Annotated[bool, typer.Option("--training", help="Of training steps instead of forward passes.")] = False,
    json: Json = False,
) -> None:
    """How many times faster one method is than another, from the times in the results file.

    A gain is the mean over graphs of the ratio of a graph's times; in brackets the ratio of the mean times.

    Example: `fourward study gains`
    """
    from fourward.study import _tables
    from fourward.study._progress import newest

    table = _tables.gains(newest(out, "training" if training else "times"))
    if json:
        print(json_.dumps(table))
        return
    pairs = list(dict.fromkeys((line["slow"], line["fast"]) for line in table))
    lines: dict[Any, dict[Any, str]] = {}
    for line in table:
        place = line["size"], line["p"], line["batch"]
        lines.setdefault(place, {})[line["slow"], line["fast"]] = _gain_text(line)
    names = ["size", "p", "batch", *(f"{slow} / {fast}" for slow, fast in pairs)]
    _print_table("gains", names, [[*map(str, place), *map(found.get, pairs)] for place, found in sorted(lines.items())])


def status(out: From = FOLDER, json: Json = False) -> None:
    """How much of a study is done, cut off and failed, cell by cell.

    Example: `fourward study status --json`
    """
    from fourward.study._store import Store
    from fourward.study._tables import status as look

    with Store(out / FILE, create=False) as store:
        found = look(store)
    if json:
        print(json_.dumps(found))
        return
    for group in found["groups"]:
        facts = group["facts"]
        print(f"{facts.get('card') or facts.get('processor')}, commit {facts.get('commit')}, facts {facts['id']}")
        for experiment in group["experiments"]:
            _print_status(experiment)
    if not found["groups"]:
        print(f"{found['file']} has no runs yet")


def export(
    out: From = FOLDER,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    to: Annotated[Path | None, typer.Option(help="Folder for the tables; default: that of the results.")] = None,
) -> None:
    """Write a table for each experiment, and one with the machines and versions that rows name.

    Example: `fourward study export --format parquet`
    """
    from fourward.study._store import Store

    with Store(out / FILE, create=False) as store:
        for path in store.export(out if to is None else to, format):  # type: ignore[arg-type] # it looks for itself
            print(path)


def figures(
    out: From = FOLDER,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the pictures; default: figures, in that of --out.")
    ] = None,
) -> None:
    """Draw every figure of the paper, and those of the topologies, from the results file: PNG and SVG.

    Example: `fourward study figures`
    """
    from fourward.study._figures import draw_all
    from fourward.study._store import Store

    with Store(out / FILE, create=False) as store:
        for path in draw_all(store, out / "figures" if to is None else to):
            print(path)


def report(
    out: From = FOLDER,
    to: Annotated[Path | None, typer.Option(help="Folder for report.html; default: that of the results.")] = None,
) -> None:
    """Write report.html: all figures and tables, the machine, and the paper's findings beside yours, in one file.

    Example: `fourward study report`
    """
    from fourward.study._report import write_report
    from fourward.study._store import Store

    with Store(out / FILE, create=False) as store:
        print(write_report(store, out if to is None else to))


def _measure(
    experiment: str, out: Path, words: dict[str, Any], seconds: float | None, retry: bool, commit: str | None
) -> None:
    from fourward.study._progress import experiments_of, measure, protocols, summary_text

    asked = protocols(experiments_of(experiment), words)
    if experiment != "attributes":  # all others measure times
        warn_if_busy()
    with _shown() as on_progress:
        summary = measure(out, asked, seconds=seconds, retry=retry, commit=commit, on_progress=on_progress)
    print(summary_text(summary, out))


def _shown() -> AbstractContextManager[Callable[[Progress], None]]:
    """Bars at a terminal, else lines."""
    from fourward.study._progress import PlainProgress

    return _Bars() if sys.stderr.isatty() else nullcontext(PlainProgress())


class _Bars:
    """A bar for each experiment, with the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        said = TextColumn("{task.fields[left]}")
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), said
        self.bars, self.tasks = Progress(*columns, console=Console(stderr=True)), dict[str, Any]()

    def __enter__(self) -> _Bars:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def __call__(self, progress: Progress) -> None:
        from fourward.study._progress import left_text

        name = progress.experiment
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=progress.total, left="")
        self.bars.update(self.tasks[name], completed=progress.ended, left=left_text(progress))


def _gain_text(line: dict[str, Any]) -> str:
    from fourward.study._aggregate import number

    if line["gain"] is None:
        return "failed" if line["failed"] == line["missing"] else "cut off"
    note = f", {line['cut_off']} cut off" if line["cut_off"] else ""
    note += f", {line['missing']} missing" if line["missing"] else ""
    return f"{number(line['gain'])} ({number(line['of_means'])}){note}"


def _print_status(experiment: dict[str, Any]) -> None:
    wanted = experiment["wanted"]
    counts = f"{experiment['done']} done, {experiment['cut_off']} cut off, {experiment['failed']} failed"
    print(f"\n{experiment['name']}: {counts}" + (f", {wanted} asked for" if wanted is not None else ""))
    for line in experiment["reduced"]:
        print(f"  reduced: {line}")
    counted = ("wanted", "done", "cut_off", "failed")
    cells = experiment["cells"]
    names = [
        name for name in dict.fromkeys(name for cell in cells for name in cell) if name not in (*counted, "method")
    ]
    methods = list(dict.fromkeys(cell.get("method", "runs") for cell in cells))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for cell in cells:
        place = tuple(str(cell.get(name, "")) for name in names)
        lines.setdefault(place, {})[cell.get("method", "runs")] = _count_text(cell)
    _print_table(None, [*names, *methods], [[*place, *map(found.get, methods)] for place, found in lines.items()])


def _count_text(cell: dict[str, Any]) -> str:
    text = f"{cell['done']}" if cell["wanted"] is None else f"{cell['done']}/{cell['wanted']}"
    return text + "".join(f", {cell[name]} {name.replace('_', ' ')}" for name in ("cut_off", "failed") if cell[name])


def _print_table(title: str | None, names: Sequence[str], lines: Sequence[Sequence[str | None]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*map(escape, names), title=title, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*(None if word is None else escape(word) for word in line))
    Console(width=None if sys.stdout.isatty() else 200).print(table)

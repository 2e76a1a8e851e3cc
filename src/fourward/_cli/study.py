"""`fourward study`: the paper's experiments, their progress and their tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fourward._cli.output import print_json, warn_if_busy
from fourward.errors import StudyError, pluralize
from fourward.study._store import FILE

if TYPE_CHECKING:
    from fourward.study._protocol import Protocol
    from fourward.study._store import Row, Store

Out = Annotated[Path, typer.Option(help=f"Folder of {FILE}; runs that it contains are skipped.")]
Source = Annotated[Path, typer.Option("--out", help=f"Folder of {FILE}.")]  #: the same for commands that run nothing
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
Sizes = Annotated[str | None, typer.Option(help="Numbers of nodes, comma-separated.")]
Densities = Annotated[str | None, typer.Option(help="Edge probabilities, comma-separated.")]
BatchSizes = Annotated[str | None, typer.Option(help="Batch sizes, comma-separated.")]
Methods = Annotated[str | None, typer.Option(help="Methods, comma-separated: sequential, deepstruct, 4ward, fourward.")]
Seeds = Annotated[int | None, typer.Option(help="Graphs per cell.")]
Batches = Annotated[int | None, typer.Option(help="Batches to time in a run.")]
Variants = Annotated[int | None, typer.Option(help="Reassigned layerings per graph.")]
CellSeconds = Annotated[
    float | None, typer.Option(help="Time limit of a run, and of building a network, after which it is cut off.")
]
Seconds = Annotated[float | None, typer.Option(help="Time budget of the command, after which no new graph is started.")]
Retry = Annotated[bool, typer.Option("--retry", help="Also repeat runs that were cut off.")]
Commit = Annotated[str | None, typer.Option(help="Commit to record with the results. Default: what git reports.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FOLDER = Path("study")
_LISTS = ("sizes", "densities", "batch_sizes", "methods")
#: Options of `fourward study all` that apply to reassignment, which otherwise keeps the paper's protocol.
_SHARED = ("device", "densities", "seeds", "batches", "variants", "cell_seconds")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    study = typer.Typer(
        no_args_is_help=True,
        help="Run the paper's experiments on this machine, interrupt and continue them, and evaluate the results. "
        "Without options an experiment is the paper's own; options reduce it.",
    )
    study.command("times")(_grid_command(partial(_measure, ("times",)), TIMES))
    study.command("training")(_grid_command(partial(_measure, ("training",)), TRAINING))
    study.command()(attributes)
    study.command()(reassignment)
    study.command("all")(_grid_command(_run_all, ALL))
    study.command()(topologies)
    study.command()(gains)
    study.command()(status)
    study.command()(export)
    study.command()(figures)
    study.command()(report)
    app.add_typer(study, name="study")


TIMES = """Time forward passes over the paper's grid: sequential, deepstruct, 4Ward as published, and fourward.

Example: `fourward study times --seeds 3 --batches 10 --cell-seconds 10`
"""
TRAINING = """Time training steps over the same grid, which the paper didn't measure: forward, loss, backward, Adam.

Example: `fourward study training --seeds 3 --batches 10 --methods 4ward,fourward`
"""
ALL = """Run attributes, times, reassignment, training and topologies, then draw the figures and write the report.

Sizes, batch sizes and methods are those of the grid; reassignment uses the paper's. Topologies run on the CPU, and
only if --seconds isn't used up.

Example: `fourward study all --seeds 3 --batches 10 --cell-seconds 10`
"""


def _grid_command(action: Callable[..., None], text: str) -> Callable[..., None]:
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
        options: dict[str, Any] = {"device": device, "sizes": sizes, "densities": densities, "batch_sizes": batch_sizes}
        options |= {"methods": methods, "seeds": seeds, "batches": batches, "cell_seconds": cell_seconds}
        action(out, options, seconds, retry, commit)

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
    """Compute height and height attenuation of the paper's graphs; nothing is timed.

    Example: `fourward study attributes`
    """
    options = {"sizes": sizes, "densities": densities, "seeds": seeds}
    _measure(("attributes",), out, options, seconds, False, commit)


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
    """Time graphs of the mean height with many layerings of that height, as the paper's appendix B does.

    Example: `fourward study reassignment --seeds 10 --batches 20`
    """
    options: dict[str, Any] = {"device": device, "sizes": sizes, "densities": densities, "batch_sizes": batch_sizes}
    options |= {"methods": methods, "seeds": seeds, "batches": batches}
    options |= {"variants": variants, "cell_seconds": cell_seconds}
    _measure(("reassignment",), out, options, seconds, retry, commit)


def topologies(
    out: Out = FOLDER,
    topologies: Annotated[str | None, typer.Option(help="Topologies, comma-separated; default: all.")] = None,
    data: Annotated[str | None, typer.Option(help="Data sets, comma-separated; default: all.")] = None,
    seeds: Annotated[
        int, typer.Option(help="Runs per topology and data set; each draws its own graph, weights and samples.")
    ] = 10,
    epochs: Annotated[int, typer.Option(help="Training epochs.")] = 40,
    draws: Annotated[int, typer.Option(help="Random removals for each kind and fraction.")] = 5,
    workers: Annotated[int | None, typer.Option(help="Processes on this machine; default: one per core.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask cluster to run on instead.")] = None,
    commit: Commit = None,
) -> None:
    """Train matched topologies on the same data, then remove edges and neurons: random graphs, a connectome, MLPs.

    Example: `fourward study topologies --seeds 3 --data digits,wine`
    """
    from fourward._cli.study_output import print_summary, show_progress
    from fourward.study._topologies import Topologies, run_topologies

    lists = {"topologies": topologies, "data": data}
    chosen: dict[str, Any] = {name: tuple(text.split(",")) for name, text in lists.items() if text is not None}
    protocol = Topologies(**chosen, seeds=seeds, epochs=epochs, draws=draws)
    with _open_for_writing(out, commit) as store, show_progress() as on_progress:
        summary = run_topologies(store, protocol, workers=workers, scheduler=scheduler, on_progress=on_progress)
    print_summary(summary, out)


def _run_all(out: Path, options: dict[str, Any], seconds: float | None, retry: bool, commit: str | None) -> None:
    from fourward.study._protocol import EXPERIMENTS

    start = time.monotonic()
    _measure(EXPERIMENTS, out, options, seconds, retry, commit)
    if seconds is None or time.monotonic() - start < seconds:
        topologies(out, seeds=10 if options["seeds"] is None else options["seeds"], commit=commit)
    figures(out)
    report(out)


def gains(
    out: Source = FOLDER,
    training: Annotated[
        bool, typer.Option("--training", help="Compare training steps instead of forward passes.")
    ] = False,
    json: Json = False,
) -> None:
    """Show how many times faster one method is than another, from the times in the results file.

    A gain is the mean over graphs of the ratio of a graph's times; in brackets the ratio of the mean times.

    Example: `fourward study gains`
    """
    from fourward._cli.study_output import print_gains
    from fourward.study import gains as compute_gains

    table = compute_gains(_latest_rows(out, "training" if training else "times"))
    print_json(table) if json else print_gains(table)


def status(out: Source = FOLDER, json: Json = False) -> None:
    """Show how many runs of a study are done, cut off and failed, cell by cell.

    Example: `fourward study status --json`
    """
    from fourward._cli.study_output import print_status
    from fourward.study import Store
    from fourward.study import status as read_status

    with Store(out / FILE, create=False) as store:
        counts = read_status(store)
    print_json(counts) if json else print_status(counts)


def export(
    out: Source = FOLDER,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    to: Annotated[Path | None, typer.Option(help="Folder for the tables; default: that of the results.")] = None,
) -> None:
    """Write a table for each experiment, and one of the machines and versions that its rows refer to.

    Example: `fourward study export --format parquet`
    """
    from fourward.study import Store

    with Store(out / FILE, create=False) as store:
        for path in store.export(out if to is None else to, format):  # type: ignore[arg-type] # export checks it
            print(path)


def figures(
    out: Source = FOLDER,
    to: Annotated[
        Path | None, typer.Option(help="Folder for the figures; default: figures, in the folder of the results.")
    ] = None,
) -> None:
    """Draw every figure of the paper, and those of the topologies, from the results file: PNG and SVG.

    Example: `fourward study figures`
    """
    from fourward.study import Store, write_figures

    with Store(out / FILE, create=False) as store:
        for path in write_figures(store, out / "figures" if to is None else to):
            print(path)


def report(
    out: Source = FOLDER,
    to: Annotated[Path | None, typer.Option(help="Folder for report.html; default: that of the results.")] = None,
) -> None:
    """Write report.html: all figures and tables, the machine, and the paper's findings beside yours, in one file.

    Example: `fourward study report`
    """
    from fourward.study import Store, write_report

    with Store(out / FILE, create=False) as store:
        print(write_report(store, out if to is None else to))


def _measure(
    experiments: tuple[str, ...],
    out: Path,
    options: dict[str, Any],
    seconds: float | None,
    retry: bool,
    commit: str | None,
) -> None:
    from fourward._cli.study_output import print_summary, show_progress
    from fourward.study import run

    protocols = {}
    for name in experiments:
        shared = len(experiments) > 1 and name == "reassignment"
        protocols[name] = parse_protocol(
            name, {option: value for option, value in options.items() if not shared or option in _SHARED}
        )
    if experiments != ("attributes",):  # all others measure times
        warn_if_busy()
    with show_progress() as on_progress, _open_for_writing(out, commit) as store:
        summary = run(store, protocols, seconds=seconds, retry=retry, on_progress=on_progress)
    print_summary(summary, out)


def parse_protocol(experiment: str, options: dict[str, Any]) -> Protocol:
    """The protocol of a command line: lists are comma-separated, and what is None stays the paper's."""
    from fourward.study import paper_protocol

    values = {name: value for name, value in options.items() if value is not None}
    lists = {name: values[name].split(",") for name in _LISTS if name in values}
    return replace(paper_protocol(experiment), **values | lists)


@contextmanager
def _open_for_writing(out: Path, commit: str | None = None) -> Iterator[Store]:
    """The results file of a folder; says on stderr how to continue when the block is interrupted."""
    from fourward.study import Store, describe_environment

    with Store(out / FILE, environment=describe_environment(commit)) as store:
        try:
            yield store
        except KeyboardInterrupt:
            count = pluralize(len(store.rows()), "run")
            print(f"\n{count} saved in {store.path}. Run the same command to continue.", file=sys.stderr)
            raise


def _latest_rows(out: Path, experiment: str) -> list[Row]:
    """The rows of an experiment that belong to the machine, versions and commit that ran it last."""
    from fourward.study import Store
    from fourward.study._aggregate import group_by_environment

    with Store(out / FILE, create=False) as store:
        groups = group_by_environment(store.rows(experiment, all_environments=True))
    if not groups:
        raise StudyError(f"{out / FILE} has no rows of {experiment!r}. Run `fourward study {experiment}` first.")
    if len(groups) > 1:
        count = pluralize(len(groups) - 1, "other environment")
        print(f"rows of {count} (machine, versions or commit) in {FILE} are omitted", file=sys.stderr)
    return list(groups.values())[-1]

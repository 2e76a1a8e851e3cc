"""What both command lines share: `fourward study`, and `python -m fourward.study`, which needs torch alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fourward.errors import StudyError, pluralize
from fourward.study._environment import facts
from fourward.study._protocol import EXPERIMENTS, Protocol, from_words
from fourward.study._run import Progress, Summary, run
from fourward.study._store import CUT_OFF, DONE, FAILED, FILE, Row, Store
from fourward.study._tables import by_facts

_SHARED = ("device", "densities", "seeds", "batches", "variants", "cell_seconds")


def protocols(experiments: Sequence[str], words: dict[str, Any]) -> dict[str, Protocol]:
    """The protocol of each experiment; of several, reassignment keeps the paper's size, batch size and methods."""
    alone = len(experiments) == 1
    return {
        name: from_words(name, **{k: v for k, v in words.items() if alone or name != "reassignment" or k in _SHARED})
        for name in experiments
    }


def measure(
    out: Path,
    asked: dict[str, Protocol],
    *,
    seconds: float | None = None,
    retry: bool = False,
    commit: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Summary:
    """Run experiments into the results file of a folder."""
    with writing(out, commit) as store:
        return run(store, asked, seconds=seconds, retry=retry, on_progress=on_progress)


@contextmanager
def writing(out: Path, commit: str | None = None) -> Iterator[Store]:
    """The results file of a folder, to write to; says on stderr what is kept when the block is interrupted."""
    with Store(out / FILE, facts=facts(commit)) as store:
        try:
            yield store
        except KeyboardInterrupt:
            kept = len(store.rows())
            print(f"\n{kept:,} runs are kept in {store.path}. The same command goes on from there.", file=sys.stderr)
            raise


def newest(out: Path, experiment: str) -> list[Row]:
    """The rows of an experiment that belong to the machine, versions and commit that ran it last."""
    with Store(out / FILE, create=False) as store:
        groups = by_facts(store.rows(experiment, all_facts=True))
    if not groups:
        raise StudyError(f"{out / FILE} has no rows of {experiment!r}. Run `fourward study {experiment}` first.")
    if len(groups) > 1:
        others = len(groups) - 1
        print(f"rows of {others} other machines, versions or commits in {FILE} are left out", file=sys.stderr)
    return list(groups.values())[-1]


def summary_text(summary: Summary, out: Path) -> str:
    """What was done, in a few lines."""
    counts = [f"{summary.ended[status]:,} {status}" for status in (DONE, CUT_OFF, FAILED) if summary.ended[status]]
    lines = [f"{', '.join(counts) or 'nothing new'} in {duration(summary.seconds)}: {out / FILE}"]
    if summary.skipped:
        lines.append(f"{pluralize(summary.skipped, 'run')} there already")
    if summary.left:
        lines.append(f"{pluralize(summary.left, 'run')} left: the same command goes on from there")
    if summary.ended[FAILED]:
        lines.append("failed runs are tried again by the same command; their notes say why they failed")
    return "\n".join(lines)


def left_text(progress: Progress) -> str:
    """The time that is left, as far as it is known."""
    if progress.ended == progress.total:
        return "done"
    if not progress.unknown:
        return f"about {duration(progress.left)} left"
    least = f"at least {duration(progress.left)} left, " if progress.left else ""
    return f"{least}{pluralize(progress.unknown, 'cell')} not seen yet"


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> duration(0.4), duration(75), duration(7300)
    ('0.4 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class PlainProgress:
    """Progress as lines on stderr, one every few seconds: for logs, and where rich isn't installed."""

    def __init__(self, every: float = 10.0) -> None:
        self.every, self.last = every, float("-inf")

    def __call__(self, progress: Progress) -> None:
        """Say it, if it is time."""
        now = time.perf_counter()
        if now - self.last >= self.every or progress.ended == progress.total:
            self.last = now
            text = f"{progress.experiment}: {progress.ended:,} of {progress.total:,} runs, {left_text(progress)}"
            print(text, file=sys.stderr, flush=True)


def experiments_of(name: str) -> tuple[str, ...]:
    """One, or all that this room's protocol describes."""
    return EXPERIMENTS if name == "all" else (name,)

"""Timing that can be trusted: networks take turns in one process, and whoever is too slow is cut off."""

from __future__ import annotations

import gc
import math
import signal
import statistics
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fourward.study._store import CUT_OFF, DONE, FAILED

Call = Callable[[], object]
#: The batches of a run are counted in so many turns, or in more if a batch takes long.
TURNS = 5
#: Seconds of a batch under which a turn starts with two that aren't counted, so that each network finds its own data in
#: the cache, as it would in a loop of its own, and not what the one before it left.
SHORT = 0.05
UNSEEN = 2
#: Seconds after which an alarm that nobody heard rings again.
AGAIN = 0.001


class CutOff(Exception):  # noqa: N818 - not an error, an outcome
    """Something isn't worth its time; the text says why."""


class Clock(ABC):
    """How calls are timed on a device."""

    @abstractmethod
    def burst(self, call: Call, calls: int) -> float:
        """Seconds of so many calls, one after another, until the device is done with the last."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until the device is done; raises if it can't go on."""


class HostClock(Clock):
    """For calls that are done when they return."""

    def burst(self, call: Call, calls: int) -> float:
        """By perf_counter."""
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    def settle(self) -> None:
        """Nothing is under way."""


class CudaClock(Clock):
    """A pair of CUDA events around the calls."""

    def burst(self, call: Call, calls: int) -> float:
        """By events; the device is idle at the first, so launching counts where it takes longer than the work."""
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    def settle(self) -> None:
        """Synchronize: an illegal access shows here, and ends the run."""
        torch.cuda.synchronize()


def clock_for(device: str) -> Clock:
    """CUDA events for a card, the host's own clock for a CPU."""
    return CudaClock() if device == "cuda" else HostClock()


class Timed(NamedTuple):
    """How a run ended, and what was seen of it."""

    values: dict[str, float | int | None]  #: mean, median and deviation in seconds a batch; count of batches
    status: str
    note: str
    seconds: float  #: that the run took, batches that weren't counted included


def take_turns(
    calls: Mapping[str, Call],
    clock: Clock,
    *,
    batches: int,
    limit: float = math.inf,
    compiled: frozenset[str] = frozenset(),
    check: Callable[[str, Any], None] | None = None,
    grad: bool = False,
) -> Iterator[tuple[str, Timed]]:
    """Time so many batches of each call, turn by turn; yields each run as it ends.

    The first batch warms up and counts only if it is all that was seen. Median and deviation are those of the turns'
    means.

    Args:
        calls: Each runs one batch.
        clock: Of the device.
        batches: How many are counted.
        limit: Seconds of a run, after which it is cut off.
        compiled: Names of calls that compile something when they are first used, which the limit leaves out.
        check: Called with the name and the result of a first batch; what it raises ends that run as failed.
        grad: Whether autograd records.
    """
    runs = {name: _Run(call, clock, batches, limit, grad) for name, call in calls.items()}
    with no_collection():
        for name, run in runs.items():
            run.start(name in compiled, partial(check, name) if check else None)
        while runs:
            for name in list(runs):
                if runs[name].ended is None:
                    runs[name].turn()
                if runs[name].ended is not None:
                    yield name, runs.pop(name).timed()


class _Run:
    """One call on its way through its batches."""

    def __init__(self, call: Call, clock: Clock, batches: int, limit: float, grad: bool) -> None:
        self.call, self.clock, self.batches, self.limit, self.grad = call, clock, batches, limit, grad
        self.seen: list[tuple[int, float]] = []  # batches and seconds of each turn
        self.spent = 0.0
        self.ended: tuple[str, str] | None = None  # status and note
        self.first: float | None = None

    def start(self, compiles: bool, check: Callable[[Any], None] | None) -> None:
        """The first batch, and where that was slow one more, to know what is to be expected."""
        results: list[object] = []
        limit, self.limit = self.limit, math.inf if compiles else self.limit
        self.first = self._burst(1, lambda: results.append(self.call()))
        self.limit = limit
        if compiles:
            self.spent = 0.0
        if self.first is not None and check is not None:
            try:
                check(results[0])
            except Exception as error:  # whatever a check says of a result, the run ends with it
                self.ended = FAILED, one_line(error)
        self.quick = self.first is not None and self.first < SHORT
        if not self.quick and self.ended is None:
            self.turn()
            self.quick = bool(self.seen) and self.seen[0][1] < SHORT

    def turn(self) -> None:
        """Some more batches."""
        calls = min(self.count_left, math.ceil(self.batches / TURNS) if self.quick else 1)
        if self.quick:
            self._burst(UNSEEN, self.call)
        if self.ended is None:
            seconds = self._burst(calls, self.call)
            if seconds is not None:
                self.seen.append((calls, seconds))
        if self.count_left == 0:
            self.ended = DONE, ""

    @property
    def count_left(self) -> int:
        return self.batches - sum(calls for calls, _ in self.seen)

    def _burst(self, calls: int, call: Call) -> float | None:
        start, seconds = time.perf_counter(), None
        try:
            with torch.set_grad_enabled(self.grad), within(self.limit - self.spent):
                seconds = self.clock.burst(call, calls)
        except CutOff:
            self.clock.settle()
        except Exception as error:  # whatever it is, it is this run's outcome and not the others'
            self.ended = FAILED, one_line(error)
            self.clock.settle()
        self.spent += time.perf_counter() - start
        if self.ended is None and self.spent >= self.limit:
            self.ended = CUT_OFF, ""
        return seconds

    def timed(self) -> Timed:
        assert self.ended is not None
        status, note = self.ended
        seen = self.seen
        if status == CUT_OFF:
            counted = self.batches - self.count_left
            note = f"cut off after {self.spent:.3g} s with {counted} of {self.batches} batches counted"
            if not seen and self.first is not None:
                seen, note = [(1, self.first)], f"{note}; the first, which warms up, is all that was seen"
        return Timed(summary(seen), status, note, self.spent)


def summary(seen: list[tuple[int, float]]) -> dict[str, float | int | None]:
    """Of turns, each with its batches and seconds: seconds a batch, and the count of batches."""
    means = [seconds / calls for calls, seconds in seen]
    count = sum(calls for calls, _ in seen)
    return {
        "mean": sum(seconds for _, seconds in seen) / count if count else None,
        "median": statistics.median(means) if means else None,
        "deviation": statistics.stdev(means) if len(means) > 1 else None,
        "count": count,
    }


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise CutOff inside the block when its time is up.

    By an alarm, between two steps of the interpreter. Where there are no alarms (Windows, threads that aren't the main
    one) the block ends by itself; whoever called looks at the time then.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not possible or math.isinf(seconds):
        yield
        return
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:
            raise CutOff

    def lost(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, CutOff):
            hook(unraisable)
        elif armed:  # it rang in a callback that can't raise (of a weak reference, say): again, after that
            signal.setitimer(signal.ITIMER_REAL, AGAIN, 1.0)

    before, hook = signal.signal(signal.SIGALRM, ring), sys.unraisablehook
    sys.unraisablehook = lost
    try:  # from here on: with microseconds left it rings while it is set
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6), 1.0)  # rings again where something swallowed the first
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage is collected: that walks the objects of all networks, and whoever's turn it is would pay for it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@contextmanager
def long_lived() -> Iterator[None]:
    """What is there now is left out of collections, which else take a tenth of a second each for torch alone."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def training_step(model: nn.Module, x: Tensor, **options: Any) -> Callable[[], None]:
    """Forward, backward and Adam (with its `options`), with steps too small to change anything.

    Thousands of real steps towards zero would end in denormal numbers, which are slow, sooner for some than for others.
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-12, **options)

    def step() -> None:
        optimiser.zero_grad()
        model(x).square().mean().backward()
        optimiser.step()

    return step


def one_line(error: BaseException) -> str:
    """An error in one line, which a results file can hold."""
    said = (str(error).strip().splitlines() or [""])[0][:160]
    text = f"{type(error).__name__}: {said}"
    return text.encode(errors="backslashreplace").decode()  # names of files may hold what no file can store as text

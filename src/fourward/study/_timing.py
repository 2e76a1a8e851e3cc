"""The timing core: calls alternate in one process, warm up before they count, and medians are reported.

Studies, benchmarks, `fourward bench` and the demo measure here, by one of three protocols on the same clocks:

- `time_batches` (studies, and the comparison of methods on one graph): a fixed number of batches of each call, in five
  rounds or, for slow calls, one batch a round; mean, median and standard deviation; a time limit for each call.
- `median_seconds` (the CPU benchmark, the demo): rounds until the time is up; a turn is about 5 ms of calls.
- `alternate` (the GPU benchmark, with turns of about 2 ms): rounds of turns whose size the caller has calibrated.

A turn of a short call starts with two calls that aren't counted, so that each call finds its own data in the cache, as
in a loop of its own, and not what the previous one left there. The garbage collector is off while calls are timed.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fourward.study._limits import CutOff, no_collection, one_line, time_limit
from fourward.study._store import CUT_OFF, DONE, FAILED

Call = Callable[[], object]
#: Rounds in which `time_batches` counts the batches of a quick call; slow ones have a round for each batch.
ROUNDS = 5
#: Seconds of a call below which a turn starts with `WARMUP` calls that aren't counted.
QUICK = 0.05
WARMUP = 2
#: Seconds of a turn of `median_seconds`, and the most calls that it takes.
TURN_SECONDS, TURN_CALLS = 0.005, 100


class Clock(ABC):
    """How calls are timed on a device."""

    @abstractmethod
    def time(self, call: Call, calls: int = 1) -> float:
        """Seconds of consecutive calls, until the device has finished the last."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has finished; raises if it can't go on."""


class HostClock(Clock):
    """For calls that are finished when they return."""

    def time(self, call: Call, calls: int = 1) -> float:
        """By perf_counter."""
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    def synchronize(self) -> None:
        """Nothing is pending."""


class CudaClock(Clock):
    """A pair of CUDA events around the calls."""

    def time(self, call: Call, calls: int = 1) -> float:
        """By events; the device is idle at the first, so launching counts where it takes longer than the work."""
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(calls):
            call()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    def synchronize(self) -> None:
        """By torch.cuda.synchronize: an illegal access shows here, and ends the run."""
        torch.cuda.synchronize()


class LaunchClock(HostClock):
    """The host's part of calls on a device: starts when the device is idle, and doesn't wait for it at the end."""

    def __init__(self, device_clock: Clock) -> None:
        self.device_clock = device_clock

    def time(self, call: Call, calls: int = 1) -> float:
        """By perf_counter."""
        self.device_clock.synchronize()
        return super().time(call, calls)

    def synchronize(self) -> None:
        """As the device does."""
        self.device_clock.synchronize()


def clock_for(device: str) -> Clock:
    """CUDA events for a GPU, perf_counter for a CPU."""
    return CudaClock() if device == "cuda" else HostClock()


class Turn(NamedTuple):
    """What a call does in each round."""

    call: Call
    calls: int  #: calls that are timed together; their mean is the turn's result
    warmup: int  #: calls before these that aren't counted
    rounds: int  #: rounds in which the call takes part

    def seconds(self, clock: Clock) -> float:
        """Take the turn."""
        for _ in range(self.warmup):
            self.call()
        return clock.time(self.call, self.calls) / self.calls


def alternate(
    turns: Mapping[str, Turn], clock: Clock, *, seconds: float = math.inf, min_rounds: int = 1
) -> dict[str, float]:
    """Median seconds of each call over rounds in which all take their turn.

    Args:
        turns: The turn of each call, by name.
        clock: Clock of the device.
        seconds: Time after which no new round begins.
        min_rounds: Rounds that take place in any case.
    """
    samples: dict[str, list[float]] = {name: [] for name in turns}
    start = time.perf_counter()
    gc.collect()
    with no_collection():
        for index in range(max((turn.rounds for turn in turns.values()), default=0)):
            if index >= min_rounds and time.perf_counter() - start > seconds:
                break
            for name, turn in turns.items():
                if index < turn.rounds:
                    samples[name].append(turn.seconds(clock))
    return {name: statistics.median(times) for name, times in samples.items()}


def median_seconds(
    calls: Mapping[str, Call],
    clock: Clock | None = None,
    *,
    seconds: float = 0.25,
    min_rounds: int = 5,
    max_rounds: int = 200,
    cold: bool = False,
) -> dict[str, float]:
    """Median seconds of each call, in rounds until the time is up; a turn is the mean of about 5 ms of calls.

    Args:
        calls: The calls, by name.
        clock: Clock of the device; default: the host's.
        seconds: Time after which no new round begins.
        min_rounds: Rounds that take place in any case.
        max_rounds: The most rounds.
        cold: A turn is one call without warm-up, which finds the other calls' data in the cache.
    """
    clock, turns = clock or HostClock(), {}
    for name, call in calls.items():
        call()
        expected = min(clock.time(call), clock.time(call))
        count = max(1, min(TURN_CALLS, round(TURN_SECONDS / expected)))
        warmup = 0 if expected > QUICK else WARMUP
        turns[name] = Turn(call, 1, 0, max_rounds) if cold else Turn(call, count, warmup, max_rounds)
    return alternate(turns, clock, seconds=seconds, min_rounds=min_rounds)


class Timing(NamedTuple):
    """How a run ended, and what was measured of it."""

    values: dict[str, float | int | None]  #: mean, median and deviation in seconds a batch; count of batches
    status: str
    note: str
    seconds: float  #: seconds that the run took, including batches that weren't counted


def time_batches(
    calls: Mapping[str, Call],
    clock: Clock,
    *,
    batches: int,
    limit: float = math.inf,
    compiled: frozenset[str] = frozenset(),
    check: Callable[[str, Any], None] | None = None,
    grad: bool = False,
) -> Iterator[tuple[str, Timing]]:
    """Time a fixed number of batches of each call, in alternating turns; yields each run as it ends.

    The first batch is a warm-up and counts only if there is no other. Median and deviation are those of the turns'
    means.

    Args:
        calls: Each runs one batch.
        clock: Clock of the device.
        batches: Number of batches that count.
        limit: Seconds of a run, after which it is cut off.
        compiled: Names of calls that compile something on first use, which doesn't count towards the limit.
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
                    runs[name].take_turn()
                if runs[name].ended is not None:
                    yield name, runs.pop(name).timing()


class _Run:
    """One call of `time_batches`: what was measured of it so far, and how it ended."""

    def __init__(self, call: Call, clock: Clock, batches: int, limit: float, grad: bool) -> None:
        self.call, self.clock, self.batches, self.limit, self.grad = call, clock, batches, limit, grad
        self.turns: list[tuple[int, float]] = []  # batches and seconds of each
        self.spent = 0.0
        self.ended: tuple[str, str] | None = None  # status and note
        self.first: float | None = None

    def start(self, compiles: bool, check: Callable[[Any], None] | None) -> None:
        """Run the first batch and, if it was slow, one more, to know how long a batch takes."""
        results: list[object] = []
        limit, self.limit = self.limit, math.inf if compiles else self.limit
        self.first = self._time(1, lambda: results.append(self.call()))
        self.limit = limit
        if compiles:
            self.spent = 0.0
        if self.first is not None and check is not None:
            try:
                check(results[0])
            except Exception as error:  # any error of a check is the outcome of this run
                self.ended = FAILED, one_line(error)
        self.quick = self.first is not None and self.first < QUICK
        if not self.quick and self.ended is None:
            self.take_turn()
            self.quick = bool(self.turns) and self.turns[0][1] < QUICK

    def take_turn(self) -> None:
        """Count some more batches."""
        calls = min(self.remaining, math.ceil(self.batches / ROUNDS) if self.quick else 1)
        if self.quick:
            self._time(WARMUP, self.call)
        if self.ended is None:
            seconds = self._time(calls, self.call)
            if seconds is not None:
                self.turns.append((calls, seconds))
        if self.remaining == 0:
            self.ended = DONE, ""

    @property
    def remaining(self) -> int:
        return self.batches - sum(calls for calls, _ in self.turns)

    def _time(self, calls: int, call: Call) -> float | None:
        start, seconds = time.perf_counter(), None
        try:
            with torch.set_grad_enabled(self.grad), time_limit(self.limit - self.spent):
                seconds = self.clock.time(call, calls)
        except CutOff:
            self.clock.synchronize()
        except Exception as error:  # any error is the outcome of this run, and doesn't affect others
            self.ended = FAILED, one_line(error)
            self.clock.synchronize()
        self.spent += time.perf_counter() - start
        if self.ended is None and self.spent >= self.limit:
            self.ended = CUT_OFF, ""
        return seconds

    def timing(self) -> Timing:
        assert self.ended is not None
        status, note = self.ended
        turns = self.turns
        if status == CUT_OFF:
            counted = self.batches - self.remaining
            note = f"cut off after {self.spent:.3g} s with {counted} of {self.batches} batches counted"
            if not turns and self.first is not None:
                turns, note = [(1, self.first)], f"{note}; only the first, a warm-up, was measured"
        return Timing(summarize_turns(turns), status, note, self.spent)


def summarize_turns(turns: list[tuple[int, float]]) -> dict[str, float | int | None]:
    """Seconds a batch, and the count of batches, from the batches and seconds of each turn."""
    means = [seconds / calls for calls, seconds in turns]
    count = sum(calls for calls, _ in turns)
    return {
        "mean": sum(seconds for _, seconds in turns) / count if count else None,
        "median": statistics.median(means) if means else None,
        "deviation": statistics.stdev(means) if len(means) > 1 else None,
        "count": count,
    }


def training_step(model: nn.Module, x: Tensor, **options: Any) -> Callable[[], None]:
    """Forward, backward and Adam (with its `options`), with a learning rate too small to change anything.

    Thousands of real steps towards zero would end in denormal numbers, which are slow, sooner for some than for others.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-12, **options)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step

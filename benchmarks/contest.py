"""A contest on one device: contestants are prepared, checked and calibrated, then alternate; slow ones are cut off."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from fourward.study._limits import CutOff, one_line
from fourward.study._timing import WARMUP, Call, Clock, Turn, alternate

Maker = Callable[[], Call]  #: prepares a contestant: builds it, captures it; may raise
#: Seconds of a turn of a short call, and the most calls that it takes.
TURN_SECONDS, TURN_CALLS = 0.002, 500
MIN_ROUNDS = 3
#: Results farther than this from the paper's method's, relative to its largest, are wrong, and aren't timed.
TOLERANCE = 1e-3


@dataclass
class Outcome:
    """The result of a contest."""

    times: dict[str, float] = field(default_factory=dict)  #: median seconds of a call
    missing: dict[str, str] = field(default_factory=dict)  #: why there is no time: "cut off: ...", "failed: ..."
    errors: dict[str, float] = field(default_factory=dict)  #: relative error of the result, where one is expected


def contest(
    makers: Mapping[str, Maker],
    clock: Clock,
    *,
    expected: Mapping[str, Tensor] | None = None,
    rounds: int = 11,
    limit: float = 2.0,
    always: Collection[str] = (),
) -> Outcome:
    """Median seconds of a call of each contestant, in alternating turns.

    Args:
        makers: Prepares each contestant.
        clock: Clock of the device.
        expected: The result that a call must have, by name of the contestant; others aren't checked.
        rounds: Turns of each contestant; slow ones have fewer, at least three.
        limit: Seconds of all turns of a contestant; those that can't have three turns in it are cut off.
        always: Names of contestants that are never cut off.
    """
    outcome, turns = Outcome(), {}
    for name, make in makers.items():
        try:
            call = make()
            _check(name, call(), expected or {}, outcome)
            turns[name] = _calibrate(call, clock, rounds, math.inf if name in always else limit, limit)
        except CutOff as reason:
            outcome.missing[name] = f"cut off: {reason}"
        except Exception as error:  # any error is the outcome of this contestant, and doesn't affect others
            outcome.missing[name] = f"failed: {one_line(error)}"
            clock.synchronize()
    outcome.times = alternate(turns, clock)
    return outcome


def as_is(call: Call) -> Maker:
    """A maker for a call that needs no preparation."""
    return lambda: call


def captured(call: Call, warmup: int = 3) -> Call:
    """The kernels of a call as a CUDA graph: each call of what is returned replays them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # where capture would meet first-time work: compiling, workspaces, Adam's state
        for _ in range(warmup):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return partial(_replay, graph, result, call)


def relative_error(got: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest expected value; NaN counts as infinite."""
    if not expected.numel():
        return 0.0
    scale = expected.abs().max().clamp_min(1e-30)
    error = float((got - expected).abs().max() / scale)
    return error if math.isfinite(error) else math.inf


def _replay(graph: torch.cuda.CUDAGraph, result: object, owner: Call) -> object:
    """Replay; `owner` keeps alive what the kernels read, which the graph does not."""
    graph.replay()
    return result


def _check(name: str, result: object, expected: Mapping[str, Tensor], outcome: Outcome) -> None:
    if name not in expected:
        return
    assert isinstance(result, Tensor)
    outcome.errors[name] = error = relative_error(result.detach(), expected[name])
    if error > TOLERANCE:
        raise ValueError(f"wrong result, relative error {error:.2g}")


def _calibrate(call: Call, clock: Clock, rounds: int, cut_off: float, limit: float) -> Turn:
    """How many calls make a turn of about `TURN_SECONDS`, and how many rounds the limit allows."""
    seconds = clock.time(call)
    if seconds < limit:
        seconds = min(seconds, clock.time(call))
    if seconds < TURN_SECONDS:  # a single call mostly takes the latency to the device and back
        seconds = clock.time(call, 10) / 10
    if MIN_ROUNDS * seconds > cut_off:
        raise CutOff(f"a call takes {seconds:.2g} s")
    calls = max(1, min(TURN_CALLS, math.ceil(TURN_SECONDS / max(seconds, 1e-9))))
    affordable = int(limit / (calls * seconds))
    warmup = WARMUP if seconds < TURN_SECONDS else 0
    return Turn(call, calls, warmup, min(rounds, max(MIN_ROUNDS, affordable)))

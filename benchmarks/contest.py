"""A contest on one device: entrants are made, checked, warmed up and take turns; who is too slow is cut off."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from fourward.study._timing import Call, Clock, CutOff, no_collection, one_line

Maker = Callable[[], Call]  #: what makes an entrant ready: builds it, captures it; may raise
#: A turn of a short call is a burst of about so many seconds.
BURST = 0.002
LEAST_ROUNDS = 3
#: Results farther than this from the paper's method's, relative to its largest, are wrong, and aren't timed.
TOLERANCE = 1e-3


@dataclass
class Outcome:
    """What a contest found."""

    times: dict[str, float] = field(default_factory=dict)  #: median seconds of a call
    missing: dict[str, str] = field(default_factory=dict)  #: why there is no time: "cut off: ...", "failed: ..."
    errors: dict[str, float] = field(default_factory=dict)  #: relative error of the result, where one is wanted


class _Entrant(NamedTuple):
    call: Call
    calls: int  # in a burst
    rounds: int
    unseen: int  # calls before a burst that aren't counted


def contest(
    makers: Mapping[str, Maker],
    clock: Clock,
    *,
    wants: Mapping[str, Tensor] | None = None,
    rounds: int = 11,
    limit: float = 2.0,
    always: Collection[str] = (),
) -> Outcome:
    """Median seconds of a call of each entrant, in turns.

    Args:
        makers: Makes each entrant ready.
        clock: Of the device.
        wants: The result that a call must have, by name of the entrant; others aren't checked.
        rounds: Turns of each entrant; slow ones have fewer, at least three.
        limit: Seconds that an entrant may take for all its turns; who can't have three turns is cut off.
        always: Names of entrants that never are.
    """
    outcome, ready = Outcome(), {}
    for name, make in makers.items():
        try:
            call = make()
            _check(name, call(), wants or {}, outcome)
            ready[name] = _entrant(call, clock, rounds, math.inf if name in always else limit, limit)
        except CutOff as reason:
            outcome.missing[name] = f"cut off: {reason}"
        except Exception as error:  # whatever it is, it is this entrant's outcome and not the others'
            outcome.missing[name] = f"failed: {one_line(error)}"
            clock.settle()
    found: dict[str, list[float]] = {name: [] for name in ready}
    gc.collect()
    with no_collection():
        for done in range(rounds):
            for name, entrant in ready.items():
                if done < entrant.rounds:
                    found[name].append(_turn(entrant, clock))
    outcome.times = {name: statistics.median(times) for name, times in found.items()}
    return outcome


def as_is(call: Call) -> Maker:
    """A maker for a call that needs no making."""
    return lambda: call


def captured(call: Call, warm: int = 3) -> Call:
    """The kernels of a call under a CUDA graph: each call of what is returned replays them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # where capture would meet first-time work: compiling, workspaces, Adam's state
        for _ in range(warm):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return partial(_replay, graph, result, call)


def relative_error(got: Tensor, want: Tensor) -> float:
    """The largest difference over the largest wanted value; not a number counts as infinite."""
    if not want.numel():
        return 0.0
    scale = want.abs().max().clamp_min(1e-30)
    error = float((got - want).abs().max() / scale)
    return error if math.isfinite(error) else math.inf


def _replay(graph: torch.cuda.CUDAGraph, result: object, owner: Call) -> object:
    """Replay; `owner` holds what the kernels read, which the graph does not."""
    graph.replay()
    return result


def _check(name: str, result: object, wants: Mapping[str, Tensor], outcome: Outcome) -> None:
    if name not in wants:
        return
    assert isinstance(result, Tensor)
    outcome.errors[name] = error = relative_error(result.detach(), wants[name])
    if error > TOLERANCE:
        raise ValueError(f"wrong result, relative error {error:.2g}")


def _entrant(call: Call, clock: Clock, rounds: int, most: float, limit: float) -> _Entrant:
    expected = clock.burst(call, 1)
    if expected < limit:
        expected = min(expected, clock.burst(call, 1))
    if expected < BURST:  # one call alone is mostly the way to the device and back
        expected = clock.burst(call, 10) / 10
    if LEAST_ROUNDS * expected > most:
        raise CutOff(f"a call takes {expected:.2g} s")
    calls = max(1, min(500, math.ceil(BURST / max(expected, 1e-9))))
    affordable = int(limit / (calls * expected))
    return _Entrant(call, calls, min(rounds, max(LEAST_ROUNDS, affordable)), 2 if expected < BURST else 0)


def _turn(entrant: _Entrant, clock: Clock) -> float:
    for _ in range(entrant.unseen):
        entrant.call()
    return clock.burst(entrant.call, entrant.calls) / entrant.calls

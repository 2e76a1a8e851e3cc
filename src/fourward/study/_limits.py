"""Time limits, and garbage collection kept out of measurements."""

from __future__ import annotations

import gc
import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

#: Seconds after which an alarm is repeated if its exception was lost.
REPEAT_AFTER = 0.001


class CutOff(Exception):  # noqa: N818 - not an error, an outcome
    """Something exceeded its time limit; the text says why."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise CutOff inside the block when the time is up.

    By SIGALRM, between two instructions of the interpreter. Where there are no alarms (Windows, threads other than the
    main one) the block ends by itself, and the caller has to check the time afterwards.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not possible or math.isinf(seconds):
        yield
        return
    armed, imports = True, _count_imports(sys._getframe())

    def ring(number: int, frame: FrameType | None) -> None:
        if armed and _count_imports(frame) > imports:  # half a module would stay in sys.modules: wait until it is whole
            signal.setitimer(signal.ITIMER_REAL, REPEAT_AFTER, 1.0)
        elif armed:
            raise CutOff

    def on_unraisable(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, CutOff):
            hook(unraisable)
        elif armed:  # it was raised in a callback that can't raise (of a weak reference, say): repeat it after that
            signal.setitimer(signal.ITIMER_REAL, REPEAT_AFTER, 1.0)

    previous, hook = signal.signal(signal.SIGALRM, ring), sys.unraisablehook
    sys.unraisablehook = on_unraisable
    try:  # from here on: with microseconds left the alarm comes while it is being set
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6), 1.0)  # repeated, in case something swallows the first
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        sys.unraisablehook = hook


def _count_imports(frame: FrameType | None) -> int:
    """The number of frames of the import system below this one."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        frame = frame.f_back
    return count


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable the garbage collector: it visits the objects of all networks, at the expense of the one being timed."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Exclude all present objects from collections, which otherwise take a tenth of a second each for torch alone.

    Where the caller has frozen its own already, all that is there stays frozen, cycles that are garbage later included.
    """
    frozen = gc.get_freeze_count() > 0
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


def one_line(error: BaseException) -> str:
    """The type and the first line of an error, as text that a results file can store."""
    message = (str(error).strip().splitlines() or [""])[0][:160]
    text = f"{type(error).__name__}: {message}"
    return text.encode(errors="backslashreplace").decode()  # file names may contain what can't be encoded as text

"""The registered engines, and the choice among them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fourward.engine._cpu.engine import Cpu
from fourward.engine._gpu.engine import Gpu
from fourward.engine._interface import Engine, Request
from fourward.engine._kernel_engine import KernelEngine
from fourward.engine._reference import Reference
from fourward.engine._torch_engine import TorchOps
from fourward.errors import EngineError, Repair

_LOGGER = logging.getLogger("fourward")
#: Every engine by name, in the order in which "auto" tries them; the torch engine, which supports all, ends the search.
ENGINES: dict[str, Engine] = {}


def register(engine: Engine, *, before: str | None = None) -> None:
    """Add an engine; for one with kernels, create its torch operators.

    Args:
        engine: The engine.
        before: The engine that "auto" tries next, such as "torch"; None to run it by name alone.
    """
    if engine.name == "auto" or engine.name in ENGINES:
        raise EngineError(f"the engine name {engine.name!r} is taken, as are auto, {', '.join(ENGINES)}.")
    if isinstance(engine, KernelEngine):
        _ = engine.ops
    if before is None:
        ENGINES[engine.name] = engine
        return
    check_name(before)
    later = list(ENGINES)[list(ENGINES).index(before) :]
    ENGINES[engine.name] = engine
    for name in later:
        ENGINES[name] = ENGINES.pop(name)


@dataclass(frozen=True)
class Choice:
    """The engine that runs, and why."""

    engine: Engine
    reason: str
    rejected: tuple[tuple[str, str], ...]  #: names of the engines that "auto" tried before it, each with its reason

    def explain(self) -> str:
        """The choice as lines of text."""
        lines = [f"engine {self.engine.name}: {self.engine.summary}", f"selected because {self.reason}"]
        return "\n".join([*lines, *(f"not {name}: {reason}" for name, reason in self.rejected)])


def check_name(name: str) -> None:
    """Raise an EngineError unless this is the name of an engine, or "auto"."""
    if not isinstance(name, str) or (name != "auto" and name not in ENGINES):
        raise EngineError(f"unknown engine {name!r}. Choose from auto, {', '.join(ENGINES)}.")


def choose(name: str, request: Request) -> Choice:
    """Return the named engine, or for "auto" the first that supports the request; raise an EngineError if it can't."""
    check_name(name)
    if name != "auto":
        reason = ENGINES[name].why_not(request)
        if reason is not None:
            repair = Repair("engine", "auto", "choose one that can")
            raise EngineError(f"engine {name!r} can't run this network: {reason}.", repair)
        return Choice(ENGINES[name], f"engine={name!r} was requested", ())
    rejected: list[tuple[str, str]] = []
    for engine in ENGINES.values():
        reason = engine.why_not(request) or engine.declines(request)
        if reason is None:
            choice = Choice(engine, "it is the first that supports this network", tuple(rejected))
            if _LOGGER.isEnabledFor(logging.INFO):
                _LOGGER.info("%s", choice.explain())
            return choice
        rejected.append((engine.name, reason))
    raise AssertionError("the torch engine supports every request")


for _engine in (Cpu(), Gpu(), TorchOps(), Reference()):
    register(_engine)

"""Which engines there are, which one is chosen, and why."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from fourward.engine._base import Engine, Request
from fourward.engine._cpu.engine import Cpu
from fourward.engine._gpu.engine import Gpu
from fourward.engine._reference import Reference
from fourward.engine._torch_ops import TorchOps
from fourward.errors import EngineError

#: Every engine, the one that "auto" likes best first; "auto" never takes the reference.
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (Cpu(), Gpu(), TorchOps(), Reference())}


@dataclass(frozen=True)
class Choice:
    """The engine that runs, and what to tell the user about it."""

    engine: Engine
    why: str
    rejected: tuple[tuple[str, str], ...]  #: names of better liked engines, each with its reason

    def explain(self) -> str:
        """All of it as lines of text."""
        lines = [f"engine {self.engine.name}: {self.engine.summary}", f"chosen because {self.why}"]
        return "\n".join([*lines, *(f"not {name}: {reason}" for name, reason in self.rejected)])


def check_name(name: str) -> None:
    """Raise an EngineError that lists the engines unless this is one, or "auto"."""
    if not isinstance(name, str) or (name != "auto" and name not in ENGINES):
        raise EngineError(f"there is no engine {name!r}. Known are auto, {', '.join(ENGINES)}.")


def choose(name: str, request: Request) -> Choice:
    """The named engine, or an error if it can't; for "auto" the first that can."""
    check_name(name)
    if name != "auto":
        reason = ENGINES[name].supports(request)
        if reason is not None:
            raise EngineError(f"engine {name!r} can't run this network: {reason}. Use engine='auto'.")
        return Choice(ENGINES[name], f"engine={name!r} was asked for", ())
    rejected: list[tuple[str, str]] = []
    for engine in ENGINES.values():
        reason = engine.supports(request) or engine.declines(request)
        if reason is None:
            choice = Choice(engine, "'auto' takes the first that can run this network", tuple(rejected))
            logging.getLogger("fourward").info("%s", choice.explain())
            return choice
        rejected.append((engine.name, reason))
    raise AssertionError("the torch engine supports everything")

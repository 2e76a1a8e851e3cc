"""All errors of fourward. A message says what was expected, what was got instead, and how to repair it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType

__all__ = [
    "ActivationError",
    "CycleError",
    "DataError",
    "EngineError",
    "FileError",
    "FourwardError",
    "GraphError",
    "InitError",
    "InputError",
    "LayeringError",
    "MissingExtraError",
    "OptionError",
    "PlanError",
    "Repair",
    "StudyError",
    "TrainingError",
    "WeightError",
]


@dataclass(frozen=True)
class Repair:
    """An option that repairs an error, as data: Python words it as a keyword, the command line as a flag.

    >>> print(GraphError("the graph has cycles.", Repair("remove_feedback", True, "remove a small set of edges")))
    the graph has cycles. Pass remove_feedback=True to remove a small set of edges.
    """

    option: str  #: name of the keyword
    value: object  #: what to set it to; `...` where only the user knows
    effect: str  #: what that does, as an infinitive: "remove a small set of edges"

    def as_keyword(self) -> str:
        """The option in Python, `remove_feedback=True`."""
        return f"{self.option}={'...' if self.value is ... else repr(self.value)}"


class FourwardError(Exception):
    """Base class of all errors that fourward raises.

    Args:
        message: What was expected and what was got instead, as sentences.
        repairs: Options that repair it; `str(error)` names them after the message.
    """

    exit_code = 2  #: exit code of the command line: 2 for bad input, 1 for a failure

    def __init__(self, message: str = "", *repairs: Repair) -> None:
        super().__init__(message)
        self.repairs = repairs

    def __str__(self) -> str:
        return self.text(Repair.as_keyword)

    def text(self, format_option: Callable[[Repair], str]) -> str:
        """The message and its repairs, their options formatted by a function."""
        message = super().__str__()
        if not self.repairs:
            return message
        repairs = (f"{format_option(repair)} to {repair.effect}" for repair in self.repairs)
        return f"{message} Pass {', or '.join(repairs)}."

    def prepend(self, context: str) -> None:
        """Put context, such as the name of a file, before the message."""
        self.args = (f"{context}: {super().__str__()}",)


class GraphError(FourwardError, ValueError):
    """A graph, its labels, its inputs or its outputs are invalid."""


class CycleError(GraphError):
    """The graph has a directed cycle; `cycle` holds the labels along one, the first repeated at the end.

    Args:
        cycle: These labels.
        repairs: Options that repair it.
        advice: What to do about it; default: advice for a graph that has to be acyclic.
    """

    def __init__(self, cycle: Sequence[Hashable], *repairs: Repair, advice: str | None = None) -> None:
        self.cycle, self.advice = list(cycle), advice
        if advice is None:
            call = "" if repairs else ", or call fourward.orient.remove_feedback(graph) to remove a small set of them"
            advice = (
                f"A network needs an acyclic graph: remove one of these edges{call}. A network with feedback, "
                "fourward.Recurrent, takes a fourward.Digraph, which may have cycles."
            )
        length = pluralize(len(cycle) - 1, "edge")
        super().__init__(f"the graph has a directed cycle of {length}: {format_path(cycle)}. {advice}", *repairs)

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), advice=self.advice), (self.cycle, *self.repairs)


class FileError(FourwardError, ValueError):
    """A file is missing, corrupt, not of the format that its suffix says, or unsafe to read."""


class LayeringError(FourwardError, ValueError):
    """A layering does not fit its graph."""


class PlanError(FourwardError, ValueError):
    """A plan violates its invariants: a bug in fourward, not in the caller."""


class InputError(FourwardError, ValueError):
    """The input of a network has the wrong type, dtype, device or shape."""


class ActivationError(FourwardError, ValueError):
    """An activation is unknown, or not applicable to its neuron."""


class InitError(FourwardError, ValueError):
    """An initialisation is unknown, or did not initialise the weights."""


class WeightError(FourwardError, ValueError):
    """Weights or biases do not fit the graph, or are not finite."""


class OptionError(FourwardError, ValueError):
    """An option has an invalid value."""


class EngineError(FourwardError, ValueError):
    """An engine is unknown, or does not support the request."""


class StudyError(FourwardError, RuntimeError):
    """A results file can't be read or written, or is not a results file."""


class DataError(FourwardError, ValueError):
    """A table, an array or a target is unusable for training or evaluation."""


class TrainingError(FourwardError, RuntimeError):
    """Training failed and can't continue."""

    exit_code = 1


class MissingExtraError(FourwardError, ImportError):
    """A package of an optional extra is not installed."""

    exit_code = 1


def require(package: str, extra: str) -> ModuleType:
    """Import a package of an optional extra; raises with the pip command that installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.partition(".")[0]:
            raise  # the package is installed, but broken inside: show that
        raise MissingExtraError(
            f"the package {error.name!r} is required, but not installed. "
            f"Install it with: pip install 'fourward[{extra}]'"
        ) from error


def format_path(labels: Sequence[Hashable], limit: int = 12) -> str:
    """Labels as a path `a -> b -> c`; the middle of a long one is omitted."""
    if len(labels) <= limit:
        return " -> ".join(map(repr, labels))
    half = limit // 2
    omitted = len(labels) - 2 * half
    return " -> ".join([*map(repr, labels[:half]), f"... {omitted:,} more ...", *map(repr, labels[-half:])])


def pluralize(count: int, noun: str) -> str:
    """A count and its noun: "1 edge", "3 edges"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def summarize(items: Iterable[object], limit: int = 5) -> str:
    """The first items, comma separated, and the number of the others."""
    listed = list(items)
    rest = len(listed) - limit
    return ", ".join(map(repr, listed[:limit])) + (f" and {rest:,} more" if rest > 0 else "")

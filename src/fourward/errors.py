"""Every error of fourward: each says what was expected, what it got instead, and how to repair it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType


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
    """Base class of all errors that fourward raises on purpose.

    Args:
        message: What was expected and what it got instead, as sentences.
        repairs: Options that repair it; `str(error)` names them behind the message.
    """

    exit_code = 2  #: of the command line: 2 for bad input, 1 for a failure

    def __init__(self, message: str = "", *repairs: Repair) -> None:
        super().__init__(message)
        self.repairs = repairs

    def __str__(self) -> str:
        return self.text(Repair.as_keyword)

    def text(self, word: Callable[[Repair], str]) -> str:
        """The message and its repairs, each worded by `word`."""
        message = super().__str__()
        if not self.repairs:
            return message
        return f"{message} Pass {', or '.join(f'{word(repair)} to {repair.effect}' for repair in self.repairs)}."

    def prepend(self, context: str) -> None:
        """Put what the error belongs to, such as a file, before its message."""
        self.args = (f"{context}: {super().__str__()}",)


class GraphError(FourwardError, ValueError):
    """A graph, its labels, its inputs or its outputs can't become a Dag."""


class CycleError(GraphError):
    """The graph has a directed cycle; `cycle` holds the labels along one, the first repeated at the end."""

    def __init__(self, cycle: Sequence[Hashable], *repairs: Repair) -> None:
        self.cycle = list(cycle)
        ways = "" if repairs else ", or call fourward.orient.remove_feedback(graph) to remove a small set of them"
        super().__init__(
            f"the graph has a directed cycle of {pluralize(len(cycle) - 1, 'edge')}: {format_path(cycle)}. "
            f"A network needs a graph without cycles: remove one of these edges{ways}.",
            *repairs,
        )

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.cycle, *self.repairs)


class FileError(FourwardError, ValueError):
    """A file isn't what its ending says, is damaged, or holds what can't be read safely."""


class LayeringError(FourwardError, ValueError):
    """A layering does not fit its graph."""


class PlanError(FourwardError, ValueError):
    """A plan breaks its own rules; this is a defect of fourward, not of the caller."""


class InputError(FourwardError, ValueError):
    """The tensor given to a network has the wrong type, dtype, device or shape."""


class ActivationError(FourwardError, ValueError):
    """An activation is unknown, or given to a neuron that can't have it."""


class InitError(FourwardError, ValueError):
    """An initialisation is unknown or did not do its work."""


class WeightError(FourwardError, ValueError):
    """A vector of weights or biases doesn't fit the graph."""


class OptionError(FourwardError, ValueError):
    """An option of a network or a generator is out of its range."""


class EngineError(FourwardError, ValueError):
    """An engine is unknown, or can't run what was asked of it."""


class StudyError(FourwardError, RuntimeError):
    """A results file can't be read or written, or isn't one."""


class DataError(FourwardError, ValueError):
    """A table, an array or a target can't be learned from."""


class TrainingError(FourwardError, RuntimeError):
    """Training could not go on."""

    exit_code = 1


class MissingExtraError(FourwardError, ImportError):
    """A package of an optional extra isn't installed."""

    exit_code = 1


def require(package: str, extra: str) -> ModuleType:
    """Import a package that belongs to an extra, or say which pip command installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.partition(".")[0]:
            raise  # the package is there; something inside it is broken, and that is what to show
        raise MissingExtraError(
            f"this needs the package {error.name!r}, which isn't installed. "
            f"Install it with: pip install 'fourward[{extra}]'"
        ) from error


def format_path(labels: Sequence[Hashable], most: int = 12) -> str:
    """Labels as a path `a -> b -> c`, its middle left out where it is long."""
    if len(labels) <= most:
        return " -> ".join(map(repr, labels))
    half = most // 2
    left_out = len(labels) - 2 * half
    return " -> ".join([*map(repr, labels[:half]), f"... {left_out:,} more ...", *map(repr, labels[-half:])])


def pluralize(number: int, word: str) -> str:
    """A number of things, in words."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def summarize(items: Iterable[object], most: int = 5) -> str:
    """The first few items, comma separated, with a count of the rest."""
    listed = list(items)
    rest = len(listed) - most
    return ", ".join(map(repr, listed[:most])) + (f" and {rest:,} more" if rest > 0 else "")

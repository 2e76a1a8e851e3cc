"""What was changed in a graph to make a Dag of it, as numbers and in words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fourward.errors import pluralize

Pairs = Sequence[tuple[Hashable, Hashable]]


@dataclass(frozen=True, repr=False)
class Changes:
    """How a Dag or Digraph differs from the graph it was made of."""

    skipped: int = 0  #: rows that lacked a value
    self_loops: int = 0  #: self-loops that were dropped
    merged: int = 0  #: duplicate edges that were merged into another
    weak: int = 0  #: edges below min_weight
    cut: int = 0  #: edges into inputs that were removed
    cut_weight: float = 0.0  #: sum of their absolute weights
    driven: int = 0  #: inputs with incoming edges, to whose sums x adds their features
    feedback: int = 0  #: feedback edges that were removed
    feedback_weight: float = 0.0  #: sum of their absolute weights
    total_weight: float | None = None  #: sum of the absolute weights before both, None without weights
    off_path: int = 0  #: nodes on no path from an input to an output that were dropped
    constants: tuple[Hashable, ...] = ()  #: neurons that lost all their incoming edges: their activation is constant
    new_inputs: tuple[Hashable, ...] = ()  #: the same, where all sources are inputs
    unreached: tuple[Hashable, ...] = ()  #: neurons that no input reaches
    lost_outputs: tuple[Hashable, ...] = ()  #: outputs that inputs reached before edges were removed, and don't now

    def lines(self, *, cut: Pairs = (), feedback: Pairs = ()) -> list[str]:
        """A line for each change; with the removed edges it has some of them as examples."""
        counted = (
            (self.skipped, "row", "skipped {}: a label or a weight is missing"),
            (self.self_loops, "self-loop", "dropped {}"),
            (self.merged, "duplicate edge", "merged {}"),
            (self.weak, "edge", "dropped {} below the least weight"),
            (self.cut, "edge", "cut {} into inputs" + self._format_weight(self.cut_weight) + _list_edges(cut)),
            (self.driven, "input", "{} " + ("is" if self.driven == 1 else "are") + " driven"),
            (
                self.feedback,
                "feedback edge",
                "removed {}" + self._format_weight(self.feedback_weight) + _list_edges(feedback),
            ),
            (self.off_path, "node", "dropped {} on no path from an input to an output"),
        )
        texts = [text.replace("{}", pluralize(count, noun), 1) for count, noun, text in counted if count]
        lost = "lost all incoming edges and"
        listed = (  # in the singular and in the plural
            (self.constants, "neuron", f"{lost} has a constant activation", f"{lost} have constant activations"),
            (self.new_inputs, "neuron", f"{lost} is an input now", f"{lost} are inputs now"),
            (self.unreached, "neuron", "is reached by no input", "are reached by no input"),
            (self.lost_outputs, "output", "is no longer reached by an input", "are no longer reached by an input"),
        )
        return texts + [
            f"{_name(labels, noun)} {singular if len(labels) == 1 else plural}"
            for labels, noun, singular, plural in listed
            if labels
        ]

    def to_json(self) -> dict[str, Any]:
        """All fields, labels as text."""
        return {name: list(map(str, v)) if isinstance(v, tuple) else v for name, v in asdict(self).items()}

    def _format_weight(self, weight: float) -> str:
        return f" with {weight / self.total_weight:.1%} of all weight" if self.total_weight else ""

    def __repr__(self) -> str:
        return f"Changes({'; '.join(self.lines()) or 'none'})"


def _list_edges(pairs: Pairs, limit: int = 3) -> str:
    ellipsis = ", ..." if len(pairs) > limit else ""
    return f": {', '.join(f'{u} -> {v}' for u, v in pairs[:limit])}{ellipsis}" if pairs else ""


def _name(labels: tuple[Hashable, ...], noun: str, limit: int = 5) -> str:
    ellipsis = ", ..." if len(labels) > limit else ""
    return f"{pluralize(len(labels), noun)} ({', '.join(map(str, labels[:limit]))}{ellipsis})"

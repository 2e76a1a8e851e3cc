"""Inputs and outputs as users choose them: labels, an attribute and its value, or a file of labels."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from fourward.errors import FileError, GraphError, summarize
from fourward.graph._attributes import Attributes, find_attribute
from fourward.graph._convert import Labels, is_integer, label_list
from fourward.graph._validation import make_label_lookup

#: Labels, "class=sensory" for the nodes whose attribute has this value (or, "class=a|b", one of these), "sources" or
#: "sinks" for all of these, or the path of a file with one label per line.
NodeChoice = Iterable[Hashable] | str | Path | None
#: The choice of all nodes without incoming edges, or without outgoing ones.
ALL_ENDS = {"input": "sources", "output": "sinks"}


def choose_labels(
    choice: NodeChoice, labels: Labels, attributes: Attributes, role: str
) -> list[Hashable] | None:  # fmt: skip
    """The labels that a choice means, in its order or in that of the nodes; unknown ones are returned unchanged.

    None stands for all sources, or all sinks, of the graph that is made.
    """
    if choice is None or choice == ALL_ENDS[role]:
        return None
    if isinstance(choice, Path):
        return match_labels(read_labels(choice), labels)
    if isinstance(choice, str):
        name, equals, text = choice.partition("=")
        if not equals:
            raise GraphError(
                f"{role}s must be labels, such as ['a', 'b'], an attribute and its value, such as 'class=sensory', or "
                f"{ALL_ENDS[role]!r}, got {choice!r}."
            )
        return _select(name.strip(), [part.strip() for part in text.split("|")], labels, attributes, role)
    return match_labels(label_list(choice, f"{role}s"), labels)


def match_labels(chosen: Iterable[Hashable], labels: Labels) -> list[Hashable]:
    """The labels that are meant: text finds the integer that it spells, and an integer the text that spells it."""
    find = make_label_lookup(labels)
    matched = []
    for label in chosen:
        other = _spell(label)
        matched.append(other if other is not None and find(label) is None and find(other) is not None else label)
    return matched


def read_labels(path: Path) -> list[str]:
    """The lines of a file that aren't empty."""
    if not path.is_file():
        raise FileError(f"{path} does not exist. Expected a file with one label per line.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise FileError(f"{path}: expected UTF-8 text with one label per line, got other bytes.") from None
    return [line.strip() for line in lines if line.strip()]


def _spell(label: Hashable) -> Hashable | None:
    if isinstance(label, str):
        digits = label.removeprefix("-")
        return int(label) if digits.isdecimal() and digits.isascii() and len(digits) < 30 else None
    return str(label) if is_integer(label) else None


def _select(name: str, texts: list[str], labels: Labels, attributes: Attributes, role: str) -> list[Hashable]:
    values = find_attribute(attributes, name)
    chosen = [label for label, value in zip(labels, values, strict=True) if value is not None and str(value) in texts]
    if not chosen:
        distinct: list[Any] = list(dict.fromkeys(value for value in values if value is not None))
        raise GraphError(
            f"no {role}s: no node has {name}={'|'.join(texts)}. Values of {name!r} are {summarize(distinct, 12)}."
        )
    return chosen

"""Attributes of nodes, such as class, type, transmitter and position: checked values, in node order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from fourward._arrays import IntArray
from fourward.errors import GraphError, pluralize, summarize
from fourward.graph._convert import Labels, as_numpy
from fourward.graph._validation import check_text, compare_kinds, make_label_lookup

if TYPE_CHECKING:
    import networkx as nx

#: Values of each attribute in node order, None for a node without one: text, numbers or bools.
Attributes = Mapping[str, tuple[Any, ...]]
NO_ATTRIBUTES: Attributes = MappingProxyType({})
#: Names that files and networkx graphs have for other values of nodes; so has every name that starts with "fourward_".
RESERVED = frozenset({"activation", "bias", "id"})


def as_attributes(values: Mapping[str, Any], labels: Labels) -> Attributes:
    """Check attributes: each a mapping from label to value, or a sequence of one value for each node."""
    if not isinstance(values, Mapping):
        raise GraphError(f"expected attributes as a mapping from name to values, got {type(values).__name__}.")
    checked: dict[str, tuple[Any, ...]] = {}
    for name, column in values.items():
        if not isinstance(name, str) or not name:
            raise GraphError(f"the name of an attribute must be text, got {name!r}.")
        check_text(name, "names of attributes")
        if name in RESERVED or name.startswith("fourward_"):
            raise GraphError(f"an attribute can't be named {name!r}, a name with a meaning of its own. Rename it.")
        listed = _by_label(name, column, labels) if isinstance(column, Mapping) else list(as_numpy(column))
        if len(listed) != len(labels):
            raise GraphError(
                f"expected {pluralize(len(labels), 'value')} of the attribute {name!r}, one for each node, got "
                f"{len(listed):,}. A mapping from label to value may omit nodes."
            )
        checked[name] = tuple(as_value(name, value) for value in listed)
    return MappingProxyType(checked)


def as_value(name: str, value: Any) -> Any:
    """A value of an attribute as Python has it; None for NaN, which tables have for a missing value."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if not isinstance(value, str | bool | int | float):
        raise GraphError(f"values of the attribute {name!r} must be text, numbers or bools, got {value!r}.")
    check_text(value, "values of attributes")
    return value


def node_attributes(graph: nx.Graph) -> Attributes:
    """The attributes of a networkx graph's nodes whose values are all text, numbers, bools or missing."""
    columns: dict[str, list[Any]] = {}
    for k, (_, values) in enumerate(graph.nodes(data=True)):
        for name, value in values.items():
            if isinstance(name, str) and name and name not in RESERVED and not name.startswith("fourward_"):
                columns.setdefault(name, [None] * len(graph))[k] = value
    plain = str | bool | int | float | np.generic | None
    return MappingProxyType(
        {
            name: tuple(as_value(name, value) for value in values)
            for name, values in columns.items()
            if all(isinstance(value, plain) for value in values)
        }
    )


def find_attribute(attributes: Attributes, name: str) -> tuple[Any, ...]:
    """The (N,) values of an attribute; raises for an unknown one."""
    if name not in attributes:
        known = f"It has {', '.join(map(repr, attributes))}." if attributes else "It has none."
        raise GraphError(
            f"the graph has no attribute {name!r}. {known} Set one with dag.with_attributes({{{name!r}: ...}}), or "
            "read it from a table of nodes."
        )
    return attributes[name]


def group_nodes(values: Iterable[Any]) -> tuple[IntArray, list[Any]]:
    """(N,) the index of each node's value in the list of distinct values, -1 for None; and that list."""
    codes: dict[Hashable, int] = {}
    index = np.array([-1 if value is None else codes.setdefault(value, len(codes)) for value in values], np.int64)
    return index, list(codes)


def _by_label(name: str, column: Mapping[Any, Any], labels: Labels) -> list[Any]:
    find, listed = make_label_lookup(labels), [None] * len(labels)
    unknown = []
    for label, value in column.items():
        node = find(label)
        if node is None:
            unknown.append(label)
        else:
            listed[node] = value
    if unknown:
        raise GraphError(
            f"the attribute {name!r} has values for unknown labels: {summarize(unknown)}. Labels of this graph are, "
            f"for example, {summarize(labels[:3])}.{compare_kinds(unknown, labels)}"
        )
    return listed

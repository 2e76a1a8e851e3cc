"""Enters: a Dag. Leaves: a Layering, the level of every node.

Never belongs here: torch, memory orders, anything an engine walks.
"""

from fourward.layering._layering import Layering
from fourward.layering._longest_path import longest_path, push_sources
from fourward.layering._reassign import reassign

__all__ = ["Layering", "longest_path", "push_sources", "reassign"]

"""Enters: a Dag. Leaves: a Layering, the level of every node.

Never belongs here: torch, or an import of `plan` or the packages after it. Memory order belongs there.
"""

from fourward.layering._layering import Layering
from fourward.layering._longest_path import longest_path, push_sources
from fourward.layering._reassign import reassign

__all__ = ["Layering", "longest_path", "push_sources", "reassign"]

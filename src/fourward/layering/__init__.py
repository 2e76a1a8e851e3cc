"""Enters: a Dag. Leaves: a Layering, the level of every node.

Never belongs here: torch, memory orders, anything an engine walks.
"""

from fourward.layering.layering import Layering
from fourward.layering.longest_path import longest_path, push_sources
from fourward.layering.reassign import reassign

__all__ = ["Layering", "longest_path", "push_sources", "reassign"]

"""Enters: anything that describes a graph of neurons. Leaves: a Dag, frozen and checked.

Never belongs here: torch, layers, weights that train.
"""

from fourward.graph._dag import Dag

__all__ = ["Dag"]

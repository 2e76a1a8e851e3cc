"""Enters: a network, and which edges to add and remove. Leaves: the same network, its weights and moments in place.

Never belongs here: kernels, training loops, reading or writing files.
"""

from fourward.sparse._growth import Rule
from fourward.sparse._history import EditHistory, NetChange
from fourward.sparse._methods import SET, Prune, Rewiring, RigL
from fourward.sparse._prune import prune
from fourward.sparse._rewire import Edit, rewire
from fourward.sparse._selection import By

__all__ = ["SET", "By", "Edit", "EditHistory", "NetChange", "Prune", "Rewiring", "RigL", "Rule", "prune", "rewire"]

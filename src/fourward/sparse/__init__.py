"""Enters: a network, and which edges to add and remove. Leaves: the same network, its weights and moments in place.

Never belongs here: kernels, training loops, reading or writing files.
"""

from fourward.sparse._rewire import Edit, rewire

__all__ = ["Edit", "rewire"]

"""Enters: a Dag and a user's choices. Leaves: FourWard, a torch module that trains.

Never belongs here: kernels, training loops, files.
"""

from fourward.nn._fourward import FourWard

__all__ = ["FourWard"]

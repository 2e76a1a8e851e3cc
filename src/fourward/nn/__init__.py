"""Enters: a Dag and a user's choices. Leaves: FourWard, a torch module that trains, and its summary.

Never belongs here: kernels, training loops, reading or writing files.
"""

from fourward.nn._activations import ActivationLike, Activations
from fourward.nn._fourward import FourWard
from fourward.nn._init import Init
from fourward.nn._summary import summary

__all__ = ["ActivationLike", "Activations", "FourWard", "Init", "summary"]

"""Enters: a Dag or a Digraph, and a user's choices. Leaves: FourWard or Recurrent, torch modules that train.

Never belongs here: kernels, training loops, reading or writing files.
"""

from fourward.nn._activations import ActivationLike, Activations
from fourward.nn._fourward import FourWard
from fourward.nn._init import Init
from fourward.nn._recurrent import Recurrent, Tau
from fourward.nn._summary import summary

__all__ = ["ActivationLike", "Activations", "FourWard", "Init", "Recurrent", "Tau", "summary"]

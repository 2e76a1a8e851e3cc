"""Enters: graphs, and a user's choices. Leaves: FourWard, Recurrent or Population, torch modules that train.

Never belongs here: kernels, training loops, reading or writing files.
"""

from fourward.nn._activations import ActivationLike, Activations
from fourward.nn._constraint_options import EdgeConstraints
from fourward.nn._constraints import Constraints
from fourward.nn._fourward import FourWard
from fourward.nn._importance import importance
from fourward.nn._init import Init, scale_by_in_degree
from fourward.nn._population import Population
from fourward.nn._recurrent import Recurrent, Tau
from fourward.nn._summary import summary

__all__ = [
    "ActivationLike",
    "Activations",
    "Constraints",
    "EdgeConstraints",
    "FourWard",
    "Init",
    "Population",
    "Recurrent",
    "Tau",
    "importance",
    "scale_by_in_degree",
    "summary",
]

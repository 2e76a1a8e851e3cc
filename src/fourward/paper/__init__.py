"""Enters: a Dag. Leaves: the paper's three methods as published, as torch modules, each equal to FourWard.

Never belongs here: improvements. They are the rivals of every benchmark: as fast as their own algorithm allows
in eager torch, and no different from it.
"""

from fourward.paper._deepstruct import DeepStruct
from fourward.paper._masked import Masked4Ward
from fourward.paper._sequential import SequentialBaseline

__all__ = ["DeepStruct", "Masked4Ward", "SequentialBaseline"]

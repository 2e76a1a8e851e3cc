"""Enters: a Dag. Leaves: the paper's three methods as torch modules that compute what FourWard computes.

Never belongs here: improvements over the published algorithms, such as kernels. These are the baselines of
every benchmark: as fast as each algorithm allows in eager torch.
"""

from fourward.paper._deepstruct import DeepStruct
from fourward.paper._masked import Masked4Ward
from fourward.paper._sequential import SequentialBaseline

__all__ = ["DeepStruct", "Masked4Ward", "SequentialBaseline"]

"""Enters: a FourWard, or a network of another library. Leaves: files that other programs read, or one of our networks.

Never belongs here: training, kernels, pickles.
"""

from fourward.exchange._c_source import to_c
from fourward.exchange._export import EXPORTERS, export
from fourward.exchange._fold import fold
from fourward.exchange._latex import to_latex
from fourward.exchange._mlp import from_mlp
from fourward.exchange._neat import from_neat, from_neat_recurrent, read_neat
from fourward.exchange._neat_population import NeatEvaluator, NeatPopulation, neat_population
from fourward.exchange._networkx import from_networkx, read_network
from fourward.exchange._onnx import check_onnx, to_onnx
from fourward.exchange._onnx_recurrent import to_onnx_recurrent
from fourward.exchange._pt2 import to_pt2
from fourward.exchange._python_source import to_python
from fourward.exchange._tensorneat import from_tensorneat, read_tensorneat
from fourward.exchange._tensorneat_population import tensorneat_population

__all__ = [
    "EXPORTERS",
    "NeatEvaluator",
    "NeatPopulation",
    "check_onnx",
    "export",
    "fold",
    "from_mlp",
    "from_neat",
    "from_neat_recurrent",
    "from_networkx",
    "from_tensorneat",
    "neat_population",
    "read_neat",
    "read_network",
    "read_tensorneat",
    "tensorneat_population",
    "to_c",
    "to_latex",
    "to_onnx",
    "to_onnx_recurrent",
    "to_pt2",
    "to_python",
]

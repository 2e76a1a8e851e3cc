"""Enters: a network, or one that another library made. Leaves: files that others read, or a FourWard.

Never belongs here: training, kernels, pickles.
"""

from fourward.exchange.export import ENDINGS, export, to_pt2
from fourward.exchange.fold import fold
from fourward.exchange.graphs import from_networkx, read_network
from fourward.exchange.latex import to_latex
from fourward.exchange.mlp import from_mlp
from fourward.exchange.neat import from_neat, read_neat
from fourward.exchange.onnx import check_onnx, to_onnx
from fourward.exchange.source import to_python
from fourward.exchange.tensorneat import from_tensorneat, read_tensorneat

__all__ = [
    "ENDINGS",
    "check_onnx",
    "export",
    "fold",
    "from_mlp",
    "from_neat",
    "from_networkx",
    "from_tensorneat",
    "read_neat",
    "read_network",
    "read_tensorneat",
    "to_latex",
    "to_onnx",
    "to_pt2",
    "to_python",
]

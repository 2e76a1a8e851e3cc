"""fourward: a directed graph of single neurons as a PyTorch module.

`Dag` is the graph, `Layering` the level of each node, and `FourWard` the module, which trains like any other. Names are
imported on first use, so that `import fourward` is light.

>>> import fourward as fw
>>> dag = fw.Dag.from_edges([("a", "c"), ("b", "c"), ("c", "d")])
>>> fw.FourWard(dag, activation="tanh").weight.shape
torch.Size([3])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fourward._version import __version__

if TYPE_CHECKING:
    from fourward import engine, errors, exchange, graph, layering, nn, paper, plan, sparse, study, train
    from fourward._serialization import load, save
    from fourward.errors import FourwardError
    from fourward.graph import Dag, Digraph, connectomes, files, generate, orient
    from fourward.layering import Layering
    from fourward.nn import FourWard, Population, Recurrent, importance
    from fourward.sparse import prune, rewire
    from fourward.train import FourWardClassifier, FourWardRegressor
    from fourward.view import draw, view

_SUBMODULES = {
    "connectomes": "fourward.graph.connectomes",
    "engine": "fourward.engine",
    "errors": "fourward.errors",
    "exchange": "fourward.exchange",
    "files": "fourward.graph.files",
    "generate": "fourward.graph.generate",
    "graph": "fourward.graph",
    "layering": "fourward.layering",
    "nn": "fourward.nn",
    "orient": "fourward.graph.orient",
    "paper": "fourward.paper",
    "plan": "fourward.plan",
    "sparse": "fourward.sparse",
    "study": "fourward.study",
    "train": "fourward.train",
    "view": "fourward.view",
}
_ATTRIBUTES = {
    "Dag": "fourward.graph",
    "Digraph": "fourward.graph",
    "FourWard": "fourward.nn",
    "FourWardClassifier": "fourward.train",
    "FourWardRegressor": "fourward.train",
    "FourwardError": "fourward.errors",
    "Layering": "fourward.layering",
    "Population": "fourward.nn",
    "Recurrent": "fourward.nn",
    "draw": "fourward.view",
    "importance": "fourward.nn",
    "load": "fourward._serialization",
    "prune": "fourward.sparse",
    "rewire": "fourward.sparse",
    "save": "fourward._serialization",
}

__all__ = [
    "Dag",
    "Digraph",
    "FourWard",
    "FourWardClassifier",
    "FourWardRegressor",
    "FourwardError",
    "Layering",
    "Population",
    "Recurrent",
    "__version__",
    "connectomes",
    "draw",
    "engine",
    "errors",
    "exchange",
    "files",
    "generate",
    "graph",
    "importance",
    "layering",
    "load",
    "nn",
    "orient",
    "paper",
    "plan",
    "prune",
    "rewire",
    "save",
    "sparse",
    "study",
    "train",
    "view",
]


def __getattr__(name: str) -> Any:
    value: Any
    if name in _SUBMODULES:
        value = import_module(_SUBMODULES[name])
    elif name in _ATTRIBUTES:
        value = getattr(import_module(_ATTRIBUTES[name]), name)
    else:
        raise AttributeError(f"module 'fourward' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

"""fourward: any directed acyclic graph of single neurons as a PyTorch module that trains.

A graph becomes a `Dag`, a `Dag` a `Layering`, both a plan that an engine walks, and all of it a `FourWard`,
a torch module. Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fourward._version import __version__

if TYPE_CHECKING:
    from fourward import errors, exchange, layering, paper, study, train
    from fourward._serialization import load, save
    from fourward.errors import FourwardError
    from fourward.graph import connectomes, files, generate, orient
    from fourward.graph._dag import Dag
    from fourward.layering._layering import Layering
    from fourward.nn._fourward import FourWard
    from fourward.train._estimators import FourWardClassifier, FourWardRegressor
    from fourward.view._draw import draw
    from fourward.view._page import view

_HOMES = {
    "Dag": "fourward.graph._dag",
    "FourWard": "fourward.nn._fourward",
    "FourWardClassifier": "fourward.train._estimators",
    "FourWardRegressor": "fourward.train._estimators",
    "FourwardError": "fourward.errors",
    "Layering": "fourward.layering._layering",
    "connectomes": "fourward.graph",
    "draw": "fourward.view._draw",
    "errors": "fourward",
    "exchange": "fourward",
    "files": "fourward.graph",
    "generate": "fourward.graph",
    "layering": "fourward",
    "load": "fourward._serialization",
    "orient": "fourward.graph",
    "paper": "fourward",
    "save": "fourward._serialization",
    "study": "fourward",
    "train": "fourward",
    "view": "fourward",
}

__all__ = [
    "Dag",
    "FourWard",
    "FourWardClassifier",
    "FourWardRegressor",
    "FourwardError",
    "Layering",
    "__version__",
    "connectomes",
    "draw",
    "errors",
    "exchange",
    "files",
    "generate",
    "layering",
    "load",
    "orient",
    "paper",
    "save",
    "study",
    "train",
    "view",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fourward' has no attribute {name!r}")
    home = _HOMES[name]
    inside = vars(import_module(home))
    value = inside[name] if name in inside else import_module(f"{home}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

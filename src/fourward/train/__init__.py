"""Enters: a network or a graph, and data. Leaves: trained networks, their learning curves, their checkpoints.

Never belongs here: how a network computes, pictures, comparisons of many networks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fourward.train._data import Data, bundled
    from fourward.train._fit import fit
    from fourward.train._history import History

_HOMES = {"Data": "_data", "bundled": "_data", "History": "_history", "fit": "_fit"}

__all__ = ["Data", "History", "bundled", "fit"]


def __getattr__(name: str) -> Any:  # Lightning takes seconds to import, and only `fit` needs it
    if name not in _HOMES:
        raise AttributeError(f"module 'fourward.train' has no attribute {name!r}")
    return getattr(import_module(f"fourward.train.{_HOMES[name]}"), name)

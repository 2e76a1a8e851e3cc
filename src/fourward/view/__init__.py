"""Enters: a Dag, a Layering or a network. Leaves: pictures, and the page that `fourward.view(net)` makes.

Never belongs here: training, timing, anything that a picture doesn't show.

The module can be called: `fourward.view(net)` is `fourward.view.view(net)`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fourward.view._curves import activation_map, learning_curves
    from fourward.view._draw import draw
    from fourward.view._figure import Picture
    from fourward.view._page import Page, view

_MODULES = {
    "Page": "_page",
    "Picture": "_figure",
    "activation_map": "_curves",
    "draw": "_draw",
    "learning_curves": "_curves",
    "view": "_page",
}

__all__ = ["Page", "Picture", "activation_map", "draw", "learning_curves", "view"]


def __getattr__(name: str) -> Any:  # torch and matplotlib are imported when they are first needed
    if name not in _MODULES:
        raise AttributeError(f"module 'fourward.view' has no attribute {name!r}")
    return getattr(import_module(f"fourward.view.{_MODULES[name]}"), name)


class _CallableModule(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make a page to explore a network; see `fourward.view.view`."""
        from fourward.view._page import view

        return view(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

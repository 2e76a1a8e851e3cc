"""Enters: a Dag, a Layering or a network. Leaves: pictures, and the page that `fourward.view(net)` makes.

Never belongs here: training, timing, anything that a picture doesn't show.

`fourward.view(net_or_dag, title=, layering=, weight=, samples=, around=)`; help(fourward.view._page.view) has more.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """This room can be called: `fourward.view(net)`."""

    def __call__(self, *things: Any, **options: Any) -> Any:
        """A page to look into a network; see `fourward.view._page.view`."""
        from fourward.view._page import view

        return view(*things, **options)


sys.modules[__name__].__class__ = _Room

"""Enters: a Dag, a Layering or a network. Leaves: pictures.

Never belongs here: training, timing, anything that a picture doesn't show.
"""

from fourward.view.draw import draw_network

__all__ = ["draw_network"]

"""Enters: rows of a results file. Leaves: the paper's figures and those of the topologies, as PNG and SVG.

Never belongs here: measuring, and numbers that no row holds.
"""

from fourward.study._figures.catalog import Picture, draw_all, pictures

__all__ = ["Picture", "draw_all", "pictures"]

"""Enters: rows of a results file. Leaves: the paper's figures and those of the topologies, as PNG and SVG.

Never belongs here: measuring, and numbers that no row contains.
"""

from fourward.study._figures.catalog import Drawing, available_figures, write_figures

__all__ = ["Drawing", "available_figures", "write_figures"]

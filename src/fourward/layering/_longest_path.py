"""The paper's layering: longest path, in linear time, and push_sources."""

from __future__ import annotations

import numpy as np

from fourward.graph._dag import Dag
from fourward.layering._layering import Layering, check_same_graph


def longest_path(dag: Dag) -> Layering:
    """Layering of minimum height: all sinks in the last layer, every other node as close to them as possible."""
    return Layering(dag, dag.longest_path_to_sink.max() - dag.longest_path_to_sink)


def push_sources(dag: Dag, layering: Layering) -> Layering:
    """Move every source, a node without incoming edges, to layer 0; isolated nodes are sources, too."""
    check_same_graph(dag, layering)
    return Layering(dag, np.where(dag.in_degree == 0, 0, layering.level))

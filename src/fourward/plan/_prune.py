"""The part of a plan that its outputs depend on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fourward._arrays import IntArray
from fourward.graph._dag import Dag
from fourward.layering._layering import Layering
from fourward.plan._plan import Plan, build_plan


class PrunedPlan(NamedTuple):
    """A plan without the neurons that reach no output, and which parameters of the whole network it uses."""

    plan: Plan
    edge: IntArray  #: (E',) the edge of the whole Dag for each edge of the pruned one
    neuron: IntArray  #: (N'-I,) the entry of the whole bias for each entry of the pruned one


def prune(plan: Plan) -> PrunedPlan | None:
    """Leave out the neurons that reach no output; None if there are none. All inputs remain."""
    dag, remains = plan.dag, plan.reaches_output.copy()
    remains[: dag.num_inputs] = True
    if remains.all():
        return None
    nodes = np.sort(plan.order[remains])
    index = np.full(dag.num_nodes, -1)  # (N,) index of each node in the pruned Dag
    index[nodes] = np.arange(len(nodes))
    edge = np.flatnonzero(index[dag.target] >= 0)  # their sources remain, too: they reach what their targets reach
    edges = index[dag.edges[edge]]
    part = Dag.from_arrays(edges, labels=len(nodes), inputs=index[dag.inputs], outputs=index[dag.outputs])
    level = np.unique(plan.layering.level[nodes], return_inverse=True)[1]
    driven = tuple(int(index[v]) for v in plan.driven if index[v] >= 0)
    return PrunedPlan(
        build_plan(part, Layering(part, level), plan.node_code[nodes], nodes, driven),
        part.align(edge, edges, by="index"),
        np.searchsorted(dag.neurons, nodes[part.neurons]),
    )

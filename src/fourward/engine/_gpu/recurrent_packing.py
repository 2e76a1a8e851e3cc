"""The plan of a network with feedback as one int32 tensor, and the sizes and offsets that launches need of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fourward._arrays import BoolArray, IntArray
from fourward.engine._gpu.packing import join_fields, read_codes, row_fields
from fourward.plan._plan import sort_by_source
from fourward.plan._recurrent_plan import RecurrentPlan

DEAD_BIT = 30  #: bit of an entry of out_target: the target reaches no output, so the gradients of outputs don't need it


class RecurrentShape(NamedTuple):
    """Sizes of a packed plan, then the offset of each of its fields."""

    nodes: int
    inputs: int
    outputs: int
    edges: int  #: within a step and feedback
    codes: int  #: bit c is set if some neuron's activation is c
    needs_z: int  #: 1 if some derivative needs z
    levels: int
    voltage: int  #: 1 for voltage dynamics
    dead: int  #: number of nodes that reach no output
    # One element for each row:
    code: int
    node: int
    hidden: int  #: 1 if dropout applies
    bias_index: int  #: -1: none
    output_column: int  #: its column of the outputs; -1: none
    node_column: int  #: its column of the activations of all nodes
    live: int  #: 1 if it reaches an output
    level_start: int
    # Edges into each neuron, those within the step first:
    edge_start: int
    source: int  #: less N for feedback edges
    edge: int  #: its weight
    # Edges out of each node, those within the step first:
    out_edge_start: int
    out_feedback_start: int
    out_target: int  #: plus N for feedback edges; plus 2**DEAD_BIT if the target reaches no output
    out_edge: int
    output_row: int  #: the row of each output
    node_row: int  #: the row of each node

    def __hash__(self) -> int:
        """Hash a few fields only, since every call of a network looks up its launches by its shape."""
        return hash((self.nodes, self.edges, self.code, self.codes))

    @property
    def offsets(self) -> dict[str, int]:
        """The offset of each field by its name in upper case, as kernels call it."""
        return {name.upper(): getattr(self, name) for name in self._fields[self._fields.index("code") :]}


def pack_recurrent(plan: RecurrentPlan) -> tuple[Tensor, RecurrentShape]:
    """Pack a plan, and return the tensor and its shape."""
    step, nodes, within = plan.step, plan.step.dag.num_nodes, plan.step.dag.num_edges
    live = plan.reaches_output
    fields = {
        **row_fields(step, np.arange(nodes), nodes),
        "live": live.astype(np.int32),
        "level_start": step.level_start,
        **_edge_fields(plan, live),
        "output_row": step.outputs,
        "node_row": step.position,
    }
    packed, offsets = join_fields(fields)
    sizes = {
        "nodes": nodes, "inputs": step.dag.num_inputs, "outputs": step.dag.num_outputs,
        "edges": within + plan.num_feedback, "codes": read_codes(step), "needs_z": int(step.needs_z.any()),
        "levels": step.num_levels, "voltage": int(plan.dynamics == "voltage"), "dead": int(np.count_nonzero(~live)),
    }  # fmt: skip
    return torch.from_numpy(packed), RecurrentShape(**sizes, **offsets)


def _edge_fields(plan: RecurrentPlan, live: BoolArray) -> dict[str, IntArray]:
    """Edges of both kinds by target, and by source."""
    step, nodes = plan.step, plan.step.dag.num_nodes
    within = np.arange(len(step.source)) if step.edge is None else step.edge
    edge = np.concatenate((within, len(within) + plan.edge))
    is_feedback = np.arange(len(edge)) >= len(within)
    source = np.concatenate((step.source, plan.source)).astype(np.int64)
    target = np.concatenate((step.target, plan.target)).astype(np.int64)
    by_target = np.argsort(target, kind="stable")
    # A stable sort by source: edges of a node within the step, by target, then its feedback edges.
    by_source, out_start = sort_by_source(source.astype(np.int32), nodes)
    out_within = np.bincount(source[: len(within)], minlength=nodes)
    out_target = (target + nodes * is_feedback) | (~live[target]).astype(np.int64) << DEAD_BIT
    return {
        "edge_start": step.edge_start + plan.edge_start,
        "source": (source - nodes * is_feedback)[by_target],
        "edge": edge[by_target],
        "out_edge_start": out_start,
        "out_feedback_start": out_start[:-1] + out_within,
        "out_target": out_target[by_source],
        "out_edge": edge[by_source],
    }

"""FLOPs and bytes of a network, from its plan and the size of a batch."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from fourward.plan._plan import Plan

MOST_SAMPLES = 128  #: samples that the cpu engine computes together


@dataclass(frozen=True)
class Cost:
    """What a network needs for a batch. A multiplication and an addition count as two FLOPs."""

    parameters: int  #: weights and biases
    parameter_bytes: int  #: bytes of the parameters; gradients take as much, AdamW's state twice as much
    plan_bytes: int  #: bytes of the index arrays of the Dag and the plan
    activation_bytes: int  #: bytes of the activations of all nodes
    inference_bytes: int  #: bytes of the rows that each thread of the cpu engine uses without a backward pass, at most
    saved_bytes: int  #: bytes that the compiled engines save for the backward pass
    torch_saved_bytes: int  #: bytes that the torch engine saves for it, at most
    forward_flops: int  #: products and sums over the edges, and biases; activations are not counted
    backward_flops: int  #: gradients of weights, biases and nodes, but not of x


def cost(plan: Plan, batch: int, *, bias: bool = True, itemsize: int = 4, feedback: int = 0) -> Cost:
    """Compute the cost of a network, or of a step of a network with feedback.

    Args:
        plan: The plan.
        batch: Number of samples.
        bias: Whether neurons have biases.
        itemsize: Size of a weight and of an activation in bytes.
        feedback: Number of feedback edges, beside those of the plan.
    """
    dag = plan.dag
    neurons = dag.num_nodes - dag.num_inputs
    biases = neurons if bias else 0
    saved_z = int(np.count_nonzero(plan.needs_z))
    from_inputs = int(np.count_nonzero(plan.source < dag.num_inputs))
    edges, numbers = dag.num_edges - len(plan.driven) + feedback, batch * itemsize
    return Cost(
        parameters=edges + biases,
        parameter_bytes=(edges + biases) * itemsize,
        plan_bytes=_array_bytes(dag) + _array_bytes(plan),
        activation_bytes=dag.num_nodes * numbers,
        inference_bytes=plan.schedule.num_slots * min(batch, MOST_SAMPLES) * itemsize,
        saved_bytes=(dag.num_nodes + saved_z) * numbers,
        torch_saved_bytes=(2 * edges + neurons) * numbers,
        forward_flops=(2 * edges + biases) * batch,
        backward_flops=(4 * edges - 2 * from_inputs + biases) * batch,
    )


def _array_bytes(frozen: object) -> int:
    """Bytes of the arrays among the fields of a Dag or a Plan."""
    values = (getattr(frozen, field.name) for field in fields(frozen))  # type: ignore[arg-type]
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

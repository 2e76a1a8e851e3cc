"""Operations and bytes of a plan, for a batch of a given size."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from fourward.plan._plan import Plan


@dataclass(frozen=True)
class Cost:
    """What a network needs for a batch. A multiplication and an addition count as two operations."""

    parameters: int  #: weights and biases
    parameter_bytes: int  #: of them; their gradients take as much again, and AdamW's state twice that
    plan_bytes: int  #: of the Dag's and the plan's index arrays
    activation_bytes: int  #: of the activations of all nodes
    kept_bytes: int  #: what a training step of the compiled engines keeps for its backward pass
    torch_kept_bytes: int  #: what one of the torch engine keeps, at most
    forward_operations: int  #: products and sums over the edges, and biases
    backward_operations: int  #: gradients of weights, biases and nodes, but not of x


def cost(plan: Plan, batch: int, *, bias: bool = True, itemsize: int = 4) -> Cost:
    """The cost of a plan; `itemsize` is the number of bytes of a weight and of an activation."""
    dag = plan.dag
    neurons = dag.num_nodes - dag.num_inputs
    biases = neurons if bias else 0
    saved_z = int(np.count_nonzero(plan.needs_z))
    from_inputs = int(np.count_nonzero(plan.source < dag.num_inputs))
    edges, numbers = dag.num_edges, batch * itemsize
    return Cost(
        parameters=edges + biases,
        parameter_bytes=(edges + biases) * itemsize,
        plan_bytes=_array_bytes(dag) + _array_bytes(plan),
        activation_bytes=dag.num_nodes * numbers,
        kept_bytes=(dag.num_nodes + saved_z) * numbers,
        torch_kept_bytes=(2 * edges + neurons) * numbers,
        forward_operations=(2 * edges + biases) * batch,
        backward_operations=(4 * edges - 2 * from_inputs + biases) * batch,
    )


def _array_bytes(frozen: object) -> int:
    """Bytes of the arrays among the fields of a Dag or a Plan."""
    values = (getattr(frozen, field.name) for field in fields(frozen))  # type: ignore[arg-type]
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

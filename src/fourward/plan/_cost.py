"""FLOPs and bytes of a network, from its plan and the size of a batch."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from fourward.errors import OptionError
from fourward.plan._plan import Plan
from fourward.plan._recurrent_plan import RecurrentPlan

LANE_GROUP_BYTES, MOST_GROUPS = 64, 8  #: the cpu engine computes up to so many groups of lanes together


@dataclass(frozen=True)
class Cost:
    """What a network needs for a batch. A multiplication and an addition count as two FLOPs."""

    parameters: int  #: weights and biases; with feedback, tau isn't counted
    parameter_bytes: int  #: bytes of the parameters; gradients take as much, AdamW's state twice as much
    plan_bytes: int  #: bytes of the index arrays of the Dag and the plan
    activation_bytes: int  #: bytes of the activations of all nodes, in all steps
    inference_bytes: int  #: bytes of the rows that each thread of the cpu engine uses without a backward pass, at most
    saved_bytes: int  #: bytes that the compiled engines save for the backward pass
    torch_saved_bytes: int  #: bytes that the torch engine saves for it, at most
    forward_flops: int  #: products and sums over the edges, and biases; activations are not counted
    backward_flops: int  #: gradients of weights, biases and nodes, but not of x


def cost(
    plan: Plan | RecurrentPlan, batch: int, *, bias: bool = True, itemsize: int = 4, steps: int | None = None
) -> Cost:
    """Compute the cost of a network.

    Args:
        plan: The plan, or that of a network with feedback.
        batch: Number of samples, or of sequences.
        bias: Whether neurons have biases.
        itemsize: Size of a weight and of an activation in bytes.
        steps: The number of steps of a network with feedback. Default: 1.
    """
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise OptionError(f"steps must be an int of at least 1, or None for a single step, got {steps!r}.")
    if isinstance(plan, RecurrentPlan):
        return _recurrent_cost(plan, batch, bias, itemsize, 1 if steps is None else steps)
    if steps is not None:
        raise OptionError(f"expected the plan of a network with feedback for steps={steps}, got {plan!r}. Omit steps.")
    numbers = batch * itemsize
    return replace(
        _step_cost(plan, batch, bias, itemsize, 0),
        inference_bytes=plan.schedule.num_slots * _slice_width(batch, itemsize) * itemsize,
        saved_bytes=(plan.dag.num_nodes + int(np.count_nonzero(plan.needs_z))) * numbers,
    )


def _slice_width(batch: int, itemsize: int) -> int:
    """The samples that the cpu engine computes together, padding included, at most."""
    lanes = LANE_GROUP_BYTES // itemsize
    if batch < lanes:
        return 1 << (batch - 1).bit_length() if batch else 0
    return lanes * min(MOST_GROUPS, 1 << (-(-batch // lanes)).bit_length() - 1)


def _recurrent_cost(plan: RecurrentPlan, batch: int, bias: bool, itemsize: int, steps: int) -> Cost:
    step = _step_cost(plan.step, batch, bias, itemsize, plan.num_feedback)
    nodes, states = plan.step.dag.num_nodes, 1 + (plan.leaky and plan.dynamics == "voltage")
    saved_z = nodes if plan.leaky else int(np.count_nonzero(plan.step.needs_z))
    return replace(
        step,
        plan_bytes=step.plan_bytes + _array_bytes(plan),
        activation_bytes=steps * step.activation_bytes,
        inference_bytes=2 * nodes * states * _slice_width(batch, itemsize) * itemsize,
        saved_bytes=((steps + 1) * nodes * states + steps * saved_z) * batch * itemsize,
        torch_saved_bytes=steps * step.torch_saved_bytes,
        forward_flops=steps * step.forward_flops,
        backward_flops=steps * step.backward_flops,
    )


def _step_cost(plan: Plan, batch: int, bias: bool, itemsize: int, feedback: int) -> Cost:
    """The cost of a pass or a step, without what is saved."""
    neurons = plan.dag.num_nodes - plan.dag.num_inputs
    biases = neurons if bias else 0
    from_inputs = int(np.count_nonzero(plan.source < plan.dag.num_inputs))
    edges, numbers = plan.dag.num_edges - len(plan.driven) + feedback, batch * itemsize
    return Cost(
        parameters=edges + biases,
        parameter_bytes=(edges + biases) * itemsize,
        plan_bytes=_array_bytes(plan.dag) + _array_bytes(plan),
        activation_bytes=plan.dag.num_nodes * numbers,
        inference_bytes=0,
        saved_bytes=0,
        torch_saved_bytes=(2 * edges + neurons) * numbers,
        forward_flops=(2 * edges + biases) * batch,
        backward_flops=(4 * edges - 2 * from_inputs + biases) * batch,
    )


def _array_bytes(frozen: object) -> int:
    """Bytes of the arrays among the fields of a Dag or a Plan."""
    values = (getattr(frozen, field.name) for field in fields(frozen))  # type: ignore[arg-type]
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))

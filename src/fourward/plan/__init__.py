"""Enters: a Dag, its Layering, an activation for each neuron. Leaves: a Plan, the flat arrays that an engine executes.

Never belongs here: torch, weights, samples, the kernels that execute a plan.
"""

from fourward.plan._cost import Cost, cost
from fourward.plan._plan import Plan, build_driven_plan, build_plan
from fourward.plan._recurrent_plan import Dynamics, RecurrentPlan, build_recurrent_plan
from fourward.plan._schedule import Schedule, build_schedule
from fourward.plan._verify import verify

__all__ = [
    "Cost",
    "Dynamics",
    "Plan",
    "RecurrentPlan",
    "Schedule",
    "build_driven_plan",
    "build_plan",
    "build_recurrent_plan",
    "build_schedule",
    "cost",
    "verify",
]

"""Enters: a Dag, its Layering, an activation for each neuron. Leaves: a Plan, the flat arrays an engine walks.

Never belongs here: torch, weights, samples.
"""

from fourward.plan._plan import Plan, build_plan

__all__ = ["Plan", "build_plan"]

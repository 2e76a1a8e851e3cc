"""Enters: a Plan, weights, a batch. Leaves: activations, and gradients through autograd.

Never belongs here: graph reasoning, parameters, defaults for users.
"""

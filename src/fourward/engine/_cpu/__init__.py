"""Enters: a Plan, weights and a batch in CPU memory. Leaves: activations and gradients, computed by Numba kernels.

Never belongs here: torch operations on activations, other people's threads.
"""

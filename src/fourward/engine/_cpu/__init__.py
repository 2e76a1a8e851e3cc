"""Enters: a Plan, weights and a batch in CPU memory. Leaves: activations and gradients, computed by Numba kernels.

Never belongs here: torch operations on activations, the GPU engine's modules, Numba's threading layers.
"""

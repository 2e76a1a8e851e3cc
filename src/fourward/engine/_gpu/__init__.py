"""Enters: a Plan, weights and a batch in a card's memory. Leaves: activations and gradients, by Triton kernels.

Never belongs here: torch operations on activations, an import of Triton before a card is used.
"""

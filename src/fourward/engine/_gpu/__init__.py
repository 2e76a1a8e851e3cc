"""Enters: a Plan, weights and a batch in a card's memory. Leaves: activations and gradients, by Triton kernels.

Never belongs here: torch operations on activations, an import of Triton before a card is used.

A plan is cut (`tiling`) and packed (`packing`) into a program, in the layout that `heuristics` chooses. `launch` turns
a call's tensors into the launches of `tiled_launch` or `csr_launch`, which `launcher` binds to kernels by name.
"""

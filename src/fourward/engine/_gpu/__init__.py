"""Enters: a Plan, weights and a batch in GPU memory. Leaves: activations and gradients, by Triton kernels.

Never belongs here: torch operations on activations, an import of Triton before a GPU is used.

A plan is cut (`tiling`) and packed (`packing`) into one int32 tensor, in the layout that `heuristics` chooses. `launch`
turns the tensors of a call into the launches of `tiled_launch` or `csr_launch`, each bound to its kernel by name
(`kernel_launch`).
"""

"""A table of addresses on the card, from which kernels learn where the tensors of a call are.

A captured CUDA graph of such kernels serves whatever tensors the next call brings. The first two of 16 places are left
to those who count.
"""

from __future__ import annotations

import triton
import triton.language as tl

PLACES = 8  #: addresses that `point` writes


@triton.jit
def note(table, place: tl.constexpr, tensor):
    """Write the address of a tensor."""
    tl.store(table + 2 + place, tensor.to(tl.int64, bitcast=True))


@triton.jit
def point(table, t0, t1, t2, t3, t4, t5, t6, t7):
    """Write the addresses of a call's tensors into the table."""
    note(table, 0, t0)
    note(table, 1, t1)
    note(table, 2, t2)
    note(table, 3, t3)
    note(table, 4, t4)
    note(table, 5, t5)
    note(table, 6, t6)
    note(table, 7, t7)


@triton.jit
def address(table, place: tl.constexpr, KIND: tl.constexpr):
    """Where the tensor at this place is."""
    return tl.load(table + 2 + place).to(tl.pointer_type(KIND), bitcast=True)


@triton.jit
def own_address(table, place: tl.constexpr, KIND: tl.constexpr):
    """Of memory that was made for the call, which starts at a multiple of 16 bytes: loads may be wide."""
    return tl.multiple_of(tl.load(table + 2 + place).to(tl.pointer_type(KIND), bitcast=True), 16)

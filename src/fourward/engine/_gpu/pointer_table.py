"""A table on the GPU that holds the addresses of a call's tensors, from which kernels load their pointers.

A captured CUDA graph bakes in the arguments of its launches. Kernels that load their pointers from this table instead
let one graph serve whatever tensors the next call brings. The table is 16 int64: two for counters, then 14 slots.
"""

from __future__ import annotations

import triton
import triton.language as tl

NUM_SLOTS = 9  #: number of slots that `write_addresses_kernel` writes


@triton.jit
def store_address(table, slot: tl.constexpr, tensor):
    """table[2 + slot] = address of the tensor."""
    tl.store(table + 2 + slot, tensor.to(tl.int64, bitcast=True))


@triton.jit
def write_addresses_kernel(table, t0, t1, t2, t3, t4, t5, t6, t7, t8):
    """Store the address of tensor t_i in slot i."""
    store_address(table, 0, t0)
    store_address(table, 1, t1)
    store_address(table, 2, t2)
    store_address(table, 3, t3)
    store_address(table, 4, t4)
    store_address(table, 5, t5)
    store_address(table, 6, t6)
    store_address(table, 7, t7)
    store_address(table, 8, t8)


@triton.jit
def load_pointer(table, slot: tl.constexpr, DTYPE: tl.constexpr):
    """The tensor of a slot, wherever it starts."""
    return tl.load(table + 2 + slot).to(tl.pointer_type(DTYPE), bitcast=True)


@triton.jit
def load_aligned_pointer(table, slot: tl.constexpr, DTYPE: tl.constexpr):
    """The tensor of a slot, which the launch allocated at a multiple of 16 bytes: loads may be wide."""
    return tl.multiple_of(tl.load(table + 2 + slot).to(tl.pointer_type(DTYPE), bitcast=True), 16)

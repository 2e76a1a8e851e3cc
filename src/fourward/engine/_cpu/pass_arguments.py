"""The arguments of forward and backward passes, and how a kernel opens them."""
# mypy: ignore-errors
# (Numba types this code, by rules of its own.)

from __future__ import annotations

from array import array

from numba import njit
from numba.core import types

from fourward.engine._cpu.arguments import argument_buffer, buffer_reader
from fourward.engine._cpu.kernels import Ends, read_drop
from fourward.engine._cpu.packed_plan import read_sizes, unpack
from fourward.engine._cpu.simd import pointer

_jit = njit(nogil=True, error_model="numpy")


@argument_buffer
def forward_arguments(
    *,
    stage: int,  # index of the stage that runs, which level_forward takes for the level
    jobs: int,  # number of slices; level_forward: parts of a level
    distance: int,  # nodes between the one whose rows are prefetched and the one that is computed; 0: no prefetching
    slices: int,  # (jobs, 4) int64, rows of Slice
    packed_plan: int,
    all_nodes: bool,
    inputs: int,  # I
    outputs: int,  # columns of out
    x: int,  # (B, I)
    out: int,  # (B, N) by node index if all_nodes, else (B, O)
    # Saved: (N, S) of each slice, one slice after another; else scratch of `scratch` numbers for each thread, or for
    # all threads of level_forward.
    a: int,
    z: int,  # (Z, S) likewise, a row for each node that needs it; 0 if nothing is saved
    scratch: int,  # 0 if a is saved
    weight: int,  # (E,) in plan order
    bias: int,  # (N-I,), or 0
    key: int,  # key of dropout
    threshold: int,  # threshold of dropout; 0: nothing is dropped
    p_bits: int,  # the bits of dropout's p, a float64
) -> array[int]:
    """The arguments of a forward pass."""


@argument_buffer
def backward_arguments(
    *,
    stage: int,  # index of the stage that runs: level_push takes the levels from the last to the first
    shares: int,  # jobs of level_push; else shares of the batch: the jobs of _backward
    share_start: int,  # (shares + 1,) int64, the slices of share i are share_start[i]:share_start[i+1]
    distance: int,  # nodes between the one whose rows are prefetched and the one that is computed; 0: no prefetching
    slices: int,
    parts: int,  # parts of what has no order: the jobs of _sort and _finish
    packed_plan: int,
    all_nodes: bool,
    inputs: int,
    outputs: int,
    x_grad: int,  # (B, I), or 0
    out_grad: int,  # same shape as out
    a: int,
    z: int,
    d: int,  # scratch of `scratch` numbers for each share
    scratch: int,
    weight: int,  # (E,) in plan order
    by_source: int,  # (E,) the same, sorted by source
    sums: int,  # (shares, E + biases) gradients of weights, sorted by source, and of biases; _push: see there
    biases: int,  # N-I, or 0
    weight_grad: int,  # (E,) in plan order
    bias_grad: int,  # (biases,)
    key: int,
    threshold: int,
    p_bits: int,
) -> array[int]:
    """The arguments of sort, backward and finish, one after another; of push and merge; or of level_push."""


read_forward, read_backward = buffer_reader(forward_arguments), buffer_reader(backward_arguments)


@_jit
def open_backward(buffer, zero):
    """The arguments of a backward pass, and what they point to."""
    args = read_backward(buffer)
    p = unpack(pointer(args.packed_plan, types.int32(0)))
    x_grad, out_grad, state_grad = pointer(args.x_grad, zero), pointer(args.out_grad, zero), pointer(0, zero)
    ends = Ends(args.all_nodes != 0, args.inputs, args.outputs, x_grad, out_grad, state_grad)
    return args, p, read_sizes(p.sizes), ends, read_drop(args.key, args.threshold, args.p_bits, zero)

"""Kernels for populations: a program computes a member for a slice of the batch, one neuron after another.

Members and slices are independent, so programs wait for nobody, and a member is padded to no other's size. A program is
one warp, whose threads read the rows that they wrote themselves: rows of a member that stay in the first cache.

Layout: rows (slices, R, BLOCK_B); member p has I rows of inputs, then one for each neuron, from p * I + neuron_start[p]
on.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import activate, activation_backward

_RUNTIME = ["B", "slices", "rows", "edges", "neurons", "slices_per_share"]


@triton.jit(do_not_specialize=_RUNTIME)
def population_forward_kernel(
    x, weight, bias, out, saved, packed_plan,
    B, slices, rows, I: tl.constexpr, O: tl.constexpr,
    NEURON_START, EDGE_START, NEURON, CODE, SOURCE, OUTPUTS,
    SEPARATE: tl.constexpr, BLOCK_B: tl.constexpr, CODES: tl.constexpr, HAS_BIAS: tl.constexpr, SAVE_Z: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute a = f(b + W a) of member program_id // slices for the BLOCK_B samples of slice program_id % slices."""
    member = (tl.program_id(0) // slices).to(tl.int64)
    slice_id = (tl.program_id(0) % slices).to(tl.int64)
    lane = tl.arange(0, BLOCK_B)
    samples = slice_id * BLOCK_B + lane
    first, last = tl.load(packed_plan + NEURON_START + member), tl.load(packed_plan + NEURON_START + member + 1)
    values = saved + (slice_id * rows + member * I + first) * BLOCK_B
    z_values = values + slices * (rows.to(tl.int64) * BLOCK_B)
    for i in range(I):
        at = x + (member * SEPARATE * B + samples) * I + i
        tl.store(values + i * BLOCK_B + lane, tl.load(at, mask=samples < B, other=0.0))
    tl.debug_barrier()
    for q in range(first, last):
        # Invariant: the rows of the inputs and of all neurons before q are stored, and visible to the warp.
        z = tl.zeros((BLOCK_B,), ACC_DTYPE)
        if HAS_BIAS:
            z += tl.load(bias + first + tl.load(packed_plan + NEURON + q)).to(ACC_DTYPE)
        stop = tl.load(packed_plan + EDGE_START + q + 1)
        for k in range(tl.load(packed_plan + EDGE_START + q), stop, 4):
            for j in tl.static_range(4):
                exists = k + j < stop
                source = tl.load(packed_plan + SOURCE + k + j, mask=exists, other=0)
                w = tl.load(weight + k + j, mask=exists, other=0.0).to(ACC_DTYPE)
                v = tl.load(values + source * BLOCK_B + lane, mask=exists & (lane >= 0), other=0.0)
                z += w * v.to(ACC_DTYPE)
        a = activate(z, tl.load(packed_plan + CODE + q), CODES)
        tl.store(values + (I + q - first) * BLOCK_B + lane, a)
        if SAVE_Z:
            tl.store(z_values + (I + q - first) * BLOCK_B + lane, z)
        tl.debug_barrier()
    for o in range(O):
        v = tl.load(values + tl.load(packed_plan + OUTPUTS + member * O + o) * BLOCK_B + lane)
        tl.store(out + (member * B + samples) * O + o, v, mask=samples < B)


@triton.jit(do_not_specialize=_RUNTIME)
def population_backward_kernel(
    out_grad, weight, saved, deltas, weight_sums, bias_sums, x_grad, packed_plan,
    B, slices, rows, edges, neurons, slices_per_share, I: tl.constexpr, O: tl.constexpr,
    NEURON_START, EDGE_START, NEURON, CODE, NEEDED, SOURCE, OUTPUTS,
    BLOCK_B: tl.constexpr, CODES: tl.constexpr, HAS_BIAS: tl.constexpr, SAVE_Z: tl.constexpr,
    NEEDS_X_GRAD: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Gradients of a member over a share of the slices: d = f'(z) (g + W^T d), dW[u, v] = sum of a[u] d[v].

    `deltas` (shares, R, BLOCK_B) collects g + W^T d of a slice. `weight_sums` (shares, E) and `bias_sums` (shares, M)
    start as zeros, and x_grad is (P, B, I). Neurons that reach no output take no part.
    """
    shares = tl.cdiv(slices, slices_per_share)
    member, share = (tl.program_id(0) // shares).to(tl.int64), (tl.program_id(0) % shares).to(tl.int64)
    lane = tl.arange(0, BLOCK_B)
    first, last = tl.load(packed_plan + NEURON_START + member), tl.load(packed_plan + NEURON_START + member + 1)
    sums = deltas + (share * rows + member * I + first) * BLOCK_B
    for slice_id in range(share * slices_per_share, tl.minimum((share + 1) * slices_per_share, slices)):
        samples = slice_id * BLOCK_B + lane
        inside = samples < B
        values = saved + (slice_id * rows + member * I + first) * BLOCK_B
        z_values = values + slices * (rows.to(tl.int64) * BLOCK_B)
        for row in range(I + last - first):
            tl.store(sums + row * BLOCK_B + lane, tl.zeros((BLOCK_B,), ACC_DTYPE))
        tl.debug_barrier()
        for o in range(O):
            at = sums + tl.load(packed_plan + OUTPUTS + member * O + o) * BLOCK_B + lane
            g = tl.load(out_grad + (member * B + samples) * O + o, mask=inside, other=0.0)
            tl.store(at, tl.load(at) + g.to(ACC_DTYPE))
            tl.debug_barrier()
        for j in range(last - first):
            # Invariant: `sums` has all that neurons after q contribute to it.
            q = last - 1 - j
            if tl.load(packed_plan + NEEDED + q) != 0:
                row = (I + q - first) * BLOCK_B
                a = tl.load(values + row + lane).to(ACC_DTYPE)
                z = a
                if SAVE_Z:
                    z = tl.load(z_values + row + lane).to(ACC_DTYPE)
                d = activation_backward(z, a, tl.load(sums + row + lane), tl.load(packed_plan + CODE + q), CODES)
                d = tl.where(inside, d, 0.0)
                if HAS_BIAS:
                    at = bias_sums + share * neurons + first + tl.load(packed_plan + NEURON + q)
                    tl.store(at, tl.load(at) + tl.sum(d))
                for k in range(tl.load(packed_plan + EDGE_START + q), tl.load(packed_plan + EDGE_START + q + 1)):
                    source = tl.load(packed_plan + SOURCE + k) * BLOCK_B
                    w = tl.load(weight + k).to(ACC_DTYPE)
                    a = tl.load(values + source + lane).to(ACC_DTYPE)
                    at = weight_sums + share * edges + k
                    tl.store(at, tl.load(at) + tl.sum(tl.where(inside, a * d, 0.0)))
                    tl.store(sums + source + lane, tl.load(sums + source + lane) + w * d)
                tl.debug_barrier()
        if NEEDS_X_GRAD:
            for i in range(I):
                tl.store(x_grad + (member * B + samples) * I + i, tl.load(sums + i * BLOCK_B + lane), mask=inside)
        tl.debug_barrier()

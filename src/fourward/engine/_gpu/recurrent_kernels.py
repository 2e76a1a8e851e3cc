"""Kernels for networks with feedback: the rows of all steps stand one after another.

A feedback edge is an edge whose source row stands N rows earlier, so a step is a pass over compressed sparse rows of
`csr_kernels` from another base address, over edges of both kinds. A launch computes a level of a step, with one program
for BLOCK_N neurons and a slice; or one persistent program for each slice loops over steps and levels.

The backward pass computes the gradients of weights on its way: a node's own activation is the source of all edges out
of it, and the deltas of their targets are in registers already. So deltas of three steps are enough. Each edge and each
neuron has one sum for each share of the slices, to which one program at a time adds: no atomics, equal bits each time.

All addresses lie in a table on the GPU (`pointer_table`). What they point to (S slices of BLOCK_B samples, N nodes by
position, T steps):
    saved         (S, T + 1, N, BLOCK_B) activations, those before the first step first; then, in the same layout, the
                  voltages where VOLTAGE, and the sums z where SAVE_Z
    work          (shares, stride) sums of E weights, N biases and N rates; then deltas (S, 3, N, BLOCK_B), of step t
                  at t % 3; then `carry` (S, N, BLOCK_B), gradients that states hand down to the step before
    x, out        (T, B, I), (T, B, columns), row-major; x_grad and out_grad likewise; h0, h and gradients (B, N)
    weight        (E,) by target in a forward pass, by source in a backward pass; within a step first, then feedback
    packed_plan   int32: the fields of `recurrent_packing.RecurrentShape`; upper-case parameters are their offsets
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import activate, activation_backward, dropout_factor, hash_node
from fourward.engine._gpu.pointer_table import load_aligned_pointer, load_pointer
from fourward.engine._gpu.recurrent_packing import DEAD_BIT

#: Parameters that Triton must not specialise on, whatever their values.
_RUNTIME = ["B", "inputs", "columns", "nodes", "edges", "steps", "slices", "shares", "stride", "deltas_start"]
_RUNTIME += ["carry_start", "threshold", "p_bits", "t", "low", "high", "input_blocks", "edge_blocks"]
#: Slots of the pointer table, by the names of the tensors.
FORWARD_SLOTS = ("x", "h0", "weight", "bias", "rate", "key", "out", "h", "saved")
BACKWARD_SLOTS = ("out_grad", "h_grad", "weight", "rate", "key", "x_grad", "h0_grad", "saved", "work")
_X, _H0, _WEIGHT, _BIAS, _RATE, _KEY, _OUT, _H, _SAVED = (tl.constexpr(i) for i, _ in enumerate(FORWARD_SLOTS))
_OUT_GRAD, _H_GRAD, _BACK_WEIGHT, _BACK_RATE, _BACK_KEY, _X_GRAD, _H0_GRAD, _BACK_SAVED, _WORK = (
    tl.constexpr(i) for i, _ in enumerate(BACKWARD_SLOTS)
)
_TARGET_MASK = tl.constexpr((1 << DEAD_BIT) - 1)


@triton.jit
def _load_rows_pointer(table, slot: tl.constexpr, DTYPE: tl.constexpr, BLOCK_K: tl.constexpr):
    """The base of rows that are gathered BLOCK_K edges at a time; wide loads are faster at 8, and slower at 32."""
    if BLOCK_K == 8:
        return load_aligned_pointer(table, slot, DTYPE)
    else:
        return load_pointer(table, slot, DTYPE)


@triton.jit
def _dropout_scales(packed_plan, key, q, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE: tl.constexpr):
    """(BLOCK_N, BLOCK_B) the factors of dropout for the nodes at positions q."""
    node_hash = hash_node(tl.load(key), tl.load(packed_plan + NODE + q))
    hidden = tl.load(packed_plan + HIDDEN + q)
    return dropout_factor(node_hash[:, None], samples[None, :], threshold, p_bits, hidden[:, None], ACC_DTYPE)


@triton.jit
def _gather_sums(
    a, weight, packed_plan, EDGE_START, SOURCE, q, inside,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """sum_k weight[k] a[source[k]] over the edges k into each node q: (BLOCK_N, BLOCK_B).

    `a` are the rows of this step; sources of feedback edges are negative, and lead to the rows of the step before.
    """
    offs_b = tl.arange(0, BLOCK_B)
    offs_k = tl.arange(0, BLOCK_K)
    start = tl.load(packed_plan + EDGE_START + q, mask=inside, other=0)
    stop = tl.load(packed_plan + EDGE_START + q + 1, mask=inside, other=0)
    total = tl.zeros((q.shape[0], BLOCK_B), ACC_DTYPE)
    for i in range(0, tl.max(stop - start), BLOCK_K):
        # Invariant: total holds the first i edges of every node.
        k = start[:, None] + i + offs_k[None, :]
        exists = k < stop[:, None]
        source = tl.load(packed_plan + SOURCE + k, mask=exists, other=0).to(tl.int64)
        w = tl.load(weight + k, mask=exists, other=0.0).to(ACC_DTYPE)
        at = a + source[:, :, None] * BLOCK_B + offs_b[None, None, :]
        v = tl.load(at, mask=exists[:, :, None], other=0.0).to(ACC_DTYPE)
        total += tl.sum(w[:, :, None] * v, 1)
    return total


@triton.jit
def _step_forward(
    a, u, z_rows, weight, bias, rate, key, packed_plan, low, high, samples, step_size, threshold, p_bits,
    CODE, NODE, HIDDEN, BIAS_INDEX, EDGE_START, SOURCE,
    BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, CODES: tl.constexpr, HAS_BIAS: tl.constexpr,
    LEAKY: tl.constexpr, VOLTAGE: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr,
    X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute a step of the neurons at the positions low:min(low + BLOCK_N, high), whose sources are all computed.

    `a`, `u` and `z_rows` are (N, BLOCK_B), those of the step and of one slice; `step_size` before them is the last one.
    """
    q = low + tl.arange(0, BLOCK_N)
    inside = q < high
    q = tl.where(inside, q, low)
    z = _gather_sums(a, weight, packed_plan, EDGE_START, SOURCE, q, inside, BLOCK_B, BLOCK_K, ACC_DTYPE)
    neuron = tl.load(packed_plan + BIAS_INDEX + q)
    if HAS_BIAS:
        z += tl.load(bias + neuron).to(ACC_DTYPE)[:, None]
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    if SAVE_Z:
        tl.store(z_rows + at, z, mask=inside[:, None])
    if VOLTAGE:
        before = tl.load(u - step_size + at).to(ACC_DTYPE)
        z = before + (z - before) * tl.load(rate + neuron).to(ACC_DTYPE)[:, None]
        z = z.to(X_DTYPE).to(ACC_DTYPE)  # as the next step and the caller read it
        tl.store(u + at, z, mask=inside[:, None])
    f = activate(z, tl.load(packed_plan + CODE + q)[:, None], CODES)
    if HAS_DROPOUT:
        f *= _dropout_scales(packed_plan, key, q, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
    if LEAKY and not VOLTAGE:
        before = tl.load(a - step_size + at).to(ACC_DTYPE)
        f = before + (f - before) * tl.load(rate + neuron).to(ACC_DTYPE)[:, None]
    tl.store(a + at, f, mask=inside[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_forward_kernel(
    table, packed_plan,
    nodes, steps, slices, threshold: tl.int64, p_bits: tl.int64, t, low, high,
    CODE, NODE, HIDDEN, BIAS_INDEX, LEVEL_START, EDGE_START, SOURCE,
    PERSISTENT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr,
    CODES: tl.constexpr, HAS_BIAS: tl.constexpr, LEAKY: tl.constexpr, VOLTAGE: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute neurons for BLOCK_B samples.

    PERSISTENT: the levels low:high of all steps. Else: BLOCK_N neurons of one level of step t, at positions low:high.
    """
    blocks = 1 if PERSISTENT else tl.cdiv(high - low, BLOCK_N)
    slice_id = tl.program_id(0) // blocks
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    step_size = nodes.to(tl.int64) * BLOCK_B
    size = (steps + 1) * step_size
    a = _load_rows_pointer(table, _SAVED, X_DTYPE, BLOCK_K) + slice_id * size
    u = a + slices * size  # the voltages; not used unless VOLTAGE
    z_rows = u + slices * size if VOLTAGE else u
    weight = load_aligned_pointer(table, _WEIGHT, X_DTYPE)
    bias = load_pointer(table, _BIAS, X_DTYPE)
    rate = load_pointer(table, _RATE, X_DTYPE)
    key = load_pointer(table, _KEY, tl.int64)
    if PERSISTENT:
        for step in range(1, steps + 1):
            now = step * step_size
            for level in range(low, high):
                # Invariant: all levels and steps before are stored, and visible to all threads of the program.
                last = tl.load(packed_plan + LEVEL_START + level + 1)
                for q in range(tl.load(packed_plan + LEVEL_START + level), last, BLOCK_N):
                    _step_forward(
                        a + now, u + now, z_rows + now, weight, bias, rate, key, packed_plan, q, last, samples,
                        step_size, threshold, p_bits, CODE, NODE, HIDDEN, BIAS_INDEX, EDGE_START, SOURCE,
                        BLOCK_N, BLOCK_B, BLOCK_K, CODES, HAS_BIAS, LEAKY, VOLTAGE, HAS_DROPOUT, SAVE_Z, X_DTYPE,
                        ACC_DTYPE,
                    )  # fmt: skip
                tl.debug_barrier()
    else:
        now = t * step_size
        _step_forward(
            a + now, u + now, z_rows + now, weight, bias, rate, key, packed_plan,
            low + tl.program_id(0) % blocks * BLOCK_N, high, samples, step_size, threshold, p_bits,
            CODE, NODE, HIDDEN, BIAS_INDEX, EDGE_START, SOURCE,
            BLOCK_N, BLOCK_B, BLOCK_K, CODES, HAS_BIAS, LEAKY, VOLTAGE, HAS_DROPOUT, SAVE_Z, X_DTYPE, ACC_DTYPE,
        )  # fmt: skip


@triton.jit
def _gather_and_dot(
    own, deltas, near, far, weight, weight_sums, packed_plan, start, stop, OUT_TARGET, nodes,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, PRUNED: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """sum_k weight[k] deltas[target[k]] over the edges start:stop out of each node: (BLOCK_N, BLOCK_B).

    And weight_sums[k] += the dot product over the samples of the node's activations `own` and these deltas. Targets
    within a step are rows from `near` on; targets of feedback edges are N or more, and rows from `far` on.
    """
    offs_b = tl.arange(0, BLOCK_B)
    offs_k = tl.arange(0, BLOCK_K)
    total = tl.zeros((start.shape[0], BLOCK_B), ACC_DTYPE)
    for i in range(0, tl.max(stop - start), BLOCK_K):
        k = start[:, None] + i + offs_k[None, :]
        exists = k < stop[:, None]
        target = tl.load(packed_plan + OUT_TARGET + k, mask=exists, other=0)
        if PRUNED:
            exists = exists & (target <= _TARGET_MASK)
        target = target & _TARGET_MASK
        row = (target + tl.where(target < nodes, near, far)).to(tl.int64)
        w = tl.load(weight + k, mask=exists, other=0.0).to(ACC_DTYPE)
        d = tl.load(deltas + row[:, :, None] * BLOCK_B + offs_b[None, None, :], mask=exists[:, :, None], other=0.0)
        total += tl.sum(w[:, :, None] * d, 1)
        sums = tl.load(weight_sums + k, mask=exists, other=0.0)
        tl.store(weight_sums + k, sums + tl.sum(own[:, None, :] * d, 2), mask=exists)
    return total


@triton.jit
def _add_row_sums(sums, q, values, inside):
    """sums[q] += the sums of the rows of values."""
    tl.store(sums + q, tl.load(sums + q) + tl.sum(values, 1), mask=inside)


@triton.jit
def _step_backward(
    a, u, z_rows, deltas, now, far, carry, weight, weight_sums, bias_sums, rate_sums, rate, key, out_grad, x_grad,
    packed_plan, low, high, samples, step_size, is_last, B, inputs, columns, nodes, threshold, p_bits,
    CODE, NODE, HIDDEN, LIVE, BIAS_INDEX, OUT_COLUMN, OUT_EDGE_START, OUT_FEEDBACK_START, OUT_TARGET,
    BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, CODES: tl.constexpr, LEAKY: tl.constexpr,
    VOLTAGE: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, HAS_H_GRAD: tl.constexpr,
    NEEDS_X_GRAD: tl.constexpr, PRUNED: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a step at the positions low:min(low + BLOCK_N, high), whose targets are all computed.

    A delta is d loss / d z. All rows are those of one slice; `now` and `far` are the first rows of the deltas of this
    step and, less N, of the step after it, whose feedback edges lead nowhere if this is the last.
    """
    q = low + tl.arange(0, BLOCK_N)
    inside = q < high
    q = tl.where(inside, q, low)
    valid = (samples < B)[None, :] & inside[:, None]
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    own = tl.where(valid, tl.load(a + at).to(ACC_DTYPE), 0.0)
    start = tl.load(packed_plan + OUT_EDGE_START + q, mask=inside, other=0)
    stop = tl.load(packed_plan + OUT_EDGE_START + q + 1, mask=inside, other=0)
    stop = tl.where(is_last, tl.load(packed_plan + OUT_FEEDBACK_START + q, mask=inside, other=0), stop)
    s = _gather_and_dot(
        own, deltas, now, far, weight, weight_sums, packed_plan, start, stop, OUT_TARGET, nodes,
        BLOCK_B, BLOCK_K, PRUNED, ACC_DTYPE,
    )  # fmt: skip
    column = tl.load(packed_plan + OUT_COLUMN + q)
    grad_at = out_grad + samples[None, :].to(tl.int64) * columns + column[:, None]
    s += tl.load(grad_at, mask=(column >= 0)[:, None] & valid, other=0.0).to(ACC_DTYPE)
    carried = tl.zeros(s.shape, ACC_DTYPE)
    if LEAKY or HAS_H_GRAD:
        handed_down = is_last
        if LEAKY:
            handed_down = is_last | (low >= inputs)  # the state of an input isn't that of the step before
        carried = tl.load(carry + at, mask=valid & handed_down, other=0.0)
    if low < inputs:
        if NEEDS_X_GRAD:
            grad_at = x_grad + samples[None, :].to(tl.int64) * inputs + q[:, None]
            tl.store(grad_at, s + carried, mask=valid)
    else:
        wanted = valid
        if PRUNED:
            wanted = valid & (tl.load(packed_plan + LIVE + q) != 0)[:, None]
        code = tl.load(packed_plan + CODE + q)[:, None]
        scale = tl.full(s.shape, 1.0, ACC_DTYPE)
        if HAS_DROPOUT:
            scale = _dropout_scales(packed_plan, key, q, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
        if LEAKY:
            r = tl.load(rate + tl.load(packed_plan + BIAS_INDEX + q)).to(ACC_DTYPE)[:, None]
            z = tl.load(z_rows + at).to(ACC_DTYPE)
        if VOLTAGE:
            state, before = tl.load(u + at).to(ACC_DTYPE), tl.load(u - step_size + at).to(ACC_DTYPE)
            f = activate(state, code, CODES)
            g = tl.where(wanted, activation_backward(state, f, s * scale, code, CODES) + carried, 0.0)
            _add_row_sums(rate_sums, q, tl.where(wanted, g * (z - before), 0.0), inside)
            tl.store(carry + at, g * (1 - r), mask=inside[:, None])
            d = g * r
        elif LEAKY:
            g = tl.where(wanted, s + carried, 0.0)
            before = tl.load(a - step_size + at).to(ACC_DTYPE)
            f = activate(z, code, CODES)
            _add_row_sums(rate_sums, q, tl.where(wanted, g * (f * scale - before), 0.0), inside)
            tl.store(carry + at, g * (1 - r), mask=inside[:, None])
            d = activation_backward(z, f, g * r * scale, code, CODES)
        else:
            # Stored is scale * f(z): the derivative needs f(z). Where scale is 0, the result is 0 whatever f(z) was.
            f = tl.load(a + at).to(ACC_DTYPE) / tl.where(scale == 0, 1.0, scale)
            z = f
            if SAVE_Z:
                z = tl.load(z_rows + at).to(ACC_DTYPE)
            d = activation_backward(z, f, (s + carried) * scale, code, CODES)
        d = tl.where(wanted, d, 0.0)
        tl.store(deltas + now.to(tl.int64) * BLOCK_B + at, d, mask=inside[:, None])
        _add_row_sums(bias_sums, q, d, inside)


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_backward_kernel(
    table, packed_plan,
    B, inputs, columns, nodes, edges, steps, slices, shares, stride, deltas_start, carry_start,
    threshold: tl.int64, p_bits: tl.int64, t, low, high, input_blocks,
    CODE, NODE, HIDDEN, LIVE, BIAS_INDEX, OUT_COLUMN, LEVEL_START, OUT_EDGE_START, OUT_FEEDBACK_START, OUT_TARGET,
    PERSISTENT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr,
    CODES: tl.constexpr, LEAKY: tl.constexpr, VOLTAGE: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr,
    HAS_H_GRAD: tl.constexpr, NEEDS_X_GRAD: tl.constexpr, PRUNED: tl.constexpr, X_DTYPE: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute gradients for a share of the slices, one slice after another.

    PERSISTENT: the levels low:high of all steps, from the last, and the inputs. Else: BLOCK_N neurons of one level of
    step t, at positions low:high; the first `input_blocks` programs of a share have inputs of the step after it.
    """
    blocks = 1 if PERSISTENT else input_blocks + tl.cdiv(high - low, BLOCK_N)
    share, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    step_size = nodes.to(tl.int64) * BLOCK_B
    size = (steps + 1) * step_size
    saved = _load_rows_pointer(table, _BACK_SAVED, X_DTYPE, BLOCK_K)
    work = load_aligned_pointer(table, _WORK, ACC_DTYPE)
    rows = _load_rows_pointer(table, _WORK, ACC_DTYPE, BLOCK_K)
    weight = load_aligned_pointer(table, _BACK_WEIGHT, X_DTYPE)
    rate = load_pointer(table, _BACK_RATE, X_DTYPE)
    key = load_pointer(table, _BACK_KEY, tl.int64)
    out_grad = load_pointer(table, _OUT_GRAD, X_DTYPE)
    x_grad = load_pointer(table, _X_GRAD, X_DTYPE)
    weight_sums = work + share * stride.to(tl.int64)
    bias_sums = weight_sums + edges
    rate_sums = bias_sums + nodes
    for slice_id in range(share, slices, shares):
        samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
        a = saved + slice_id * size
        u = a + slices * size  # the voltages; not used unless VOLTAGE
        z_rows = u + slices * size if VOLTAGE else u
        deltas = rows + deltas_start + slice_id * 3 * step_size
        carry = rows + carry_start + slice_id * step_size
        if PERSISTENT:
            for i in range(steps):
                step = steps - i
                then, near, far = step * step_size, step % 3 * nodes, (step + 1) % 3 * nodes - nodes
                grad = out_grad + (step - 1) * B.to(tl.int64) * columns
                grad_x = x_grad + (step - 1) * B.to(tl.int64) * inputs
                for j in range(high - low):
                    # Invariant: the deltas of all levels after this one are stored, and visible to all threads.
                    level = high - 1 - j
                    last = tl.load(packed_plan + LEVEL_START + level + 1)
                    for q in range(tl.load(packed_plan + LEVEL_START + level), last, BLOCK_N):
                        _step_backward(
                            a + then, u + then, z_rows + then, deltas, near, far, carry, weight, weight_sums,
                            bias_sums, rate_sums, rate, key, grad, grad_x, packed_plan, q, last, samples, step_size,
                            step == steps, B, inputs, columns, nodes, threshold, p_bits, CODE, NODE, HIDDEN, LIVE,
                            BIAS_INDEX, OUT_COLUMN, OUT_EDGE_START, OUT_FEEDBACK_START, OUT_TARGET, BLOCK_N, BLOCK_B,
                            BLOCK_K, CODES, LEAKY, VOLTAGE, HAS_DROPOUT, SAVE_Z, HAS_H_GRAD, NEEDS_X_GRAD, PRUNED,
                            ACC_DTYPE,
                        )  # fmt: skip
                    tl.debug_barrier()
                for q in range(0, inputs, BLOCK_N):
                    _step_backward(
                        a + then, u + then, z_rows + then, deltas, near, far, carry, weight, weight_sums,
                        bias_sums, rate_sums, rate, key, grad, grad_x, packed_plan, q, inputs, samples, step_size,
                        step == steps, B, inputs, columns, nodes, threshold, p_bits, CODE, NODE, HIDDEN, LIVE,
                        BIAS_INDEX, OUT_COLUMN, OUT_EDGE_START, OUT_FEEDBACK_START, OUT_TARGET, BLOCK_N, BLOCK_B,
                        BLOCK_K, CODES, LEAKY, VOLTAGE, HAS_DROPOUT, SAVE_Z, HAS_H_GRAD, NEEDS_X_GRAD, PRUNED,
                        ACC_DTYPE,
                    )  # fmt: skip
                tl.debug_barrier()
        else:
            is_input = block < input_blocks
            step = tl.where(is_input, t + 1, t)
            first = tl.where(is_input, block * BLOCK_N, low + (block - input_blocks) * BLOCK_N)
            then, near, far = step * step_size, step % 3 * nodes, (step + 1) % 3 * nodes - nodes
            _step_backward(
                a + then, u + then, z_rows + then, deltas, near, far, carry, weight, weight_sums,
                bias_sums, rate_sums, rate, key, out_grad + (step - 1) * B.to(tl.int64) * columns,
                x_grad + (step - 1) * B.to(tl.int64) * inputs, packed_plan, first, tl.where(is_input, inputs, high),
                samples, step_size, step == steps, B, inputs, columns, nodes, threshold, p_bits, CODE, NODE, HIDDEN,
                LIVE, BIAS_INDEX, OUT_COLUMN, OUT_EDGE_START, OUT_FEEDBACK_START, OUT_TARGET, BLOCK_N, BLOCK_B,
                BLOCK_K, CODES, LEAKY, VOLTAGE, HAS_DROPOUT, SAVE_Z, HAS_H_GRAD, NEEDS_X_GRAD, PRUNED, ACC_DTYPE,
            )  # fmt: skip
            tl.debug_barrier()  # before this share's sums are read again for the next slice


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_start_backward_kernel(
    table, packed_plan,
    B, inputs, nodes, edges, steps, slices, shares, stride, deltas_start, carry_start,
    threshold: tl.int64, p_bits: tl.int64, CODE, NODE, HIDDEN, OUT_EDGE_START, OUT_FEEDBACK_START, OUT_TARGET,
    BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, CODES: tl.constexpr, LEAKY: tl.constexpr,
    VOLTAGE: tl.constexpr, HAS_DROPOUT: tl.constexpr, NEEDS_H0_GRAD: tl.constexpr, PRUNED: tl.constexpr,
    X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of h0, and those of the weights of feedback edges into the first step.

    A program has BLOCK_N nodes and a share of the slices.
    """
    blocks = tl.cdiv(nodes, BLOCK_N)
    share = tl.program_id(0) // blocks
    q = tl.program_id(0) % blocks * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = q < nodes
    q = tl.where(inside, q, 0)
    step_size = nodes.to(tl.int64) * BLOCK_B
    size = (steps + 1) * step_size
    saved = load_aligned_pointer(table, _BACK_SAVED, X_DTYPE)
    work = load_aligned_pointer(table, _WORK, ACC_DTYPE)
    weight = load_aligned_pointer(table, _BACK_WEIGHT, X_DTYPE)
    key = load_pointer(table, _BACK_KEY, tl.int64)
    weight_sums = work + share * stride.to(tl.int64)
    start = tl.load(packed_plan + OUT_FEEDBACK_START + q, mask=inside, other=0)
    stop = tl.load(packed_plan + OUT_EDGE_START + q + 1, mask=inside, other=0)
    node, code = tl.load(packed_plan + NODE + q), tl.load(packed_plan + CODE + q)
    is_neuron = (q >= inputs)[:, None]
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    for slice_id in range(share, slices, shares):
        samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
        valid = (samples < B)[None, :] & inside[:, None]
        own = tl.where(valid, tl.load(saved + slice_id * size + at).to(ACC_DTYPE), 0.0)
        deltas = work + deltas_start + slice_id * 3 * step_size
        s = _gather_and_dot(
            own, deltas, 0, 0, weight, weight_sums, packed_plan, start, stop, OUT_TARGET, nodes,
            BLOCK_B, BLOCK_K, PRUNED, ACC_DTYPE,
        )  # fmt: skip
        if NEEDS_H0_GRAD:
            if VOLTAGE:
                state = tl.load(saved + (slices + slice_id) * size + at).to(ACC_DTYPE)
                scale = tl.full(s.shape, 1.0, ACC_DTYPE)
                if HAS_DROPOUT:
                    scale = _dropout_scales(packed_plan, key, q, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
                f = activate(state, code[:, None], CODES)
                s = tl.where(is_neuron, activation_backward(state, f, s * scale, code[:, None], CODES), s)
            if LEAKY:
                carry = work + carry_start + slice_id * step_size
                s += tl.load(carry + at, mask=valid & is_neuron, other=0.0)
            h0_grad = load_aligned_pointer(table, _H0_GRAD, X_DTYPE)
            tl.store(h0_grad + samples[None, :].to(tl.int64) * nodes + node[:, None], s, mask=valid)
        tl.debug_barrier()  # before this share's sums are read again for the next slice


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_weight_grad_kernel(
    work, weight_grad, bias_grad, rate_grad, packed_plan,
    nodes, edges, inputs, shares, stride, edge_blocks, OUT_EDGE, BIAS_INDEX,
    BLOCK_E: tl.constexpr, HAS_BIAS: tl.constexpr, LEAKY: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Add the sums of all shares: the first `edge_blocks` programs have BLOCK_E edges each, the others neurons."""
    block = tl.program_id(0)
    total = tl.zeros((BLOCK_E,), ACC_DTYPE)
    if block < edge_blocks:
        k = block * BLOCK_E + tl.arange(0, BLOCK_E)
        for share in range(shares):
            total += tl.load(work + share * stride.to(tl.int64) + k, mask=k < edges, other=0.0)
        tl.store(weight_grad + tl.load(packed_plan + OUT_EDGE + k, mask=k < edges, other=0), total, mask=k < edges)
    else:
        q = inputs + (block - edge_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
        neuron = tl.load(packed_plan + BIAS_INDEX + q, mask=q < nodes, other=0)
        rates = total
        for share in range(shares):
            sums = work + share * stride.to(tl.int64) + edges + q
            total += tl.load(sums, mask=q < nodes, other=0.0)
            rates += tl.load(sums + nodes, mask=q < nodes, other=0.0)
        if HAS_BIAS:
            tl.store(bias_grad + neuron, total, mask=q < nodes)
        if LEAKY:
            tl.store(rate_grad + neuron, rates, mask=q < nodes)


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_load_inputs_kernel(
    table, packed_plan, B, inputs, nodes, steps, slices, BLOCK_B: tl.constexpr, X_DTYPE: tl.constexpr
):
    """The rows of the inputs in all steps, 0 beyond the batch; a program per 32 inputs, slice and step."""
    blocks = tl.cdiv(inputs, 32)
    program = tl.program_id(0) // blocks
    step, slice_id = program // slices, program % slices
    row = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    x = load_pointer(table, _X, X_DTYPE) + step * B.to(tl.int64) * inputs
    mask = (row < inputs)[:, None] & (samples < B)[None, :]
    v = tl.load(x + samples[None, :].to(tl.int64) * inputs + row[:, None], mask=mask, other=0.0)
    a = load_aligned_pointer(table, _SAVED, X_DTYPE)
    a += (slice_id * (steps + 1).to(tl.int64) + step + 1) * nodes * BLOCK_B
    at = row[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    tl.store(a + at, v, mask=(row < inputs)[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_load_state_kernel(
    table, packed_plan, B, inputs, nodes, steps, slices, threshold: tl.int64, p_bits: tl.int64, CODE, NODE, HIDDEN,
    BLOCK_B: tl.constexpr, CODES: tl.constexpr, HAS_H0: tl.constexpr, VOLTAGE: tl.constexpr, HAS_DROPOUT: tl.constexpr,
    X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """The rows before the first step: h0, or 0; where VOLTAGE, those of voltages, and their activations."""
    blocks = tl.cdiv(nodes, 32)
    slice_id = tl.program_id(0) // blocks
    q = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    inside = q < nodes
    q = tl.where(inside, q, 0)
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    state = tl.zeros((32, BLOCK_B), X_DTYPE)
    if HAS_H0:
        node = tl.load(packed_plan + NODE + q)
        h0_at = load_pointer(table, _H0, X_DTYPE) + samples[None, :].to(tl.int64) * nodes + node[:, None]
        state = tl.load(h0_at, mask=inside[:, None] & (samples < B)[None, :], other=0.0)
    step_size = nodes.to(tl.int64) * BLOCK_B
    a = load_aligned_pointer(table, _SAVED, X_DTYPE) + slice_id * (steps + 1) * step_size
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    if VOLTAGE:
        tl.store(a + slices * (steps + 1) * step_size + at, state, mask=inside[:, None])
        f = activate(state.to(ACC_DTYPE), tl.load(packed_plan + CODE + q)[:, None], CODES)
        if HAS_DROPOUT:
            key = load_pointer(table, _KEY, tl.int64)
            f *= _dropout_scales(packed_plan, key, q, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
        state = tl.where((q < inputs)[:, None], state, f.to(X_DTYPE))
    tl.store(a + at, state, mask=inside[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_load_carry_kernel(
    table, packed_plan, B, nodes, carry_start, NODE,
    BLOCK_B: tl.constexpr, HAS_H_GRAD: tl.constexpr, X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """The gradients of the last states, in rows; a program per 32 nodes and slice."""
    blocks = tl.cdiv(nodes, 32)
    slice_id = tl.program_id(0) // blocks
    q = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    grad = tl.zeros((32, BLOCK_B), ACC_DTYPE)
    if HAS_H_GRAD:
        node = tl.load(packed_plan + NODE + q, mask=q < nodes, other=0)
        grad_at = load_pointer(table, _H_GRAD, X_DTYPE) + samples[None, :].to(tl.int64) * nodes + node[:, None]
        grad += tl.load(grad_at, mask=(q < nodes)[:, None] & (samples < B)[None, :], other=0.0).to(ACC_DTYPE)
    carry = load_aligned_pointer(table, _WORK, ACC_DTYPE) + carry_start + slice_id * nodes.to(tl.int64) * BLOCK_B
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    tl.store(carry + at, grad, mask=(q < nodes)[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_store_outputs_kernel(
    table, packed_plan, B, columns, nodes, steps, slices, OUT_ROW, BLOCK_B: tl.constexpr, X_DTYPE: tl.constexpr
):
    """out[t, samples of slice s, c] = the row out_row[c] of step t; a program per 32 columns, slice and step."""
    blocks = tl.cdiv(columns, 32)
    program = tl.program_id(0) // blocks
    step, slice_id = program // slices, program % slices
    column = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    row = tl.load(packed_plan + OUT_ROW + column, mask=column < columns, other=0).to(tl.int64)
    a = load_aligned_pointer(table, _SAVED, X_DTYPE)
    a += (slice_id * (steps + 1).to(tl.int64) + step + 1) * nodes * BLOCK_B
    v = tl.load(a + row[:, None] * BLOCK_B + tl.arange(0, BLOCK_B)[None, :])
    out = load_pointer(table, _OUT, X_DTYPE) + step * B.to(tl.int64) * columns
    mask = (column < columns)[:, None] & (samples < B)[None, :]
    tl.store(out + samples[None, :].to(tl.int64) * columns + column[:, None], v, mask=mask)


@triton.jit(do_not_specialize=_RUNTIME)
def recurrent_store_state_kernel(
    table, packed_plan, B, inputs, nodes, steps, slices, NODE,
    BLOCK_B: tl.constexpr, VOLTAGE: tl.constexpr, X_DTYPE: tl.constexpr,
):  # fmt: skip
    """Store the last activations, but voltages of neurons where VOLTAGE, to h; a program per 32 nodes and slice."""
    blocks = tl.cdiv(nodes, 32)
    slice_id = tl.program_id(0) // blocks
    q = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    size = (steps + 1).to(tl.int64) * nodes * BLOCK_B
    last = load_aligned_pointer(table, _SAVED, X_DTYPE) + slice_id * size + steps.to(tl.int64) * nodes * BLOCK_B
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    if VOLTAGE:
        at += tl.where((q < inputs)[:, None], 0, slices * size)
    mask = (q < nodes)[:, None] & (samples < B)[None, :]
    v = tl.load(last + at, mask=mask, other=0.0)
    node = tl.load(packed_plan + NODE + q, mask=q < nodes, other=0)
    h = load_pointer(table, _H, X_DTYPE)
    tl.store(h + samples[None, :].to(tl.int64) * nodes + node[:, None], v, mask=mask)

"""Kernels over compressed sparse rows (CSR): nothing is computed for edges that don't exist.

Either one persistent program per slice of the batch computes all levels in a single launch (narrow levels), or each
level is a launch of its own with one program per BLOCK_N neurons and slice (wide levels: they fill the GPU).

With a launch per level, the addresses of the tensors lie in a table on the GPU (`pointer_table`), so that one captured
CUDA graph of all launches serves whatever tensors the next call brings.

Layout of what the pointers point to (S slices of BLOCK_B samples, N nodes by position):
    saved         (S, N, BLOCK_B) activations; where SAVE_Z, followed by z in the same layout
    deltas        (S, N, BLOCK_B) d loss / d z, in the accumulation dtype
    packed_plan   int32: the fields of `packing.Shape`; an upper-case parameter is the offset of the field of that name
    x, out        (B, I), (B, columns), row-major; x_grad and out_grad likewise
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import activate, activation_backward, dropout_factor, hash_node
from fourward.engine._gpu.pointer_table import load_aligned_pointer, load_pointer

#: Parameters that Triton must not specialise on, whatever their values.
_RUNTIME = ["B", "I", "columns", "rows", "slices", "threshold", "p_bits", "low", "high", "inputs", "edges", "nodes"]
_RUNTIME += ["edge_blocks"]
#: Slots of the pointer table, by the names of the tensors.
FORWARD_SLOTS = ("x", "weight", "bias", "key", "out", "saved", "scratch")
BACKWARD_SLOTS = ("out_grad", "weight", "key", "x_grad", "saved", "deltas", "weight_grad", "bias_grad", "scratch")
_X, _WEIGHT, _BIAS, _KEY, _OUT, _SAVED, _ = (tl.constexpr(i) for i, _ in enumerate(FORWARD_SLOTS))
_OUT_GRAD, _BACK_WEIGHT, _BACK_KEY, _X_GRAD, _BACK_SAVED, _DELTAS, _WEIGHT_GRAD, _BIAS_GRAD, _ = (
    tl.constexpr(i) for i, _ in enumerate(BACKWARD_SLOTS)
)


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
    values, weight, packed_plan, EDGE_START, NEIGHBOUR, q, inside,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """sum_k weight[k] values[neighbour[k]] over the edges k of each node q: (BLOCK_N, BLOCK_B).

    Row q of the CSR matrix is edge_start[q]:edge_start[q+1]. The loop runs as long as the longest of the BLOCK_N rows;
    shorter ones are masked, and loads of masked edges touch no memory.
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
        neighbour = tl.load(packed_plan + NEIGHBOUR + k, mask=exists, other=0).to(tl.int64)
        w = tl.load(weight + k, mask=exists, other=0.0).to(ACC_DTYPE)
        at = values + neighbour[:, :, None] * BLOCK_B + offs_b[None, None, :]
        v = tl.load(at, mask=exists[:, :, None], other=0.0).to(ACC_DTYPE)
        total += tl.sum(w[:, :, None] * v, 1)
    return total


@triton.jit
def _neurons_forward(
    values, z_values, weight, bias, key, packed_plan, low, high, samples, threshold, p_bits,
    CODE, NODE, HIDDEN, BIAS_INDEX, EDGE_START, SOURCE,
    BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, CODES: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute a = f(b + W a) at the positions low:min(low + BLOCK_N, high), whose sources are all computed.

    `values` and `z_values` are (N, BLOCK_B), those of one slice.
    """
    q = low + tl.arange(0, BLOCK_N)
    inside = q < high
    q = tl.where(inside, q, low)
    z = _gather_sums(values, weight, packed_plan, EDGE_START, SOURCE, q, inside, BLOCK_B, BLOCK_K, ACC_DTYPE)
    if HAS_BIAS:
        z += tl.load(bias + tl.load(packed_plan + BIAS_INDEX + q)).to(ACC_DTYPE)[:, None]
    a = activate(z, tl.load(packed_plan + CODE + q)[:, None], CODES)
    if HAS_DROPOUT:
        a *= _dropout_scales(packed_plan, key, q, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    tl.store(values + at, a, mask=inside[:, None])
    if SAVE_Z:
        tl.store(z_values + at, z, mask=inside[:, None])


@triton.jit
def _copy_inputs(x, values, samples, B, I, BLOCK_B: tl.constexpr):
    """values[0:I] = x[samples].T; 0 beyond the batch."""
    offs_b = tl.arange(0, BLOCK_B)
    offs_i = tl.arange(0, 32)
    for j in range(0, I, 32):
        row = j + offs_i
        inside = (row < I)[:, None]
        at = x + samples[None, :].to(tl.int64) * I + row[:, None]
        v = tl.load(at, mask=(samples < B)[None, :] & inside, other=0.0)
        tl.store(values + row[:, None] * BLOCK_B + offs_b[None, :], v, mask=inside)


@triton.jit
def _store_outputs(out, values, packed_plan, OUT_ROW, samples, B, columns, BLOCK_B: tl.constexpr):
    """out[samples, c] = values[out_row[c]] for every column c."""
    offs_b = tl.arange(0, BLOCK_B)
    offs_c = tl.arange(0, 32)
    for j in range(0, columns, 32):
        column = j + offs_c
        row = tl.load(packed_plan + OUT_ROW + column, mask=column < columns, other=0)
        v = tl.load(values + row[None, :] * BLOCK_B + offs_b[:, None])
        mask = (samples < B)[:, None] & (column < columns)[None, :]
        tl.store(out + samples[:, None].to(tl.int64) * columns + column[None, :], v, mask=mask)


@triton.jit(do_not_specialize=_RUNTIME)
def csr_forward_kernel(
    table, x, weight, bias, key, out, saved, packed_plan,
    B, I, columns, rows, slices, threshold: tl.int64, p_bits: tl.int64, low, high,
    CODE, NODE, HIDDEN, BIAS_INDEX, OUT_ROW, LEVEL_START, EDGE_START, SOURCE,
    PERSISTENT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr,
    CODES: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr,
    X_DTYPE: tl.constexpr, WEIGHT_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute a = f(b + W a) for BLOCK_B samples.

    PERSISTENT: all levels low:high. Else: BLOCK_N neurons of one level, which has the positions low:high.
    """
    blocks = 1 if PERSISTENT else tl.cdiv(high - low, BLOCK_N)
    slice_id = tl.program_id(0) // blocks
    size = rows.to(tl.int64) * BLOCK_B
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    if PERSISTENT:
        values = saved + slice_id * size
        _copy_inputs(x, values, samples, B, I, BLOCK_B)
        tl.debug_barrier()
        for level in range(low, high):
            # Invariant: all levels before this one are stored, and visible to all threads of the program.
            last = tl.load(packed_plan + LEVEL_START + level + 1)
            for q in range(tl.load(packed_plan + LEVEL_START + level), last, BLOCK_N):
                _neurons_forward(
                    values, values + slices * size, weight, bias, key, packed_plan, q, last, samples, threshold, p_bits,
                    CODE, NODE, HIDDEN, BIAS_INDEX, EDGE_START, SOURCE,
                    BLOCK_N, BLOCK_B, BLOCK_K, CODES, HAS_BIAS, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
                )  # fmt: skip
            tl.debug_barrier()
        _store_outputs(out, values, packed_plan, OUT_ROW, samples, B, columns, BLOCK_B)
    else:
        values = _load_rows_pointer(table, _SAVED, X_DTYPE, BLOCK_K) + slice_id * size
        _neurons_forward(
            values, values + slices * size,
            load_pointer(table, _WEIGHT, WEIGHT_DTYPE), load_pointer(table, _BIAS, WEIGHT_DTYPE),
            load_pointer(table, _KEY, tl.int64), packed_plan, low + tl.program_id(0) % blocks * BLOCK_N, high,
            samples, threshold, p_bits, CODE, NODE, HIDDEN, BIAS_INDEX, EDGE_START, SOURCE,
            BLOCK_N, BLOCK_B, BLOCK_K, CODES, HAS_BIAS, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
        )  # fmt: skip


@triton.jit
def _nodes_backward(
    values, z_values, deltas, weight, key, out_grad, x_grad, packed_plan, low, high, samples, B, I, columns,
    threshold, p_bits, CODE, NODE, HIDDEN, OUT_COLUMN, OUT_EDGE_START, OUT_TARGET,
    BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, CODES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute d = f'(z) (g + W^T d) at the positions low:min(low + BLOCK_N, high), whose targets are all computed.

    g is the gradient of the loss with respect to the node's own output (0 if it has none). Inputs have no f: their
    g + W^T d is the gradient of x. `values`, `z_values` and `deltas` are (N, BLOCK_B), those of one slice.
    """
    q = low + tl.arange(0, BLOCK_N)
    inside = q < high
    q = tl.where(inside, q, low)
    s = _gather_sums(deltas, weight, packed_plan, OUT_EDGE_START, OUT_TARGET, q, inside, BLOCK_B, BLOCK_K, ACC_DTYPE)
    column = tl.load(packed_plan + OUT_COLUMN + q)
    mask = (column >= 0)[:, None] & (samples < B)[None, :]
    grad_at = out_grad + samples[None, :].to(tl.int64) * columns + column[:, None]
    s += tl.load(grad_at, mask=mask, other=0.0).to(ACC_DTYPE)
    at = q[:, None].to(tl.int64) * BLOCK_B + tl.arange(0, BLOCK_B)[None, :]
    if low < I:
        mask = inside[:, None] & (samples < B)[None, :]
        tl.store(x_grad + samples[None, :].to(tl.int64) * I + q[:, None], s, mask=mask)
    else:
        a = tl.load(values + at).to(ACC_DTYPE)
        z = a
        if SAVE_Z:
            z = tl.load(z_values + at).to(ACC_DTYPE)
        code = tl.load(packed_plan + CODE + q)[:, None]
        if HAS_DROPOUT:
            # Stored is scale * f(z): the derivative needs f(z). Where scale is 0, the result is 0 whatever f(z) was.
            scale = _dropout_scales(packed_plan, key, q, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
            a = a / tl.where(scale == 0, 1.0, scale)
            s *= scale
        tl.store(deltas + at, activation_backward(z, a, s, code, CODES), mask=inside[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def csr_backward_kernel(
    table, out_grad, weight, key, x_grad, saved, deltas, packed_plan,
    B, I, columns, rows, slices, threshold: tl.int64, p_bits: tl.int64, low, high,
    CODE, NODE, HIDDEN, OUT_COLUMN, LEVEL_START, OUT_EDGE_START, OUT_TARGET,
    PERSISTENT: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr,
    CODES: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, NEEDS_X_GRAD: tl.constexpr,
    X_DTYPE: tl.constexpr, WEIGHT_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute d = f'(z) (g + W^T d) for BLOCK_B samples, last level first; then the gradient of x.

    PERSISTENT: all levels low:high. Else: BLOCK_N nodes of one level (or of the inputs), at the positions low:high.
    `weight` is in the order of the edges out of each node (CSC), unlike everywhere else.
    """
    blocks = 1 if PERSISTENT else tl.cdiv(high - low, BLOCK_N)
    slice_id = tl.program_id(0) // blocks
    size = rows.to(tl.int64) * BLOCK_B
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    if PERSISTENT:
        values = saved + slice_id * size
        slice_deltas = deltas + slice_id * size
        for i in range(high - low):
            # Invariant: the deltas of all levels after this one are stored, and visible to all threads.
            level = high - 1 - i
            last = tl.load(packed_plan + LEVEL_START + level + 1)
            for q in range(tl.load(packed_plan + LEVEL_START + level), last, BLOCK_N):
                _nodes_backward(
                    values, values + slices * size, slice_deltas, weight, key, out_grad, x_grad, packed_plan, q, last,
                    samples, B, I, columns, threshold, p_bits, CODE, NODE, HIDDEN, OUT_COLUMN, OUT_EDGE_START,
                    OUT_TARGET, BLOCK_N, BLOCK_B, BLOCK_K, CODES, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
                )  # fmt: skip
            tl.debug_barrier()
        if NEEDS_X_GRAD:
            for q in range(0, I, BLOCK_N):
                _nodes_backward(
                    values, values + slices * size, slice_deltas, weight, key, out_grad, x_grad, packed_plan, q, I,
                    samples, B, I, columns, threshold, p_bits, CODE, NODE, HIDDEN, OUT_COLUMN, OUT_EDGE_START,
                    OUT_TARGET, BLOCK_N, BLOCK_B, BLOCK_K, CODES, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
                )  # fmt: skip
    else:
        values = _load_rows_pointer(table, _BACK_SAVED, X_DTYPE, BLOCK_K) + slice_id * size
        _nodes_backward(
            values, values + slices * size, _load_rows_pointer(table, _DELTAS, ACC_DTYPE, BLOCK_K) + slice_id * size,
            load_pointer(table, _BACK_WEIGHT, WEIGHT_DTYPE), load_pointer(table, _BACK_KEY, tl.int64),
            load_pointer(table, _OUT_GRAD, X_DTYPE), load_pointer(table, _X_GRAD, X_DTYPE), packed_plan,
            low + tl.program_id(0) % blocks * BLOCK_N, high, samples, B, I, columns, threshold, p_bits,
            CODE, NODE, HIDDEN, OUT_COLUMN, OUT_EDGE_START, OUT_TARGET,
            BLOCK_N, BLOCK_B, BLOCK_K, CODES, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
        )  # fmt: skip


@triton.jit
def _load_samples(values, row, exists, samples, size, slices, B, BLOCK_B: tl.constexpr, ACC_DTYPE: tl.constexpr):
    """(len(row), len(samples)) of values (S, N, BLOCK_B); 0 beyond the batch and in rows that don't exist."""
    slice_id = samples // BLOCK_B
    at = row[:, None].to(tl.int64) * BLOCK_B + (slice_id.to(tl.int64) * size + samples % BLOCK_B)[None, :]
    mask = exists[:, None] & (slice_id < slices)[None, :]  # by slice and not by sample: wide loads
    return tl.where((samples < B)[None, :], tl.load(values + at, mask=mask, other=0.0).to(ACC_DTYPE), 0.0)


@triton.jit(do_not_specialize=_RUNTIME)
def csr_weight_grad_kernel(
    table, saved, deltas, weight_grad, bias_grad, packed_plan,
    B, rows, slices, edges, nodes, inputs, edge_blocks, SOURCE, TARGET, BIAS_INDEX,
    PERSISTENT: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr,
    HAS_BIAS: tl.constexpr, X_DTYPE: tl.constexpr, WEIGHT_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """dW[u, v] = sum over the batch of a[u] d[v], and db[v] = sum of d[v].

    The first `edge_blocks` programs have BLOCK_E edges each, the others BLOCK_E neurons each. A program sums over the
    whole batch, BLOCK_K samples at a time: no atomics, equal bits each time.
    """
    if not PERSISTENT:
        saved = load_aligned_pointer(table, _BACK_SAVED, X_DTYPE)
        deltas = load_aligned_pointer(table, _DELTAS, ACC_DTYPE)
        weight_grad = load_pointer(table, _WEIGHT_GRAD, WEIGHT_DTYPE)
        bias_grad = load_pointer(table, _BIAS_GRAD, WEIGHT_DTYPE)
    size = rows.to(tl.int64) * BLOCK_B
    block = tl.program_id(0)
    total = tl.zeros((BLOCK_E,), ACC_DTYPE)
    if block < edge_blocks:
        k = block * BLOCK_E + tl.arange(0, BLOCK_E)
        source = tl.load(packed_plan + SOURCE + k, mask=k < edges, other=0)
        target = tl.load(packed_plan + TARGET + k, mask=k < edges, other=0)
        for j in range(0, B, BLOCK_K):
            samples = j + tl.arange(0, BLOCK_K)
            a = _load_samples(saved, source, k < edges, samples, size, slices, B, BLOCK_B, ACC_DTYPE)
            d = _load_samples(deltas, target, k < edges, samples, size, slices, B, BLOCK_B, ACC_DTYPE)
            total += tl.sum(a * d, 1)
        tl.store(weight_grad + k, total, mask=k < edges)
    elif HAS_BIAS:
        q = inputs + (block - edge_blocks) * BLOCK_E + tl.arange(0, BLOCK_E)
        for j in range(0, B, BLOCK_K):
            samples = j + tl.arange(0, BLOCK_K)
            total += tl.sum(_load_samples(deltas, q, q < nodes, samples, size, slices, B, BLOCK_B, ACC_DTYPE), 1)
        at = tl.load(packed_plan + BIAS_INDEX + q, mask=q < nodes, other=-1)
        tl.store(bias_grad + at, total, mask=at >= 0)


@triton.jit(do_not_specialize=_RUNTIME)
def csr_load_inputs_kernel(table, packed_plan, B, I, rows, BLOCK_B: tl.constexpr, X_DTYPE: tl.constexpr):
    """saved[s, 0:I] = x[samples of slice s].T, 0 beyond the batch; a program per 32 inputs and slice."""
    blocks = tl.cdiv(I, 32)
    slice_id = tl.program_id(0) // blocks
    row = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    mask = (row < I)[:, None] & (samples < B)[None, :]
    at = load_pointer(table, _X, X_DTYPE) + samples[None, :].to(tl.int64) * I + row[:, None]
    v = tl.load(at, mask=mask, other=0.0)
    values = load_aligned_pointer(table, _SAVED, X_DTYPE) + slice_id * (rows.to(tl.int64) * BLOCK_B)
    tl.store(values + row[:, None] * BLOCK_B + tl.arange(0, BLOCK_B)[None, :], v, mask=(row < I)[:, None])


@triton.jit(do_not_specialize=_RUNTIME)
def csr_store_outputs_kernel(
    table, packed_plan, B, columns, rows, OUT_ROW, BLOCK_B: tl.constexpr, X_DTYPE: tl.constexpr
):
    """out[samples of slice s, c] = saved[s, out_row[c]]; a program per 32 columns and slice."""
    blocks = tl.cdiv(columns, 32)
    slice_id = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * 32 + tl.arange(0, 32)
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    row = tl.load(packed_plan + OUT_ROW + column, mask=column < columns, other=0).to(tl.int64)
    values = load_aligned_pointer(table, _SAVED, X_DTYPE) + slice_id * (rows.to(tl.int64) * BLOCK_B)
    v = tl.load(values + row[:, None] * BLOCK_B + tl.arange(0, BLOCK_B)[None, :])
    mask = (column < columns)[:, None] & (samples < B)[None, :]
    out_at = load_pointer(table, _OUT, X_DTYPE) + samples[None, :].to(tl.int64) * columns + column[:, None]
    tl.store(out_at, v, mask=mask)

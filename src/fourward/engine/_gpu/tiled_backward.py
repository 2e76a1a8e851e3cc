"""Backward kernels over tiles: panels from the last to the first, then the gradients of all weights.

The transpose of `tiled_forward`, and organised like it: a lane holds sums of W^T d for one neuron of each panel of a
segment, a step broadcasts one neuron's delta d = d loss / d z and adds its contributions to the sums of its own panel
and of all earlier ones of the segment.

Layout of what the pointers point to, besides those of `tiled_forward`:
    deltas      (S, R, BLOCK_B) in the accumulation dtype; then, where several programs share the batch of a tile
                (split-K), a workspace: one counter for each of the T = tiles + panels tiles, padded to the width of
                the dtype, and (T, split_k, 1056) partial sums: 32x32 weights and 32 biases
    partials    (SPLIT_K, S, R, BLOCK_B) contributions of later segments
    x_grad, out_grad   (B, I), (B, columns), row-major
"""

from __future__ import annotations

import triton
import triton.language as tl

from fourward.engine._gpu.activations import activation_backward, activation_grad
from fourward.engine._gpu.pointer_table import load_aligned_pointer, load_pointer, store_address
from fourward.engine._gpu.tile_ops import (
    RUNTIME,
    block_rows,
    decode_tile_edges,
    dropout_scales,
    is_nonfinite,
    load_edge_weights,
    load_partials,
    load_quad_weights,
    load_rows,
    load_tile_rows,
    load_tiles,
    packed_tiles,
    reduce_group,
    shift,
    slice_columns,
    split_range,
    take_column,
    take_quad,
    unstack,
)

# Slots of the pointer table.
_OUT_GRAD, _KEY, _WEIGHT, _X_GRAD, _SAVED, _DELTAS, _PARTIALS, _WEIGHT_GRAD, _BIAS_GRAD = (
    tl.constexpr(i) for i in range(9)
)


@triton.jit
def _tile_products_backward(
    panel_deltas, packed, packed_plan, column, OUT_TILE, OUT_PANEL, first, last,
    BLOCK_B: tl.constexpr, TILE_GROUP: tl.constexpr, STAGES: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """sum_j W_j d_j over the tiles first:last out of a block, TILE_GROUP at a time: (len(column), 32).

    `panel_deltas` starts at the rows of the first panel.
    """
    acc = tl.zeros((TILE_GROUP, 32, column.shape[0]), ACC_DTYPE)
    for j in tl.range(first, last, TILE_GROUP, num_stages=STAGES):
        # Invariant: acc[g] holds the tiles first + g, first + g + TILE_GROUP, ... below j.
        d = load_rows(panel_deltas, block_rows(packed_plan, OUT_PANEL, j, last, TILE_GROUP), column, BLOCK_B, ACC_DTYPE)
        offsets = j + tl.arange(0, TILE_GROUP)
        tile = tl.load(packed_plan + OUT_TILE + offsets, mask=offsets < last, other=0)
        acc = tl.dot(load_tiles(packed, tile, offsets < last), d, acc, input_precision="ieee", out_dtype=ACC_DTYPE)
    return reduce_group(acc)


@triton.jit
def _edge_sums_backward(
    panel_deltas, weight, packed_plan, OUT_TILE, OUT_PANEL, EDGE_MASK, FIRST_EDGE, first, last,
    BLOCK_B: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """The same sums over the edges that exist, and no others: (BLOCK_B, 32)."""
    offs_b = tl.arange(0, BLOCK_B)
    offs_k = tl.arange(0, 32)
    s = tl.zeros((BLOCK_B, 32), ACC_DTYPE)
    for j in range(first, last):
        tile = tl.load(packed_plan + OUT_TILE + j)
        row = tl.load(packed_plan + OUT_PANEL + j) * 32
        for t in range(32):
            d = tl.load(panel_deltas + (row + t) * BLOCK_B + offs_b).to(ACC_DTYPE)
            edge_mask = tl.load(packed_plan + EDGE_MASK + tile * 32 + t)
            first_edge = tl.load(packed_plan + FIRST_EDGE + tile * 32 + t)
            w, exists = load_edge_weights(weight, edge_mask, first_edge, offs_k, ACC_DTYPE)
            s += tl.where(exists[None, :], d[:, None] * w[None, :], 0.0)
    return s


@triton.jit
def _load_activations(
    values, z_values, packed_plan, pass_key, row, at, samples, CODE, NODE, HIDDEN, threshold, p_bits,
    CODES: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """(BLOCK_B, 32) z (or a, where no derivative needs z), a = f(z), the codes of f, and the factors of dropout.

    Stored is scale * f(z), and derivatives are in z or f(z). Where scale is 0, so is the result, whatever f(z) was.
    """
    a = tl.load(values + at).to(ACC_DTYPE)
    z = a
    if SAVE_Z:
        z = tl.load(z_values + at).to(ACC_DTYPE)
    code = tl.full((1, 32), 0, tl.int32)
    if CODES & (CODES - 1) != 0:
        code += tl.load(packed_plan + CODE + row)[None, :]
    scale = tl.full((1, 1), 1, ACC_DTYPE)
    if HAS_DROPOUT:
        scale = dropout_scales(packed_plan, pass_key, row, samples, NODE, HIDDEN, threshold, p_bits, ACC_DTYPE)
        a = a / tl.where(scale == 0, 1.0, scale)
    return z, a, code, scale


@triton.jit
def _activation_grads(
    values, z_values, packed_plan, pass_key, row, at, samples, CODE, NODE, HIDDEN, threshold, p_bits,
    CODES: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """(BLOCK_B, 32) d a / d z = f'(z), times the factor of dropout."""
    z, a, code, scale = _load_activations(
        values, z_values, packed_plan, pass_key, row, at, samples, CODE, NODE, HIDDEN, threshold, p_bits,
        CODES, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
    )  # fmt: skip
    if HAS_DROPOUT:
        return activation_grad(z, a, code, CODES) * scale
    return activation_grad(z, a, code, CODES)


@triton.jit
def _sweep_backward(
    sums, dadz, rows, quad_weights, first,
    COUNT: tl.constexpr, SEGMENT: tl.constexpr, QUADS: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    """COUNT steps of a backward substitution: neuron first + i is final, its contributions go to all earlier sums.

    sums: SEGMENT tensors (BLOCK_B, 32), those of this panel and of the ones before it. Invariant before step i: sums
    include all neurons after first + i; with QUADS, quad[k] is the sum of the k-th neuron of the current quad,
    complete for k = i % 4.
    """
    quad = take_quad(sums[0], first + COUNT - 4, BLOCK_B)
    for i in tl.static_range(COUNT - 1, -1, -1):
        if QUADS and i % 4 == 3 and i < COUNT - 1:
            quad = take_quad(sums[0], first + i - 3, BLOCK_B)
        deltas = sums[0] * dadz
        d = quad[i % 4] * take_column(dadz, first + i, BLOCK_B) if QUADS else take_column(deltas, first + i, BLOCK_B)
        next_quad = ()
        for k in tl.static_range(4):
            s = quad[k]
            if QUADS and k < i % 4:
                s = tl.fma(d, quad_weights[i // 4 * 16 + k * 4 + i % 4], s)
            next_quad = next_quad + (s,)  # type: ignore[assignment] # noqa: RUF005
        quad = next_quad
        next_sums = ()
        for k in tl.static_range(SEGMENT):
            next_sums = next_sums + (tl.fma(d, rows[k * COUNT + i], sums[k]),)  # type: ignore[assignment] # noqa: RUF005
        sums = next_sums
    return sums


@triton.jit
def _load_out_grad(out_grad, column, samples, B, columns, ACC_DTYPE: tl.constexpr):
    """out_grad[samples, column]; 0 where a column is negative, and beyond the batch."""
    mask = (column >= 0) & (samples < B)
    return tl.load(out_grad + samples.to(tl.int64) * columns + column, mask=mask, other=0.0).to(ACC_DTYPE)


@triton.jit
def _backward_by_edges(
    out_grad, weight, values, z_values, deltas, pass_key, packed_plan, samples, B, columns, input_blocks,
    threshold, p_bits, first_panel, last_panel, CODE, NODE, HIDDEN, OUT_COLUMN, OUT_TILE_START, OUT_TILE, OUT_PANEL,
    EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE,
    BLOCK_B: tl.constexpr, CODES: tl.constexpr, HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr,
    ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """The same substitution over the edges that exist, and no others: for slices with a delta that isn't finite."""
    offs_k = tl.arange(0, 32)
    panel_deltas = deltas + input_blocks * 32 * BLOCK_B
    for i in range(last_panel - first_panel):
        panel = last_panel - 1 - i
        row = (input_blocks + panel) * 32 + offs_k
        at = row[None, :] * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
        first = tl.load(packed_plan + OUT_TILE_START + input_blocks + panel)
        last = tl.load(packed_plan + OUT_TILE_START + input_blocks + panel + 1)
        s = _edge_sums_backward(
            panel_deltas,
            weight,
            packed_plan,
            OUT_TILE,
            OUT_PANEL,
            EDGE_MASK,
            FIRST_EDGE,
            first,
            last,
            BLOCK_B,
            ACC_DTYPE,
        )
        column = tl.load(packed_plan + OUT_COLUMN + row)[None, :]
        s += _load_out_grad(out_grad, column, samples[:, None], B, columns, ACC_DTYPE)
        z, a, code, scale = _load_activations(
            values, z_values, packed_plan, pass_key, row, at, samples, CODE, NODE, HIDDEN, threshold, p_bits,
            CODES, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
        )  # fmt: skip
        for step in range(32):
            # Invariant: s includes all neurons after t of this panel.
            t = 31 - step
            d = take_column(activation_backward(z, a, s * scale, code, CODES), t, BLOCK_B)
            edge_mask = tl.load(packed_plan + DIAGONAL_EDGE_MASK + panel * 32 + t)
            first_edge = tl.load(packed_plan + DIAGONAL_FIRST_EDGE + panel * 32 + t)
            w, exists = load_edge_weights(weight, edge_mask, first_edge, offs_k, ACC_DTYPE)
            s += tl.where(exists[None, :], d * w[None, :], 0.0)
        tl.store(deltas + at, activation_backward(z, a, s * scale, code, CODES))
        tl.debug_barrier()


@triton.jit(do_not_specialize=RUNTIME)
def tiled_backward_kernel(
    out_grad, key, weight, x_grad, saved, deltas, partials, weight_grad, bias_grad, packed_plan, table,
    B, I, columns, rows, input_blocks, tiles, panels, slices, threshold: tl.int64, p_bits: tl.int64,
    first_panel, last_panel, num_counters,
    CODE, NODE, HIDDEN, OUT_COLUMN, OUT_TILE_START, END_TILE, OUT_TILE, OUT_PANEL, EDGE_MASK, FIRST_EDGE,
    DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE,
    BLOCK_B: tl.constexpr, SEGMENT: tl.constexpr, UNROLL: tl.constexpr, QUADS: tl.constexpr, CODES: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, SAVE_Z: tl.constexpr, NEEDS_X_GRAD: tl.constexpr, SPLIT_K: tl.constexpr,
    FIRST_SEGMENT: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """Compute d = f'(z) (g + W^T d) for the panels first_panel:last_panel from the last, and BLOCK_B samples.

    The launch of the first panels also computes the gradient of x, g + W^T d of the inputs, where the tiles out of
    input block j that stay within the segment are out_tile_start[j]:end_tile[j]. FIRST_SEGMENT and SPLIT_K are as in
    `tiled_forward_kernel`, "first" being the last panels. The first program sets the counters to 0 that
    `tiled_weight_grad_kernel` uses.
    """
    slice_id = tl.program_id(0)
    if FIRST_SEGMENT and slice_id == 0:
        store_address(table, _OUT_GRAD, out_grad)
        store_address(table, _KEY, key)
        store_address(table, _WEIGHT, weight)
        store_address(table, _X_GRAD, x_grad)
        store_address(table, _SAVED, saved)
        store_address(table, _DELTAS, deltas)
        store_address(table, _PARTIALS, partials)
        store_address(table, _WEIGHT_GRAD, weight_grad)
        store_address(table, _BIAS_GRAD, bias_grad)
    if SPLIT_K:
        out_grad = load_pointer(table, _OUT_GRAD, out_grad.dtype.element_ty)
        key = load_pointer(table, _KEY, key.dtype.element_ty)
        weight = load_pointer(table, _WEIGHT, weight.dtype.element_ty)
        x_grad = load_aligned_pointer(table, _X_GRAD, x_grad.dtype.element_ty)
        saved = load_aligned_pointer(table, _SAVED, saved.dtype.element_ty)
        deltas = load_aligned_pointer(table, _DELTAS, deltas.dtype.element_ty)
        partials = load_aligned_pointer(table, _PARTIALS, partials.dtype.element_ty)
    CHUNKS: tl.constexpr = 32 // UNROLL
    pass_key = tl.load(key)
    size = (rows * BLOCK_B).to(tl.int64)
    stride = slices * size
    packed = packed_tiles(saved, stride * (2 if SAVE_Z else 1), ACC_DTYPE) + (input_blocks + panels) * SEGMENT * 1024
    if slice_id == 0:
        for j in range(0, num_counters, 32):
            i = j + tl.arange(0, 32)
            tl.store(deltas + stride + i, tl.zeros((32,), ACC_DTYPE), mask=i < num_counters)
    values = saved + slice_id * size
    z_values = saved + (slices + slice_id) * size
    slice_deltas = deltas + slice_id * size
    samples = slice_id * BLOCK_B + tl.arange(0, BLOCK_B)
    offs_k = tl.arange(0, 32)
    offs_b = tl.arange(0, BLOCK_B)
    row = (input_blocks + last_panel - 1) * 32 + offs_k
    end = (input_blocks + first_panel) * 32
    # The sums start as g and what later segments contribute; those of all panels are loaded at once.
    panel_rows = row[None, :, None] - 32 * tl.arange(0, SEGMENT)[None, None, :]
    panel_columns = tl.load(packed_plan + OUT_COLUMN + panel_rows, mask=panel_rows >= end, other=-1)
    initial = _load_out_grad(out_grad, panel_columns, samples[:, None, None], B, columns, ACC_DTYPE)
    if SPLIT_K:
        partial_at = slice_id * size + panel_rows * BLOCK_B + offs_b[:, None, None]
        initial += load_partials(partials, partial_at, panel_rows >= end, stride, SPLIT_K)
    sums = unstack(initial, BLOCK_B, 32, SEGMENT)
    nonfinite = tl.zeros((BLOCK_B, 32), tl.int32)
    for step in tl.range(0, (last_panel - first_panel) * CHUNKS, num_stages=3):
        # Invariant: sums[k] belong to panel - k, and include later panels and neurons from t + UNROLL on of this one.
        panel = last_panel - 1 - step // CHUNKS
        t = 32 - UNROLL - step % CHUNKS * UNROLL
        in_segment = panel - tl.arange(0, SEGMENT) >= first_panel
        tile_rows = load_tile_rows(packed, tiles + panel * SEGMENT, in_segment, t, UNROLL, SEGMENT)
        quad_weights = load_quad_weights(packed, tiles + panel * SEGMENT, t, UNROLL)
        row = (input_blocks + panel) * 32 + offs_k
        at = row[None, :] * BLOCK_B + offs_b[:, None]
        dadz = _activation_grads(
            values, z_values, packed_plan, pass_key, row, at, samples, CODE, NODE, HIDDEN, threshold, p_bits,
            CODES, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
        )  # fmt: skip
        sums = _sweep_backward(sums, dadz, tile_rows, quad_weights, t, UNROLL, SEGMENT, QUADS, BLOCK_B)
        if t == 0:
            s = sums[0]
            tl.store(slice_deltas + at, s * dadz)
            nonfinite |= is_nonfinite(s * dadz)  # which it is wherever s is
            sums = shift(sums, SEGMENT)
    if tl.sum(nonfinite) != 0:
        tl.debug_barrier()
        _backward_by_edges(
            out_grad, weight, values, z_values, slice_deltas, pass_key, packed_plan, samples, B, columns, input_blocks,
            threshold, p_bits, first_panel, last_panel, CODE, NODE, HIDDEN, OUT_COLUMN, OUT_TILE_START, OUT_TILE,
            OUT_PANEL, EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE,
            BLOCK_B, CODES, HAS_DROPOUT, SAVE_Z, ACC_DTYPE,
        )  # fmt: skip
    if NEEDS_X_GRAD and first_panel == 0:
        tl.debug_barrier()
        panel_deltas = slice_deltas + input_blocks * 32 * BLOCK_B
        for j in range(input_blocks):
            row = j * 32 + offs_k
            first = tl.load(packed_plan + OUT_TILE_START + j)
            last = tl.load(packed_plan + END_TILE + j)
            s = _tile_products_backward(
                panel_deltas, packed, packed_plan, offs_b, OUT_TILE, OUT_PANEL, first, last, BLOCK_B, 2, 1, ACC_DTYPE
            )
            if SPLIT_K:
                input_at = slice_id * size + row[None, :] * BLOCK_B + tl.arange(0, BLOCK_B)[:, None]
                s += load_partials(partials, input_at, True, stride, SPLIT_K)
            if tl.sum(is_nonfinite(s)) != 0:
                last = tl.load(packed_plan + OUT_TILE_START + j + 1)
                s = _edge_sums_backward(
                    panel_deltas, weight, packed_plan, OUT_TILE, OUT_PANEL, EDGE_MASK, FIRST_EDGE, first, last,
                    BLOCK_B, ACC_DTYPE,
                )  # fmt: skip
            column = tl.load(packed_plan + OUT_COLUMN + row)[None, :]
            s += _load_out_grad(out_grad, column, samples[:, None], B, columns, ACC_DTYPE)
            mask = (row < I)[None, :] & (samples < B)[:, None]
            tl.store(x_grad + samples[:, None].to(tl.int64) * I + row[None, :], s, mask=mask)


@triton.jit
def _load_batch_rows(values, row, samples, size, slices, B, BLOCK_B: tl.constexpr, ACC_DTYPE: tl.constexpr):
    """(32, BLOCK_K) of values (S, R, BLOCK_B) at these rows and samples, 0 beyond the batch."""
    slice_id = samples // BLOCK_B
    at = row[:, None] * BLOCK_B + (slice_id.to(tl.int64) * size + samples % BLOCK_B)[None, :]
    # Masked by slice and not by sample: wide loads.
    v = tl.load(values + at, mask=(slice_id < slices)[None, :], other=0.0).to(ACC_DTYPE)
    return tl.where((samples < B)[None, :], v, 0.0)


@triton.jit
def _reduce_split_k(acc, bias_acc, workspace, tiles, i, HAS_BIAS: tl.constexpr, ACC_DTYPE: tl.constexpr):
    """Store this program's partial sums of tile i; the last program to do so returns the sum of all, in their order.

    workspace: `tiles` counters, then (tiles, split_k, 1056). An atomic decides who adds up, never in which order.
    """
    split_k = tl.num_programs(1)
    offs_k = tl.arange(0, 32)
    offsets = offs_k[:, None] * 32 + offs_k[None, :]
    partial = workspace + tiles + (i * split_k + tl.program_id(1)).to(tl.int64) * 1056
    tl.store(partial + offsets, acc)
    if HAS_BIAS:
        tl.store(partial + 1024 + offs_k, bias_acc)
    tl.debug_barrier()
    last = tl.atomic_add(workspace.to(tl.pointer_type(tl.int32), bitcast=True) + i, 1) == split_k - 1
    if last:
        acc = tl.zeros((32, 32), ACC_DTYPE)
        bias_acc = tl.zeros((32,), ACC_DTYPE)
        for k in range(split_k):
            other = workspace + tiles + (i * split_k + k).to(tl.int64) * 1056
            acc += tl.load(other + offsets)
            if HAS_BIAS:
                bias_acc += tl.load(other + 1024 + offs_k)
    return acc, bias_acc, last


@triton.jit(do_not_specialize=RUNTIME)
def tiled_weight_grad_kernel(
    saved, deltas, weight_grad, bias_grad, packed_plan, table,
    B, rows, input_blocks, tiles, panels, slices,
    TILE_BLOCK, EDGE_MASK, FIRST_EDGE, DIAGONAL_EDGE_MASK, DIAGONAL_FIRST_EDGE, BIAS_INDEX, TILE_PANEL,
    BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_SPLIT_K: tl.constexpr,
    FROM_TABLE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """dW[u, v] = sum over the batch of a[u] d[v] for the edges of a tile; diagonal tiles also db[v] = sum of d[v].

    Grid: (tiles and then diagonal tiles, split_k). The products of a whole 32x32 tile are computed, and those stored
    that are edges. HAS_SPLIT_K: several programs share the batch of each tile.
    """
    if FROM_TABLE:
        saved = load_aligned_pointer(table, _SAVED, saved.dtype.element_ty)
        deltas = load_aligned_pointer(table, _DELTAS, deltas.dtype.element_ty)
        weight_grad = load_aligned_pointer(table, _WEIGHT_GRAD, weight_grad.dtype.element_ty)
        bias_grad = load_aligned_pointer(table, _BIAS_GRAD, bias_grad.dtype.element_ty)
    i = tl.program_id(0)
    diagonal = i >= tiles
    offs_k = tl.arange(0, 32)
    panel = tl.load(packed_plan + TILE_PANEL + i, mask=i < tiles, other=0)
    block = tl.load(packed_plan + TILE_BLOCK + i, mask=i < tiles, other=0)
    panel = tl.where(diagonal, i - tiles, panel)
    block = tl.where(diagonal, input_blocks + i - tiles, block)
    size = (rows * BLOCK_B).to(tl.int64)
    acc = tl.zeros((32, 32), ACC_DTYPE)
    bias_acc = tl.zeros((32,), ACC_DTYPE)
    part = tl.cdiv(tl.cdiv(B, BLOCK_K), tl.num_programs(1)) * BLOCK_K
    first = tl.program_id(1) * part
    for j in tl.range(first, tl.minimum(first + part, B), BLOCK_K, num_stages=2):
        # Invariant: acc and bias_acc hold the samples first:j.
        samples = j + tl.arange(0, BLOCK_K)
        d = _load_batch_rows(deltas, (input_blocks + panel) * 32 + offs_k, samples, size, slices, B, BLOCK_B, ACC_DTYPE)
        a = _load_batch_rows(saved, block * 32 + offs_k, samples, size, slices, B, BLOCK_B, ACC_DTYPE)
        acc = tl.dot(d, tl.trans(a), acc, input_precision="ieee", out_dtype=ACC_DTYPE)
        if HAS_BIAS:
            bias_acc += tl.sum(d, 1)
    complete = True
    if HAS_SPLIT_K:
        workspace = deltas + slices * size
        acc, bias_acc, complete = _reduce_split_k(acc, bias_acc, workspace, tiles + panels, i, HAS_BIAS, ACC_DTYPE)
    if complete:
        edge_mask_at = tl.where(diagonal, DIAGONAL_EDGE_MASK + (i - tiles) * 32, EDGE_MASK + i * 32)
        first_edge_at = tl.where(diagonal, DIAGONAL_FIRST_EDGE + (i - tiles) * 32, FIRST_EDGE + i * 32)
        exists, edge = decode_tile_edges(packed_plan, edge_mask_at, first_edge_at)
        tl.store(weight_grad + edge, acc, mask=exists)
        if HAS_BIAS:
            index = tl.load(packed_plan + BIAS_INDEX + (input_blocks + panel) * 32 + offs_k)
            tl.store(bias_grad + index, bias_acc, mask=(index >= 0) & diagonal)


@triton.jit(do_not_specialize=RUNTIME)
def tiled_products_backward_kernel(
    packed_plan, table, rows, input_blocks, slices, forward_slots, first_block, FIRST_TILE, END_TILE, OUT_TILE,
    OUT_PANEL, BLOCK_B: tl.constexpr, SLICES_PER_PROGRAM: tl.constexpr, TILE_GROUP: tl.constexpr, STAGES: tl.constexpr,
    SAVE_Z: tl.constexpr, X_DTYPE: tl.constexpr, ACC_DTYPE: tl.constexpr,
):  # fmt: skip
    """partials[:, :, rows of a segment] = what all panels after the segment contribute to it.

    Grid: (groups of SLICES_PER_PROGRAM slices, blocks of the segment, SPLIT_K), as in `tiled_products_kernel`.
    """
    saved = load_aligned_pointer(table, _SAVED, X_DTYPE)
    deltas = load_aligned_pointer(table, _DELTAS, ACC_DTYPE)
    partials = load_aligned_pointer(table, _PARTIALS, ACC_DTYPE)
    block = first_block + tl.program_id(1)
    size = (rows * BLOCK_B).to(tl.int64)
    packed = packed_tiles(saved, slices * size * (2 if SAVE_Z else 1), ACC_DTYPE) + forward_slots * 1024
    column, exists = slice_columns(tl.program_id(0) * SLICES_PER_PROGRAM, slices, size, BLOCK_B, SLICES_PER_PROGRAM)
    first, last = split_range(tl.load(packed_plan + FIRST_TILE + block), tl.load(packed_plan + END_TILE + block))
    panel_deltas = deltas + input_blocks * 32 * BLOCK_B
    s = _tile_products_backward(
        panel_deltas, packed, packed_plan, column, OUT_TILE, OUT_PANEL, first, last,
        BLOCK_B, TILE_GROUP, STAGES, ACC_DTYPE,
    )  # fmt: skip
    row = block * 32 + tl.arange(0, 32)
    partial = partials + tl.program_id(2) * slices * size
    tl.store(partial + row[None, :] * BLOCK_B + column[:, None], s, mask=exists[:, None])
